"""Reads and checks the first rows of tables before a run."""

import dataclasses
import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.features.cells import BadCell, members_of
from beam_tfr.inputs.skipped import UNCOUNTED
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import (
    may_hold_images,
    stand_in_columns,
)
from beam_tfr.schema.spelling import quote_word, spell_option
from beam_tfr.tables.base import (
    BadRow,
    DamagedTableError,
    FileClasses,
    Note,
    OtherColumn,
    Row,
    RowReader,
    table_error,
)
from beam_tfr.tables.content import (
    TableContent,
)
from beam_tfr.tables.declarations import plan_join, takes_all
from beam_tfr.tables.formats import read_rows
from beam_tfr.tables.joining import (
    FirstRows,
    JoinedRows,
    join_first_rows,
)
from beam_tfr.tables.missing_values import MissingValues, describe_unused
from beam_tfr.tables.several_classes import find_presence_column

SAMPLE_ROWS = 10_000  # first rows of the tables, which are sorted by name
SAMPLE_FILES = 2_000  # rows that each have a file, which is read again later
SAMPLE_BYTES = 256 << 20  # 256 MiB of memory for cells, after which no more rows are read
_PLACE_BYTES = 8
SAMPLE_TABLES = 1_000  # an XML file is a table of one row
MOST_NOTES = 5  # of a kind


def row_reader(content: TableContent, images: Sequence[str], **others: Any) -> RowReader:
    """Returns the function that yields the rows of a table, with some of its columns.

    Args:
        content: the findings about the tables.
        images: the columns of images.
        others: further arguments for `read_rows`.
    """
    options = content.options
    read = content.read_rows or functools.partial(
        read_rows,
        known_columns=tuple(content.columns) if takes_all(options) else (),
        images=images,
        label=options.label_column,
        **others,
    )
    return MissingValues(read, frozenset(options.na_values)) if options.na_values else read


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """The first rows of tables.

    Attributes:
        first: the rows as they are.
        joined: the rows joined per image; None if rows are not joined.
        notes: how ambiguous tables were read.
        unused_na_values: values of `na_values` that no cell has.
    """

    first: FirstRows
    joined: JoinedRows | None
    notes: Sequence[Note]
    unused_na_values: Sequence[str]

    @property
    def cells(self) -> Mapping[str, Sequence[Any]]:
        """Column -> its cells."""
        return self.joined.cells if self.joined else self.first.cells

    @property
    def per_box(self) -> Collection[str]:
        """The columns whose cells are lists with a value for each box."""
        return self.joined.join.per_box if self.joined else ()

    def reader(self, read_rows: RowReader) -> RowReader:
        """Returns the function that yields joined rows, or `read_rows` if rows are not joined."""
        if self.joined:
            return functools.partial(self.joined.join.read, read_rows=read_rows)
        return read_rows

    def warn(self) -> Iterator[str]:
        """Yields lines about how tables were read, and how their rows are joined."""
        yield from first_notes([note for note in self.notes if isinstance(note, str)])
        if self.joined:
            yield from self.joined.join.describe(self.first)
        if self.unused_na_values:
            yield describe_unused(self.unused_na_values, len(self.first.rows))

    def find_classes(self) -> list[FileClasses]:
        """Returns the classes of the annotation files that were read."""
        return [note for note in self.notes if isinstance(note, FileClasses)]


def first_notes(notes: Sequence[str]) -> Iterator[str]:
    """Yields the first few notes, and a line that says how many more there are, if any."""
    yield from notes[:MOST_NOTES]
    if len(notes) > MOST_NOTES:
        yield f"there are {len(notes) - MOST_NOTES:,} more such notes about the first tables"


