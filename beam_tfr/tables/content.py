"""Describes what tables contain, before all rows are read."""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.options import ConvertOptions
from beam_tfr.options.convert import NEEDS_IMAGES
from beam_tfr.options.implied import KNOWN, implied_options, may_hold_images
from beam_tfr.options.table import options_of
from beam_tfr.options.tabular import TableOptions
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import BOXES, ENCODED, LABEL, OBJECT_LABEL, OBJECT_TEXT, TEXT
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.annotations.labelbox import describe_labelbox
from beam_tfr.tables.base import RowReader, TableFormat, list_columns, table_error
from beam_tfr.tables.box_columns import imply_boxes
from beam_tfr.tables.box_names import letters_of
from beam_tfr.tables.box_objects import find_file
from beam_tfr.tables.formats import (
    FORMATS,
    describe_columns,
    format_of,
    read_class_names,
    read_ordered_classes,
)
from beam_tfr.tables.our_exports import read_export_classes
from beam_tfr.tables.paths import folder_of
from beam_tfr.tables.samples import EXTENSIONS
from beam_tfr.tables.text_rows import Delimited, JsonLines

_MOST_NAMES = 10  # classes in a message
SPLIT = "image/split"  # the column of a dataset with the split
# Columns of TFRecords and tars with images, their classes, and their boxes' classes; of each kind,
# the first column present is used.
_IMAGES = (ENCODED, *EXTENSIONS)
# The name of another column that may hold images, such as image_raw.
_LIKELY = re.compile(
    r"(?i)(?:.*[/_.])?(?:images?|img|jpe?g|png|photo|picture)(?:[/_.]?(?:raw|data|bytes|buffer))?"
    "|.*encoded"
)
_LABELS = (TEXT, LABEL, "class", "cls", "label")
_OBJECT_LABELS = (OBJECT_TEXT, OBJECT_LABEL)
_CLASS = "class"
_MASK_VALUES = ["pixelvalue", "class"]  # columns of Roboflow's _classes.csv, by `letters_of`
_EXPORTED = {"key", "split", "boxes"}  # columns of an export with boxes; see `exports`


class TableContent(NamedTuple):
    """The findings about the content of tables.

    Attributes:
        options: the options of the conversion, including those that the content implies.
        files: all tables, sorted.
        columns: the columns of the first table.
        read_rows: yields the rows of a table, with some of its columns; None stands for
            `formats.read_rows`.
        class_names: the classes that a dataset, table or export declares, by their ids, if its
            labels are used.
        warnings: lines about the implied options.
        implies_features: whether columns with the sides of boxes imply features, and no option
            chooses features; in tables with a row for each box, and in TFRecords.
    """

    options: ConvertOptions
    files: tuple[str, ...]
    columns: Sequence[str]
    read_rows: RowReader | None = None
    class_names: Sequence[str] = ()
    warnings: tuple[str, ...] = ()
    implies_features: bool = False

    @property
    def table_format(self) -> TableFormat:
        """The format of the tables; for a dataset, always the format of TFRecords."""
        return FORMATS[".tfrecord"] if self.read_rows else format_of(self.files[0])


