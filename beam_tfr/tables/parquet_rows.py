"""Reads the rows of Parquet files.

Folders above a file, such as `label=cat`, are columns too, as in Hive, Spark and pyarrow.
"""

import collections
import contextlib
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.inputs.parquet import image_column, image_entry
from beam_tfr.inputs.parquet_file import ParquetFile, RowBatch
from beam_tfr.schema.dataset import is_class_name
from beam_tfr.schema.untrusted import parse_json
from beam_tfr.tables.base import (
    ColumnSelection,
    Row,
    TableFormat,
    check_columns,
    find_table,
    read_member,
    table_error,
)

_MOST_JSON_BYTES = 4 << 20  # 4 MiB of metadata; a class takes 20 bytes
_OTHER_METADATA = (LookupError, TypeError, ValueError)  # errors raised by metadata in another form
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# Lists of images, as Hugging Face writes them.
_IMAGES = re.compile(r"(?:large_)?list<\w+: struct<bytes: (?:large_)?binary, path: \w+>>")
_NULL = "null"  # type of a column without values, as in parts without rows
_WHOLE = re.compile(r"u?int[0-9]+")  # numbers that may be names of images
_TEXT = re.compile(r"(?:dictionary<values=)?(?:large_)?string")  # names of types in pyarrow


class Parquet(TableFormat):
    """The Parquet format, which fetches only the columns that are used."""

    may_have_box_rows = True

    def read_columns(self, path: str, most_rows: int) -> list[str]:
        with ParquetFile(find_table(path)) as opened:
            names = opened.schema.names
        return [*names, *_find_partition(path, names)]

    def list_fields(self, path: str, most_rows: int) -> list[str]:
        with ParquetFile(find_table(path)) as opened:
            return [*_list_fields(opened.schema)]

    def read_class_names(self, path: str, column: str) -> list[str]:
        with ParquetFile(find_table(path)) as opened:
            return _find_class_names(path, opened.schema, column)

    def read_ordered_classes(self, path: str, column: str) -> list[str]:
        with ParquetFile(find_table(path)) as opened:
            return _read_ordered_classes(opened, column)

    def read_rows(self, path: str, selection: ColumnSelection) -> Iterator[Row]:
        file = find_table(path)
        with ParquetFile(file) as opened:
            yield from _read_rows(path, file, opened, selection)


def _read_rows(
    path: str, file: storage.Entry, opened: ParquetFile, selection: ColumnSelection
) -> Iterator[Row]:
    columns = _Columns.choose(path, opened.schema, selection)
    for batch in opened.read_rows(columns.stored):
        cells = columns.complete(batch, file)
        numbers = range(batch.first + 1, batch.first + 1 + batch.num_rows)
        ordered = [cells[name] for name in selection.columns]
        yield from zip(numbers, zip(*ordered, strict=True), strict=True)


class _Columns(NamedTuple):
    """The sources of cells for the selected columns.

    Attributes:
        values: columns stored in the file, except columns of images.
        fields: fields of such columns, each named column.field.
        images: column of images -> the column with the bytes of the images.
        partition: column that a folder above the file represents -> its value.
        label: the column of the label.
        class_names: the names of the class numbers in that column; an empty list if there are no
            names.
    """

    values: Sequence[str]
    fields: Sequence[str]
    images: Mapping[str, str]
    partition: Mapping[str, str | None]
    label: str
    class_names: Sequence[str]

    @classmethod
    def choose(cls, path: str, schema: Any, selection: ColumnSelection) -> "_Columns":
        """Chooses the columns of a file, given its `pyarrow.Schema`.

        Raises:
            UsageError: a column is missing, or the column of images holds no images.
        """
        partition = _find_partition(path, schema.names)
        present = [*schema.names, *partition]
        fields = [name for name in selection.columns if name not in present and "." in name]
        if fields:
            check_columns(path, [*present, *_list_fields(schema)], fields)
        wanted = [name for name in selection.columns if name not in fields]
        check_columns(path, present, wanted, selection.known_columns)
        stored = [name for name in wanted if name not in partition]
        images = _find_images(path, schema, stored, "".join(selection.images[:1]))
        return cls(
            values=[name for name in stored if name not in images],
            fields=fields,
            images=images,
            partition=partition,
            label=selection.label,
            class_names=_find_class_names(path, schema, selection.label),
        )

    @property
    def stored(self) -> list[str]:
        """The columns to read, without repeats."""
        with_fields = [name.partition(".")[0] for name in self.fields]
        return [*dict.fromkeys([*self.values, *with_fields])]

    def complete(self, batch: RowBatch, file: storage.Entry) -> dict[str, list[Any]]:
        """Returns column -> its cells, for a batch."""
        cells = batch.cells
        rows = range(batch.first, batch.first + batch.num_rows)
        for name in self.fields:
            column, _, field = name.partition(".")
            cells[name] = [read_member(cell, field) for cell in cells[column]]
        for name, value in self.partition.items():
            cells[name] = [value] * batch.num_rows
        for name, leaf in self.images.items():
            cells[name] = [image_entry(file, leaf, row, batch.mean_bytes) for row in rows]
        if self.class_names:
            cells[self.label] = _name_classes(cells[self.label], self.class_names)
        return cells


