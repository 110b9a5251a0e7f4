"""Reads the rows of tables: CSV, TSV, JSON Lines (also gzipped), Parquet, and annotations of
objects.

Memory is bounded by the longest row, or by a batch of rows for Parquet, regardless of the size of
the file.
"""

import codecs
import collections
import contextlib
import csv
import gzip
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar, cast

from beam_tfr import storage
from beam_tfr.inputs.listing import suggest_dataset
from beam_tfr.inputs.parquet import image_column, image_entry, open_parquet, read_batches
from beam_tfr.options.implied import ANNOTATIONS, implied_options, optional_columns
from beam_tfr.records.tfrecords import HEADER_BYTES, is_gzip
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.tables.annotations import read_annotations
from beam_tfr.tables.samples import read_samples

MAX_LINE_BYTES = 64 << 20  # 64 MiB; an unclosed quote makes one line of the rest of a file
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
SUFFIXES |= dict.fromkeys(ANNOTATIONS, "annotations")
SUFFIXES |= dict.fromkeys((".tar", ".tfrecord", ".tfrecords", ".tfrec"), "samples")
_GZIPPED = ("csv", "tsv", "jsonl")
_TEXT = re.compile(r"(?:dictionary<values=)?(?:large_)?string")  # as pyarrow names types
DELIMITERS = {"csv": ",", "tsv": "\t"}
T = TypeVar("T")


Row = tuple[
    int, Sequence[Any]
]  # its number, from 1, and a cell for each requested column, None where it is missing


def split_suffix(path: str) -> tuple[str, str]:
    """Splits "photos/labels.csv.gz" into ("photos/labels", "csv").

    Raises:
        UsageError: the file is of another kind, by its name.
    """
    stem, suffix = os.path.splitext(path.removesuffix(".gz"))
    suffix, dash, shard = suffix.partition("-")  # train.tfrecord-00000-of-00010
    form = SUFFIXES.get(suffix.lower())
    if (
        form is None
        or (path.endswith(".gz") and form not in _GZIPPED)
        or (shard and form != "samples")
    ):
        names = f"the name must end in {', '.join(SUFFIXES)}"
        cure = (
            suggest_dataset(path.rpartition("/")[0])
            or "; the first four may be gzipped (.gz), decompress others"
        )
        raise table_error(path, f"{names}{cure}")
    return stem + dash + shard, form


def read_rows(
    path: str,
    columns: Sequence[str],
    *,
    known: Sequence[str] = (),
    images: Sequence[str] = (),
    label: str = "",
) -> Iterator[Row]:
    """Yields the rows of one table.

    Args:
        path: local or gs://.
        columns: the columns to read.
        known: all columns that the table may have; empty for any.
        images: the column whose bytes are images, and, in TFRecords and tars, those of masks and
            pairs beside it.
        label: column whose numbers are classes, if the schema of a Parquet file names them.

    Raises:
        UsageError: the file cannot be opened, or lacks a column.
        DataError: the table is damaged; names the row.
    """
    with _opened(path) as file:
        if isinstance(file, storage.Entry):
            yield from _parquet(file, columns, known, "".join(images[:1]), label)
        elif split_suffix(path)[1] in DELIMITERS:
            yield from _delimited(path, file, columns, known)
        else:
            yield from _objects(path, _numbered_objects(path, file, images), columns, known)


def read_columns(path: str, rows: int) -> list[str]:
    """The column names of one table; for JSON Lines, those of its first `rows` rows.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    form = split_suffix(path)[1]
    if form == "annotations" and (implied := implied_options(path, {})):
        roles = [name for name in implied.values() if isinstance(name, str)]
        return [*roles, *implied["feature_columns"], *optional_columns(path)]
    with _opened(path) as file:
        if form == "parquet":
            return open_parquet(file).schema_arrow.names  # type: ignore[no-any-return]
        if form in ("jsonl", "samples"):
            objects = itertools.islice(_numbered_objects(path, file), rows)
            return list(dict.fromkeys(name for _, row in objects for name in row))
        return _csv_rows(path, file)[0]


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Opens a table; Parquet, of which only parts are read, is only listed.

    One that begins like gzip is decompressed, since gs:// may decompress a .gz (Content-Encoding).
    """
    try:
        if split_suffix(path)[1] == "parquet" and (listed := storage.find(path)):
            yield listed
            return
        with storage.open_binary(path) as file:
            compressed = is_gzip(file.read(HEADER_BYTES))
            file.seek(0)
            yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if compressed else file
    except OSError as error:
        raise table_error(path, f"cannot be read: {error.strerror or error}") from error


def table_error(path: str, problem: str) -> UsageError:
    """The error for a table that does not fit the call."""
    return UsageError(problem, option="table", value=path)


def _damaged(path: str, problem: object, row: int = 0) -> DataError:
    return DataError(str(problem), option="table", value=f"{path}, row {row}" if row else path)


def _numbered(path: str, rows: Iterable[T], first: int = 1) -> Iterator[tuple[int, T]]:
    """Numbers the rows.

    Raises:
        DataError: the next row cannot be read; names it.
    """
    number = first - 1
    try:
        for number, row in enumerate(rows, first):
            yield number, row
    except csv.Error as error:
        raise _damaged(
            path, f"{error}; is a quote not closed, or not doubled?", number + 1
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, f"the compressed data is damaged: {error}", number + 1) from error
    except ValueError as error:
        raise _damaged(path, error, number + 1) from None