def take_sample(
    content: TableContent,
    declarations: Mapping[str, str],
    images: Sequence[str],
    split_column: str = "",
) -> Sample:
    """Reads up to `SAMPLE_ROWS` rows, or `SAMPLE_FILES` if each row is in a file of its own.

    Args:
        content: the findings about the tables.
        declarations: column that becomes a feature -> declaration, or an empty string if the rows
            determine the type.
        images: the columns of images.
        split_column: the column that may name the splits, or an empty string.

    Raises:
        UsageError: there are no rows.
        DataError: a table is damaged, unless every table has a single row and other tables can be
            read.
    """
    notes = list[Note]()
    read = row_reader(content, images, say=notes.append)
    stand_ins = stand_in_columns(content.files[0])
    others = [stand_ins[name] for name in declarations if name in stand_ins]
    presence = find_presence_column(content.columns) if content.options.label_column else ""
    wanted = [*content.options.roles, *declarations, *others, split_column, presence]
    columns = [*dict.fromkeys(filter(None, wanted))]
    possible_join = plan_join(content, declarations)
    joined = None
    if possible_join is None:
        first = _read_first(content, read, columns)
    else:
        first = _read_first(content, read, possible_join.read_columns(columns))
        if possible_join.applies(first):
            undeclared = [name for name, declaration in declarations.items() if not declaration]
            joined = join_first_rows(possible_join, first, columns, undeclared)
    unused = sorted(read.unused) if isinstance(read, MissingValues) else ()
    return Sample(first=first, joined=joined, notes=notes, unused_na_values=unused)


