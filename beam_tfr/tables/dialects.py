"""Finds out how a text table is written: its delimiter, line ends, and lines above the header.

The file extension says which delimiter to expect. Another delimiter is used if it is the only other
delimiter that divides the header and the first rows evenly, and the expected delimiter does not, or
divides them into fewer cells.
"""

import codecs
import contextlib
import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from beam_tfr.features.cells import NUMBER
from beam_tfr.tables.first_lines import describe_first_lines
from beam_tfr.tables.headers import (
    IMAGE,
    SPLIT_WORDS,
    find_values,
    guess_names,
    may_be_numbers,
    show_names,
)

PEEKED_BYTES = 64 << 10  # 64 KiB, from which the dialect is found
_PEEKED_ROWS = 50
_FIRST_LINES = 20  # of which some may be above the header
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
# The line on which Excel names the delimiter.
_SEP_LINE = re.compile(r'"?sep=(?P<delimiter>.)"?', re.IGNORECASE)
_QUOTED = re.compile(r"'[^']+'")
_ZIP = b"PK\x03\x04"
_COMMENT = "#"
# The beginning of a file that is not a table -> what it is.
_NO_TABLES = {
    "<(?:!doctype|html|[?]xml)": "is an HTML or XML page, not a table",
    "version https://git-lfs": "is a Git LFS pointer, not the table; git lfs pull gets the table",
}
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?")
# A comma that the digits after it show to be a decimal comma: 0,012 or 12,05.
_SURE_COMMA = re.compile("[+-]?(?:0,0[0-9]+|[0-9]+,0[0-9])")
_DECIMAL = re.compile(r"[+-]?[0-9]+\.[0-9]+")
_AUTOML = ("set", "path", "label", "xmin", "ymin", "", "", "xmax", "ymax", "", "")


class Dialect(NamedTuple):
    """The dialect of a text table.

    Attributes:
        delimiter: the delimiter between cells.
        skipped_lines: the number of lines before the header.
        line_end: the characters that end a line.
        has_spaces: whether spaces around cells are not part of the cells.
        quote: the quote character around cells that may hold delimiters.
        decimal_commas: the numbers, from 0, of columns in which commas are decimal points.
        header: the names of the columns, if no line names them.
        notes: notes for users about unusual features of the table.
    """

    delimiter: str
    skipped_lines: int = 0
    line_end: bytes = b"\n"
    has_spaces: bool = False
    quote: str = '"'
    decimal_commas: frozenset[int] = frozenset()
    header: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class _Start(NamedTuple):
    """The beginning of a table.

    Attributes:
        line_end: the characters that end a line.
        lines: the first lines, without line ends.
    """

    line_end: str
    lines: Sequence[str]


def find_dialect(start: bytes, delimiter: str) -> Dialect:
    """Finds the dialect of a table, given its first bytes.

    Args:
        start: up to `PEEKED_BYTES`.
        delimiter: the delimiter that the table's name implies.

    Raises:
        ValueError: the file is not a table, or it is unclear which other delimiter the table has.
    """
    _check_text(start)
    if b"\0" in start:
        return Dialect(delimiter)  # reading the row raises the error
    begin = _split_lines(start)
    skipped, named_delimiter = _skip_lines(begin.lines, delimiter)
    lines = begin.lines[skipped:]
    chosen = named_delimiter or _choose_delimiter(lines, delimiter)
    _check_first_lines(begin, chosen, skipped)
    rows = _parse_rows(lines, chosen)
    quote = "'" if all(map(_QUOTED.fullmatch, rows[0])) else '"'
    header, *others = _parse_rows(lines, chosen, quote)
    rows = [header, *(row for row in others if fits_header(row, header))]
    dialect = Dialect(
        delimiter=chosen,
        skipped_lines=skipped,
        line_end=begin.line_end.encode(),
        has_spaces=_has_spaces(rows),
        quote=quote,
        decimal_commas=_find_decimal_commas(rows, chosen),
        header=_AUTOML if all(map(_is_of_automl, rows)) else (),
    )
    notes = _describe_start(begin, skipped, named_delimiter)
    if chosen != delimiter and not named_delimiter:
        notes.append(f"its columns are separated by {DELIMITERS[chosen]}")
    notes += _describe_cells(dialect, rows)
    return dialect._replace(notes=tuple(notes))


