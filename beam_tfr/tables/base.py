"""Defines what all table formats share: the base class, rows, checks and errors."""

import abc
import collections
import contextlib
import dataclasses
import difflib
import errno
import gzip
import itertools
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, Self, TypeVar, cast

from beam_tfr import storage
from beam_tfr.console.terminal import counted
from beam_tfr.features.cells import MAX_VALUES, BadCell, members_of
from beam_tfr.inputs.skipped import UNCOUNTED, SkippedFiles
from beam_tfr.records.tfrecords import HEADER_BYTES, is_gzip
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.untrusted import quote

# The number of a row, from 1, and a cell for each requested column, None if the cell is missing.
Row = tuple[int, Sequence[Any]]
_T = TypeVar("_T")
MOST_COLUMNS = 10  # in messages
MAX_COLUMNS = 1_000_000
# Errors that a malicious table may raise, in addition to those that readers expect.
HARMFUL = (
    ArithmeticError,
    LookupError,
    MemoryError,
    RecursionError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
)
_HEADED = re.compile(r"(?i).*\.[ct]sv(?:\.gz)?", re.DOTALL)  # names of tables with a header


@dataclasses.dataclass(frozen=True, slots=True)
class BadRow:
    """An unreadable row in an otherwise readable table.

    Attributes:
        number: the number of the row, from 1.
        problem: what is wrong.
    """

    number: int
    problem: str


# (table, columns, counter of files in the table that belong to no row) -> rows.
RowReader = Callable[[str, Sequence[str], SkippedFiles], Iterator[Row | BadRow]]


def skip_bad_rows(rows: Iterable[_T | BadRow]) -> Iterator[_T]:
    """Yields the rows that can be read."""
    for row in rows:
        if not isinstance(row, BadRow):
            yield row


class DamagedTableError(DataError):
    """A table, or one of its rows, cannot be read.

    Attributes:
        problem: what is wrong, without the name of the table.
    """

    problem = ""


@dataclasses.dataclass(frozen=True, slots=True)
class OtherColumn(BadCell):
    """A cell whose values are in another column, which must replace this column in all rows.

    Attributes:
        column: the other column.
        notice: the message to show if the other column is used.
    """

    column: str
    notice: str


class FileClasses(NamedTuple):
    """The classes named in an annotation file.

    Attributes:
        path: the file.
        names: all classes.
        used: the classes of the objects in the file.
    """

    path: str
    names: tuple[str, ...]
    used: frozenset[str]


Note = str | FileClasses  # an open question about a table, for a line about one or several tables


class ColumnSelection(NamedTuple):
    """The parts of a table to read.

    Attributes:
        columns: the columns to read.
        known_columns: all columns that the table may have; an empty collection if any columns are
            allowed.
        images: the column whose bytes are images and, in TFRecords and tars, the columns of their
            masks and paired images.
        label: the column whose numbers stand for classes, if a Parquet file's schema names them.
        say: called with lines on what is ambiguous in the table, and on how it was read.
        skipped: counts files in the table that belong to no row.
        most_bytes: the number of uncompressed bytes after which no more rows are read; 0 for no
            limit. Parquet ignores this limit.
    """

    columns: Sequence[str]
    known_columns: Sequence[str] = ()
    images: Sequence[str] = ()
    label: str = ""
    say: Callable[[Note], object] = lambda _: None
    skipped: SkippedFiles = UNCOUNTED
    most_bytes: int = 0

    def ends_at(self, file: IO[bytes]) -> bool:
        """Whether reading stops at the current position in the table."""
        return 0 < self.most_bytes < file.tell()


