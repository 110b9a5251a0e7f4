"""Reads class files: one name per line, a JSON list, or a JSON object of names and numbers."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.inputs.labels import LABEL_RULE
from beam_tfr.inputs.patterns import read_lines
from beam_tfr.schema.dataset import is_class_name
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.naming import find_two_spellings
from beam_tfr.schema.spelling import spell_option

MOST_CLASSES = 250_000  # in a file; each takes 5 kB of memory in a run
_NEEDS = "one class per line, or a dataset"
_NUMBER = re.compile("[0-9]{1,9}")
_COMMENT = re.compile(r"(?:#+|//|;+)\s+\S")
_LETTER = re.compile(r"[^\W\d_]")  # a name next to a number has at least one
_NUMBER_FIRST = re.compile(r"(?P<number>[0-9]{1,9})[\s:,;.)=-]++(?P<name>.*)")
_NUMBER_LAST = re.compile(r"(?P<name>.*)[\s:,;=](?P<number>[0-9]{1,9})")
_SEPARATED = re.compile(r"[^,;|\t]+(?:[,;|\t][^,;|\t]+)+")
_MARK = re.compile(r"[,;\t](?! )")  # separates the cells of a row, but not the parts of a name
_SYNSET = re.compile(r"n[0-9]{8}\s+\S.*")  # as in ImageNet: n01440764 tench, Tinca tinca
_QUOTED = re.compile(r"(?P<quote>['\"]).*(?P=quote),?")
_ITEM = re.compile(r"[-*]\s+\S.*")
_HEADER = re.compile(r"(?i)(?:class|label|category)(?:es|s)?(?:[_ ]?names?)?|names?")


class ClassFile(NamedTuple):
    """The content of a class file.

    Attributes:
        names: the classes, in order.
        first_number: number of the first class, if the file has numbers.
        note: says what the file may hold instead of classes; usually empty.
    """

    names: tuple[str, ...]
    first_number: int | None = None
    note: str = ""


def read_class_file(path: str) -> ClassFile:
    """Reads a class file that the user specified.

    Raises:
        UsageError: the file begins with a comment, or is JSON but has no list of names; see also
            `read_classes`.
    """
    lines = read_lines(path, option="classes", needs=_NEEDS)
    first = lines[0].strip()
    try:
        if path.lower().endswith((".yaml", ".yml")):
            raise ValueError("is YAML, which is not read: write one class per line")
        if _COMMENT.match(first):
            raise ValueError(
                f"line 1, {first!r:.60}, is a comment, but each line is a class: remove it"
            )
        classes = _read_json("\n".join(lines))
        if classes is None:
            names = _parse_classes(lines)
            return ClassFile(names, note=_describe_doubt(path, names))
        return classes._replace(names=_parse_classes(classes.names))
    except ValueError as error:
        raise UsageError(str(error), option="classes", value=path) from None


def read_classes(path: str) -> tuple[str, ...]:
    """Reads class names from a file, one per line, in order.

    Raises:
        UsageError: the file cannot be read, is not UTF-8, or has empty or repeated lines.
    """
    lines = read_lines(path, option="classes", needs=_NEEDS)
    try:
        return _parse_classes(lines)
    except ValueError as error:
        raise UsageError(str(error), option="classes", value=path) from None


def _parse_classes(lines: Sequence[str]) -> tuple[str, ...]:
    if len(lines) > MOST_CLASSES:
        raise ValueError(
            f"{len(lines):,} classes exceed the limit of {MOST_CLASSES:,}: put the names into a "
            "column of a table (`feature_columns=`)"
        )
    numbers: dict[str, int] = {}  # name -> number of its line
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if not is_class_name(name):
            raise ValueError(f"line {number}, {name!r:.1000}, cannot be a class: {LABEL_RULE}")
        if name in numbers:
            raise ValueError(
                f"class {name!r} is on line {numbers[name]} and again on line {number}; remove one"
            )
        numbers[name] = number
    pair = find_two_spellings(numbers)
    if pair:
        first, second = sorted(numbers[name] for name in pair)
        raise ValueError(
            f"lines {first} and {second} are the same name in two Unicode spellings, {pair[0]!a} "
            f"and {pair[1]!a}; remove one"
        )
    return tuple(numbers)


def _read_json(text: str) -> ClassFile | None:
    """Returns the names in a JSON list, or in a JSON object with numbers; None for other text.

    Does not check the names.

    Raises:
        ValueError: the text is JSON, but neither a list of names nor such an object.
    """
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    first_number = None
    if isinstance(content, dict):
        name_of = _number_names(content)
        content = [*name_of.values()]
        first_number = min(name_of, default=None)
    is_list = isinstance(content, list) and bool(content)
    if not is_list or not all(isinstance(name, str) for name in content):
        raise ValueError(
            f"is JSON, {text.strip()!r:.60}, but neither a list of names, such as "
            '["cat", "dog"], nor an object of names and numbers from 0 or 1, such as {"0": "cat"}: '
            "write one of these, or one class per line, in the order of their ids"
        )
    return ClassFile(tuple(content), first_number)


def _number_names(names: Mapping[str, Any]) -> dict[int, Any]:
    """Returns number -> name, in order, for an object with numbers as its keys or its values.

    The result is empty unless the numbers run from 0 or from 1 without gaps.
    """
    name_of = {int(key): name for key, name in names.items() if _NUMBER.fullmatch(key)}
    if not name_of:
        name_of = {number: name for name, number in names.items() if type(number) is int}
    numbers = sorted(name_of)
    if not any(numbers == [*range(begin, begin + len(names))] for begin in (0, 1)):
        return {}
    return {number: name_of[number] for number in numbers}


def _describe_doubt(path: str, names: Sequence[str]) -> str:
    """Returns what the lines may hold instead of classes, or "" if they look like classes."""
    for looks_so, meaning in _DOUBTS:
        if looks_so(names):
            return (
                f"{spell_option('classes', path)}: line 1, {names[0]!r:.60}, is the name of one "
                f"class, with id 0{meaning}"
            )
    return ""


def _are_numbered(names: Sequence[str]) -> bool:
    """Whether the lines are numbered, from 0 or 1, before or after their names."""
    return any(_have_numbers(names, regex) for regex in (_NUMBER_FIRST, _NUMBER_LAST))


def _have_numbers(names: Sequence[str], regex: re.Pattern[str]) -> bool:
    matches = [*filter(None, map(regex.fullmatch, names))]
    if len(matches) < max(len(names), 2):
        return False
    names_beside = {match["name"] for match in matches}
    if len(names_beside) < len(names):
        return False  # the numbers belong to the names: grade 1, grade 2
    if not all(map(_LETTER.search, names_beside)):
        return False
    numbers = [int(match["number"]) for match in matches]
    return any(numbers == [*range(begin, begin + len(names))] for begin in (0, 1))


def _is_one_list(names: Sequence[str]) -> bool:
    return len(names) == 1 and bool(_SEPARATED.fullmatch(names[0]))


def _are_rows(names: Sequence[str]) -> bool:
    """Whether lines look like table rows: all have the same number of cells, at least two."""
    if len(names) < 2:
        return False
    numbers = {len(_MARK.findall(name)) for name in names}
    return len(numbers) == 1 and 0 not in numbers


def _are_synsets(names: Sequence[str]) -> bool:
    return all(map(_SYNSET.fullmatch, names))


def _are_quoted(names: Sequence[str]) -> bool:
    return all(map(_QUOTED.fullmatch, names))


def _are_items(names: Sequence[str]) -> bool:
    return all(map(_ITEM.fullmatch, names))


def _have_header(names: Sequence[str]) -> bool:
    return len(names) > 1 and bool(_HEADER.fullmatch(names[0]))


# Tests whether lines are something other than classes, and what to do if they are.
_DOUBTS: tuple[tuple[Callable[[Sequence[str]], bool], str], ...] = (
    (_are_numbered, ", number included: remove the numbers if classes are named without them"),
    (
        _are_synsets,
        ", all words included: keep only the first word of each line if that is the class; cut -d "
        "' ' -f 1 FILE > classes.txt writes these words",
    ),
    (_are_rows, ", all cells included: keep only the cell with the class if there is one"),
    (_is_one_list, ": write each class on a line of its own if these are several"),
    (_are_quoted, ", quotes included: remove the quotes if classes are named without them"),
    (_are_items, ", bullet included: remove the bullets if classes are named without them"),
    (_have_header, ": remove it if it is a header"),
)