class _FirstRowsReader:
    """A reader of the first rows of tables, which reads one table after another.

    Attributes:
        rows: the rows that were read, each with the number of its table.
        one_row_each: whether there are several tables, with at most one row each so far.
        damage: the error of the first damaged table.
    """

    def __init__(
        self, read: RowReader, columns: Sequence[str], most_rows: int, *, one_row_each: bool
    ) -> None:
        self._read = read
        self._columns = columns
        self._most_rows = most_rows
        self._room = SAMPLE_BYTES
        self.rows = list[tuple[int, Row]]()
        self.one_row_each = one_row_each
        self.damage: DamagedTableError | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more rows are needed."""
        return len(self.rows) >= self._most_rows or self._room <= 0

    def read_table(self, number: int, path: str) -> None:
        """Reads a table to its end, or until no more rows are needed."""
        num_rows = 0
        try:
            for row in self._read(path, self._columns, UNCOUNTED):
                num_rows += 1
                if isinstance(row, BadRow):
                    continue
                self.rows.append((number, row))
                for cell in row[1]:
                    self._room -= _measure_cell(cell)
                if self.is_full:
                    break
        except DamagedTableError as error:
            self.damage = self.damage or error
        if num_rows > 1:
            self.one_row_each = False


def _measure_cell(cell: Any) -> int:
    """Estimates the memory that a cell takes, in bytes, including its slot in a row."""
    if type(cell) is str:  # Python keeps a single copy of each one-letter string
        return _PLACE_BYTES + (sys.getsizeof(cell) if len(cell) > 1 else 0)
    return _PLACE_BYTES + measure_value(cell)


def measure_value(value: Any) -> int:
    """Estimates the memory that a value takes, in bytes, including its members."""
    num_bytes = 0
    waiting = [value]
    while waiting:
        part = waiting.pop()
        num_bytes += sys.getsizeof(part)
        if isinstance(part, dict):
            waiting += part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return num_bytes


def _read_first(content: TableContent, read: RowReader, columns: Sequence[str]) -> FirstRows:
    """Reads the first rows; raises the same errors as `take_sample`."""
    has_row_files = content.table_format.has_row_files
    most_rows = SAMPLE_FILES if has_row_files else SAMPLE_ROWS
    reader = _FirstRowsReader(read, columns, most_rows, one_row_each=len(content.files) > 1)
    for number, path in enumerate(content.files[:SAMPLE_TABLES]):
        reader.read_table(number, path)
        if reader.damage and not reader.one_row_each:
            raise reader.damage
        if reader.is_full:
            break
    if reader.damage and not reader.rows:
        raise reader.damage
    if not reader.rows or not columns:
        raise table_error(" ".join(content.options.table), "there are no rows")
    return FirstRows(columns, reader.rows, reader.one_row_each)


class StandIn(NamedTuple):
    """A column that replaces another column.

    Attributes:
        name: the column that is replaced.
        column: the column that replaces it.
        notice: the message about the replacement, with the reason.
    """

    name: str
    column: str
    notice: str


def find_stand_ins(
    options: ConvertOptions, names: Iterable[str], sample: Mapping[str, Sequence[Any]]
) -> Iterator[StandIn]:
    """Yields the columns that replace other columns, according to cells in the first rows."""
    for name in names:
        for number, cell in enumerate(sample[name]):
            if isinstance(cell, OtherColumn):
                place = sample[options.uri_column][number] if options.uri_column else "row 1"
                yield StandIn(name, cell.column, f"{place}: {cell.notice}")
                break


def replace_columns(
    declarations: Mapping[str, str], stand_ins: Iterable[StandIn]
) -> dict[str, str]:
    """Returns the declarations, with stand-ins in place of the columns that they replace."""
    replaced = {stand_in.name: stand_in.column for stand_in in stand_ins}
    return {replaced.get(name, name): text for name, text in declarations.items()}


def check_images(
    content: TableContent,
    sample: Mapping[str, Sequence[Any]],
    images: Sequence[str],
    declarations: Mapping[str, str],
) -> None:
    """Checks that the image column holds images, and that other columns hold no images.

    Args:
        content: the findings about the tables.
        sample: column -> its cells in the first rows.
        images: the columns of images.
        declarations: column that becomes a feature -> its declaration, which may be empty.

    Raises:
        UsageError: the image column holds no image, or another column holds images.
    """
    path = content.files[0]
    uri_column = content.options.uri_column
    if uri_column:
        cells = sample[uri_column]
        if all(isinstance(cell, BadCell) for cell in cells):
            problem = f"column {uri_column!r} {cells[0].problem} in all of the first rows"
            raise table_error(path, problem)
    are_samples = may_hold_images(path)
    for name, cells in sample.items():
        if name in images:
            continue
        pair = quote_word(f"{name}:pair", "NAME:pair")
        instead = " instead of `label_column=`" if name == content.options.label_column else ""
        cure = (
            f"name it as {spell_option('uri_column', name)}; or, next to another image column, as "
            f"{spell_option('feature_columns', f'{name}:mask')} for masks, or {pair} for the other "
            f"images of pairs{instead} (PNGs; those of pairs in gray); or leave it out; two color "
            "images become two datasets that differ only in `uri_column=`"
        )
        if _holds(storage.Entry, cells[0]):
            raise table_error(path, f"column {name!r} holds images; {cure}")
        if are_samples and not declarations.get(name) and _holds(bytes, cells[0]):
            raise table_error(
                path,
                f"column {name!r} holds images, or other bytes that are not text; {cure}; "
                f"{spell_option('feature_columns', f'{name}:bytes')} stores the bytes as they are",
            )


def check_quotes(content: TableContent, sample: Mapping[str, Sequence[Any]]) -> None:
    """Checks that paths, classes and splits are not in single quotes, which mean nothing in CSV.

    Raises:
        UsageError: a value in the first rows is in single quotes.
    """
    for name in content.options.roles:
        for cell in sample[name]:
            is_quoted = isinstance(cell, str) and cell.startswith("'") and cell.endswith("'")
            if is_quoted and len(cell) > 1:
                raise table_error(
                    content.files[0],
                    f"column {name!r} has values in single quotes, such as {cell:.100}, which "
                    "would be part of the values; save the table with double quotes or without any",
                )


def _holds(kind: type, cell: Any) -> bool:
    """Whether a cell, or one of its members, has a type."""
    parts = members_of(cell)
    return any(isinstance(part, kind) for part in parts)