class TableFormat(abc.ABC):
    """A table format, with methods that read its tables.

    Methods that read raise UsageError if a column is missing, DataError if the table is damaged
    (the message names the row), and OSError.

    Attributes:
        has_types: whether cells have types; if not, all cells are strings.
        may_be_gzipped: whether a file name may end in .gz.
        may_be_numbered: whether file names may end in the number of a shard.
        may_have_box_rows: whether each row may hold one box.
        has_lower_names: whether columns named after file extensions have names in lower case.
        of_one_image: whether a table is a single row about the image that has the table's name.
        has_row_files: whether each row is read from a file of its own.
    """

    has_types = True
    may_be_gzipped = False
    may_be_numbered = False
    may_have_box_rows = False
    has_lower_names = False
    of_one_image = False
    has_row_files = False

    @abc.abstractmethod
    def read_columns(self, path: str, most_rows: int) -> list[str]:
        """Returns the column names; if only rows name columns, the names in the first rows."""

    @abc.abstractmethod
    def read_rows(self, path: str, selection: ColumnSelection) -> Iterator[Row | BadRow]:
        """Yields the rows."""

    def list_fields(self, path: str, most_rows: int) -> list[str]:
        """Lists the fields of objects in columns, such as `objects.bbox`; see `read_columns`.

        Rows can be read by field just as by column.
        """
        return []

    def read_class_names(self, path: str, column: str) -> list[str]:
        """Returns the classes that the numbers in a column stand for, or an empty list."""
        return []

    def read_ordered_classes(self, path: str, column: str) -> list[str]:
        """Returns the classes in a column, if the table orders them, as pandas' categories."""
        return []

    def describe_columns(self, path: str) -> str:
        """Explains why no column has a known name, to end a message, or returns an empty string."""
        return ""


class ObjectFormat(TableFormat):
    """A format in which each row names its columns."""

    @abc.abstractmethod
    def read_objects(
        self, path: str, file: IO[bytes], selection: ColumnSelection
    ) -> Iterator[dict[str, Any] | BadRow]:
        """Yields column -> cell for each row, with all columns.

        Args:
            path, file: the table, opened.
            selection: the parts to read; its `columns` are empty if only the names of columns are
                needed.

        Raises:
            ValueError, DataError: the next row cannot be read.
        """

    def read_columns(self, path: str, most_rows: int) -> list[str]:
        columns = dict[str, None]()  # in the order in which they occur
        with open_table(path) as file:
            for row in itertools.islice(self._read_first(path, file), most_rows):
                columns.update(dict.fromkeys(row))
                check_number_of_columns(path, len(columns))
        return list(columns)

    def list_fields(self, path: str, most_rows: int) -> list[str]:
        fields = dict[str, None]()
        with open_table(path) as file:
            for row in itertools.islice(self._read_first(path, file), most_rows):
                fields.update(dict.fromkeys(_list_fields(row)))
        return [name for name in fields if "." in name]

    def _read_first(self, path: str, file: IO[bytes]) -> Iterator[dict[str, Any]]:
        """Yields the readable rows, for callers that collect the names of columns or fields."""
        rows = number_rows(path, self.read_objects(path, file, ColumnSelection(())))
        return skip_bad_rows(row for _, row in rows)

    def read_rows(self, path: str, selection: ColumnSelection) -> Iterator[Row | BadRow]:
        known_columns = set(selection.known_columns)
        has_fields = any("." in name for name in selection.columns)
        with open_table(path) as file:
            rows = number_rows(path, self.read_objects(path, file, selection))
            for number, row in rows:
                if isinstance(row, BadRow):
                    yield row
                    continue
                if known_columns and not row.keys() <= known_columns:
                    check_columns(name_row(path, number), [*row], (), selection.known_columns)
                if has_fields:
                    yield number, _read_fields(row, selection.columns)
                else:
                    yield number, [row.get(name) for name in selection.columns]
                if selection.ends_at(file):
                    return


