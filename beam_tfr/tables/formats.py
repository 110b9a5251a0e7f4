"""Reads the rows of tables: CSV, TSV, JSON Lines (also gzipped) and Parquet.

Memory is bounded by the longest row, or by a batch of rows for Parquet, whatever the size of the file.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

from beam_tfr import storage
from beam_tfr.schema import DataError, UsageError

MAX_LINE_BYTES = 64 << 20  # 64 MiB; an unclosed quote makes one line of the rest of a file
PARQUET_BATCH_ROWS = 1024
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_DELIMITERS = {"csv": ",", "tsv": "\t"}


class Row(NamedTuple):
    """A row of a table: its number, from 1, and a cell for each requested column, None where it is missing."""

    number: int
    cells: Sequence[Any]


def split_suffix(path: str) -> tuple[str, str]:
    """Splits "photos/labels.csv.gz" into ("photos/labels", "csv").

    Raises:
        UsageError: the file is of another kind, by its name.
    """
    stem, suffix = os.path.splitext(path.removesuffix(".gz"))
    form = SUFFIXES.get(suffix.lower())
    if form is None or (form == "parquet" and path.endswith(".gz")):
        allowed = f"the name must end in {', '.join(SUFFIXES)}; all but Parquet may be gzipped (.gz)"
        raise UsageError(allowed, option="table", value=path)
    return stem, form


def is_typed(path: str) -> bool:
    """True for tables whose values have types, as in JSON and Parquet."""
    return split_suffix(path)[1] not in _DELIMITERS


def read_rows(path: str, columns: Sequence[str], *, known: Sequence[str] = ()) -> Iterator[Row]:
    """Yields the rows of one table.

    Args:
        path: local or gs://.
        columns: the columns to read.
        known: all columns that the table may have; empty for any.

    Raises:
        UsageError: the file cannot be opened, or lacks a column.
        DataError: the table is damaged; names the row.
    """
    form = split_suffix(path)[1]
    with _named_errors(path), storage.open_binary(path) as file:
        if form == "parquet":
            yield from _parquet(path, file, columns, known)
        else:
            read = _json_lines if form == "jsonl" else _delimited
            with _decompressed(file) as text:
                yield from read(path, _Lines(path, text), columns, known)


def read_columns(path: str, rows: int) -> list[str]:
    """The column names of one table; for JSON Lines, those of its first `rows` rows.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    form = split_suffix(path)[1]
    with _named_errors(path), storage.open_binary(path) as file:
        if form == "parquet":
            return _parquet_file(path, file).schema_arrow.names  # type: ignore[no-any-return]
        with _decompressed(file) as text:
            lines = _Lines(path, text)
            if form == "jsonl":
                names: dict[str, None] = {}
                for _, row in itertools.islice(_json_objects(path, lines), rows):
                    names |= dict.fromkeys(row)
                return list(names)
            return _header(path, _csv_rows(path, form, lines))


@contextlib.contextmanager
def _named_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", option="table", value=path) from error


