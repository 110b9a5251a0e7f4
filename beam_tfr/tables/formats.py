"""Reads the rows of tables: CSV, TSV, JSON Lines (also gzipped), Parquet, annotations of objects,
and those that hold their images.

Memory is bounded by the longest row, or by a batch of rows for Parquet, regardless of the size of
the file.
"""

import contextlib
import errno
import gzip
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

from beam_tfr import storage
from beam_tfr.inputs.listing import suggest_dataset
from beam_tfr.inputs.parquet import open_parquet
from beam_tfr.options.implied import ANNOTATIONS, implied_options, optional_columns
from beam_tfr.records.tfrecords import HEADER_BYTES, is_gzip
from beam_tfr.tables.annotations import read_annotations
from beam_tfr.tables.checks import Row, number_rows, select_cells, table_error
from beam_tfr.tables.parquet_rows import class_names_in, read_parquet
from beam_tfr.tables.samples import read_samples
from beam_tfr.tables.text_rows import open_delimited, read_delimited, read_json_lines

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
SUFFIXES |= dict.fromkeys(ANNOTATIONS, "annotations")
SUFFIXES |= dict.fromkeys((".tar", ".tfrecord", ".tfrecords", ".tfrec"), "samples")
DELIMITERS = {"csv": ",", "tsv": "\t"}
_GZIPPED = ("csv", "tsv", "jsonl")


def split_suffix(path: str) -> tuple[str, str]:
    """Splits "photos/labels.csv.gz" into ("photos/labels", "csv").

    Raises:
        UsageError: the file is of another kind, by its name.
    """
    stem, suffix = os.path.splitext(path.removesuffix(".gz"))
    suffix, dash, shard = suffix.partition("-")  # train.tfrecord-00000-of-00010
    name = SUFFIXES.get(suffix.lower(), "")
    is_wrongly_gzipped = path.endswith(".gz") and name not in _GZIPPED
    is_wrongly_numbered = bool(shard) and name != "samples"
    if not name or is_wrongly_gzipped or is_wrongly_numbered:
        advice = suggest_dataset(path.rpartition("/")[0])
        if not advice:
            advice = "; the first four may be gzipped (.gz), decompress others"
        raise table_error(path, f"the name must end in {', '.join(SUFFIXES)}{advice}")
    return stem + dash + shard, name


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
    name = split_suffix(path)[1]
    if name == "parquet":
        with _naming_errors(path):
            yield from read_parquet(_find(path), columns, known, "".join(images[:1]), label)
        return
    with _open_table(path) as file:
        if name in DELIMITERS:
            yield from read_delimited(path, file, DELIMITERS[name], columns, known)
        else:
            yield from select_cells(path, _read_objects(path, file, images), columns, known)


def read_columns(path: str, rows: int) -> list[str]:
    """The column names of one table; for JSON Lines, those of its first `rows` rows.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    name = split_suffix(path)[1]
    match name:
        case "annotations":
            return _list_annotation_columns(path)
        case "parquet":
            with _naming_errors(path):
                return open_parquet(_find(path)).schema_arrow.names  # type: ignore[no-any-return]
        case "csv" | "tsv":
            with _open_table(path) as file:
                return open_delimited(path, file, DELIMITERS[name])[0]
        case _:
            columns = dict[str, None]()  # in the order in which they are met
            with _open_table(path) as file:
                for _, row in itertools.islice(_read_objects(path, file), rows):
                    columns.update(dict.fromkeys(row))
            return list(columns)


def _list_annotation_columns(path: str) -> list[str]:
    implied = implied_options(path, {})
    roles = [name for name in implied.values() if isinstance(name, str)]
    return [*roles, *implied["feature_columns"], *optional_columns(path)]


def read_class_names(path: str, column: str) -> list[str]:
    """The classes that the numbers in a column of a Parquet file stand for.

    Empty if no metadata of Hugging Face name them.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    if split_suffix(path)[1] != "parquet":
        return []
    with _naming_errors(path):
        return class_names_in(path, open_parquet(_find(path)).schema_arrow, column)


@contextlib.contextmanager
def _open_table(path: str) -> Iterator[IO[bytes]]:
    """Opens a table.

    One that begins like gzip is decompressed, since gs:// may decompress a .gz (Content-Encoding).
    """
    with _naming_errors(path), storage.open_binary(path) as file:
        compressed = is_gzip(file.read(HEADER_BYTES))
        file.seek(0)
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if compressed else file


def _find(path: str) -> storage.Entry:
    """A table of which only parts are read."""
    file = storage.find(path)
    if file is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return file


@contextlib.contextmanager
def _naming_errors(path: str) -> Iterator[None]:
    """Turns an error of reading in the block into a UsageError that names the table."""
    try:
        yield
    except OSError as error:
        raise table_error(path, f"cannot be read: {error.strerror or error}") from error


def _read_objects(
    path: str, file: IO[bytes], images: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbered rows of a table in which each row names its columns.

    Raises:
        DataError: a row cannot be read.
    """
    match split_suffix(path)[1]:
        case "samples":
            rows = read_samples(_find(path), file, images)
        case "annotations":
            rows = read_annotations(path, file)
        case _:
            rows = read_json_lines(file)
    return number_rows(path, rows)
