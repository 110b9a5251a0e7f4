"""Reads the rows of Parquet files, of which only the columns are fetched that are used."""

import collections
import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.inputs.parquet import image_column, image_entry, open_parquet, read_batches
from beam_tfr.tables.checks import Row, check_columns, table_error

_TEXT = re.compile(r"(?:dictionary<values=)?(?:large_)?string")  # as pyarrow names types


def read_parquet(
    file: storage.Entry, columns: Sequence[str], known: Sequence[str], image: str, label: str
) -> Iterator[Row]:
    """Yields the rows of a file.

    Args:
        file: the file.
        columns, known: see `formats.read_rows`.
        image: the column of images; empty for none.
        label: the column whose numbers are classes, if the schema names them.

    Raises:
        UsageError, DataError, OSError: see `formats.read_rows`.
    """
    opened = open_parquet(file)
    schema = opened.schema_arrow
    check_columns(file.path, schema.names, columns, known)
    images = _find_images(file.path, schema, columns, image)
    values = [name for name in columns if name not in images]
    class_names = class_names_in(file.path, schema, label)
    for first, mean_bytes, batch in read_batches(file.path, opened, values):
        rows = range(first, first + batch.num_rows)
        cells = {name: batch.column(name).to_pylist() for name in values}
        for name, leaf in images.items():
            cells[name] = [image_entry(file, leaf, row, mean_bytes) for row in rows]
        if class_names:
            cells[label] = _name_classes(cells[label], class_names)
        numbers = range(first + 1, first + 1 + batch.num_rows)
        yield from zip(numbers, zip(*(cells[name] for name in columns), strict=True), strict=True)


def _find_images(path: str, schema: Any, columns: Sequence[str], image: str) -> dict[str, str]:
    """The columns that hold images -> the column of their bytes, given a `pyarrow.Schema`.

    Raises:
        UsageError: the column of images holds neither images nor text.
    """
    images = {}
    for name in columns:
        leaf = image_column(schema.field(name), image)
        if leaf:
            images[name] = leaf
    if image in columns and image not in images:
        column_type = str(schema.field(image).type)
        if not _TEXT.match(column_type):
            raise table_error(
                path,
                f"column {image!r} has the type {column_type}; "
                "images are bytes, structs with bytes, or paths",
            )
    return images


def class_names_in(path: str, schema: Any, column: str) -> list[str]:
    """The classes that the numbers in a column stand for, if Hugging Face's metadata name them.

    Raises:
        UsageError: two have the same name.
    """
    names = list[str]()
    with contextlib.suppress(LookupError, TypeError, ValueError):  # of any other metadata
        feature = json.loads(schema.metadata[b"huggingface"])["info"]["features"][column]
        while "names" not in feature:  # of a list
            feature = feature[0] if isinstance(feature, list) else feature["feature"]
        names = [str(name) for name in feature["names"]]
    repeated = [name for name, number in collections.Counter(names).items() if number > 1]
    if repeated:
        raise table_error(
            path, f"two classes of column {column!r} have the name {repeated[0]!r}; rename one"
        )
    return names


def _name_classes(cells: Sequence[Any], class_names: Sequence[str]) -> list[Any]:
    """The classes with these numbers; a cell may be a list of them."""
    names: dict[Any, Any] = dict(enumerate(class_names))
    names |= {-1: None, None: None}
    return [_name_class(cell, names) for cell in cells]


def _name_class(cell: Any, names: Mapping[Any, Any]) -> Any:
    if isinstance(cell, list):
        return [_name_class(number, names) for number in cell]
    if cell in names:
        return names[cell]
    return BadCell(f"{cell!a:.100} is the number of no class")
