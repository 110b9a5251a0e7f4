"""Names of classes in a file, where the labels of a table are their numbers."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.schema.differences import join_names
from beam_tfr.tables.names import NameColumn


class NumberedNames(NamedTuple):
    """The names of labels that are numbers.

    Attributes:
        name_of: number, as labels have it -> name; empty if labels are no numbers of the names.
        warning: says so, or that it is not certain; mostly empty.
    """

    name_of: Mapping[str, str] = {}
    warning: str = ""


def find_numbered_names(
    column: str, names: Sequence[str], cells: Iterable[Any], reader: NameColumn
) -> NumberedNames:
    """The names of labels that are numbers of the lines of a file with names.

    They count from 0 if one is 0, and from 1 if the last line has one.

    Args:
        column: that of the labels.
        names: the lines of the file.
        cells: the labels in the first rows.
        reader: how they are read.
    """
    labels = _read_labels(cells, reader)
    numbers = [int(label) for label in labels if label.isdecimal() and label.isascii()]
    are_numbers = bool(labels) and len(numbers) == len(labels)
    if not are_numbers or not labels.isdisjoint(names) or max(numbers) > len(names):
        return NumberedNames()
    if min(numbers) > 0 and max(numbers) < len(names):
        return NumberedNames(warning=_describe_doubt(column, names, min(numbers)))
    start = 0 if min(numbers) == 0 else 1
    if max(numbers) - start >= len(names):
        return NumberedNames()
    name_of = {str(number): name for number, name in enumerate(names, start)}
    shown = join_names([f"{number} is {name}" for number, name in name_of.items()])
    return NumberedNames(
        name_of,
        f"column {column!r} has the numbers of the names that `classes=` lists: {shown}; a table "
        "with the names themselves needs no count",
    )


def _read_labels(cells: Iterable[Any], reader: NameColumn) -> set[str]:
    """The labels in cells, but for those without one."""
    labels = set[str]()
    for cell in cells:
        if not reader.is_missing(cell):
            with contextlib.suppress(ValueError):  # of which reading the row tells
                labels.add(reader.read(cell))
    return labels


def _describe_doubt(column: str, names: Sequence[str], number: int) -> str:
    """The message about numbers that may count from 0 or from 1."""
    line = f'table["class"] = table["{column}"].map(dict(enumerate(open("classes.txt").read()'
    return (
        f"column {column!r} has numbers and `classes=` names, and whether {number} is "
        f"{names[number - 1]} or {names[number]} is not certain: write the names into a column; "
        f"with pandas, if they count from 0: {line}.splitlines()))), and if from 1, with "
        "enumerate(…, 1)"
    )
