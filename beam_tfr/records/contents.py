"""The table of contents of a shard: a small Parquet file with a row for each record, in the order
of the records.

A row holds the place of its record, all its values but the payload, and what is known only while
the record is made. The columns follow from the features of the dataset (`contents_columns`), the names
from those of the features:

    image/filename ─▶ key        image/class/label, …/text ─▶ label, class       image/height ─▶
    height image/encoded ─▶ bytes (its length)     image/source/height ─▶ source_height     a
    table's column ─▶ its name

The file is not compressed, so that it takes no more memory than it has bytes, whoever wrote it.
"""

import contextlib
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.records.parquet_layout import count_values
from beam_tfr.schema import feature_names
from beam_tfr.schema.errors import DataError, NotInstalledError
from beam_tfr.schema.feature_names import FeatureSpec
from beam_tfr.schema.features import Names
from beam_tfr.schema.items import Array, Image

MAX_TEXT = 1000
MAX_LIST = 100  # characters and numbers of a cell; longer ones are null
_REPAIR = "`beam-tfr repair` makes it again"
_MAX_TEXT_BYTES = 4 * MAX_TEXT  # in UTF-8
# Features of which the contents have the size in bytes, and the names of these columns.
_PAYLOADS = {
    **dict.fromkeys(
        (
            feature_names.ENCODED,
            feature_names.RAW,
            feature_names.FILE_BYTES,
            feature_names.ARRAY_RAW,
        ),
        "bytes",
    ),
    feature_names.MASK: "mask_bytes",
    feature_names.OBJECT_MASK: "object_mask_bytes",
}
_TYPES = {"bytes": "string", "int64": "int64", "float": "float"}

PLACE = {
    "split": "string",
    "shard": "int64",
    "key": "string",
    "offset": "int64",
    "length": "int64",
    "restart": "int64",
}
SOURCE = {"source_bytes": "int64", "source_crc32c": "int64"}
LOOKS = {"adjusted": "string", "mean": "float", "std": "float", "phash": "hash"}
MADE = (*SOURCE, *LOOKS)  # columns that no record holds: null where contents were made later


class RecordPlaces(NamedTuple):
    """Where records lie in their file: see `records.shard_file`."""

    offset: Sequence[int]
    length: Sequence[int]
    restart: Sequence[int | None]


class ContentsColumn(NamedTuple):
    """A column: its name, its type, and whether it holds lists, or sizes of features in bytes."""

    name: str
    kind: str
    several: bool = False
    is_size: bool = False


def contents_columns(present: Mapping[str, FeatureSpec], names: Names) -> dict[str, ContentsColumn]:
    """The columns that hold a feature: feature -> column.

    Args:
        present: name -> (dtype, shape) of the features of the dataset.
        names: those of the key and label features, and of companions.
    """
    known = {
        names.key: "key",
        names.label: "label",
        names.text: "class",
        names.sha256: "source_sha256",
        **_PAYLOADS,
    }
    sizes = {*_PAYLOADS, *(companion.feature for companion in names.companions)}
    taken = {*PLACE, *SOURCE, *LOOKS, "bytes", "label", "class", "source_sha256"}
    columns: dict[str, ContentsColumn] = {}
    for feature, (dtype, shape) in sorted(present.items()):
        name = known.get(feature)
        is_size = feature in sizes
        if name is None:
            name = feature.removeprefix("image/").removeprefix("array/").replace("/", "_")
            name = f"{name.removesuffix('encoded')}bytes" if is_size else name
            while name in taken:
                name += "_"
        if feature == names.sha256:
            kind = "hash"
        else:
            kind = "int64" if is_size else _TYPES[dtype]
        columns[feature] = ContentsColumn(name, kind, shape != () and not is_size, is_size)
        taken.add(name)
    return columns


def contents_schema(present: Mapping[str, FeatureSpec], names: Names) -> Any:
    """The `pyarrow.Schema` of the contents of a dataset.

    Raises:
        NotInstalledError: pyarrow is missing.
    """
    pa = need_pyarrow()
    own = [ContentsColumn(name, kind) for name, kind in PLACE.items()]
    own += [column for column in contents_columns(present, names).values() if column.name != "key"]
    own += [ContentsColumn(name, kind) for name, kind in SOURCE.items() if names.sha256]
    own += [
        ContentsColumn(name, kind)
        for name, kind in LOOKS.items()
        if feature_names.HEIGHT in present
    ]
    types = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float": pa.float32(),
        "hash": pa.binary(32),
    }
    fields = [
        pa.field(name, pa.list_(types[kind]) if several else types[kind])
        for name, kind, several, _ in own
    ]
    return pa.schema(fields)


def contents_row(
    values: Mapping[str, Sequence[Any]], columns: Mapping[str, ContentsColumn]
) -> dict[str, Any]:
    """The cells that a record determines: column -> value.

    Args:
        values: feature -> values, as `examples.parse_example` returns them.
        columns: those of `contents_columns`.
    """
    row: dict[str, Any] = {}
    for feature, column in columns.items():
        found = values.get(feature, ())
        if column.is_size:
            row[column.name] = sum(map(len, found)) if feature in values else None
        elif column.several:
            row[column.name] = [_cell(value) for value in found] if len(found) <= MAX_LIST else None
        elif column.kind == "hash":
            row[column.name] = _digest(found)
        else:
            row[column.name] = _cell(found[0]) if found else None
    return row


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
        return text if len(text) <= MAX_TEXT else None
    return value


def _digest(values: Sequence[bytes]) -> bytes | None:
    with contextlib.suppress(ValueError):
        return bytes.fromhex(values[0].decode("ascii")) if values and len(values[0]) == 64 else None
    return None


