"""Reads the rows of tables in any format.

The formats are CSV, TSV, JSON Lines (also gzipped), Parquet, object annotations, and tables that
hold their images.

Memory use is bounded by the longest row, or for Parquet by a batch of rows, regardless of the size
of the file.
"""

import contextlib
import gzip
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from beam_tfr.inputs.annotation_texts import describe_text
from beam_tfr.inputs.no_match import suggest_dataset
from beam_tfr.inputs.outlined_texts import describe_outlined_words, has_outlined_words
from beam_tfr.inputs.skipped import UNCOUNTED, SkippedFiles
from beam_tfr.inputs.yolo_setups import (
    describe_darknet,
    describe_label_files,
    describe_names,
    has_label_lines,
)
from beam_tfr.options.implied import ANNOTATIONS
from beam_tfr.records.tfrecords import begins_record
from beam_tfr.schema.errors import BeamTfrError, UsageError
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.annotations import YOLO, Annotations
from beam_tfr.tables.annotations.json_kinds import describe_begin
from beam_tfr.tables.base import (
    HARMFUL,
    BadRow,
    ColumnSelection,
    Note,
    Row,
    TableFormat,
    damaged_table,
    describe_harm,
    skip_bad_rows,
    table_error,
)
from beam_tfr.tables.names import list_class_names
from beam_tfr.tables.parquet_rows import Parquet
from beam_tfr.tables.tars import Tar
from beam_tfr.tables.text_rows import Delimited, JsonLines
from beam_tfr.tables.tfrecord_rows import TfRecord

_BEGIN_BYTES = 4 << 10  # of a table whose name shows no format; enough for its first lines
_FIRST_BYTES = 256 << 20  # 256 MiB of a table, from which first rows are read
_MOST_JSON_BYTES = 16 << 20  # 16 MiB of a JSON file, which may show its kind
_JSON_LINES = "; with an object on each line, it is JSON Lines: name it .jsonl"
_COLUMN = re.compile(rb'\s*"?[A-Za-z_][^"\\/]{0,60}"?\s*')
_LIST_LINE = re.compile(rb"[0-9]+\t[0-9.]+\t[^\t]+")
_TFRECORDS = (".tfrecord", ".tfrecords", ".tfrec", ".tfr", ".tf_record", ".record", ".records")
FORMATS: dict[str, TableFormat] = {
    ".csv": Delimited(","),
    ".tsv": Delimited("\t"),
    ".jsonl": JsonLines(),
    ".ndjson": JsonLines(),
    ".parquet": Parquet(),
    **dict.fromkeys(ANNOTATIONS, Annotations()),
    **dict.fromkeys(YOLO, Annotations(has_row_files=True)),
    ".xml": Annotations(of_one_image=True),
    ".tar": Tar(),
    **dict.fromkeys(_TFRECORDS, TfRecord()),
}


# What to do about files that other programs read as tables.
_ADVICE = {
    ".txt": "; give a list of paths as `input_list=`; if a class follows each path, save the list "
    "as CSV with the first line path,class",
    ".arrow": "; datasets.load_from_disk(FOLDER).to_parquet(FILE) writes Parquet",
    ".feather": "; pandas.read_feather(FILE).to_parquet(FILE) writes Parquet",
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "; save the sheet as CSV"),
    **dict.fromkeys(
        (".pkl", ".pickle"), "; pandas.read_pickle(FILE).to_parquet(FILE) writes Parquet"
    ),
    **dict.fromkeys(
        (".npy", ".npz", ".mat", ".h5", ".hdf5", ".rec", ".lmdb", ".mdb", ".pt", ".pth"),
        "; write its images as files, and its data about them as CSV",
    ),
    **dict.fromkeys((".zip", ".bz2", ".xz", ".zst"), "; decompress it first"),
}


class Unnamed(TfRecord):
    """Tables whose names do not show their format: TFRecords, if their content proves it."""

    def read_objects(
        self, path: str, file: IO[bytes], selection: ColumnSelection
    ) -> Iterator[dict[str, Any]]:
        first = file.read(_BEGIN_BYTES)
        if isinstance(file, gzip.GzipFile):
            raise _compressed_error(path)
        if first and not begins_record(first):
            raise _name_error(path, first + file.read(_MOST_JSON_BYTES))
        file.seek(0)
        return super().read_objects(path, file, selection)


