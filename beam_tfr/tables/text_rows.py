"""Reads the rows of text files: CSV, TSV and JSON Lines."""

import contextlib
import csv
import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

from beam_tfr.features.cells import check_json
from beam_tfr.inputs.outlined_texts import describe_outlined_words, has_outlined_words
from beam_tfr.schema.untrusted import parse_json
from beam_tfr.tables.bad_rows import (
    INNER_LINE_ENDS,
    BadRows,
    describe_quotes,
    refuse_quoted_rows,
    refuse_row,
)
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
    fits_header,
    read_decimal_comma,
)
from beam_tfr.tables.headers import find_row_as_header
from beam_tfr.tables.quoted_rows import find_quoted_rows
from beam_tfr.tables.text_lines import MAX_ROW_BYTES, RowBound, read_lines

_MOST_BELOW_HEADER = 16 << 20  # bytes in memory of the rows that show this
_CELL_BYTES = 57  # of a cell in memory besides its characters
_ROWS_BELOW_HEADER = 50  # rows that show whether the header is a row
_ARRAY = re.compile(r"\s*\[\s*(?:\{|\Z)")  # the beginning of an array of objects


class Delimited(TableFormat):
    """CSV, or text with another delimiter, whose first line names the columns.

    `find_dialect` finds the dialect from the first lines.
    """

    has_types = False
    may_be_gzipped = True
    may_have_box_rows = True

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter

    def read_columns(self, path: str, most_rows: int) -> list[str]:
        with open_table(path) as file:
            if has_outlined_words(peek_table(file, PEEKED_BYTES)):
                raise table_error(path, describe_outlined_words(path))
            lines = _read_lines(path, file, self._find_dialect(path, file))
            header = lines.header
            num_rows = _ROWS_BELOW_HEADER if all(header) else most_rows
            rows = list[list[str]]()
            room = _MOST_BELOW_HEADER
            with contextlib.suppress(DamagedTableError):  # reading the rows raises the error
                for _, cells in itertools.islice(lines.rows, num_rows):
                    if fits_header(cells, header):
                        rows.append(cells)
                    room -= sum(map(len, cells)) + _CELL_BYTES * len(cells)
                    if room < 0:
                        break
        problem = find_row_as_header(header, rows[:_ROWS_BELOW_HEADER])
        if problem:
            raise table_error(path, problem)
        return _leave_out_unnamed(header, rows)

    def read_rows(self, path: str, selection: ColumnSelection) -> Iterator[Row | BadRow]:
        with open_table(path) as file:
            dialect = self._find_dialect(path, file)
            lines = _read_lines(path, file, dialect)
            header = lines.header
            names = [*filter(None, header)]
            check_columns(path, names, selection.columns, selection.known_columns)
            for note in dialect.notes:
                selection.say(f"{path}: {note}")
            place_of = {name: place for place, name in enumerate(header)}
            positions = [place_of[name] for name in selection.columns]
            decimal_commas = dialect.decimal_commas & {*positions}
            unnamed = _list_unnamed(header) if selection.known_columns else []
            if selection.images:
                lines.rows = _skip_empty_rows(path, lines.rows, selection.say)
            for row in _check_rows(path, lines, dialect):
                if isinstance(row, BadRow):
                    yield row
                    continue
                number, cells = row
                if unnamed:
                    _check_unnamed(path, number, cells, unnamed)
                for position in decimal_commas:
                    cells[position] = read_decimal_comma(cells[position])
                yield number, [cells[position] for position in positions]
                if selection.ends_at(file):
                    return

    def read_dialect(self, path: str) -> Dialect:
        """Returns the dialect of a table.

        Raises:
            UsageError: the dialect is unclear.
        """
        with open_table(path) as file:
            return self._find_dialect(path, file)

    def _find_dialect(self, path: str, file: IO[bytes]) -> Dialect:
        try:
            return find_dialect(peek_table(file, PEEKED_BYTES), self.delimiter)
        except ValueError as error:
            raise table_error(path, str(error)) from None


@dataclasses.dataclass
class _Lines:
    """The lines of a table, as rows.

    Attributes:
        header: the names of the columns.
        rows: the numbered rows that are not empty.
        line_of_end: returns the line on which the last row that was read ends, from 1.
        bound: holds the problem of the last row's text, if any.
    """

    header: list[str]
    rows: Iterator[tuple[int, list[str]]]
    line_of_end: Callable[[], int]
    bound: RowBound


def _read_lines(path: str, file: IO[bytes], dialect: Dialect) -> _Lines:
    """Reads the header of a table, and prepares to read its rows.

    Raises:
        DataError: a line cannot be read, or the quotes do not match.
    """
    csv.field_size_limit(MAX_ROW_BYTES)
    bound = RowBound(dialect.delimiter)
    lines = itertools.islice(read_lines(file, bound, dialect.line_end), dialect.skipped_lines, None)
    parser = csv.reader(
        lines,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        skipinitialspace=dialect.has_spaces,
        strict=True,
    )
    cells = _parse_rows(parser, bound, dialect)
    if dialect.has_spaces:
        cells = ([cell.strip(" ") for cell in row] for row in cells)

    def line_of_end() -> int:
        return dialect.skipped_lines + parser.line_num

    filled = bound.refill_after_each(cells)
    if dialect.header:
        return _Lines([*dialect.header], number_rows(path, filled), line_of_end, bound)
    rows = number_rows(path, filled, first=0)
    _, header = next(rows, (0, []))
    if bound.problem:
        raise damaged_table(path, bound.problem)
    if not header:
        raise damaged_table(path, "is empty; its first line must name the columns")
    check_number_of_columns(path, len(header))
    return _Lines(header, rows, line_of_end, bound)