def _find_partition(path: str, stored: Sequence[str]) -> dict[str, str | None]:
    """Returns column -> value for the folders directly above a file that represent columns.

    Leaves out columns that the file stores.
    """
    partition = dict[str, str | None]()
    for folder in reversed(path.split("/")[:-1]):
        name, equals, value = folder.partition("=")
        if not (name and equals):
            break
        if name not in stored:
            partition[name] = None if value == _NO_VALUE else urllib.parse.unquote(value)
    return partition


def _list_fields(schema: Any) -> Iterator[str]:
    """Yields the fields of structs and of lists of structs, given a `pyarrow.Schema`."""
    for field in schema:
        yield from _list_members(field.name, field.type)


def _list_members(name: str, kind: Any) -> Iterator[str]:
    """Yields the fields of a `pyarrow.DataType`, given the name of its column."""
    while hasattr(kind, "value_type"):
        kind = kind.value_type
    for number in range(kind.num_fields):
        member = kind.field(number)
        yield f"{name}.{member.name}"
        yield from _list_members(f"{name}.{member.name}", member.type)


def _find_images(path: str, schema: Any, columns: Sequence[str], image: str) -> dict[str, str]:
    """Returns column -> the column with the bytes, for columns that hold images.

    Args:
        path: the file.
        schema: the `pyarrow.Schema` of the file.
        columns: the columns to look at.
        image: the column of images, or an empty string.

    Raises:
        UsageError: the column of images holds neither images nor text, or a column holds lists of
            images.
    """
    images = {}
    for name in columns:
        leaf = image_column(schema.field(name), image)
        if leaf:
            images[name] = leaf
        elif _IMAGES.match(str(schema.field(name).type)):
            raise table_error(
                path,
                f"column {name!r} holds lists of images; with pandas, read_parquet(FILE)"
                f".explode({name!r}).to_parquet('table.parquet') writes a row for each image",
            )
    if image in columns and image not in images:
        column_type = str(schema.field(image).type)
        is_name = _TEXT.match(column_type) or _WHOLE.fullmatch(column_type)
        if column_type != _NULL and not is_name:
            raise table_error(
                path,
                f"column {image!r} has the type {column_type}; "
                "images must be bytes, structs with bytes, or paths",
            )
    return images


def _find_class_names(path: str, schema: Any, column: str) -> list[str]:
    """Returns the names of the class numbers in a column, from the file's Hugging Face metadata.

    Raises:
        UsageError: two classes have the same name, or the metadata is too long.
    """
    names = list[str]()
    text = (schema.metadata or {}).get(b"huggingface", b"")
    if len(text) > _MOST_JSON_BYTES:
        raise table_error(
            path,
            f"its Hugging Face metadata is larger than {_MOST_JSON_BYTES >> 20} MiB; write the "
            "file without it",
        )
    with contextlib.suppress(*_OTHER_METADATA):
        features = parse_json(text)["info"]["features"]
        path_in_file = [column] if column in features else column.split(".")
        feature = features
        for name in [*path_in_file, "names"]:
            while name not in feature:  # the feature is a list
                feature = feature[0] if isinstance(feature, list) else feature["feature"]
            feature = feature[name]
        names = [str(name) for name in feature]
    repeated = [name for name, number in collections.Counter(names).items() if number > 1]
    if repeated:
        raise table_error(
            path, f"two classes in column {column!r} have the name {repeated[0]!r}; rename one"
        )
    return names


def _read_ordered_classes(opened: ParquetFile, column: str) -> list[str]:
    """Returns the classes in a column of ordered categories; an empty list for other columns."""
    from pyarrow import types

    if opened.schema.names.count(column) != 1:
        return []
    kind = opened.schema.field(column).type
    if not (types.is_dictionary(kind) and kind.ordered and _TEXT.match(str(kind))):
        return []
    names = [name.strip() for name in opened.read_categories(column) if name]
    return [*dict.fromkeys(filter(is_class_name, names))]


def _name_classes(cells: Sequence[Any], class_names: Sequence[str]) -> list[Any]:
    """Returns the classes with these numbers; a cell may be a list of numbers."""
    names: dict[Any, Any] = dict(enumerate(class_names))
    names |= {-1: None, None: None}
    return [_name_class(cell, names) for cell in cells]


def _name_class(cell: Any, names: Mapping[Any, Any]) -> Any:
    if isinstance(cell, list):
        return [_name_class(number, names) for number in cell]
    if cell in names:
        return names[cell]
    return BadCell(f"{cell!r:.100} is not the number of a class")
