"""Joins table rows that each hold one box or class, so that each image has one row.

The rows about an image may be anywhere in its table. All rows are sorted on disk, so memory use
does not grow with the table.
"""

import abc
import contextlib
import dataclasses
import itertools
import operator
import pickle  # nosec B403  # only data that this process has written
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from beam_tfr.features.boxes import LineBox, ObjectBox, RowBox
from beam_tfr.features.cells import (
    BadCell,
    check_boxes,
    cure_missing,
    is_missing,
    split_boxes,
    to_float,
)
from beam_tfr.inputs.skipped import SkippedFiles
from beam_tfr.tables.base import (
    BadRow,
    Row,
    RowAtLine,
    RowReader,
    damaged_table,
    describe_values,
    name_number,
    name_row,
    table_error,
)
from beam_tfr.tables.roles import MOST_BOX_VALUES, TOO_MANY_BOX_VALUES, split_labels

_NUM_SIDES = 4
_MOST_JOINED_BYTES = 16 << 20  # 16 MiB for the rows of an image


class NumberedRow(NamedTuple):
    """A row of a table, or one object in a row.

    Attributes:
        number: the number of the row, from 1.
        cells: column -> cell.
        object_number: the number of the object, from 1; 0 for the whole row.
    """

    number: int
    cells: Mapping[str, Any]
    object_number: int = 0

    def value_of(self, name: str) -> Any:
        """Returns the cell of a column or, for an object, one member of the list in the cell."""
        cell = self.cells[name]
        if not self.object_number or not isinstance(cell, list):
            return cell
        return cell[self.object_number - 1]