def made_cells(value: Image | Array) -> dict[str, Any]:
    """The cells that no record holds, of an image or array just made."""
    cells: dict[str, Any] = {
        "source_bytes": value.source_bytes,
        "source_crc32c": value.source_crc32c,
    }
    if isinstance(value, Image):
        cells["adjusted"] = ",".join(value.adjusted)
        if value.looks:
            cells |= value.looks._asdict()
    return cells


def with_places(rows: Any, places: RecordPlaces) -> Any:
    """A `pyarrow.Table` of contents with the columns that say where its records lie."""
    pa = need_pyarrow()
    for name, values in places._asdict().items():
        rows = rows.append_column(name, pa.array(values, pa.int64()))
    return rows


def _tables(rows: Sequence[Any], schema: Any) -> Iterator[Any]:
    pa = need_pyarrow()
    for are_rows, group in itertools.groupby(rows, lambda row: isinstance(row, dict)):
        members = [*group]
        tables = [pa.Table.from_pylist(members, schema)] if are_rows else members
        yield from (table.select(schema.names) for table in tables)


def join_rows(rows: Sequence[Any], schema: Any, *, split: str, shard: int) -> Any:
    """The contents of a shard as a `pyarrow.Table`.

    Args:
        rows: column -> value, null if it is missing; or tables of several rows.
        schema: that of the dataset.
        split, shard: of the shard.
    """
    pa = need_pyarrow()
    same = {"split": split, "shard": shard}
    own = pa.schema([field for field in schema if field.name not in same])
    table = pa.concat_tables([own.empty_table(), *_tables(rows, own)]).combine_chunks()
    arrays = [
        pa.repeat(pa.scalar(same[field.name], field.type), len(table))
        if field.name in same
        else table[field.name]
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def contents_bytes(table: Any) -> bytes:
    """The Parquet file of contents."""
    pa = need_pyarrow()
    from pyarrow import parquet

    schema = table.schema
    texts = [field.name for field in schema if field.type == pa.string() and field.name != "key"]
    numbers = [
        field.name for field in schema if field.type == pa.int64() and field.name != "restart"
    ]
    sink = io.BytesIO()
    with parquet.ParquetWriter(
        sink,
        schema,
        compression="none",
        use_dictionary=[*texts, "restart"],
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        if len(table):  # a row group without rows has pages nowhere
            writer.write_table(table, row_group_size=len(table))
    return sink.getvalue()


def parse_contents(
    data: bytes, schema: Any, *, path: str, num_rows: int, columns: Sequence[str] | None = None
) -> Any:
    """Reads the contents of a shard from untrusted bytes: a `pyarrow.Table`.

    Args:
        data: the bytes of the file.
        schema: that of the dataset.
        path: for messages.
        num_rows: records of the shard.
        columns: those to read; None for all.

    Raises:
        DataError: they are damaged, or not the contents of such a shard.
    """
    pa = need_pyarrow()
    from pyarrow import parquet

    texts = [field.name for field in schema if field.type == pa.string()]
    texts += [
        f"{field.name}.list.element" for field in schema if field.type == pa.list_(pa.string())
    ]
    try:
        found = parquet.read_schema(pa.BufferReader(data))
        if not found.equals(schema):
            raise ValueError(
                f"its columns are {', '.join(found.names)[:200]}, expected {', '.join(schema.names)}"
            )
        # As dictionaries, whose texts are looked at before they are repeated in every row.
        file = parquet.ParquetFile(
            pa.BufferReader(data), read_dictionary=texts, page_checksum_verification=True
        )
        metadata = file.metadata
        if metadata.num_rows != num_rows:
            raise ValueError(f"it has {metadata.num_rows} rows, expected {num_rows}")
        if not str(metadata.created_by).startswith("parquet-cpp-arrow"):
            raise ValueError(f"{str(metadata.created_by)[:50]} wrote it, not pyarrow")
        for field, count in zip(schema, count_values(data, len(schema)), strict=True):
            if count > num_rows * (MAX_LIST if pa.types.is_list(field.type) else 1):
                raise ValueError(f"{field.name} has more values than its rows can have")
        table = file.read(columns=columns, use_threads=False)
        for column in table.columns:
            _check_texts(column)
        found = table.cast(pa.schema([schema.field(name) for name in table.column_names]))
        found.validate(full=True)  # texts are UTF-8
        return found
    except KeyError as error:  # a column of texts
        raise DataError(
            f"{path} is damaged: it has no column {error.args[0]!r}. {_REPAIR}"
        ) from None
    except (pa.ArrowException, ValueError, IndexError, OSError, MemoryError) as error:
        message = str(error).partition("\n")[0][:300].rstrip(".")
        raise DataError(f"{path} is damaged: {message}. {_REPAIR}") from None


def _check_texts(column: Any) -> None:
    """Checks that no text of a column is longer than convert writes.

    Raises:
        ValueError: one is.
    """
    from pyarrow import compute

    for chunk in column.chunks:
        values = getattr(chunk, "values", chunk)  # of lists
        texts = getattr(values, "dictionary", None)
        if texts and (compute.max(compute.binary_length(texts)).as_py() or 0) > _MAX_TEXT_BYTES:
            raise ValueError(f"a text has more than {MAX_TEXT} characters")


def need_pyarrow() -> Any:
    """The module pyarrow.

    Raises:
        NotInstalledError: it is missing.
    """
    try:
        import pyarrow
    except ImportError:
        raise NotInstalledError("contents need pyarrow: pip install 'beam_tfr[contents]'") from None
    return pyarrow