def _lines(file: IO[bytes]) -> Iterator[str]:
    """The lines of a text file, with their ends.

    Raises:
        ValueError: a line is too long, or not UTF-8.
    """
    if file.read(3) != codecs.BOM_UTF8:
        file.seek(0)
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a line has more than {MAX_LINE_BYTES} bytes")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"byte 0x{line[error.start]:02x} is not valid UTF-8; save the table as UTF-8"
            ) from None


def _csv_rows(path: str, file: IO[bytes]) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The header, and the numbered rows that are not empty.

    Raises:
        DataError: a line cannot be read, or the quotes do not match.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    lines = csv.reader(_lines(file), delimiter=DELIMITERS[split_suffix(path)[1]], strict=True)
    rows = _numbered(path, filter(None, lines), 0)
    _, header = next(rows, (0, []))
    if not header:
        raise _damaged(path, "is empty; its first line must name the columns")
    return header, rows


def _delimited(
    path: str, file: IO[bytes], columns: Sequence[str], known: Sequence[str]
) -> Iterator[Row]:
    header, rows = _csv_rows(path, file)
    check_columns(path, header, columns, known)
    places = [header.index(name) for name in columns]
    for number, cells in rows:
        if len(cells) != len(header):
            problem = (
                f"has {len(cells)} cells, but the header has {len(header)}; is a quote missing?"
            )
            raise _damaged(path, problem, number)
        yield number, [cells[place] for place in places]


def _objects(
    path: str, rows: Iterable[tuple[int, Any]], columns: Sequence[str], known: Sequence[str]
) -> Iterator[Row]:
    allowed = set(known)
    for number, row in rows:
        if known and not row.keys() <= allowed:
            check_columns(f"{path}, row {number}", [*row], (), known)
        yield number, [row.get(name) for name in columns]


def _numbered_objects(
    path: str, file: IO[bytes], images: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbered JSON objects of the lines that are not blank, or the images of annotations.

    Raises:
        DataError: a line cannot be read, or is not a JSON object.
    """
    form = split_suffix(path)[1]
    if form == "samples":
        return _numbered(path, read_samples(path, file, images))
    if form == "annotations":
        return _numbered(path, read_annotations(path, file))
    return _numbered(path, (_json_object(line) for line in _lines(file) if not line.isspace()))


def _json_object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError('is not a JSON object, such as {"image": "1.jpg"}')
    return row


def read_class_names(path: str, column: str) -> list[str]:
    """The classes that the numbers in a column of a Parquet file stand for, if Hugging Face's
    metadata name them.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    names = list[str]()
    if split_suffix(path)[1] == "parquet":
        with _opened(path) as file, contextlib.suppress(LookupError, TypeError, ValueError):
            feature = json.loads(open_parquet(file).schema_arrow.metadata[b"huggingface"])["info"][
                "features"
            ][column]
            while "names" not in feature:  # of a list
                feature = feature[0] if isinstance(feature, list) else feature["feature"]
            names = [*map(str, feature["names"])]
    repeated = [name for name, number in collections.Counter(names).items() if number > 1]
    if repeated:
        raise table_error(
            path, f"two classes of column {column!r} have the name {repeated[0]!r}; rename one"
        )
    return names


def _class_of(cell: Any, names: Mapping[Any, Any]) -> Any:
    """The class with a number, or the classes."""
    if isinstance(cell, list):
        return [_class_of(part, names) for part in cell]
    return names.get(cell, ValueError(f"{cell!a:.100} is the number of no class"))


def _parquet(
    file: storage.Entry, columns: Sequence[str], known: Sequence[str], image: str, label: str
) -> Iterator[Row]:
    table = open_parquet(file)
    path = file.path
    check_columns(path, table.schema_arrow.names, columns, known)
    images = {
        name: leaf
        for name in columns
        if (leaf := image_column(table.schema_arrow.field(name), image))
    }
    others = [name for name in columns if name not in images]
    if image in others and not _TEXT.match(kind := str(table.schema_arrow.field(image).type)):
        raise table_error(
            path,
            f"column {image!r} has the type {kind}; images are bytes, structs with bytes, or paths",
        )
    names: dict[Any, Any] = {-1: None, None: None, **dict(enumerate(read_class_names(path, label)))}
    for first, size, batch in read_batches(path, table, others):
        rows = range(first, first + batch.num_rows)
        cells = {name: batch.column(name).to_pylist() for name in others}
        cells |= {
            name: [image_entry(file, leaf, row, size) for row in rows]
            for name, leaf in images.items()
        }
        if len(names) > 2:
            cells[label] = [_class_of(cell, names) for cell in cells[label]]
        yield from zip(
            (row + 1 for row in rows),
            zip(*(cells[name] for name in columns), strict=True),
            strict=True,
        )


def check_columns(
    path: str, present: Sequence[str], wanted: Sequence[str], known: Sequence[str] = ()
) -> None:
    """Checks the columns that a table has against those that are wanted and those that are known.

    Raises:
        UsageError: a column is missing, repeated or unknown.
    """
    for name in wanted:
        if present.count(name) > 1:
            raise table_error(
                path, f"has {present.count(name)} columns {name!r}; rename all but one"
            )
        if name not in present:
            raise table_error(
                path, f"there is no column {name!r}; there are: {', '.join(present)[:500]}"
            )
    if known and (more := [name for name in present if name not in known]):
        problem = f"column {more[0]!r} is not in the first rows of the first table"
        raise table_error(
            path, f"{problem}; name the columns that become features with `feature_columns=`"
        )
