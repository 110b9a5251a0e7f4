"""Turns unreadable rows of text tables into rejects that name the likely cause."""

import csv
from collections.abc import Sequence

from beam_tfr.console.terminal import counted
from beam_tfr.tables.base import BadRow, DamagedTableError, RowAtLine, damaged_table, name_row
from beam_tfr.tables.dialects import Dialect
from beam_tfr.tables.quoted_rows import QuotedRows

_MOST_BAD_ROWS = 10  # or one in 10 rows, if that is more; beyond that, the table is damaged
INNER_LINE_ENDS = "has carriage returns within a line"
# The fixes for tables whose rows have more cells than their header.
_WITHOUT_NAMES = "is a column name missing there, or is there a comma in a value without quotes?"
_LEAVE_OUT = (
    "is a quote missing, or is there a comma in a value, such as 1,5? To leave out all such rows "
    "with pandas: read_csv(FILE, dtype=str, keep_default_na=False, on_bad_lines='skip')"
    ".to_csv('sound.csv', index=False)"
)
# The fix for values with quotes, in a table whose writer does not quote values.
_UNQUOTED = (
    "with pandas: read_csv(FILE, sep={delimiter!r}, quoting=3, dtype=str, keep_default_na=False)"
    ".to_csv('sound.csv', index=False)"
)
_QUOTE_TEXTS = (
    "does a value begin with a quote that is not doubled? Write the table with csv.writer, or, if "
    f"it quotes no values, {_UNQUOTED}. If the cell is correct, write the table as JSON Lines"
)


def describe_quotes(error: csv.Error, delimiter: str) -> str:
    """Describes a parser error, the likely cause and a fix."""
    problem = str(error)
    if "new-line character" in problem:
        return f"{INNER_LINE_ENDS}; save the table with a single kind of line ending"
    return (
        f"{problem}; is a quote not closed or not doubled, or is there a space next to it? If the "
        f"table quotes no values, rewrite it {_UNQUOTED.format(delimiter=delimiter)}"
    )


def _at_line(number: int) -> RowAtLine:
    """Returns the number of a row along with the line on which the row begins."""
    return number if isinstance(number, RowAtLine) else RowAtLine(number, number + 1)


class BadRows:
    """The unreadable rows of a table, which become rejects.

    The whole table counts as damaged if its first row is bad, or if more than `_MOST_BAD_ROWS` rows
    and more than one in ten of the rows so far are bad.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0

    def refuse(self, number: int, problem: str) -> BadRow:
        """Counts a bad row and returns its stand-in.

        Args:
            number: the number of the row.
            problem: what is wrong with the row, and how to fix it.

        Raises:
            DataError: the whole table seems to be damaged.
        """
        if not self.count_one_more(number):
            raise self.error(number, problem)
        return BadRow(_at_line(number), problem)

    def count_one_more(self, number: int) -> bool:
        """Counts a bad row; returns False if so many are bad that the whole table seems damaged."""
        self._number += 1
        return number > 1 and self._number <= max(_MOST_BAD_ROWS, number // 10)

    def error(self, number: int, problem: str) -> DamagedTableError:
        """Returns the error for a table in which this row, and perhaps others, cannot be read."""
        return damaged_table(name_row(self._path, number), problem)


def refuse_quoted_rows(
    number: int, quoted: QuotedRows, dialect: Dialect, bad_rows: BadRows
) -> BadRow:
    """Returns a stand-in for a row with a cell that seems to hold other rows of the table.

    Raises:
        DataError: the cell seems to hold whole rows, or too many rows are bad.
    """
    cure = _QUOTE_TEXTS.format(delimiter=dialect.delimiter)
    problem = f"has a cell of {quoted.num_lines} lines that look like rows; {cure}"
    if quoted.is_long:
        raise bad_rows.error(_at_line(number), problem)
    return bad_rows.refuse(_at_line(number), problem)


def refuse_row(number: int, cells: Sequence[str], expected: int, bad_rows: BadRows) -> BadRow:
    """Returns a stand-in for a row that has more or fewer cells than the header.

    Args:
        number: the number of the row.
        cells: the cells of the row.
        expected: the number of cells that the row should have.
        bad_rows: counts bad rows.

    Raises:
        DataError: other rows may be damaged too: too many rows are bad, or a cell of this row spans
            several lines, as after a missing quote.
    """
    num_cells = counted(len(cells), "cell")
    has_several_lines = any("\n" in cell or "\r" in cell for cell in cells)
    if not has_several_lines and bad_rows.count_one_more(number):
        cause = "is a value cut off, or a delimiter missing?"
        if len(cells) > expected:
            cause = "is there a delimiter in a value without quotes?"
        return BadRow(_at_line(number), f"{num_cells} instead of {expected}; {cause}")
    cause = "is a quote missing?"
    if not has_several_lines and len(cells) > expected:
        cause = _WITHOUT_NAMES if number == 1 else _LEAVE_OUT
    raise bad_rows.error(number, f"has {num_cells}, but the header has {expected}; {cause}")
