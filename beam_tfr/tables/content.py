"""What the content of tables says about them, before their rows are read."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.options import ConvertOptions
from beam_tfr.schema.boxes import RELATIVE
from beam_tfr.schema.features import BOXES, ENCODED, KNOWN, LABEL, OBJECT_LABEL, OBJECT_TEXT, TEXT
from beam_tfr.tables.formats import Row, table_error

SPLIT = "image/split"  # the column of a dataset with the split
# Columns with images in TFRecords and tars, and then with their classes, or with those of their boxes.
_IMAGES = (ENCODED, "jpg", "jpeg", "png", "webp")
_LABELS, _OBJECT_LABELS = (TEXT, LABEL, "cls", "label"), (OBJECT_TEXT, OBJECT_LABEL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Content:
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


def with_known(options: ConvertOptions, roles: Mapping[str, str], types: Mapping[str, str]) -> ConvertOptions:
    """The options with the columns that are `KNOWN`.

    Args:
        options: those of the conversion.
        roles: option -> column.
        types: column -> type, of those that become features.
    """
    found: dict[str, Any] = {name: column for name, column in roles.items() if getattr(options, name) == KNOWN}
    return dataclasses.replace(options, **found, feature_columns=types or options.feature_columns)


def of_samples(options: ConvertOptions, files: tuple[str, ...], columns: Sequence[str]) -> Content:
    """The content of TFRecords and tars, given the columns of the first.

    Raises:
        UsageError: they have no column of images that is known, and none is named.
    """
    if options.uri_column != KNOWN:
        return Content(options=options, files=files, columns=columns)
    image = next((name for name in _IMAGES if name in columns), "")
    if not image:
        cure = "name it, such as `uri_column=photo`, or give `encoding=row` if its rows become the records"
        raise table_error(files[0], f"there is no column of images that is known: {', '.join(_IMAGES)}; {cure}")
    roles, types = {"uri_column": image}, dict[str, str]()
    if options.label_column == KNOWN:
        label = next((name for name in _OBJECT_LABELS if BOXES in columns and name in columns), "")
        types = {BOXES: f"bbox[{RELATIVE}xyxy]"} if label else {}
        roles["label_column"] = label or next((name for name in _LABELS if name in columns), "")
    shown = [f"`{name}={value}`" for name, value in roles.items() if value]
    shown += [f"`feature_columns={name}:{kind}`" for name, kind in types.items()]
    told = f"the first rows of {options.table[0]} imply {' and '.join(shown)}"
    return Content(options=with_known(options, roles, types), files=files, columns=columns, warnings=(told,))