_UNNAMED = Unnamed()


def split_suffix(path: str) -> tuple[str, TableFormat]:
    """Splits "photos/labels.csv.gz" into "photos/labels" and its format.

    If the name does not show the format, the whole name is returned.

    Raises:
        UsageError: the file is compressed, but its format does not allow that.
    """
    stem, suffix = os.path.splitext(path.removesuffix(".gz"))
    suffix, dash, number = suffix.partition("-")  # train.tfrecord-00000-of-00010
    table_format = FORMATS.get(suffix.lower())
    if table_format is None or (number and not table_format.may_be_numbered):
        return path, _UNNAMED
    if path.endswith(".gz") and not table_format.may_be_gzipped:
        raise _compressed_error(path)
    return stem + dash + number, table_format


def _compressed_error(path: str) -> UsageError:
    """Returns the error for a compressed table whose format does not allow that."""
    advice = suggest_dataset(path.rpartition("/")[0])
    if not advice:
        advice = ": decompress it first; only CSV, TSV and JSON Lines are read from .gz"
    return table_error(path, f"is compressed as a whole{advice}")


def _name_error(path: str, begin: bytes) -> UsageError:
    """Returns the error for a file that is not a table, judging by its name and first bytes."""
    advice = next(filter(None, _list_advice(path, begin)))
    names = ", ".join(FORMATS)
    return table_error(
        path, f"is not a TFRecord, and the names of other tables must end in {names}{advice}"
    )


def _list_advice(path: str, begin: bytes) -> Iterator[str]:
    """Yields advice for a file that is not a table, the best advice first; strings may be empty."""
    name = path.lower()
    is_zip = name.endswith(".zip")
    yield suggest_dataset(path.rpartition("/")[0])
    yield _suggest_setup(path, begin)
    if is_zip and has_table_name(path[: -len(".zip")]):  # Kaggle zips tables like this
        yield "; unzip it first, and give the table that was in it"
    if is_zip or has_image_name(path):
        yield f"; images, alone or in a .zip, are an input: {spell_option('input', path)}"
    if begin.startswith((b"<annotation", b"<?xml")):
        yield "; rename VOC files so that their names end in .xml"
    if name.endswith(".txt"):
        text = describe_outlined_words(path) if has_outlined_words(begin) else describe_text(begin)
        yield text and f"; it {text}"
    yield _suggest_name(begin)
    yield _ADVICE.get(os.path.splitext(name)[1], "; the first four may be gzipped (.gz)")


def _suggest_setup(path: str, begin: bytes) -> str:
    """Suggests what to do with files of a YOLO data set, or returns an empty string."""
    names = describe_names(path)
    advice = names and f"it {names}"
    if not advice and path.endswith(".data"):
        advice = describe_darknet(path)
    if not advice and path.endswith(".txt") and has_label_lines(begin):
        advice = describe_label_files(path)
    return advice and f"; {advice}"


def _suggest_name(begin: bytes) -> str:
    """Suggests a name for a table whose first bytes show its format, or returns an empty string."""
    first_line, _, rest = begin.strip().partition(b"\n")
    first_line = first_line.rstrip()
    has_object = first_line.startswith(b"{") and first_line.endswith(b"}")
    if has_object and rest.lstrip().startswith(b"{"):
        return _JSON_LINES
    if first_line.startswith((b"{", b"[")):
        kind = describe_begin(begin)
        if kind:
            return f"; as JSON, it {kind}"
        return _JSON_LINES if has_object and not rest else "; it is JSON: name it .json"
    if _LIST_LINE.fullmatch(first_line):
        return (
            "; if it is an MXNet list, with a number, a class and a path on each line, add the "
            "first line number<TAB>label<TAB>path, name it .tsv, and give `uri_column=path` and "
            "`label_column=label`"
        )
    return _suggest_delimited(first_line, rest)