@dataclasses.dataclass(frozen=True, slots=True)
class Contradiction(BadCell):
    """A cell of an image that needs a single value, but has different values in several rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowJoin(abc.ABC):
    """A method to make one row from the rows about an image.

    Attributes:
        key: the column that names the image.
        per_box: columns with a value for each box, which become lists in joined rows.
    """

    key: str
    per_box: frozenset[str] = frozenset()

    @abc.abstractmethod
    def read_columns(self, columns: Sequence[str]) -> list[str]:
        """Returns the columns of the table that are needed for these columns of joined rows."""

    @abc.abstractmethod
    def join_cells(self, rows: Sequence[NumberedRow], columns: Sequence[str]) -> dict[str, Any]:
        """Returns column -> cell of the joined row, given the rows about an image.

        The cell is a `Contradiction` if a column needs a single value but has different values.
        """

    @abc.abstractmethod
    def applies(self, first: "FirstRows") -> bool:
        """Whether rows are joined, judging by the first rows."""

    @abc.abstractmethod
    def describe(self, first: "FirstRows") -> Iterator[str]:
        """Yields notes on how these rows are joined."""

    def take_lists(self, columns: Collection[str]) -> Self:
        """Returns the join with further columns that become lists because their values differ."""
        return self

    def read(
        self, path: str, columns: Sequence[str], skipped: SkippedFiles, *, read_rows: RowReader
    ) -> Iterator[Row]:
        """Yields the joined rows of a table, each with the number of its first row.

        Args:
            path, columns, skipped: see `RowReader`.
            read_rows: yields the rows of the table.

        Raises:
            UsageError: there is no disk space to sort the rows; also the errors of `read_rows`.
            DataError: a row cannot be read, so its image would be incomplete.
        """
        names = self.read_columns(columns)
        rows = _refuse_bad_rows(path, read_rows(path, names, skipped))
        groups = group_rows(path, rows, names.index(self.key))
        for group in groups:
            numbered = [
                NumberedRow(number, dict(zip(names, cells, strict=True))) for number, cells in group
            ]
            cells = self.join_cells(numbered, columns)
            yield numbered[0].number, [cells[name] for name in columns]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoxJoin(RowJoin):
    """Joins rows with one box each into a row per image; rows without a box add no box.

    Attributes:
        box: the column of boxes in joined rows.
        sides: the columns with the sides of a box, from which `box` is made; an empty sequence if
            `box` is a column of the table.
        label: the column with classes, one for each box, or an empty string.
        sources: column of joined rows -> its name in the table, if that name differs.
    """

    box: str
    sides: tuple[str, ...]
    label: str = ""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def read_columns(self, columns: Sequence[str]) -> list[str]:
        needed = [self.key]
        for name in columns:
            if name == self.box and self.sides:
                needed += self.sides
            else:
                needed.append(self.sources.get(name, name))
        return [*dict.fromkeys(needed)]

    def join_cells(self, rows: Sequence[NumberedRow], columns: Sequence[str]) -> dict[str, Any]:
        try:
            check_boxes(sum(map(self._count_boxes, rows)))
        except ValueError as error:
            bad = dict.fromkeys(columns, BadCell(str(error)))
            return {**bad, self.key: rows[0].cells[self.key]}
        with_boxes = [row for row in self._divide_rows(rows) if self.has_box(row)]
        room = MOST_BOX_VALUES
        cells = dict[str, Any]()
        for name in columns:
            if name == self.box:
                cells[name] = [*itertools.chain.from_iterable(map(self._boxes_of, with_boxes))]
            elif name == self.key:
                cells[name] = rows[0].cells[name]
            elif name == self.label:
                cells[name] = [self._require_value(row, name) for row in with_boxes]
            elif name in self.per_box and len(with_boxes) > room:
                cells[name] = BadCell(TOO_MANY_BOX_VALUES)
            elif name in self.per_box:
                room -= len(with_boxes)
                cells[name] = [row.value_of(name) for row in with_boxes]
            else:
                cure = "only a type with [box] has a value for each box"
                cells[name] = _agree(rows, self.sources.get(name, name), cure)
        return cells

    def applies(self, first: "FirstRows") -> bool:
        """Whether rows are joined: always with four sides, otherwise if images have several rows.

        Without four sides, each row must also have at most one box.
        """
        if self.sides:
            return True
        if not all(map(holds_one_box, first.cells[self.box])):
            return False
        return any(len(group) > 1 for group in first.group(self.key))

    def describe(self, first: "FirstRows") -> Iterator[str]:
        if not self.sides:
            yield f"rows of the same image are joined: each has a box, in column {self.box!r}"
        if not self.label:
            return
        left_out = [
            row
            for row in self._divide_rows(first.numbered_rows())
            if not self.has_box(row) and not _is_empty(row.value_of(self.label))
        ]
        if left_out:
            label = left_out[0].value_of(self.label)
            members = "objects in" if left_out[0].object_number else "of"
            yield (
                f"{len(left_out)} {members} the first {len(first.rows)} rows have no box: their "
                f"class, such as {label!r:.60}, is not stored"
            )

    def take_lists(self, columns: Collection[str]) -> Self:
        return dataclasses.replace(self, per_box=self.per_box.union(columns))

    def _divide_rows(self, rows: Iterable[NumberedRow]) -> Iterator[NumberedRow]:
        """Yields rows with one box each; a row whose sides are lists becomes one row per object."""
        for row in rows:
            if not self._lists_of(row):
                yield row
                continue
            num_boxes = self._count_boxes(row)
            cells = _refuse_other_lengths(row.cells, num_boxes)
            for number in range(1, num_boxes + 1):
                yield NumberedRow(row.number, cells, number)

    def _lists_of(self, row: NumberedRow) -> list[list[Any]]:
        """Returns the lists among the sides of boxes in a row."""
        return [row.cells[side] for side in self.sides if isinstance(row.cells[side], list)]

    def _count_boxes(self, row: NumberedRow) -> int:
        """Returns the number of boxes that a row may have."""
        return max(map(len, self._lists_of(row)), default=1)

    def has_box(self, row: NumberedRow) -> bool:
        """Whether a row has any side of a box."""
        if self.sides:
            return not all(_is_empty(row.value_of(side)) for side in self.sides)
        return not _is_empty(row.cells[self.box])

    def _require_value(self, row: NumberedRow, name: str) -> Any:
        """Returns a cell of a row, or a `BadCell` that names the row if the cell is empty.

        If sides of the box look like missing values, the `BadCell` says how to treat such values as
        empty.
        """
        cell = row.value_of(name)
        if not _is_empty(cell):
            return cell
        sides = [row.value_of(side) for side in self.sides or (self.box,)]
        cure = next(filter(None, map(cure_missing, sides)), "")
        place = f"object {row.object_number} of " if row.object_number else ""
        return BadCell(f"has no value in {place}{name_number(row.number)}, which has a box{cure}")

    def _boxes_of(self, row: NumberedRow) -> list[Any]:
        if self.sides:
            sides = [row.value_of(side) for side in self.sides]
            if row.object_number:
                return [ObjectBox(sides, row.object_number)]
            return [_make_box(sides, row.number)]
        try:
            return [_make_box(split_boxes(row.cells[self.box]), row.number)]
        except ValueError as error:
            return [BadCell(str(error))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassJoin(RowJoin):
    """Joins rows with one class each into a row per image, with all classes of the image.

    Attributes:
        label: the column with the classes.
        separator: the separator of classes in a cell.
        presence: a column with 0 if an image does not have the class, such as `Confidence` of Open
            Images, or an empty string.
    """

    label: str
    separator: str
    presence: str = ""

    def read_columns(self, columns: Sequence[str]) -> list[str]:
        return [*dict.fromkeys(filter(None, [self.key, *columns, self.label, self.presence]))]

    def join_cells(self, rows: Sequence[NumberedRow], columns: Sequence[str]) -> dict[str, Any]:
        cells = dict[str, Any]()
        for name in columns:
            if name == self.label:
                cells[name] = self._join_classes(rows)
            elif name == self.key:
                cells[name] = rows[0].cells[name]
            else:
                cells[name] = _agree(rows, name, "only its classes may differ")
        return cells

    def applies(self, first: "FirstRows") -> bool:
        """Whether rows are joined: if an image has several rows, or a row names an absent class."""
        if self.presence and any(is_zero(cell) for _, cell in first.column(self.presence)):
            return True
        return any(len(group) > 1 for group in first.group(self.key))

    def describe(self, first: "FirstRows") -> Iterator[str]:
        condition = f", unless its {self.presence} is 0" if self.presence else ""
        start = "rows of the same image are joined: each has a class"
        yield f"{start}, in column {self.label!r}{condition}"

    def _join_classes(self, rows: Sequence[NumberedRow]) -> list[Any]:
        """Returns the classes of an image, without repeats."""
        classes = dict[Any, None]()
        for row in rows:
            if not self.presence or not is_zero(row.cells[self.presence]):
                classes.update(dict.fromkeys(self._split(row.cells[self.label])))
        return [*classes]

    def _split(self, cell: Any) -> list[Any]:
        """Returns the classes in a cell."""
        if _is_empty(cell):
            return []
        if isinstance(cell, dict | list):
            return [BadCell(f"{cell!r:.60} is not a class")]
        try:
            return split_labels(cell, self.separator, in_text=False)
        except ValueError as error:
            return [BadCell(str(error))]


class FirstRows(NamedTuple):
    """The first rows of tables.

    Attributes:
        columns: the columns of the rows.
        rows: the rows, each with the number of its table.
        one_row_each: whether there are several tables, and none of those read has more than one
            row.
    """

    columns: Sequence[str]
    rows: Sequence[tuple[int, Row]]
    one_row_each: bool

    @property
    def cells(self) -> dict[str, Sequence[Any]]:
        """Column -> its cells."""
        cells = [cells for _, (_, cells) in self.rows]
        return dict(zip(self.columns, zip(*cells, strict=True), strict=True))

    def column(self, name: str) -> list[tuple[int, Any]]:
        """Returns the cells of a column, each with the number of its table."""
        position = self.columns.index(name)
        return [(table, cells[position]) for table, (_, cells) in self.rows]

    def numbered_rows(self) -> Iterator[NumberedRow]:
        """Yields the rows with their numbers."""
        for _, (number, cells) in self.rows:
            yield NumberedRow(number, dict(zip(self.columns, cells, strict=True)))

    def group(self, key: str) -> list[list[NumberedRow]]:
        """Returns a list of rows for each image, given the column that names the image."""
        position = self.columns.index(key)
        groups = dict[tuple[int, str], list[NumberedRow]]()
        for table, row in self.rows:
            cells = dict(zip(self.columns, row[1], strict=True))
            group = groups.setdefault((table, _key_of(row, position)), [])
            group.append(NumberedRow(row[0], cells))
        return [*groups.values()]


class JoinedRows(NamedTuple):
    """The first rows of tables, joined.

    Attributes:
        join: the join.
        cells: column -> its cells in joined rows.
    """

    join: RowJoin
    cells: dict[str, Sequence[Any]]


def join_first_rows(
    join: RowJoin, first: FirstRows, columns: Sequence[str], undeclared: Collection[str]
) -> JoinedRows:
    """Joins the first rows of tables.

    Args:
        join: the join, which makes no lists from undeclared columns yet.
        first: the rows.
        columns: the columns of joined rows.
        undeclared: columns without a declared type, which get a value for each box if their values
            differ within an image.
    """
    groups = first.group(join.key)
    joined = [join.join_cells(group, columns) for group in groups]
    differing = set()
    for name in undeclared:
        if any(isinstance(cells[name], Contradiction) for cells in joined):
            differing.add(name)
    if differing:
        join = join.take_lists(differing)
        joined = [join.join_cells(group, columns) for group in groups]
    return JoinedRows(join, {name: [cells[name] for cells in joined] for name in columns})


def _refuse_bad_rows(path: str, rows: Iterable[Row | BadRow]) -> Iterator[Row]:
    """Yields the rows of a table.

    Raises:
        DataError: a row cannot be read.
    """
    for row in rows:
        if isinstance(row, BadRow):
            raise damaged_table(
                name_row(path, row.number),
                f"{row.problem}; rows of the same image are joined, and this row's image would be "
                "stored without it: correct the row, or remove it",
            )
        yield row


def holds_one_box(cell: Any) -> bool:
    """Whether a cell of a box column has no box, or one box as a list of numbers."""
    try:
        members = split_boxes(cell)
    except ValueError:
        return False
    has_lists = any(isinstance(member, list) for member in members)
    return not has_lists and len(members) in (0, _NUM_SIDES)


def _refuse_other_lengths(cells: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Returns the cells of a row, with a `BadCell` in place of each list of a different length."""
    checked = dict(cells)
    for name, cell in cells.items():
        if isinstance(cell, list) and len(cell) != length:
            checked[name] = BadCell(describe_values(len(cell), length))
    return checked