def _read_fields(row: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    """Returns the cells of a row for columns, and for fields of objects in columns."""
    room = MAX_VALUES
    cells = list[Any]()
    for name in columns:
        if name in row:
            cells.append(row[name])
        elif room <= 0:
            cells.append(BadCell(f"its row has more than {MAX_VALUES:,} values in fields"))
        else:
            cells.append(read_field(row, name))
            room -= count_values(cells[-1])
    return cells


def count_values(cell: Any) -> int:
    """Counts the values of a cell, in lists of any depth."""
    return sum(map(count_values, cell)) + 1 if isinstance(cell, list) else 1


def read_field(row: Mapping[str, Any], name: str) -> Any:
    """Returns the cell of a column, or a field of the object in a column, such as `objects.bbox`.

    For a list of objects, returns a list with the field of each object. Returns None if the row has
    no such column or field.
    """
    if name in row:
        return row[name]
    column, _, field = name.partition(".")
    return read_member(row.get(column), field)


def read_member(cell: Any, field: str) -> Any:
    """Returns a field of the object in a cell; see `read_field`."""
    if isinstance(cell, list):
        return [read_member(member, field) for member in cell]
    return read_field(cell, field) if isinstance(cell, Mapping) and field else None


def _list_fields(row: Mapping[str, Any]) -> Iterator[str]:
    """Yields the keys of an object, and dotted names for the keys of nested objects."""
    for name, cell in row.items():
        yield name
        for member in members_of(cell):
            if isinstance(member, Mapping):
                yield from (f"{name}.{field}" for field in _list_fields(member))


@contextlib.contextmanager
def open_table(path: str) -> Iterator[IO[bytes]]:
    """Opens a table.

    Data that begins like gzip is decompressed, whatever the name of the table: a .gz file on gs://
    may be decompressed already (Content-Encoding).
    """
    with storage.open_binary(path) as file:
        compressed = is_gzip(file.read(HEADER_BYTES))
        file.seek(0)
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if compressed else file


def peek_table(file: IO[bytes], num_bytes: int) -> bytes:
    """Returns the first bytes of a table from `open_table`; no bytes if the start is damaged.

    Leaves the file at its beginning.
    """
    if not isinstance(file, gzip.GzipFile):
        start = file.read(num_bytes)
        file.seek(0)
        return start
    compressed = file.fileobj.read(num_bytes)
    file.fileobj.seek(0)
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(compressed, num_bytes)
    return b""


def find_table(path: str) -> storage.Entry:
    """Returns the listed entry of a table, for formats that read only parts of the file.

    Raises:
        FileNotFoundError: the table no longer exists.
    """
    file = storage.find(path)
    if file is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return file


def table_error(path: str, problem: str) -> UsageError:
    """Returns the error for a table that does not match the options."""
    return UsageError(problem, option="table", value=path)


def damaged_table(path: str, problem: str) -> DamagedTableError:
    """Returns the error for a table, or a row in it, that cannot be read."""
    error = DamagedTableError(problem, option="table", value=path)
    error.problem = problem
    return error


class RowAtLine(int):
    """The number of a row, along with the row's line in the file.

    Used where the line cannot be derived from the number, after blank lines, cells of several
    lines, or lines before the header.

    Attributes:
        line: the line on which the row begins, from 1.
    """

    line: int

    def __new__(cls, number: int, line: int) -> Self:
        self = super().__new__(cls, number)
        self.line = line
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[int, int]]:
        return type(self), (int(self), self.line)


def number_rows(path: str, rows: Iterable[_T], first: int = 1) -> Iterator[tuple[int, _T]]:
    """Numbers the rows of a table.

    Raises:
        DataError: the next row cannot be read; the message names that row.
    """
    number = first - 1
    try:
        for number, row in enumerate(rows, first):
            yield number, row
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the compressed data is damaged: {error}"
        raise damaged_table(name_row(path, number + 1), problem) from error
    except ValueError as error:
        raise damaged_table(name_row(path, number + 1), str(error)) from None
    except HARMFUL as error:
        problem = describe_harm(error)
        raise damaged_table(name_row(path, number + 1), problem) from error


def describe_harm(error: Exception) -> str:
    """Says what is wrong with a table that raised one of the `HARMFUL` errors."""
    if isinstance(error, MemoryError):
        return "takes more memory to read than is available"
    if isinstance(error, RecursionError):
        return "nests lists or objects too deeply to be read"
    return f"cannot be read: {error or type(error).__name__}"