def _parse_rows(
    parser: Iterator[list[str]], bound: RowBound, dialect: Dialect
) -> Iterator[list[str]]:
    """Yields the cells of each row; if a row's quotes do not match, `bound` holds the problem.

    Raises:
        ValueError: quotes do not match across several lines, or in a line with carriage returns,
            which may be several rows.
    """
    while True:
        try:
            yield from parser
            return
        except csv.Error as error:
            problem = describe_quotes(error, dialect.delimiter)
            has_inner_ends = INNER_LINE_ENDS in problem
            if bound.num_lines > 1 or has_inner_ends:
                raise ValueError(problem) from None
            bound.problem = problem
            yield [problem]  # a row without any value may be skipped


def _check_rows(
    path: str, lines: _Lines, dialect: Dialect
) -> Iterator[tuple[int, list[str]] | BadRow]:
    """Yields the numbered rows, each with as many cells as the header, and stand-ins for bad rows.

    Raises:
        DataError: the whole table seems to be damaged.
    """
    header = lines.header
    num_columns = len(header)
    bad_rows = BadRows(path)
    bound = lines.bound
    line_of_end = lines.line_of_end
    for number, cells in lines.rows:
        has_other_line = line_of_end() != number + 1  # the header is line 1
        if has_other_line:
            number = _locate_row(number, cells, line_of_end())
        if bound.problem:
            yield bad_rows.refuse(number, bound.pop_problem())
            continue
        if has_other_line:
            quoted = find_quoted_rows(cells, num_columns, dialect)
            if quoted:
                yield refuse_quoted_rows(number, quoted, dialect, bad_rows)
                continue
        if len(cells) != num_columns:
            if not fits_header(cells, header):
                yield refuse_row(number, cells, num_columns, bad_rows)
                continue
            cells = _fit_cells(cells, header)
        yield number, cells


def _skip_empty_rows(
    path: str, rows: Iterable[tuple[int, list[str]]], say: Callable[[str], object]
) -> Iterator[tuple[int, list[str]]]:
    """Yields the numbered rows that have a value, and reports the first row without any value.

    Spreadsheets write empty rows after the last one.
    """
    is_told = False
    for number, cells in rows:
        if any(cells):
            yield number, cells
        elif not is_told:
            say(f"{path}: rows without any value are skipped, such as row {number}")
            is_told = True


def _locate_row(number: int, cells: Sequence[str], end: int) -> int:
    """Returns the number of a row, along with its line unless the line follows from the number.

    Args:
        number: the number of the row.
        cells: the cells of the row.
        end: the line on which the row ends, from 1.
    """
    line = end - "".join(cells).count("\n")
    return number if line == number + 1 else RowAtLine(number, line)


def _fit_cells(cells: list[str], header: Sequence[str]) -> list[str]:
    """Returns the cells of a row that `fits_header`, with as many cells as the header."""
    expected = len(header)
    missing = expected - len(cells)
    return cells[:expected] + [""] * missing


def _leave_out_unnamed(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the columns of a header, without unnamed columns that have no value in these rows.

    Programs write such columns as commas at the end of each line.
    """
    with_values = {place for row in rows for place, cell in enumerate(row) if cell}
    return [name for place, name in enumerate(header) if name or place in with_values]


def _list_unnamed(header: Sequence[str]) -> list[int]:
    """Lists the positions of columns without a name."""
    return [place for place, name in enumerate(header) if not name]


def _check_unnamed(path: str, number: int, cells: Sequence[str], unnamed: Iterable[int]) -> None:
    """Checks that a row has no value in unnamed columns, which no feature stores.

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
                f"has {cells[place]!r:.60} in a column without a name; name the column in the "
                "header, or choose the columns that become features with `feature_columns=`",
            )


class JsonLines(ObjectFormat):
    """JSON Lines, with an object on each line that is not blank."""

    may_be_gzipped = True
    may_have_box_rows = True

    def read_objects(
        self, path: str, file: IO[bytes], selection: ColumnSelection
    ) -> Iterator[dict[str, Any] | BadRow]:
        bound = RowBound()
        bad_rows = BadRows(path)
        num_blank = 0
        for line_number, line in enumerate(read_lines(file, bound), 1):
            if line.isspace():
                num_blank += 1
                continue
            bound.refill()
            row: dict[str, Any] | BadRow
            try:
                bound.check_text()
                row = _parse_object(line)
            except ValueError as error:
                number = line_number - num_blank
                if not bad_rows.count_one_more(number):
                    raise
                row = BadRow(RowAtLine(number, line_number), str(error))
            yield row


def _parse_object(line: str) -> dict[str, Any]:
    if _ARRAY.match(line):
        raise ValueError(
            "begins an array; write one object on each line, without the brackets and commas of "
            "the array, as jq -c '.[]' does"
        )
    check_json(line)
    try:
        row = parse_json(line)
    except json.JSONDecodeError as error:
        place = f"character {error.pos + 1}"
        raise ValueError(
            f"is not valid JSON: {error.msg} ({place}); write one object on each line"
        ) from None
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError('is not a JSON object, such as {"image": "1.jpg"}')
    return row