def _describe_cells(dialect: Dialect, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields notes about unusual headers and cells."""
    if dialect.quote == "'":
        yield "its cells are in single quotes"
    if dialect.has_spaces:
        yield "spaces around its cells, such as a space after the comma, are ignored"
    if dialect.decimal_commas:
        names = ", ".join(rows[0][number] for number in sorted(dialect.decimal_commas))
        yield f"commas in numbers are decimal points in these columns: {names}"
    if dialect.header:
        yield "it has no header; its columns are those of AutoML: set, path, label and boxes"
    else:
        yield from _doubt_header(rows, dialect.delimiter)


def fits_header(cells: Sequence[str], header: Sequence[str]) -> bool:
    """Whether a row has a cell for each named column.

    Cells beyond the header must be empty, and cells of unnamed columns may be missing.
    """
    return not any(cells[len(header) :]) and not any(header[len(cells) :])


def read_decimal_comma(cell: str) -> str:
    """Returns a cell, with a decimal point in place of a decimal comma."""
    return cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell.strip()) else cell


def _check_text(start: bytes) -> None:
    """Checks that a table is text.

    NUL characters after the first line, and UTF-16 with a byte order mark, are reported later, by
    the reader of the table.

    Raises:
        ValueError: the file is not text.
    """
    if start.startswith(_ZIP):
        raise ValueError("is a zip file, such as an Excel workbook; save the table as CSV")
    header = start.partition(b"\n")[0]
    is_marked = header.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if b"\0" in header and not is_marked:
        raise ValueError(
            "has NUL characters in its first line: is it UTF-16? Save it as UTF-8: "
            "iconv -f UTF-16LE -t UTF-8 OLD > NEW"
        )
    for pattern, problem in _NO_TABLES.items():
        if re.match(pattern, header.decode("utf-8-sig", "replace").strip(), re.IGNORECASE):
            raise ValueError(problem)


def _split_lines(start: bytes) -> _Start:
    text = start.decode("utf-8-sig", "replace")
    line_end = "\r" if "\r" in text and "\n" not in text else "\n"
    lines = text.split(line_end)
    if len(start) >= PEEKED_BYTES and len(lines) > 1:
        lines.pop()  # the last line may be cut off
    return _Start(line_end, [line.rstrip("\r") for line in lines])


def _skip_lines(lines: Sequence[str], delimiter: str) -> tuple[int, str]:
    """Returns the number of lines before the header, and the delimiter if a line names it.

    A line that begins with # is a comment if it has a different number of cells than the next line.
    """
    skipped = 0
    while skipped < len(lines) and not lines[skipped].strip():
        skipped += 1
    named = _SEP_LINE.fullmatch(lines[skipped].strip(" ")) if skipped < len(lines) else None
    if named:
        return skipped + 1, named["delimiter"]
    while skipped + 1 < len(lines) and lines[skipped].startswith(_COMMENT):
        below = lines[skipped + 1]
        if not below.startswith(_COMMENT) and not _differ(lines[skipped], below, delimiter):
            break
        skipped += 1
    return skipped, ""


def _differ(line: str, below: str, delimiter: str) -> bool:
    """Whether a line has a different number of cells than the line below it.

    Cells are divided by the delimiter that divides the line below into the most cells.
    """
    cells_below = {mark: _count_cells(below, mark) for mark in {delimiter, *DELIMITERS}}
    most = max(cells_below.values())
    if most < 2:
        return False
    marks = [mark for mark, number in cells_below.items() if number == most]
    return all(_count_cells(line, mark) != most for mark in marks)


def _count_cells(line: str, delimiter: str) -> int:
    """Counts the cells of a line; quoted cells may contain the delimiter."""
    return len(_parse_rows([line], delimiter)[0])


class _Division(NamedTuple):
    """A delimiter, and how it divides the rows of a table.

    Attributes:
        delimiter: the delimiter.
        number: the number of cells in the header.
        is_even: whether at least nine in ten of the first rows have that many cells.
    """

    delimiter: str
    number: int
    is_even: bool

    def is_better_than(self, other: Self) -> bool:
        """Whether only this delimiter divides rows evenly, or it divides them into more cells."""
        if not self.is_even:
            return False
        return not other.is_even or self.number > other.number


def _check_first_lines(begin: _Start, chosen: str, skipped: int) -> None:
    """Checks that the first line names the columns, judging by the lines below it.

    Other delimiters are tried too, since there may be a title without delimiters above the header.

    Args:
        begin: the beginning of the table.
        chosen: the delimiter.
        skipped: the number of lines above the first.

    Raises:
        ValueError: the first line is something else.
    """
    first_lines = begin.lines[skipped:][:_FIRST_LINES]
    for mark in dict.fromkeys([chosen, *DELIMITERS]):
        rows = [_parse_rows([line], mark)[0] for line in first_lines]
        has_images = any(map(IMAGE.fullmatch, itertools.chain.from_iterable(rows)))
        if mark == chosen or has_images:
            problem = describe_first_lines(rows, skipped, begin.line_end)
            if problem:
                raise ValueError(problem)


def _choose_delimiter(lines: Sequence[str], delimiter: str) -> str:
    """Returns the delimiter of a table, given the expected delimiter.

    Another delimiter is used if it divides the header and the rows evenly, and the expected
    delimiter does not, or divides them into fewer cells.

    Raises:
        ValueError: the table has another delimiter, but it is unclear which.
    """
    expected = _divide(lines, delimiter)
    others = [_divide(lines, mark) for mark in DELIMITERS if mark != delimiter]
    dividing = [other for other in others if other.number > 1]
    better = [other for other in dividing if other.is_better_than(expected)]
    if len(better) == 1:
        return better[0].delimiter
    if expected.number > 1 or not dividing:
        return delimiter
    header = next(filter(str.strip, lines), "")
    names = " or ".join(DELIMITERS[other.delimiter] for other in dividing)
    raise ValueError(
        f"its header {header!r:.100} has {names} instead of {DELIMITERS[delimiter]}, but not all "
        f"rows have as many as the header; save the table with {DELIMITERS[delimiter]} between "
        "columns"
    )


def _divide(lines: Sequence[str], delimiter: str) -> _Division:
    rows = _parse_rows(lines, delimiter)
    return _Division(delimiter, len(rows[0]), _has_equal_rows(rows))


def _parse_rows(lines: Sequence[str], delimiter: str, quote: str = '"') -> list[list[str]]:
    """Parses the first nonempty rows, up to a row that cannot be parsed.

    Returns an empty row if there is none.
    """
    rows = list[list[str]]()
    parsed: Iterator[list[str]] = csv.reader(
        [f"{line}\n" for line in lines], delimiter=delimiter, quotechar=quote, strict=True
    )
    with contextlib.suppress(csv.Error):  # reading the table raises an error that says where
        for row in itertools.islice(filter(None, parsed), _PEEKED_ROWS):
            rows.append(row)
    return rows or [[]]


def _has_equal_rows(rows: Sequence[Sequence[str]]) -> bool:
    """Whether rows have as many cells as the first row, apart from empty cells at the end.

    Up to one row in ten may have another number of cells, but not the second row.
    """
    number = len(rows[0])
    are_equal = [len(row) >= number and not any(row[number:]) for row in rows]
    return all(are_equal[:2]) and 10 * are_equal.count(False) <= len(rows)


def _has_spaces(rows: Sequence[Sequence[str]]) -> bool:
    """Whether spaces surround column names, or precede all cells but the first of each row."""
    header, *others = rows
    for name in header:
        if name.strip() and name != name.strip(" "):
            return True
    later_cells = [cell for row in others for cell in row[1:] if cell]
    return bool(later_cells) and all(cell.startswith(" ") for cell in later_cells)


def _find_decimal_commas(rows: Sequence[Sequence[str]], delimiter: str) -> frozenset[int]:
    """Returns the indexes of columns of numbers, some of which have a decimal comma.

    Unless the delimiter is a semicolon, as in spreadsheets with decimal commas, a number such as
    0,012 must show that commas separate neither thousands nor whole numbers.
    """
    columns = frozenset(_find_numbers_with_commas(rows))
    if delimiter == ";":
        return columns
    cells = [row[number].strip() for row in rows for number in columns if len(row) > number]
    return columns if any(map(_SURE_COMMA.fullmatch, cells)) else frozenset()


def _find_numbers_with_commas(rows: Sequence[Sequence[str]]) -> Iterator[int]:
    """Yields the indexes of columns of numbers, some of which have a single comma."""
    header, *others = rows
    for number in range(len(header)):
        cells = {row[number].strip() for row in others if len(row) > number}
        numbers = cells - {""}
        with_commas = {*filter(DECIMAL_COMMA.fullmatch, numbers)}
        if with_commas and all(map(NUMBER.fullmatch, numbers - with_commas)):
            yield number


def _describe_start(begin: _Start, skipped: int, named_delimiter: str) -> list[str]:
    """Returns notes about unusual line ends, and about lines before the header."""
    notes = []
    if begin.line_end == "\r":
        notes.append("its lines end in carriage returns")
    skipped_lines = [*filter(str.strip, begin.lines[:skipped])]
    if named_delimiter:
        notes.append(f"its first line, {skipped_lines[0].strip()}, names the delimiter")
    elif skipped_lines:
        notes.append(f"lines before its header are skipped: {skipped_lines[0]!r:.60}")
    return notes


def _is_of_automl(row: Sequence[str]) -> bool:
    """Whether a row has a split, an image, a class, and the corners of a box or empty cells."""
    if len(row) not in range(9, len(_AUTOML) + 1):
        return False
    corners = [*row[3:5], *row[7:9]]
    is_named = row[0].lower() in SPLIT_WORDS and IMAGE.fullmatch(row[1]) is not None
    return is_named and all(NUMBER.fullmatch(corner) or not corner for corner in corners)


def _doubt_header(rows: Sequence[Sequence[str]], delimiter: str) -> Iterator[str]:
    """Yields doubts about a header that is used as it is."""
    header = rows[0]
    joined = delimiter.join(header)
    if joined.startswith(f"{_COMMENT} "):
        yield f"its first line, {joined!r:.60}, names the columns; remove it if it is a comment"
    for mark, name in DELIMITERS.items():
        if mark != delimiter and joined.count(mark) >= len(header):
            expected = DELIMITERS.get(delimiter, delimiter)
            yield f"its columns are separated by {expected}, but its header also has {name}"
    has_values = any(map(_DECIMAL.fullmatch, header)) or may_be_numbers(header)
    if has_values or find_values(header, rows[1:]):
        names = show_names(guess_names(header, rows[1:]))
        yield (
            f"its first line, {joined!r:.60}, names the columns; if it is a row of data, write a "
            f"line with names before it, such as {names}"
        )
    if len(header) > 1:
        return
    numbers_of_words = {len(row[0].split()) for row in rows if row}
    if len(rows) > 1 and len(numbers_of_words) == 1 and numbers_of_words != {1}:
        yield (
            f"it has one column, {joined!r:.60}; if spaces separate columns, save it with "
            f"{DELIMITERS.get(delimiter, delimiter)}"
        )
