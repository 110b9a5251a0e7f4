"""Reads the rows of text files: CSV, TSV and JSON Lines."""

import codecs
import contextlib
import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

from beam_tfr.console.terminal import counted
from beam_tfr.features.cells import MAX_VALUES, check_json, check_number
from beam_tfr.schema.untrusted import parse_json
from beam_tfr.tables.base import (
    BadRow,
    ColumnSelection,
    DamagedTableError,
    ObjectFormat,
    Row,
    RowAtLine,
    TableFormat,
    check_columns,
    check_number_of_columns,
    damaged_table,
    name_row,
    number_rows,
    open_table,
    peek_table,
    table_error,
)
from beam_tfr.tables.dialects import (
    PEEKED_BYTES,
    Dialect,
    find_dialect,
    find_row_as_header,
    fits_header,
    read_decimal_comma,
)

MAX_ROW_BYTES = 16 << 20  # 16 MiB; an unclosed quote makes one row of the rest of a file
_MOST_BAD_ROWS = 10  # up to one in 10 rows, if that is more; else the table is damaged
# The cures for tables whose rows have more cells than their header.
_WITHOUT_NAMES = (
    "is the name of a column missing there, or is a comma within a value without quotes?"
)
_LEAVE_OUT = (
    "is a quote missing, or is a comma within a value, such as 1,5? To leave out all such rows, "
    "with pandas: read_csv(FILE, dtype=str, keep_default_na=False, on_bad_lines='skip')"
    ".to_csv('sound.csv', index=False)"
)
# The cure for texts that begin with a quote in tables whose writer does not quote.
_QUOTE_TEXTS = (
    "does a text begin with a quote that is not doubled? Write the table with csv.writer, or, if "
    "it quotes no text, with pandas: read_csv(FILE, sep={delimiter!r}, quoting=3, dtype=str, "
    "keep_default_na=False).to_csv('sound.csv', index=False). If the cell is right, write the "
    "table as JSON Lines"
)
_ARRAY = re.compile(r"\s*\[\s*(?:\{|\Z)")  # the beginning of an array of objects
_BLOCK_BYTES = 1 << 20  # 1 MiB


class Delimited(TableFormat):
    """CSV, or text with another delimiter: the first line names the columns.

    The dialect is the one that `find_dialect` finds in the first lines.
    """

    has_types = False
    may_be_gzipped = True
    may_have_box_rows = True

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter

    def read_columns(self, path: str, most_rows: int) -> list[str]:
        with open_table(path) as file:
            header, lines, _ = _read_lines(path, file, self._find_dialect(path, file))
            num_rows = 1 if all(header) else most_rows
            rows = list[list[str]]()
            with contextlib.suppress(DamagedTableError):  # reading the rows raises the error
                for _, cells in itertools.islice(lines, num_rows):
                    if fits_header(cells, header):
                        rows.append(cells)
        problem = find_row_as_header(header, rows[0] if rows else [])
        if problem:
            raise table_error(path, problem)
        return _leave_out_unnamed(header, rows)

    def read_rows(self, path: str, selection: ColumnSelection) -> Iterator[Row | BadRow]:
        with open_table(path) as file:
            dialect = self._find_dialect(path, file)
            header, lines, line_of = _read_lines(path, file, dialect)
            names = [*filter(None, header)]
            check_columns(path, names, selection.columns, selection.known_columns)
            for note in dialect.notes:
                selection.say(f"{path}: {note}")
            place_of = {name: place for place, name in enumerate(header)}
            positions = [place_of[name] for name in selection.columns]
            decimal_commas = dialect.decimal_commas & {*positions}
            unnamed = _list_unnamed(header) if selection.known_columns else []
            if selection.images:
                lines = _skip_empty_rows(path, lines, selection.say)
            bad_rows = _BadRows()
            for number, cells in lines:
                if line_of() != number + 1:  # the header is line 1
                    number = _locate_row(number, cells, line_of())
                    _check_line_breaks(path, number, cells, len(header), dialect)
                if len(cells) != len(header):
                    if not fits_header(cells, header):
                        yield _refuse_row(path, number, cells, len(header), bad_rows)
                        continue
                    cells = _fit_cells(cells, header)
                if unnamed:
                    _check_unnamed(path, number, cells, unnamed)
                for position in decimal_commas:
                    cells[position] = read_decimal_comma(cells[position])
                yield number, [cells[position] for position in positions]
                if selection.ends_at(file):
                    return

    def _find_dialect(self, path: str, file: IO[bytes]) -> Dialect:
        try:
            return find_dialect(peek_table(file, PEEKED_BYTES), self.delimiter)
        except ValueError as error:
            raise table_error(path, str(error)) from None


