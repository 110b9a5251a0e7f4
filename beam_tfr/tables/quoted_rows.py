"""Finds table rows that a stray quote has turned into a cell of another row.

If a table was written without quoting, a value that begins with a quote swallows all rows up to the
next value that ends with a quote.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from beam_tfr.features.cells import NUMBER
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.tables.dialects import Dialect

_DIGITS = re.compile(r"[0-9]+")
_IN_PROSE = ",;"  # delimiters that also occur in prose
_LEAST_DIGITS = 4  # digits of numbers that look alike, such as ids
_MOST_DIGITS = 30  # of a number that is an id


class QuotedRows(NamedTuple):
    """The lines of a cell that look like rows.

    Attributes:
        num_lines: the number of lines in the cell.
        is_long: whether there are whole rows between the first and last line.
    """

    num_lines: int
    is_long: bool


def find_quoted_rows(cells: Sequence[str], num_columns: int, dialect: Dialect) -> QuotedRows | None:
    """Finds the first cell of a row that seems to hold other rows; None if there is none.

    Args:
        cells: the cells of the row.
        num_columns: the number of cells in each row.
        dialect: the dialect of the table.
    """
    line_end = dialect.line_end.decode()
    if num_columns == 1:
        return None
    for place, cell in enumerate(cells):
        if line_end not in cell:
            continue
        lines = [line.removesuffix("\r") for line in cell.split(line_end)]
        if _holds_rows(lines, place, num_columns, dialect):
            return QuotedRows(len(lines), is_long=True)
        if len(lines) == 2 and _joins_two_rows(cells, place, lines, dialect):
            return QuotedRows(len(lines), is_long=False)
    return None


def _holds_rows(lines: Sequence[str], place: int, num_columns: int, dialect: Dialect) -> bool:
    """Whether the lines of a cell are the end of a row, whole rows, and the start of a row.

    Args:
        lines: the lines of the cell.
        place: the number of the cell's column, from 0.
        num_columns: the number of cells in each row.
        dialect: the dialect of the table.
    """
    first, *inner, last = (_count_delimiters(line, dialect) for line in lines)
    per_row = num_columns - 1
    return first >= per_row - place and per_row in inner and last >= place


def _count_delimiters(line: str, dialect: Dialect) -> int:
    """Counts the delimiters in a line, except delimiters followed by a space, as in prose."""
    num_delimiters = line.count(dialect.delimiter)
    if dialect.has_spaces:
        return num_delimiters
    return num_delimiters - line.count(f"{dialect.delimiter} ")


def _joins_two_rows(
    cells: Sequence[str], place: int, lines: Sequence[str], dialect: Dialect
) -> bool:
    """Whether two complete rows would be read as these cells.

    Values of two lines may have as many commas by chance, so a cell of one row must also look like
    the cell below it in the other row. Tabs and pipes need no such check, because they do not occur
    within values.

    Args:
        cells: the cells of the row.
        place: the number of the column, from 0, whose cell has two lines.
        lines: the two lines.
        dialect: the dialect of the table.
    """
    num_after = lines[0].count(dialect.delimiter)
    num_before = lines[1].count(dialect.delimiter)
    if (num_before, num_after) != (place, len(cells) - place - 1):
        return False
    upper = [*cells[:place], *lines[0].split(dialect.delimiter)]
    lower = [*lines[1].split(dialect.delimiter), *cells[place + 1 :]]
    del upper[place]
    del lower[place]
    if dialect.delimiter not in _IN_PROSE:
        return all(upper) and all(lower)
    return any(map(_are_alike, upper, lower))


def _are_alike(cell: str, other: str) -> bool:
    """Whether two cells of a column look alike, such as image names or numbered ids."""
    if has_image_name(cell) and has_image_name(other):
        return True
    if NUMBER.fullmatch(cell) and NUMBER.fullmatch(other):
        return _are_like_ids(cell, other)
    has_number = _DIGITS.search(cell) is not None
    are_equal = bool(cell) and cell == other
    return are_equal or (has_number and _DIGITS.sub("0", cell) == _DIGITS.sub("0", other))


def _are_like_ids(cell: str, other: str) -> bool:
    """Whether two numbers are consecutive, or have equally many digits, at least four."""
    if not (cell.isdigit() and other.isdigit()):
        return False
    are_short = max(len(cell), len(other)) <= _MOST_DIGITS
    is_next = are_short and int(other) - int(cell) == 1
    return is_next or len(cell) == len(other) >= _LEAST_DIGITS
