"""Each compiled pattern takes time linear in the text, in the way in which it is used."""

from __future__ import annotations

import collections
import functools
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import beam_tfr

LENGTH = 1 << 12
MOST_S = 0.01  # linear ones take 0.001, quadratic ones more
EXEMPT = {"beam_tfr.inputs.patterns._TOKEN"}  # of patterns that the user writes
_USE = r"\.(match|fullmatch|search|split|subn?|findall|finditer)\b"
_TENSORFLOW = ("beam_tfr.reader", "beam_tfr.speed", "beam_tfr.torch")


def list_patterns() -> dict[str, re.Pattern[Any]]:
    """Name -> pattern, of all modules that need no TensorFlow."""
    patterns = {}
    for info in pkgutil.walk_packages(beam_tfr.__path__, "beam_tfr."):
        if info.name.endswith("__main__") or info.name.startswith(_TENSORFLOW):
            continue
        for name, value in vars(importlib.import_module(info.name)).items():
            if isinstance(value, re.Pattern) and value not in patterns.values():
                patterns[f"{info.name}.{name}"] = value
    return patterns


PATTERNS = list_patterns()


@functools.cache
def read_uses(module: str) -> dict[str, set[str]]:
    """Name -> methods that are called, in a module, or in all modules."""
    files = [*Path(beam_tfr.__path__[0]).rglob("*.py")]
    if module:
        files = [Path(str(importlib.import_module(module).__file__))]
    uses = collections.defaultdict[str, set[str]](set)
    for file in files:
        for name, use in re.findall(rf"(\w+){_USE}", file.read_text()):
            uses[name].add(use)
    return uses


def find_uses(name: str) -> set[str]:
    """How a pattern is used, as the code says."""
    module, _, short = name.rpartition(".")
    uses = read_uses(module if short.startswith("_") else "")
    return uses.get(short) or {"match", "fullmatch"}


def texts_for(pattern: re.Pattern[Any]) -> Iterator[str]:
    """Yields long texts of the signs and words in a pattern."""
    plain = pattern.pattern
    if isinstance(plain, bytes):
        plain = plain.decode("latin-1")
    plain = re.sub(r"\(\?P<\w+>|\(\?\w+\)|\{[0-9,]+\}", "", plain)
    signs = {sign for sign in plain if not sign.isalnum()}
    words = sorted({*re.findall(r"[a-z]{3,}", plain)})[:2]
    for unit in [*sorted(signs | {"a", "0", " "}), '\\"', "0 ", *words]:
        yield unit * (LENGTH // len(unit)) + "!"


def apply(pattern: re.Pattern[Any], use: str, text: Any) -> None:
    if use.startswith("sub"):
        getattr(pattern, use)(text[:0], text)
    elif use == "finditer":
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, use)(text)


def measure(pattern: re.Pattern[Any], use: str, text: Any) -> float:
    began = time.process_time()
    apply(pattern, use, text)
    return time.process_time() - began


@pytest.mark.parametrize("name", sorted(PATTERNS.keys() - EXEMPT))
def test_a_pattern_takes_linear_time(name: str) -> None:
    pattern = PATTERNS[name]
    uses = find_uses(name)
    for text in texts_for(pattern):
        value: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
        for use in uses:
            if measure(pattern, use, value) > MOST_S:  # again: the machine may be busy
                times = [measure(pattern, use, value) for _ in range(3)]
                assert min(times) < MOST_S, (use, text[:8])
