"""Defines the contents of a shard: a table with a row for each record, in the order of the records.

A row holds the position of its record in the file, all values of the record except the payload, and
values that are known only while the record is made. The columns follow from the features of the
dataset (`contents_columns`), and their names from the names of the features:

    image/filename             ─▶ key
    image/class/label, …/text  ─▶ label, class
    image/height               ─▶ height
    image/encoded              ─▶ bytes (its length)
    image/source/height        ─▶ source_height
    a table's column           ─▶ its name

`records.contents_file` writes and reads the table.
"""

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from beam_tfr.schema import feature_names
from beam_tfr.schema.encodings import RecordNames
from beam_tfr.schema.errors import NotInstalledError
from beam_tfr.schema.feature_names import FeatureSpec
from beam_tfr.schema.items import Array, Image

# The most characters and values in a cell; larger cells are null.
MAX_TEXT = 1000
MAX_LIST = 100
_MOST_UNDERSCORES = 8  # after the name of a column; beyond that, a number is added
# Features for which the contents hold the size in bytes -> names of these columns.
_PAYLOADS = {
    feature_names.ENCODED: "bytes",
    feature_names.RAW: "bytes",
    feature_names.FILE_BYTES: "bytes",
    feature_names.ARRAY_RAW: "bytes",
    feature_names.MASK: "mask_bytes",
    feature_names.OBJECT_MASK: "object_mask_bytes",
}
_KINDS = {"bytes": "string", "int64": "int64", "float": "float"}


class RecordPlaces(NamedTuple):
    """Where records are in their file: see `records.shard_file`."""

    offset: Sequence[int]
    length: Sequence[int]
    restart: Sequence[int | None]


@dataclasses.dataclass(frozen=True)
class ContentsColumn:
    """A column with one value per record.

    Attributes:
        name: name of the column.
        kind: type of its values: "string", "int64", "float" or "hash".
        several: whether its cells are lists.
    """

    name: str
    kind: str
    several: ClassVar[bool] = False

    def arrow_type(self) -> Any:
        """Returns the type of the column for a `pyarrow.Schema`."""
        pa = need_pyarrow()
        types = {
            "string": pa.string(),
            "int64": pa.int64(),
            "float": pa.float32(),
            "hash": pa.binary(32),
        }
        return types[self.kind]

    def cell(self, values: Sequence[Any] | None) -> Any:
        """Returns a record's cell, given the values of a feature; None if there are no values."""
        return _shorten(values[0]) if values else None


class ListColumn(ContentsColumn):
    """A column of lists."""

    several = True

    def arrow_type(self) -> Any:
        return need_pyarrow().list_(super().arrow_type())

    def cell(self, values: Sequence[Any] | None) -> Any:
        members = values or ()
        if len(members) > MAX_LIST:
            return None
        return [_shorten(value) for value in members]


class SizeColumn(ContentsColumn):
    """A column of sizes in bytes; each is the total size of all values of a feature."""

    def cell(self, values: Sequence[Any] | None) -> Any:
        return None if values is None else sum(map(len, values))


class DigestColumn(ContentsColumn):
    """A column of SHA-256 digests; the feature holds them in hex."""

    def cell(self, values: Sequence[Any] | None) -> Any:
        if not values or len(values[0]) != 64:
            return None
        try:
            return bytes.fromhex(values[0].decode("ascii"))
        except ValueError:
            return None


def _shorten(value: Any) -> Any:
    """Returns a value as stored in a cell: bytes are decoded, and long strings become null."""
    if not isinstance(value, bytes):
        return value
    text = value.decode("utf-8", "backslashreplace")
    return text if len(text) <= MAX_TEXT else None


def _columns(**kinds: str) -> dict[str, ContentsColumn]:
    return {name: ContentsColumn(name, kind) for name, kind in kinds.items()}


# Columns that do not come from a feature (except the key): name -> column.
PLACE = _columns(
    split="string", shard="int64", key="string", offset="int64", length="int64", restart="int64"
)
SOURCE = _columns(source_bytes="int64", source_crc32c="int64")
LOOKS = _columns(adjusted="string", mean="float", std="float", phash="hash")
MADE = (*SOURCE, *LOOKS)  # not in records, so null in contents that were made later


