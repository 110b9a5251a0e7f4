"""The regular expressions of the package take linear time, whatever text they are given."""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
import re
import re._parser as parser  # type: ignore[import-not-found]
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import beam_tfr

LENGTH = 10_000  # characters: at this length, quadratic time is 50 ms or more, linear time 1 ms
MOST_S = 0.03  # CPU time
MOST_PIECES = 14  # the shortest pieces, which are joined in pairs
ENDS = ("\n", "!")  # `.` does not match a line break
MATCHES = ("fullmatch", "match")
SEARCHES = ("search", "finditer", "findall", "sub", "subn", "split")
# Only texts of the program and of its libraries, which have a longest length.
BOUNDED = {"beam_tfr.console.terminal._QUERY", "beam_tfr.engine.failures._OURS"}


def expressions() -> dict[str, re.Pattern[Any]]:
    """Name -> regular expression of every module, in its namespace or in a dict or tuple there."""
    found = dict[str, re.Pattern[Any]]()
    for info in pkgutil.walk_packages(beam_tfr.__path__, "beam_tfr."):
        if info.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(info.name)).items():
            for number, pattern in enumerate(patterns_in(value)):
                found[f"{info.name}.{name}" + f"[{number}]" * bool(number)] = pattern
    unique = {(pattern.pattern, pattern.flags): name for name, pattern in found.items()}
    return {name: found[name] for name in unique.values()}


def patterns_in(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(patterns_in, [*value, *value.values()]))
    elif type(value) in (tuple, list):
        yield from itertools.chain.from_iterable(map(patterns_in, value))  # type: ignore[call-overload]


def pieces_of(tree: Any) -> set[str]:
    """The literal texts in a parsed regular expression, and a character of each class."""
    found, literal = set[str](), ""
    for operation, argument in tree:
        if str(operation) == "LITERAL":
            literal += chr(argument)
            continue
        found.add(literal)
        literal = ""
        match str(operation):
            case "IN":
                found |= {character_of(*item) for item in argument}
            case "BRANCH":
                found = found.union(*map(pieces_of, argument[1]))
            case "SUBPATTERN" | "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                found |= pieces_of(argument[-1])
            case "ATOMIC_GROUP":
                found |= pieces_of(argument)
            case "ASSERT" | "ASSERT_NOT":
                found |= pieces_of(argument[1])
    return (found | {literal}) - {""}


def character_of(operation: Any, argument: Any) -> str:
    match str(operation):
        case "LITERAL":
            return chr(argument)
        case "RANGE":
            return chr(argument[0])
        case "CATEGORY":
            of_category = {"CATEGORY_SPACE": " ", "CATEGORY_DIGIT": "1", "CATEGORY_WORD": "a"}
            return of_category.get(str(argument), ".")
    return ""


def texts_for(pattern: re.Pattern[Any]) -> Iterator[Any]:
    """Long repetitions of what the expression is about, with ends that it may not match."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    pieces = sorted(pieces_of(tree) | {"a", "1", " ", "/"}, key=lambda piece: (len(piece), piece))
    short = pieces[:MOST_PIECES]
    pairs = (a + b for a, b in itertools.product(pieces[-MOST_PIECES:] + short, short))
    for repeated in {*pieces, *pairs, *(b + a for a in pieces[-MOST_PIECES:] for b in short)}:
        for end in ENDS:
            text = repeated * (LENGTH // len(repeated)) + end
            yield text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")


def uses_of(name: str) -> set[str]:
    """The methods by which the module uses an expression; matches if they cannot be told."""
    module, _, variable = name.partition("[")[0].rpartition(".")
    source = Path(str(importlib.import_module(module).__file__)).read_text()
    methods = "|".join((*MATCHES, *SEARCHES))
    used = {*re.findall(rf"\b{variable}(?:\[[^\]]*\])?\.({methods})\b", source)}
    return {"search" if method in SEARCHES else method for method in used} or {*MATCHES}


def seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


@pytest.mark.slow
def test_regular_expressions_take_linear_time() -> None:
    slow = dict[str, str]()
    for name, pattern in expressions().items():
        if name in BOUNDED:
            continue
        for method, text in itertools.product(uses_of(name), texts_for(pattern)):
            call = functools.partial(getattr(pattern, method), text)
            if seconds(call) > MOST_S and min(seconds(call) for _ in range(3)) > MOST_S:
                slow[name] = f"{method} {text[:30]!r}… {text[-1:]!r}"
    assert not slow


def test_quadratic_time_would_be_noticed() -> None:
    for pattern, method in ((r"(?:.*_)?img(?:_.*)?", "fullmatch"), (r"a+b", "search")):
        compiled = re.compile(pattern)
        texts = [*texts_for(compiled)]
        assert max(
            seconds(functools.partial(getattr(compiled, method), text)) for text in texts
        ) > (MOST_S)