def _make_box(numbers: Sequence[Any], number: int) -> RowBox:
    """Returns the box of a row, given the number of the row."""
    if isinstance(number, RowAtLine):
        return LineBox(numbers, number.line)
    return RowBox(numbers, number)


def _agree(rows: Sequence[NumberedRow], name: str, cure: str) -> Any:
    """Returns the value that the rows about an image have in a column, ignoring empty cells.

    If the values differ, returns a `Contradiction` with a fix.
    """
    first = rows[0]
    for row in rows:
        cell = row.cells[name]
        if _is_empty(cell):
            continue
        if _is_empty(first.cells[name]):
            first = row
        elif cell != first.cells[name]:
            rows_of_image = f"{name_number(first.number)} and {name_number(row.number)}"
            return Contradiction(
                f"{rows_of_image} of the same image have {name} "
                f"{first.cells[name]!r:.60} and {cell!r:.60}, but an image has only one; {cure}"
            )
    return first.cells[name]


def is_zero(cell: Any) -> bool:
    """Whether a cell holds 0, in any spelling."""
    try:
        return to_float(cell) == 0
    except ValueError:
        return False


def _is_empty(cell: Any) -> bool:
    is_nan = cell != cell  # a missing value of pandas
    return is_nan or is_missing(cell)


def group_rows(path: str, rows: Iterable[Row], position: int) -> Iterator[list[Row]]:
    """Yields the rows with each key together, sorted by number.

    All rows are first stored on disk, in a private SQLite file.

    Args:
        path: the table, for messages.
        rows: the rows of the table.
        position: the position of the key among the cells of a row. A row without a key forms a
            group by itself.

    Raises:
        UsageError: there is no disk space.
    """
    try:
        with contextlib.closing(sqlite3.connect("", check_same_thread=False)) as database:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("CREATE TABLE rows (key TEXT, number INTEGER, row BLOB)")
            encoded = ((_key_of(row, position), row[0], pickle.dumps(row)) for row in rows)
            database.executemany("INSERT INTO rows VALUES (?, ?, ?)", encoded)
            ordered = database.execute("SELECT * FROM rows ORDER BY key, number")
            for _, group in itertools.groupby(ordered, operator.itemgetter(0)):
                yield _decode_rows(path, group)
    except sqlite3.Error as error:
        problem = f"its rows cannot be sorted in a temporary file in the folder TMPDIR: {error}"
        raise table_error(path, problem) from error


def _key_of(row: Row, position: int) -> str:
    """Returns the key of a row, prefixed by its type; without a key, the number of the row."""
    number, cells = row
    key = cells[position]
    if isinstance(key, str) and key:
        return f"text {key.removeprefix('./')}"
    if isinstance(key, int):
        return f"number {key}"
    return f"row {number}"


def _decode_rows(path: str, rows: Iterable[tuple[str, int, bytes]]) -> list[Row]:
    """Decodes the rows about an image, which this process pickled.

    Raises:
        DataError: the rows are too long.
    """
    decoded = list[Row]()
    room = _MOST_JOINED_BYTES
    for _, number, row in rows:
        room -= len(row)
        if room < 0:
            problem = f"the rows of its image are larger than {_MOST_JOINED_BYTES >> 20} MiB"
            raise damaged_table(name_row(path, number), problem)
        decoded.append(pickle.loads(row))  # noqa: S301  # nosec B301
    return decoded