def contents_columns(
    present: Mapping[str, FeatureSpec], names: RecordNames
) -> dict[str, ContentsColumn]:
    """Returns the columns that hold features: feature -> column.

    Args:
        present: name -> (dtype, shape) of the features of the dataset.
        names: names of the features that hold keys, labels and payloads.
    """
    fixed = {
        names.key: "key",
        names.label: "label",
        names.text: "class",
        names.sha256: "source_sha256",
        **_PAYLOADS,
    }
    payloads = {*_PAYLOADS, *names.sizes}
    taken = {*PLACE, *SOURCE, *LOOKS, "bytes", "label", "class", "source_sha256"}
    tries = collections.Counter[str]()  # by name, for names that are taken
    columns: dict[str, ContentsColumn] = {}
    for feature, (dtype, shape) in sorted(present.items()):
        is_payload = feature in payloads
        name = fixed.get(feature)
        if name is None:
            name = _free_name(feature, taken, tries, is_payload=is_payload)
        taken.add(name)
        if is_payload:
            columns[feature] = SizeColumn(name, "int64")
        elif feature == names.sha256:
            columns[feature] = DigestColumn(name, "hash")
        elif shape:
            columns[feature] = ListColumn(name, _KINDS[dtype])
        else:
            columns[feature] = ContentsColumn(name, _KINDS[dtype])
    return columns


def _free_name(
    feature: str, taken: Collection[str], tries: collections.Counter[str], *, is_payload: bool
) -> str:
    """Finds a free name for the column of a feature.

    While another column has the name, another `_` is appended; after eight underscores, a number is
    appended.
    """
    name = feature.removeprefix("image/").removeprefix("array/").replace("/", "_")
    if is_payload:
        name = f"{name.removesuffix('encoded')}bytes"
    while (free := name + _ending(tries[name])) in taken:
        tries[name] += 1
    return free


def _ending(tries: int) -> str:
    return "_" * tries if tries <= _MOST_UNDERSCORES else f"_{tries}"


def contents_schema(present: Mapping[str, FeatureSpec], names: RecordNames) -> Any:
    """Returns the `pyarrow.Schema` for the contents of a dataset.

    Raises:
        NotInstalledError: pyarrow is missing.
    """
    columns = {**PLACE}
    for column in contents_columns(present, names).values():
        columns[column.name] = column
    if names.sha256:
        columns |= SOURCE
    if feature_names.HEIGHT in present:
        columns |= LOOKS
    pa = need_pyarrow()
    fields = [(name, column.arrow_type()) for name, column in columns.items()]
    return pa.schema(fields)


def contents_row(
    values: Mapping[str, Sequence[Any]], columns: Mapping[str, ContentsColumn]
) -> dict[str, Any]:
    """Returns the cells that follow from a record: column -> value.

    Args:
        values: feature -> values, as `examples.parse_example` returns them.
        columns: result of `contents_columns`.
    """
    return {column.name: column.cell(values.get(feature)) for feature, column in columns.items()}


def made_cells(value: Image | Array) -> dict[str, Any]:
    """Returns the cells that do not follow from the record of a newly made image or array."""
    cells: dict[str, Any] = {
        "source_bytes": value.source_bytes,
        "source_crc32c": value.source_crc32c,
    }
    if isinstance(value, Image):
        cells["adjusted"] = ",".join(value.adjusted)
        if value.appearance:
            cells |= value.appearance._asdict()
    return cells


def with_places(rows: Any, places: RecordPlaces) -> Any:
    """Returns the contents, a `pyarrow.Table`, with columns added for the places of the records."""
    pa = need_pyarrow()
    for name, values in places._asdict().items():
        column = pa.array(values, pa.int64())
        rows = rows.append_column(name, column)
    return rows


def join_rows(rows: Sequence[Any], schema: Any, *, split: str, shard: int) -> Any:
    """Joins the contents of a shard into a `pyarrow.Table`.

    Args:
        rows: dicts of column -> value, where missing values become null; or tables of several rows.
        schema: schema of the dataset's contents.
        split, shard: split and number of the shard.
    """
    pa = need_pyarrow()
    constants = {"split": split, "shard": shard}
    fields = [field for field in schema if field.name not in constants]
    varying = pa.schema(fields)
    tables = [varying.empty_table(), *_tables_of(rows, varying)]
    table = pa.concat_tables(tables).combine_chunks()
    for name, value in constants.items():
        field = schema.field(name)
        column = pa.repeat(pa.scalar(value, field.type), len(table))
        table = table.append_column(field, column)
    return table.select(schema.names)


def _tables_of(rows: Sequence[Any], schema: Any) -> Iterator[Any]:
    """Yields tables with these columns; consecutive dicts become one table."""
    pa = need_pyarrow()
    for are_rows, group in itertools.groupby(rows, lambda row: isinstance(row, dict)):
        if are_rows:
            yield pa.Table.from_pylist([*group], schema)
        else:
            yield from (table.select(schema.names) for table in group)


def need_pyarrow() -> Any:
    """Returns the module pyarrow.

    Raises:
        NotInstalledError: pyarrow is missing.
    """
    try:
        import pyarrow
    except ImportError:
        raise NotInstalledError("contents need pyarrow: pip install 'beam_tfr[contents]'") from None
    return pyarrow
