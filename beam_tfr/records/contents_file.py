"""Writes and reads the file with the contents of a shard: a small Parquet file.

The file is not compressed, but it may store a value once for many rows. So the memory needed to
read the file is a bounded multiple of its size, whoever wrote the file.
"""

import io
from collections.abc import Sequence
from typing import Any

from beam_tfr.records.contents import MAX_LIST, MAX_TEXT, need_pyarrow
from beam_tfr.records.parquet_layout import check_metadata_bytes, count_values
from beam_tfr.schema.errors import DataError

_MAX_TEXT_BYTES = 4 * MAX_TEXT  # in UTF-8
# The most bytes of decoded values, for each byte of the file. A file that convert writes stays far
# below: a row takes at least 50 bytes, and a number that is the same in all rows almost none.
_MOST_TEXT_BYTES = 64
_MOST_CELL_BYTES = 256
_CELL_BYTES = 8
_FREE_BYTES = 4 << 20  # 4 MiB, whatever the size of the file
_WRITER = "parquet-cpp-arrow"  # what pyarrow calls itself
_REPAIR = "`beam-tfr repair` rebuilds it"


def contents_bytes(table: Any) -> bytes:
    """Encodes contents as a Parquet file."""
    pa = need_pyarrow()
    from pyarrow import parquet

    texts = _names_of(table.schema, pa.string()) - {"key"}
    numbers = _names_of(table.schema, pa.int64()) - {"restart"}
    sink = io.BytesIO()
    with parquet.ParquetWriter(
        sink,
        table.schema,
        compression="none",
        use_dictionary=[*texts, "restart"],
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        if len(table):  # a row group without rows has no pages
            writer.write_table(table, row_group_size=len(table))
    return sink.getvalue()


def parse_contents(
    data: bytes, schema: Any, *, path: str, num_rows: int, columns: Sequence[str] | None = None
) -> Any:
    """Reads the contents of a shard from untrusted bytes: a `pyarrow.Table`.

    Args:
        data: the bytes of the file.
        schema: schema of the dataset's contents.
        path: path of the file, for messages.
        num_rows: number of records in the shard.
        columns: columns to read; None for all.

    Raises:
        DataError: the bytes are damaged, or are not the contents of a shard with this schema and
            number of records.
    """
    pa = need_pyarrow()
    try:
        file = _open_file(data, schema)
        _check_metadata(file.metadata, num_rows)
        _check_values(data, schema, num_rows)
        table = file.read(columns=columns, use_threads=False)
        _check_texts(table, len(data))
        fields = [schema.field(name) for name in table.column_names]
        parsed = table.cast(pa.schema(fields))
        parsed.validate(full=True)  # checks that strings are UTF-8
        return parsed
    except KeyError as error:  # a column of strings
        raise damaged_contents(path, f"it has no column {error.args[0]!r}") from None
    except (pa.ArrowException, ValueError, IndexError, OSError, MemoryError) as error:
        message = str(error).partition("\n")[0][:300].rstrip(".")
        raise damaged_contents(path, message) from None


def damaged_contents(path: str, problem: str) -> DataError:
    """Creates the exception for contents with a problem."""
    return DataError(f"{path} is damaged: {problem}. {_REPAIR}")


def _open_file(data: bytes, schema: Any) -> Any:
    """Opens a file as a `pyarrow.parquet.ParquetFile`, and checks its schema.

    Strings are read as dictionaries, which can be checked before they are repeated in every row.

    Raises:
        ValueError: the schema of the file differs.
    """
    pa = need_pyarrow()
    from pyarrow import parquet

    check_metadata_bytes(data, len(schema))
    stated = parquet.read_schema(pa.BufferReader(data))
    if not stated.equals(schema):
        names = ", ".join(stated.names)[:200]
        raise ValueError(f"its columns are {names}, expected {', '.join(schema.names)}")
    texts = _names_of(schema, pa.string())
    lists = _names_of(schema, pa.list_(pa.string()))
    members = [f"{name}.list.element" for name in lists]
    return parquet.ParquetFile(
        pa.BufferReader(data), read_dictionary=[*texts, *members], page_checksum_verification=True
    )


def _names_of(schema: Any, kind: Any) -> set[str]:
    """Returns the names of the columns of the given type."""
    return {field.name for field in schema if field.type == kind}


def _check_metadata(metadata: Any, num_rows: int) -> None:
    """Checks that a file was written by pyarrow, and has a row for each record.

    Raises:
        ValueError: another program wrote the file, or its number of rows differs.
    """
    if metadata.num_rows != num_rows:
        raise ValueError(f"it has {metadata.num_rows} rows, expected {num_rows}")
    writer = str(metadata.created_by)
    if not writer.startswith(_WRITER):
        raise ValueError(f"it was written by {writer[:50]}, not by pyarrow")


def _check_values(data: bytes, schema: Any, num_rows: int) -> None:
    """Checks that neither a single column nor all columns together have too many values.

    Raises:
        ValueError: there are more values.
    """
    pa = need_pyarrow()
    counts = count_values(data, len(schema))
    for field, count in zip(schema, counts, strict=True):
        most = num_rows
        if pa.types.is_list(field.type):
            most *= MAX_LIST
        if count > most:
            raise ValueError(f"{field.name} has more values than its rows can have")
    if sum(counts) * _CELL_BYTES > _MOST_CELL_BYTES * len(data) + _FREE_BYTES:
        raise ValueError(f"it has {sum(counts):,} values, too many for {len(data):,} bytes")


def _check_texts(table: Any, file_bytes: int) -> None:
    """Checks the strings in a table, before they are repeated in every row.

    Args:
        table: a table whose strings are dictionaries.
        file_bytes: size of the file.

    Raises:
        ValueError: a string is longer than any that convert writes, or all strings together are too
            long.
    """
    num_bytes = sum(_count_text_bytes(chunk) for column in table.columns for chunk in column.chunks)
    if num_bytes > _MOST_TEXT_BYTES * file_bytes + _FREE_BYTES:
        raise ValueError(f"its strings have {num_bytes:,} bytes, too many for {file_bytes:,} bytes")


def _count_text_bytes(chunk: Any) -> int:
    """Counts the bytes of the strings in all rows of a chunk of a column.

    Raises:
        ValueError: a string is longer than those that convert writes.
    """
    from pyarrow import compute

    values = getattr(chunk, "values", chunk)  # the members, for lists
    texts = getattr(values, "dictionary", None)
    if texts is None:
        return 0
    lengths = compute.binary_length(texts)
    if compute.any(compute.greater(lengths, _MAX_TEXT_BYTES)).as_py():
        raise ValueError(f"a string has more than {MAX_TEXT} characters")
    return compute.sum(lengths.take(values.indices)).as_py() or 0
