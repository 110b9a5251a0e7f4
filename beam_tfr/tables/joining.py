"""Joins the rows of a table that hold a box each to a row for each image.

The rows of an image may be anywhere in its table. They are sorted on disk, so memory does not grow
with the table.
"""

import contextlib
import dataclasses
import itertools
import operator
import pickle  # nosec B403  # of what this process has written
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.features.boxes import RowBox
from beam_tfr.features.cells import BadCell, is_missing, split_cell
from beam_tfr.inputs.skipped import SkippedFiles
from beam_tfr.tables.base import Row, RowReader, table_error

_NUM_SIDES = 4


class NumberedRow(NamedTuple):
    """A row of a table.

    Attributes:
        number: from 1.
        cells: column -> cell.
    """

    number: int
    cells: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Contradiction(BadCell):
    """Different values in rows of one image, of a column with a value for each image."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowJoin:
    """How rows that hold a box each become a row for each image.

    Attributes:
        key: the column that names the image.
        box: the column of boxes in joined rows.
        sides: the columns with the sides of a box, of which `box` is made; empty if it is a column
            of the table.
        per_box: other columns with a value for each box, of which joined rows have lists.
    """

    key: str
    box: str
    sides: tuple[str, ...]
    per_box: frozenset[str]

    def read_columns(self, columns: Sequence[str]) -> list[str]:
        """The columns of the table that some columns of joined rows need."""
        needed = dict.fromkeys([self.key])
        for name in columns:
            needed.update(dict.fromkeys(self.sides if name == self.box and self.sides else [name]))
        return [*needed]

    def read(
        self, path: str, columns: Sequence[str], skipped: SkippedFiles, *, read_rows: RowReader
    ) -> Iterator[Row]:
        """Yields the joined rows of a table; each has the number of its first row.

        Args:
            path, columns, skipped: see `RowReader`.
            read_rows: yields the rows of the table.

        Raises:
            UsageError: there is no room to sort them; and those of `read_rows`.
        """
        names = self.read_columns(columns)
        rows = read_rows(path, names, skipped)
        groups = group_rows(path, rows, names.index(self.key))
        for group in groups:
            numbered = [
                NumberedRow(number, dict(zip(names, cells, strict=True))) for number, cells in group
            ]
            joined = self.join(numbered, columns)
            yield joined.number, [joined.cells[name] for name in columns]

    def join(self, rows: Sequence[NumberedRow], columns: Sequence[str]) -> NumberedRow:
        """Joins the rows of an image; those without a box add none.

        A column with different values in them, of which one is asked for, has a `Contradiction`.
        """
        with_boxes = [row for row in rows if self.has_box(row)]
        cells = dict[str, Any]()
        for name in columns:
            if name == self.box:
                cells[name] = [*itertools.chain.from_iterable(map(self._boxes_of, with_boxes))]
            elif name in self.per_box:
                cells[name] = [row.cells[name] for row in with_boxes]
            else:
                cells[name] = _agree(rows, name)
        return NumberedRow(rows[0].number, cells)

    def has_box(self, row: NumberedRow) -> bool:
        """Whether a row has any side of a box."""
        if self.sides:
            return not all(_is_empty(row.cells[side]) for side in self.sides)
        return not _is_empty(row.cells[self.box])

    def _boxes_of(self, row: NumberedRow) -> list[Any]:
        if self.sides:
            return [RowBox([row.cells[side] for side in self.sides], row.number)]
        try:
            return [RowBox(split_cell(row.cells[self.box]), row.number)]
        except ValueError as error:
            return [BadCell(str(error))]


def holds_one_box(cell: Any) -> bool:
    """Whether a cell of a column of boxes has at most one, as a list of numbers."""
    try:
        members = split_cell(cell)
    except ValueError:
        return False
    has_lists = any(isinstance(member, list) for member in members)
    return not has_lists and len(members) in (0, _NUM_SIDES)


def _agree(rows: Sequence[NumberedRow], name: str) -> Any:
    """The value of a column in which the rows of an image agree, but for those without one."""
    first = rows[0]
    for row in rows:
        cell = row.cells[name]
        if _is_empty(cell):
            continue
        if _is_empty(first.cells[name]):
            first = row
        elif cell != first.cells[name]:
            return Contradiction(
                f"the rows {first.number} and {row.number} of one image have {name} "
                f"{first.cells[name]!a:.60} and {cell!a:.60}; of a value for each box, the type "
                f"is such as {name}:float[box]"
            )
    return first.cells[name]


def _is_empty(cell: Any) -> bool:
    is_nan = cell != cell  # a missing value of pandas
    return is_nan or is_missing(cell)


def group_rows(path: str, rows: Iterable[Row], position: int) -> Iterator[list[Row]]:
    """Yields the rows of each key together, sorted by their numbers.

    All rows are on disk meanwhile, in a file of SQLite that nobody else sees.

    Args:
        path: the table, for messages.
        rows: its rows.
        position: of the key among the cells of a row. Rows without a key are alone.

    Raises:
        UsageError: there is no room on the disk.
    """
    try:
        with contextlib.closing(sqlite3.connect("", check_same_thread=False)) as database:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("CREATE TABLE rows (key TEXT, number INTEGER, cells BLOB)")
            encoded = ((_key_of(row, position), row[0], pickle.dumps(row[1])) for row in rows)
            database.executemany("INSERT INTO rows VALUES (?, ?, ?)", encoded)
            ordered = database.execute("SELECT * FROM rows ORDER BY key, number")
            for _, group in itertools.groupby(ordered, operator.itemgetter(0)):
                yield [(number, pickle.loads(cells)) for _, number, cells in group]  # noqa: S301  # nosec B301
    except sqlite3.Error as error:
        problem = f"its rows cannot be sorted in a temporary file, whose folder is TMPDIR: {error}"
        raise table_error(path, problem) from error


def _key_of(row: Row, position: int) -> str:
    """The key of a row, and whether it has one; its number if it has none."""
    number, cells = row
    key = cells[position]
    if isinstance(key, (str, int)) and not is_missing(key):
        return f"key {key!r}"
    return f"row {number}"