def select_implied(options: ConvertOptions, implied: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the implied options that replace `KNOWN`.

    Always includes `feature_columns`, whose columns stand for all columns of the table.
    """
    selected = {}
    for name, value in implied.items():
        if name == "feature_columns" or getattr(options, name) == KNOWN:
            selected[name] = value
    return selected


def imply_by_file(options: ConvertOptions, path: str) -> ConvertOptions:
    """Returns the options for a table whose name may imply more than the pattern in `table=` does.

    If the name shows that the table holds no images, the options implied by the name apply.

    Raises:
        UsageError: an option asks for an encoding of images, but the table holds only rows.
    """
    if options.uri_column != KNOWN or may_hold_images(path):
        return options
    implied = implied_options(path, {})
    if not implied and not options.has_implied_encoding:
        options.refuse("encoding", NEEDS_IMAGES)
    implied = implied or {"encoding": "row"}
    changed: dict[str, Any] = {}
    for name in ("uri_column", "label_column"):
        if getattr(options, name) == KNOWN:
            changed[name] = ""
    for name, value in implied.items():
        if name in changed or name == "encoding" or not options.is_given(name):
            changed[name] = value
    replaced = dataclasses.replace(options, **changed)
    replaced.set_option("has_implied_encoding", options.has_implied_encoding)
    return replaced


def imply_columns(
    options: ConvertOptions, files: tuple[str, ...], columns: Sequence[str]
) -> TableContent:
    """Returns the content of tables that are not a dataset, given the columns of the first table.

    In TFRecords and tars, images and classes are found by the names of columns.

    Raises:
        UsageError: no column has a known name for images, and no option names the column.
    """
    if format_of(files[0]).has_lower_names:
        options = _lower_names(options, columns)
    if options.uri_column == KNOWN and _are_chosen_rows(options, columns):
        options = _as_rows(options)
    if options.uri_column == KNOWN:
        return _imply_images(options, files, columns)
    if options.may_become_images:
        _check_columns_of_rows(files[0], columns)
    has_choice = options.feature_columns is not None
    options, warnings = imply_boxes(options, files[0], columns)
    _check_encoding_of_rows(options, files[0], columns)
    options.check_image_options()
    if options.image_root and not options.uri_column:
        raise UsageError("`image_root=` has no effect without `uri_column=`")
    class_names = _find_class_names(files[0], options.label_column)
    ordered = [] if class_names else _find_ordered_classes(options, files[0])
    return TableContent(
        options,
        files,
        columns,
        class_names=class_names or ordered,
        warnings=(
            *warnings,
            *_warn_of_unused(options, files[0], columns),
            *_describe_order(options, files[0], ordered),
        ),
        implies_features=not has_choice and options.feature_columns is not None,
    )


def _are_chosen_rows(options: ConvertOptions, columns: Collection[str]) -> bool:
    """Whether the rows of TFRecords or tars with these columns become the records.

    This is so if features are chosen, and there are no images or a feature holds the images.
    """
    image = _find_first(_IMAGES, columns)
    features = options.feature_columns
    return features is not None and (not image or image in features)


def _as_rows(options: ConvertOptions) -> ConvertOptions:
    """Returns the options for rows that become the records."""
    label = "" if options.label_column == KNOWN else options.label_column
    encoding = "row" if options.has_implied_encoding else options.encoding
    return dataclasses.replace(options, uri_column="", label_column=label, encoding=encoding)


def _warn_of_unused(options: ConvertOptions, path: str, columns: Collection[str]) -> Iterator[str]:
    """Yields warnings if TFRecords or tars with chosen features have unused images or classes."""
    features = options.feature_columns
    if features is None or KNOWN in features or not may_hold_images(path):
        return
    image = _find_first(_IMAGES, columns)
    if image and image not in features and options.are_rows and options.has_implied_encoding:
        yield (
            f"column {image!r}, which may hold images, is not stored: name it as "
            f"{spell_option('uri_column', image)}, or give `encoding=row` for rows without images"
        )
    label = _find_first(_LABELS, columns)
    if label and label not in features and not options.label_column:
        yield (
            f"column {label!r}, which may hold classes, is not stored: name it as "
            f"{spell_option('label_column', label)}"
        )


def _imply_images(
    options: ConvertOptions, files: tuple[str, ...], columns: Sequence[str]
) -> TableContent:
    """Returns the content of TFRecords or tars, with images and classes found by column names.

    Raises the same errors as `imply_columns`.
    """
    image = _find_first(_IMAGES, columns)
    if not image:
        likely = next(filter(_LIKELY.fullmatch, columns), "photo")
        raise table_error(
            files[0],
            f"no column has a known name for images ({', '.join(_IMAGES)}); the columns are: "
            f"{list_columns(columns)}; name the column of images, such as "
            f"{spell_option('uri_column', likely)}, or give `encoding=row` if rows become the "
            f"records{describe_columns(files[0])}",
        )
    implied: dict[str, Any] = {"uri_column": image, **_imply_labels(options, columns)}
    selected = select_implied(options, implied)
    texts = [spell_option(name, value) for name, value in selected.items() if value]
    warning = f"the first rows of {options.table[0]} imply {' and '.join(texts)}"
    implies_features = selected.get("feature_columns", "").startswith(BOXES)
    options = dataclasses.replace(options, **selected)
    return TableContent(
        options,
        files,
        columns,
        class_names=_find_class_names(files[0], options.label_column),
        warnings=(warning,),
        implies_features=implies_features,
    )


def _find_class_names(path: str, column: str) -> list[str]:
    """Returns the classes, by their ids, that a table or its exported dataset declares."""
    declared = read_class_names(path, column)
    if declared or column != _CLASS:
        return declared
    return read_export_classes(folder_of(path))


def _find_ordered_classes(options: ConvertOptions, path: str) -> list[str]:
    """Returns the classes in the order that a table gives, or an empty list if it gives none."""
    if not options.label_column or options.label_separator or options.classes:
        return []
    return read_ordered_classes(path, options.label_column)


def _describe_order(
    options: ConvertOptions, path: str, class_names: Sequence[str]
) -> Iterator[str]:
    """Yields a line about classes that a table orders."""
    if class_names:
        names = join_texts(
            [f"{name:.60}" for name in class_names], most=_MOST_NAMES, separator=", "
        )
        yield (
            f"column {options.label_column!r} has ordered categories in {path}, which number the "
            f"classes: {names}"
        )


def _check_columns_of_rows(path: str, columns: Sequence[str]) -> None:
    """Checks that rows that would become records are not an export of another program.

    Raises:
        UsageError: the rows are such an export; the message says what to do.
    """
    table_format = format_of(path)
    export = ""
    if isinstance(table_format, JsonLines):
        export = describe_labelbox(columns, in_lines=True)
    if isinstance(table_format, Delimited) and [*map(letters_of, columns)] == _MASK_VALUES:
        export = (
            "names the values of masks, not images: `description=` can keep it with the dataset, "
            "and `encoding=row` makes its rows records"
        )
    if export:
        raise table_error(path, export)


def _check_encoding_of_rows(options: ConvertOptions, path: str, columns: Sequence[str]) -> None:
    """Checks that rows that name images become records only if an option asks for it.

    Raises:
        UsageError: the encoding is one of images; the message names the column of images.
    """
    image = find_file(path, columns) if options.are_rows and options.encoding != "row" else ""
    if image:
        options.refuse(
            "encoding",
            "is for images, but no option names their column: "
            f"{spell_option('uri_column', image)} does, and `encoding=row` makes rows the records",
        )


def _imply_labels(options: ConvertOptions, columns: Collection[str]) -> dict[str, str]:
    """Returns the options for the columns of labels and boxes in TFRecords and tars."""
    object_label = _find_first(_OBJECT_LABELS, columns)
    features = options.feature_columns
    label = _find_first(_LABELS, {*columns} - {*(features or ())})
    boxes = ""
    if BOXES in columns and (object_label or not label):
        boxes = BOXES
    elif {*columns} >= _EXPORTED:
        object_label = _find_first((_CLASS,), columns)
        boxes = "boxes"
    if features is not None and boxes:  # the chosen features decide
        return {"label_column": object_label if boxes in features else label}
    if boxes and options.label_column == KNOWN:
        return {"label_column": object_label, "feature_columns": f"{boxes}:bbox[rel_xyxy]"}
    return {"label_column": label}


def _lower_names(options: ConvertOptions, columns: Collection[str]) -> ConvertOptions:
    """Returns the options with file extensions, which serve as column names, in lower case."""

    def spell(name: str) -> str:
        lower = name.lower()
        return lower if name not in columns and lower in columns else name

    changed: dict[str, Any] = {}
    if options.has_implied_encoding:
        changed["encoding"] = ""
    for field in options_of(TableOptions):
        if field.endswith("_column"):
            changed[field] = spell(getattr(options, field))
    if options.feature_columns:
        changed["feature_columns"] = {
            spell(name): declaration for name, declaration in options.feature_columns.items()
        }
    return dataclasses.replace(options, **changed)


def _find_first(names: Sequence[str], columns: Collection[str]) -> str:
    """Returns the first of the names that is among the columns, or an empty string."""
    for name in names:
        if name in columns:
            return name
    return ""
