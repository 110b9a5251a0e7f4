"""What the content of tables says about them, before their rows are read."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import KNOWN
from beam_tfr.schema.boxes import RELATIVE
from beam_tfr.schema.feature_names import BOXES, ENCODED, LABEL, OBJECT_LABEL, OBJECT_TEXT, TEXT
from beam_tfr.tables.formats import Row, read_class_names, table_error
from beam_tfr.tables.samples import EXTENSIONS

SPLIT = "image/split"  # the column of a dataset with the split
# Columns with images in TFRecords and tars, and then with their classes, or with those of their
# boxes.
_IMAGES = (ENCODED, *EXTENSIONS)
_LABELS = (TEXT, LABEL, "class", "cls", "label")
_OBJECT_LABELS = (OBJECT_TEXT, OBJECT_LABEL)


class Content(NamedTuple):
    """What the content of tables says.

    Attributes:
        options: those of the conversion, with those that the content implies.
        files: all tables, sorted.
        columns: those of the first table.
        read: yields the rows of a table with some columns; None for `formats.read_rows`.
        class_names: those of a dataset, by their ids, if its labels are wanted.
        warnings: about what is implied.
    """

    options: ConvertOptions
    files: tuple[str, ...]
    columns: Sequence[str]
    read: Callable[[str, Sequence[str]], Iterator[Row]] | None = None
    class_names: Sequence[str] = ()
    warnings: tuple[str, ...] = ()


def known(options: ConvertOptions, implied: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the implied options that replace `KNOWN`; columns that become features are for all
    of these."""
    return {
        name: of
        for name, of in implied.items()
        if name == "feature_columns" or getattr(options, name) == KNOWN
    }


def imply_columns(
    options: ConvertOptions, files: tuple[str, ...], columns: Sequence[str]
) -> Content:
    """The content of TFRecords and tars, given the columns of the first.

    Raises:
        UsageError: they have no column of images that is known, and none is named.
    """
    if options.uri_column != KNOWN:
        return Content(
            options, files, columns, class_names=read_class_names(files[0], options.label_column)
        )
    image = next((name for name in _IMAGES if name in columns), "")
    if not image:
        cure = "name it, such as `uri_column=photo`, or give `encoding=row` if its rows become the records"
        names = f"{', '.join(_IMAGES)}; there are: {', '.join(columns)[:500]}"
        raise table_error(files[0], f"there is no column of images that is known: {names}; {cure}")
    if options.label_column == KNOWN:
        labels = [name for name in _OBJECT_LABELS if BOXES in columns]
    else:
        labels = []
    label = next((name for name in (*labels, *_LABELS) if name in columns), "")
    implied = {"uri_column": image, "label_column": label}
    if label in labels:
        implied["feature_columns"] = f"{BOXES}:bbox[{RELATIVE}xyxy]"
    found = known(options, implied)
    shown = " and ".join(f"`{name}={value}`" for name, value in found.items() if value)
    warnings = (f"the first rows of {options.table[0]} imply {shown}",)
    return Content(dataclasses.replace(options, **found), files, columns, warnings=warnings)