def _suggest_delimited(first_line: bytes, rest: bytes) -> str:
    """Suggests a name for a table with a header and cells, or returns an empty string."""
    if has_image_name(first_line.decode(errors="replace")):
        return ""
    for separator, name in ((b"\t", ".tsv"), (b",", ".csv"), (b";", ".csv")):
        header = first_line.split(separator)
        cells = rest.partition(b"\n")[0].split(separator)
        has_names = len({*header}) == len(header) and all(map(_COLUMN.fullmatch, header))
        if len(header) > 1 and len(cells) == len(header) and has_names:
            return f"; it looks like a table with a header: name it {name}"
    return ""


def has_table_name(path: str) -> bool:
    """Whether a file name ends like that of a table."""
    with contextlib.suppress(UsageError):
        return split_suffix(path)[1] is not _UNNAMED
    return False


def format_of(path: str) -> TableFormat:
    """Returns the format of a table, from its name; raises the same errors as `split_suffix`."""
    return split_suffix(path)[1]


def read_rows(
    path: str,
    columns: Sequence[str],
    skipped: SkippedFiles = UNCOUNTED,
    *,
    known_columns: Sequence[str] = (),
    images: Sequence[str] = (),
    label: str = "",
    say: Callable[[Note], object] = lambda _: None,
    most_bytes: int = 0,
) -> Iterator[Row | BadRow]:
    """Yields the rows of one table, local or on gs://.

    The other arguments are those of a `base.ColumnSelection`.

    Raises:
        UsageError: the file cannot be opened, or lacks a column.
        DataError: the table is damaged; the message names the row.
    """
    selection = ColumnSelection(columns, known_columns, images, label, say, skipped, most_bytes)
    with _naming_errors(path):
        yield from format_of(path).read_rows(path, selection)


def read_first_rows(path: str, columns: Sequence[str], most_rows: int) -> Iterator[Row]:
    """Yields the first readable rows of one table; fewer if they are long.

    Raises the same errors as `read_rows`.
    """
    rows = read_rows(path, columns, most_bytes=_FIRST_BYTES)
    return itertools.islice(skip_bad_rows(rows), most_rows)


def read_columns(path: str, rows: int) -> list[str]:
    """Returns the column names of one table.

    If only rows name columns, these are the names in the first `rows` rows.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    with _naming_errors(path):
        return format_of(path).read_columns(path, rows)


def list_fields(path: str, rows: int) -> list[str]:
    """Lists the fields of objects in columns; see `TableFormat.list_fields` and `read_columns`.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    with _naming_errors(path):
        return format_of(path).list_fields(path, rows)


def read_class_names(path: str, column: str) -> list[str]:
    """Returns the classes that the numbers in a column of a table stand for.

    The list is empty unless the table is Parquet with Hugging Face metadata that names the classes,
    or a data.yaml of YOLO.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    with _naming_errors(path):
        names = format_of(path).read_class_names(path, column)
        try:
            return list_class_names(names)
        except ValueError as error:
            raise damaged_table(path, str(error)) from None


def read_ordered_classes(path: str, column: str) -> list[str]:
    """Returns the classes in a column of a table; see `TableFormat.read_ordered_classes`.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    with _naming_errors(path):
        return format_of(path).read_ordered_classes(path, column)


def describe_columns(path: str) -> str:
    """Explains why no column of a table has a known name, or returns an empty string.

    Raises:
        UsageError, DataError: see `read_rows`.
    """
    with _naming_errors(path):
        return format_of(path).describe_columns(path)


@contextlib.contextmanager
def _naming_errors(path: str) -> Iterator[None]:
    """Turns read errors in the block into our own errors, which name the table."""
    try:
        yield
    except BeamTfrError:
        raise
    except FileNotFoundError as error:  # the file is gone, or is a broken link
        raise damaged_table(path, f"cannot be read: {error.strerror or error}") from error
    except OSError as error:
        raise table_error(path, f"cannot be read: {error.strerror or error}") from error
    except HARMFUL as error:
        raise damaged_table(path, describe_harm(error)) from error