def name_row(path: str, number: int) -> str:
    """Names a row in messages; for number 0, the header, names only the table."""
    if isinstance(number, RowAtLine):
        return f"{path}, line {number.line}"
    if not number:
        return path
    counted_from = " after the header" if _HEADED.fullmatch(path) else ""
    return f"{path}, row {number}{counted_from}"


def name_number(number: int) -> str:
    """Names a row, for messages that already name the table."""
    return f"line {number.line}" if isinstance(number, RowAtLine) else f"row {number}"


def list_columns(columns: Sequence[str]) -> str:
    """Lists some columns of a table, for messages."""
    return join_texts([_show_column(name) for name in columns], MOST_COLUMNS, ", ")


def _find_partition(path: str, column: str) -> str:
    """Returns a hint if a folder, such as label=cat, states the column, or an empty string."""
    folders = path.split("/")[:-1]
    partition = next((folder for folder in folders if folder.startswith(f"{column}=")), "")
    if not partition:
        return ""
    return (
        f"; {partition} in the path is a column only for Parquet files: add the column to the rows"
    )


def check_number_of_columns(path: str, number: int) -> None:
    """Checks that a table does not have too many columns.

    Raises:
        UsageError: the table has too many columns.
    """
    if number > MAX_COLUMNS:
        raise table_error(path, f"has more than {MAX_COLUMNS:,} columns")


def check_columns(
    path: str,
    present: Sequence[str],
    required: Sequence[str],
    known_columns: Sequence[str] = (),
    *,
    is_single: bool = False,
) -> None:
    """Checks the columns of a table.

    Args:
        path: the table.
        present: the columns that the table has.
        required: the columns that the table must have.
        known_columns: the columns that the table may have; an empty collection if any columns are
            allowed.
        is_single: whether there is no other table that may have the columns.

    Raises:
        UsageError: a column is missing, repeated or unknown.
    """
    numbers = collections.Counter(present)
    for name in required:
        number = numbers[name]
        if number > 1:
            raise table_error(path, f"has {number} columns named {name!r}; rename all but one")
        if not number:
            hint = _find_partition(path, name) or _suggest_column(name, present)
            if not hint and "" in numbers:
                hint = (
                    "; one column has no name, like pandas's index: name it in the header, as "
                    f"table.to_csv(FILE, index_label={name!r}) does"
                )
            if not hint and not is_single:
                hint = (
                    "; if other tables have it, omit from `table=` those that lack it, and "
                    "convert them into a separate dataset, or, in CSV, add the column with empty "
                    "cells"
                )
            raise table_error(
                path,
                f"there is no column {quote(name)}; the columns are: {list_columns(present)}{hint}",
            )
    known = frozenset(known_columns)
    unknown = [name for name in present if name not in known]
    if known and unknown:
        raise table_error(
            path,
            f"column {unknown[0]!r} is not in the first rows of the first table; "
            "name the columns that become features with `feature_columns=`",
        )


def _show_column(name: str) -> str:
    """Returns the name of a column, in quotes if it has spaces around it."""
    return f"{name:.60}" if name == name.strip() else f"{name!r:.60}"


def _suggest_column(name: str, present: Sequence[str]) -> str:
    """Suggests what to do about a missing column, or returns an empty string."""
    spellings = {other.strip().casefold(): other for other in present}
    near = difflib.get_close_matches(name.strip().casefold(), spellings, n=1, cutoff=0.7)
    if near:
        return f"; did you mean {spellings[near[0]]!r}?"
    if set(name.split(",")) <= {*present}:
        return (
            "; name a single column: several labels of an image are written into one column, "
            "which `label_separator=` splits, and columns of 0 and 1 are `feature_columns=`"
        )
    if len(present) == 1 and name in re.split(r"[\s,;|]+", present[0]):
        return "; if spaces separate its columns, save the table with commas"
    return ""


def describe_values(values: int, boxes: int) -> str:
    """Describes a row in which the number of values differs from the number of boxes."""
    return f"has {counted(values, 'value')} for {counted(boxes, 'box', 'boxes')}"
