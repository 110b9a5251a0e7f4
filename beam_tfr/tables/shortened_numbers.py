"""Warns about long numbers that a spreadsheet has shortened, such as 1.23457E+12."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.features.cells import members_of

# Excel writes whole numbers of 12 digits or more like this, unless their cells are text.
_SHORTENED = re.compile(r"-?[1-9](?:\.[0-9]+)?E\+[1-9][0-9]")
_REASON = "is a long number without its last digits, as a spreadsheet writes it"
_CURE = (
    "to keep the digits, open the original data again with this column as text (in Excel: Data, "
    "From Text/CSV, Transform Data), and export it as CSV"
)


def warn_of_shortened(columns: Iterable[str], cells: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields lines about columns of names in which numbers have lost their last digits.

    Args:
        columns: the columns of names, such as classes and groups.
        cells: column -> its cells in the first rows.
    """
    for column in columns:
        example = _find_shortened(cells.get(column, ()))
        if example:
            yield (
                f"column {column!r}: {example} {_REASON}, so different numbers may be equal here; "
                f"{_CURE}"
            )


def describe_shortened(texts: Iterable[str]) -> str:
    """Says what to do if image names are shortened numbers, or returns an empty string."""
    example = _find_shortened(texts)
    return f"{example} {_REASON}; {_CURE}" if example else ""


def _find_shortened(cells: Iterable[Any]) -> str:
    """Returns the first shortened number in cells, or an empty string."""
    for cell in cells:
        for text in members_of(cell):
            if isinstance(text, str) and _SHORTENED.fullmatch(text.strip()):
                return text.strip()
    return ""