def _read_lines(
    path: str, file: IO[bytes], dialect: Dialect
) -> tuple[list[str], Iterator[tuple[int, list[str]]], Callable[[], int]]:
    """Returns the header, the numbered rows that are not empty, and a function.

    The function returns the line in which the last row that was read ends.

    Raises:
        DataError: a line cannot be read, or the quotes do not match.
    """
    csv.field_size_limit(MAX_ROW_BYTES)
    bound = _RowBound(dialect.delimiter)
    lines = itertools.islice(read_lines(file, bound, dialect.line_end), dialect.skipped_lines, None)
    parser = csv.reader(
        lines,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        skipinitialspace=dialect.has_spaces,
        strict=True,
    )
    cells: Iterator[list[str]] = parser
    if dialect.has_spaces:
        cells = ([cell.strip(" ") for cell in row] for row in cells)

    def line_of_end() -> int:
        return dialect.skipped_lines + parser.line_num

    filled = bound.refill_after_each(cells)
    if dialect.header:
        return [*dialect.header], number_rows(path, filled), line_of_end
    rows = number_rows(path, filled, first=0)
    _, header = next(rows, (0, []))
    if not header:
        raise damaged_table(path, "is empty; its first line must name the columns")
    check_number_of_columns(path, len(header))
    return header, rows, line_of_end


def _skip_empty_rows(
    path: str, rows: Iterable[tuple[int, list[str]]], say: Callable[[str], object]
) -> Iterator[tuple[int, list[str]]]:
    """Yields the numbered rows that have a value, and reports the first row without one.

    Spreadsheets write such rows below the last one.
    """
    is_told = False
    for number, cells in rows:
        if any(cells):
            yield number, cells
        elif not is_told:
            say(f"{path}: rows without any value are skipped, as row {number}")
            is_told = True


def _locate_row(number: int, cells: Sequence[str], end: int) -> int:
    """Returns the number of a row, with the line in which it begins unless that is the next number.

    Args:
        number: the number of the row.
        cells: the cells of the row.
        end: the line in which the row ends, from 1.
    """
    line = end - "".join(cells).count("\n")
    return number if line == number + 1 else RowAtLine(number, line)


def _check_line_breaks(
    path: str, number: int, cells: Sequence[str], num_columns: int, dialect: Dialect
) -> None:
    """Checks that no cell of a row seems to hold other rows of the table.

    A text that begins with a quote, in a table whose writer does not quote, holds the rows up to
    the next text that ends with one.

    Args:
        path: the table.
        number: the number of the row.
        cells: the cells of the row.
        num_columns: how many cells a row has.
        dialect: the dialect of the table.

    Raises:
        DataError: a cell seems to hold rows.
    """
    line_end = dialect.line_end.decode()
    for place, cell in enumerate(cells):
        if line_end not in cell:
            continue
        lines = cell.split(line_end)
        if _holds_rows(lines, place, num_columns, dialect):
            line_number = number.line if isinstance(number, RowAtLine) else number + 1
            cure = _QUOTE_TEXTS.format(delimiter=dialect.delimiter)
            raise damaged_table(
                name_row(path, RowAtLine(number, line_number)),
                f"has a cell of {len(lines)} lines that look like rows; {cure}",
            )