@contextlib.contextmanager
def _decompressed(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Decompresses what begins like gzip, whatever its name: gs:// may have decompressed it (Content-Encoding)."""
    compressed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    if not compressed:
        yield file
        return
    with gzip.open(file) as inside:
        yield cast(IO[bytes], inside)


def _damaged(path: str, problem: str, *, row: int = 0) -> DataError:
    return DataError(problem, option="table", value=f"{path}, row {row}" if row else path)


class _Lines:
    """The lines of a text file, with their line ends.

    Attributes:
        row: number of the last row read; errors name the next one.
    """

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self._path, self._file, self.row = path, file, 0

    def fail(self, problem: str) -> DataError:
        return _damaged(self._path, problem, row=self.row + 1)

    def __iter__(self) -> Iterator[str]:
        start = b"\xef\xbb\xbf"  # a byte order mark, if there is one
        while True:
            try:
                line = self._file.readline(MAX_LINE_BYTES + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise self.fail(f"the compressed data is damaged: {error}") from error
            if not line:
                return
            if start and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise self.fail("the text is UTF-16; save it as UTF-8")
            if len(line) > MAX_LINE_BYTES:
                raise self.fail(f"a line has more than {MAX_LINE_BYTES} bytes")
            try:
                yield line.removeprefix(start).decode()
            except UnicodeDecodeError as error:
                found = error.object[error.start]
                raise self.fail(f"byte 0x{found:02x} is not valid UTF-8; save the table as UTF-8") from None
            start = b""


def _csv_rows(path: str, form: str, lines: _Lines) -> Iterator[list[str]]:
    """Yields the rows that are not empty.

    Raises:
        DataError: a line cannot be read, or the quotes do not match.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    rows = csv.reader(lines, delimiter=_DELIMITERS[form], strict=True)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise lines.fail(f"{error}; is a quote not closed, or not doubled?") from None
        if row:
            yield row


def _header(path: str, rows: Iterator[list[str]]) -> list[str]:
    header = next(rows, None)
    if header is None:
        raise _damaged(path, "is empty; its first line must name the columns")
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise _damaged(path, f"has two columns {twice[0]!r}; rename one")
    return header


def _delimited(path: str, lines: _Lines, columns: Sequence[str], known: Sequence[str]) -> Iterator[Row]:
    rows = _csv_rows(path, split_suffix(path)[1], lines)
    header = _header(path, rows)
    check_columns(path, header, columns, known)
    places = [header.index(name) for name in columns]
    for number, cells in enumerate(rows, 1):
        if len(cells) != len(header):
            raise lines.fail(f"has {len(cells)} cells, but the header has {len(header)}; is a quote missing?")
        lines.row = number
        yield Row(number, [cells[place] for place in places])


def _json_lines(path: str, lines: _Lines, columns: Sequence[str], known: Sequence[str]) -> Iterator[Row]:
    allowed = set(known)
    for number, row in _json_objects(path, lines):
        if known and not row.keys() <= allowed:
            check_columns(f"{path}, row {number}", [*row], (), known)
        yield Row(number, [row.get(name) for name in columns])


def _json_objects(path: str, lines: _Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the row number and the object of each line that is not blank.

    Raises:
        DataError: a line cannot be read, or is not a JSON object.
    """
    for number, line in enumerate((line for line in lines if not line.isspace()), 1):
        yield number, _json_object(path, number, line)
        lines.row = number


def _json_object(path: str, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _damaged(path, f"is not valid JSON: {said}", row=number) from None
    if not isinstance(row, dict):
        raise _damaged(path, 'is not a JSON object, such as {"image": "1.jpg"}', row=number)
    return row


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _parquet_file(path: str, file: IO[bytes]) -> Any:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, f"is not a Parquet file: {_first_line(error)}") from None


def _parquet(path: str, file: IO[bytes], columns: Sequence[str], known: Sequence[str]) -> Iterator[Row]:
    import pyarrow

    table = _parquet_file(path, file)
    check_columns(path, table.schema_arrow.names, columns, known)
    number = 0
    try:
        for batch in table.iter_batches(PARQUET_BATCH_ROWS, columns=list(columns), use_threads=False):
            cells: list[list[Any]] = [batch.column(name).to_pylist() for name in columns]
            for row in zip(*cells, strict=True):
                number += 1
                yield Row(number, row)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = (
            f"this or one of the next {PARQUET_BATCH_ROWS} rows is damaged: {_first_line(error)}; write the file again"
        )
        raise _damaged(path, problem, row=number + 1) from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


def check_columns(path: str, there: Sequence[str], wanted: Sequence[str], known: Sequence[str] = ()) -> None:
    """Checks the columns that a table has against those that are wanted and those that are known.

    Raises:
        UsageError: a column is missing, repeated or unknown.
    """
    for name in wanted:
        if there.count(name) > 1:
            problem = f"has {there.count(name)} columns {name!r}; rename all but one"
            raise UsageError(problem, option="table", value=path)
        if name not in there:
            problem = f"there is no column {name!r}; there are: {', '.join(there)[:500]}"
            raise UsageError(problem, option="table", value=path)
    if known and (more := [name for name in there if name not in known]):
        problem = f"column {more[0]!r} is not in the first rows of the first table"
        cure = "name the columns that become features with `feature_columns=`"
        raise UsageError(f"{problem}; {cure}", option="table", value=path)
