"""Maps labels, or names of folders, that are numbers to the class names in a file."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from beam_tfr.schema.differences import join_names
from beam_tfr.tables.names import NameColumn

_TO_JSON = (
    'python -c \'import json; print(json.dumps(dict(enumerate(open("classes.txt").read()'
    ".splitlines()))))' > classes.json"
)


class NumberedNames(NamedTuple):
    """The names of labels that are numbers.

    Attributes:
        name_of: number, as spelled in labels -> name; an empty mapping if labels are not numbers
            that stand for names.
        warning: a message about the numbers, or about anything uncertain; may be empty.
    """

    name_of: Mapping[str, str] = {}
    warning: str = ""


def find_numbered_names(
    subject: str, labels: Set[str], names: Sequence[str], *, first_number: int | None = None
) -> NumberedNames:
    """Returns the names of labels that are line numbers in a file with names.

    Numbers count from 0 if any number is 0, from 1 if any equals the number of names, and otherwise
    from `first_number`. If any number has leading zeros, all numbers have at least as many digits
    as the shortest number.

    Args:
        subject: the column or folders with the labels, for messages.
        labels: some or all labels.
        names: the lines of the file.
        first_number: the number of the first name; None if the file does not state it.
    """
    numbers = [int(label) for label in labels if label.isdecimal() and label.isascii()]
    are_numbers = bool(labels) and len(numbers) == len(labels)
    if not are_numbers or not labels.isdisjoint(names) or max(numbers) > len(names):
        return NumberedNames()
    start = _find_start(numbers, len(names), first_number)
    if start is None:
        return NumberedNames(warning=_describe_doubt(subject, names, min(numbers)))
    num_digits = _count_digits(labels)
    name_of = {str(number).zfill(num_digits): name for number, name in enumerate(names, start)}
    if not labels <= name_of.keys():
        return NumberedNames()
    shown = join_names([f"{number} is {name}" for number, name in name_of.items()])
    return NumberedNames(
        name_of, f"{subject}: labels are the numbers of the names in `classes=`: {shown}"
    )


def read_labels(cells: Iterable[Any], reader: NameColumn) -> set[str]:
    """Returns the labels in cells, skipping cells without a label."""
    labels = set[str]()
    for cell in cells:
        if not reader.is_missing(cell):
            with contextlib.suppress(ValueError):  # reading the row raises the error
                labels.add(reader.read(cell))
    return labels


def _find_start(numbers: Sequence[int], num_names: int, first_number: int | None) -> int | None:
    """Returns the number of the first name; None if that may be 0 or 1.

    Numbers count from 0 if any number is 0, and from 1 if any equals the number of names;
    otherwise, the first number that the file states applies.
    """
    if min(numbers) == 0:
        return 0
    if max(numbers) == num_names:
        return 1
    return first_number


def _count_digits(numbers: Set[str]) -> int:
    """Returns the minimum number of digits: 2 if 01 is the shortest, 1 without leading zeros."""
    has_zeros = any(number.startswith("0") and len(number) > 1 for number in numbers)
    return min(map(len, numbers)) if has_zeros else 1


def _describe_doubt(subject: str, names: Sequence[str], number: int) -> str:
    """Returns the message about numbers that may count from 0 or from 1."""
    return (
        f"{subject}: labels are numbers, `classes=` lists names, and it is unclear whether "
        f"{number} is {names[number - 1]} or {names[number]}: give the names with their numbers; "
        f"if these start from 0, {_TO_JSON} writes them, and if from 1, the same with "
        "splitlines(), 1"
    )