def _holds_rows(lines: Sequence[str], place: int, num_columns: int, dialect: Dialect) -> bool:
    """Whether the lines of a cell are the end of a row, whole rows, and the beginning of a row.

    Args:
        lines: the lines of the cell.
        place: the number of the cell's column, from 0.
        num_columns: how many cells a row has.
        dialect: the dialect of the table.
    """
    if num_columns == 1:
        return False
    first, *inner, last = (_count_delimiters(line, dialect) for line in lines)
    per_row = num_columns - 1
    return first >= per_row - place and per_row in inner and last >= place


def _count_delimiters(line: str, dialect: Dialect) -> int:
    """Counts the delimiters of a line, without those of prose, which a space follows."""
    num_delimiters = line.count(dialect.delimiter)
    if dialect.has_spaces:
        return num_delimiters
    return num_delimiters - line.count(f"{dialect.delimiter} ")


class _BadRows:
    """A count of the rows of a table that cannot be read.

    They are rejects, unless the table seems to be damaged as a whole: its first row is bad, or more
    than one in ten rows so far and more than `_MOST_BAD_ROWS`.
    """

    def __init__(self) -> None:
        self._number = 0

    def are_few_with(self, number: int) -> bool:
        """Counts one more, given its number, and returns whether only single rows are bad."""
        self._number += 1
        return number > 1 and self._number <= max(_MOST_BAD_ROWS, number // 10)


def _fit_cells(cells: list[str], header: Sequence[str]) -> list[str]:
    """Returns the cells of a row that `fits_header`, with as many cells as the header."""
    expected = len(header)
    missing = expected - len(cells)
    return cells[:expected] + [""] * missing


def _refuse_row(
    path: str, number: int, cells: Sequence[str], expected: int, bad_rows: _BadRows
) -> BadRow:
    """Returns a stand-in for a row whose number of cells differs from the header's.

    Args:
        path: the table.
        number: the number of the row.
        cells: the cells of the row.
        expected: how many cells the row should have.
        bad_rows: counts such rows.

    Raises:
        DataError: other rows may be damaged too: there are too many bad rows, or this one has a
            cell of several lines, like rows after a missing quote.
    """
    num_cells = counted(len(cells), "cell")
    has_several_lines = any("\n" in cell or "\r" in cell for cell in cells)
    if not has_several_lines and bad_rows.are_few_with(number):
        line = number.line if isinstance(number, RowAtLine) else number + 1
        cause = "is a value cut, or a delimiter missing?"
        if len(cells) > expected:
            cause = "is a delimiter within a value without quotes?"
        return BadRow(RowAtLine(number, line), f"{num_cells} instead of {expected}; {cause}")
    cause = "is a quote missing?"
    if not has_several_lines and len(cells) > expected:
        cause = _WITHOUT_NAMES if number == 1 else _LEAVE_OUT
    raise damaged_table(
        name_row(path, number), f"has {num_cells}, but the header has {expected}; {cause}"
    )


def _leave_out_unnamed(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the columns of a header, without unnamed columns that have no value in some rows.

    Programs write such columns as commas at the end of each line.
    """
    with_values = {place for row in rows for place, cell in enumerate(row) if cell}
    return [name for place, name in enumerate(header) if name or place in with_values]


def _list_unnamed(header: Sequence[str]) -> list[int]:
    """Lists the positions of columns without a name."""
    return [place for place, name in enumerate(header) if not name]


def _check_unnamed(path: str, number: int, cells: Sequence[str], unnamed: Iterable[int]) -> None:
    """Checks that a row has no value in columns without a name, which no feature stores.

    Args:
        path: the table.
        number: the number of the row.
        cells: the cells of the row.
        unnamed: the positions of these columns.

    Raises:
        DataError: the row has such a value.
    """
    for place in unnamed:
        if cells[place]:
            raise damaged_table(
                name_row(path, number),
                f"has {cells[place]!r:.60} in a column without a name; give the column one in the "
                "header, or name the columns that become features with `feature_columns=`",
            )


class JsonLines(ObjectFormat):
    """JSON Lines: an object in each line that is not blank."""

    may_be_gzipped = True
    may_have_box_rows = True

    def read_objects(
        self, path: str, file: IO[bytes], selection: ColumnSelection
    ) -> Iterator[dict[str, Any] | BadRow]:
        bound = _RowBound()
        bad_rows = _BadRows()
        num_blank = 0
        for line_number, line in enumerate(read_lines(file, bound), 1):
            if line.isspace():
                num_blank += 1
                continue
            bound.refill()
            row: dict[str, Any] | BadRow
            try:
                row = _parse_object(line)
            except ValueError as error:
                number = line_number - num_blank
                if not bad_rows.are_few_with(number):
                    raise
                row = BadRow(RowAtLine(number, line_number), str(error))
            yield row


def _parse_object(line: str) -> dict[str, Any]:
    if _ARRAY.match(line):
        raise ValueError(
            "begins an array; write one object in a line, without brackets and commas around "
            "them, as jq -c '.[]' does"
        )
    check_json(line)
    try:
        row = parse_json(line)
    except json.JSONDecodeError as error:
        place = f"character {error.pos + 1}"
        raise ValueError(
            f"is not valid JSON: {error.msg} ({place}); write one object in a line"
        ) from None
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError('is not a JSON object, such as {"image": "1.jpg"}')
    return row


class _RowBound:
    """A bound on the text of each row, which may have several lines, and blank ones before it.

    Args:
        delimiter: the delimiter between the cells of a line; empty if it has no cells.
    """

    def __init__(self, delimiter: str = "") -> None:
        self._delimiter = delimiter.encode()
        self._room = MAX_ROW_BYTES

    def refill(self) -> None:
        """Notes that a row is complete."""
        self._room = MAX_ROW_BYTES

    def take(self, line: bytes) -> None:
        """Notes that a row has one more line.

        Raises:
            ValueError: the row is too long, or the line has too many cells.
        """
        num_bytes = len(line)
        self._room -= num_bytes
        if self._room < 0:
            problem = f"has more than {MAX_ROW_BYTES:,} bytes"
            cure = "; is a quote not closed?" if self._delimiter else ""
            raise ValueError(problem + cure)
        if num_bytes > MAX_VALUES and self._delimiter:
            check_number(line.count(self._delimiter))

    def refill_after_each(self, rows: Iterable[list[str]]) -> Iterator[list[str]]:
        """Yields the rows that are not empty, and notes that each is complete."""
        for cells in rows:
            if cells:
                self.refill()
                yield cells


def read_lines(file: IO[bytes], bound: _RowBound, line_end: bytes = b"\n") -> Iterator[str]:
    """Yields the lines of a text file, with their ends.

    Raises:
        ValueError: a row is too long, or a line is not UTF-8.
    """
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)
    lines = _split_file(file, line_end) if line_end != b"\n" else _read_by_line(file)
    for line in lines:
        bound.take(line)
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"byte 0x{line[error.start]:02x} is not valid UTF-8; save the table as UTF-8"
                f"{_suggest_command(line)}"
            ) from None


def _suggest_command(line: bytes) -> str:
    """Returns the command that converts a text to UTF-8, given a line of it that is not UTF-8."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "; it is UTF-16: iconv -f UTF-16 -t UTF-8 OLD > NEW"
    return "; if a program on Windows wrote it, iconv -f CP1252 -t UTF-8 OLD > NEW does"


def _read_by_line(file: IO[bytes]) -> Iterator[bytes]:
    while line := file.readline(MAX_ROW_BYTES + 1):
        yield line


def _split_file(file: IO[bytes], line_end: bytes) -> Iterator[bytes]:
    r"""Yields the lines of a file whose line ends are not b"\n", with these ends."""
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        *lines, rest = (rest + block).split(line_end)
        for line in lines:
            yield line + line_end
        if len(rest) > MAX_ROW_BYTES:
            break
    if rest:
        yield rest
