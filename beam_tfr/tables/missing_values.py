"""Removes `na_values`, which stand for missing values, from the rows of tables."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from beam_tfr.inputs.skipped import SkippedFiles
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.base import BadRow, Row, RowReader


@dataclasses.dataclass(frozen=True)
class MissingValues:
    """A `RowReader` that wraps another reader and replaces missing values with None.

    Attributes:
        read: the other reader.
        na_values: the strings and numbers that stand for a missing value.
        unused: the values that no cell has matched so far.
    """

    read: RowReader
    na_values: frozenset[str]
    unused: set[str] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unused", {*self.na_values})

    def __call__(
        self, path: str, columns: Sequence[str], skipped: SkippedFiles
    ) -> Iterator[Row | BadRow]:
        for row in self.read(path, columns, skipped):
            if isinstance(row, BadRow):
                yield row
                continue
            number, cells = row
            yield number, [*map(self._take_out, cells)]

    def _take_out(self, cell: Any) -> Any:
        """Returns the cell, or None if it stands for a missing value."""
        text = _text_of(cell)
        if text not in self.na_values:
            return cell
        self.unused.discard(text)
        return None


def _text_of(cell: Any) -> str:
    """Returns a string or number as CSV would spell it, or an empty string for any other cell."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell) if isinstance(cell, (str, int, float)) else ""


def describe_unused(unused: Sequence[str], number_of_rows: int) -> str:
    """Returns the message about values that match no cell of the first rows."""
    return (
        f"{spell_option('na_values', *unused)} matches no cell in the first "
        f"{number_of_rows:,} rows: give whole cells of columns that are used, spelled as in the "
        "table, but whole numbers without a decimal point"
    )
