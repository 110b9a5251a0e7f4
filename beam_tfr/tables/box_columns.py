"""Derives options from the columns of a table with boxes: sides, files, classes and splits."""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.features.box_formats import RELATIVE, is_relative
from beam_tfr.features.boxes import Boxes
from beam_tfr.features.cells import is_missing, members_of, to_float
from beam_tfr.features.registry import find_boxes, parse_columns
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import KNOWN
from beam_tfr.schema.differences import join_names, join_texts
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.schema.feature_names import SOURCE_WIDTH
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.base import table_error
from beam_tfr.tables.box_names import (
    BOX,
    CLASSES,
    FILES,
    SPLITS,
    BoxColumns,
    by_plain_name,
    find_box_columns,
    find_corners,
    find_name,
    find_possible_boxes,
    find_size_columns,
)
from beam_tfr.tables.box_objects import BoxObjects, find_box_objects
from beam_tfr.tables.box_shares import guess_form, join_sides
from beam_tfr.tables.coordinates import names_boxes
from beam_tfr.tables.formats import format_of, read_first_rows

_FIRST_ROWS = 1_000  # rows that show whether sides are relative, and splits
_SPLIT_NAMES = {
    *("train", "training", "val", "valid", "validate", "validation", "dev", "test", "testing"),
    *("eval", "unassigned"),
}


class ImpliedOptions(NamedTuple):
    """The options that follow from columns with the sides of boxes.

    Attributes:
        options: the options of the conversion, including the implied options.
        warnings: lines about the implied options.
    """

    options: ConvertOptions
    warnings: tuple[str, ...] = ()


class _Found(NamedTuple):
    """The columns of a table with boxes, found by their names.

    All names except those in `boxes` may be empty.

    Attributes:
        boxes: the columns with the sides of boxes.
        file: the column with the paths of images.
        label: the column with classes.
        split: the column that may name the split.
        objects: the objects whose fields hold the boxes; None if each row has one box.
    """

    boxes: BoxColumns
    file: str
    label: str
    split: str
    objects: BoxObjects | None = None

    @property
    def noun(self) -> str:
        """A phrase for the content of the table, for messages."""
        if self.objects:
            return f"a list of objects with boxes in each row, in column {self.objects.column!r}"
        return "a row for each box"

    @property
    def cure(self) -> str:
        """How to keep the columns as they are, for messages."""
        if self.objects:
            return (
                f"{spell_option('feature_columns', f'{self.objects.column}:bytes')} stores the "
                "objects as text"
            )
        return f"{spell_option('feature_columns', self.boxes.sides[0])} keeps each row separate"


def imply_boxes(options: ConvertOptions, path: str, columns: Sequence[str]) -> ImpliedOptions:
    """Derives options from columns, or fields of objects, with the sides of boxes.

    Args:
        options: the specified options.
        path: the first table.
        columns: the columns of the first table.

    Raises:
        UsageError: there are columns with the corners of quadrangles instead.
    """
    found = _find_boxes(options, path, columns)
    if found is None:
        _check_corners(options, path, columns)
    if found is None or not (options.uri_column or found.file):
        return ImpliedOptions(options, (*_warn_of_possible_boxes(options, path, columns, found),))
    if not _is_open(options, columns, found):
        return ImpliedOptions(options)
    sizes = {} if found.objects else find_size_columns(columns, found.boxes.sides)
    others = [*sizes.values(), *filter(None, [found.split])]
    first_rows = _read_first_rows(path, [*found.boxes.sides, *others])
    declared = _find_declared(options)
    form = _choose_form(found.boxes, declared, first_rows)
    found = found._replace(boxes=found.boxes._replace(form=form))
    box = declared.name if declared else BOX
    features = {**(options.feature_columns or {}), box: found.boxes.declaration}
    if sizes and form == "xyxy" and _are_sizes(first_rows, found.boxes.sides, sizes):
        features |= dict.fromkeys(sizes, "int64=0")
    implied = _imply_roles(options, found, first_rows)
    implied["feature_columns"] = features
    return _set_implied(options, path, implied, box=box, found=found)


def _check_corners(options: ConvertOptions, path: str, columns: Sequence[str]) -> None:
    """Checks that a table of images has no columns with the corners of quadrangles.

    Raises:
        UsageError: the table has such columns; the message says how to turn them into boxes.
    """
    corners = find_corners(columns)
    file = options.uri_column or find_name(FILES, by_plain_name(columns))
    if not corners or not file or options.feature_columns or not _may_have_boxes(options, path):
        return
    xs = json.dumps(corners["x"])
    raise table_error(
        path,
        f"columns {join_names([*corners['x'], *corners['y']])} are the corners of quadrangles, but "
        "only the boxes around these can be stored: write the boxes; with pandas: "
        f'table["xmin"] = table[{xs}].min(axis=1), table["xmax"] = table[{xs}].max(axis=1), and '
        f"likewise for y; {spell_option('feature_columns', corners['x'][0])} stores columns as a "
        "number per row",
    )


def _find_boxes(options: ConvertOptions, path: str, columns: Sequence[str]) -> _Found | None:
    """Finds columns with boxes that no option declares; None if there are none."""
    if not _may_have_boxes(options, path):
        return None
    return _find_columns(columns) or _find_objects(path, columns)


def _find_columns(columns: Sequence[str]) -> _Found | None:
    """Finds the columns of a table with a row for each box; None without boxes."""
    boxes = find_box_columns(columns)
    if boxes is None:
        return None
    by_name = by_plain_name(columns)
    file = find_name(FILES, by_name)
    label = find_name(CLASSES, by_name)
    return _Found(boxes, file, label, find_name(SPLITS, by_name))


def _find_objects(path: str, columns: Sequence[str]) -> _Found | None:
    """Finds the fields of a table with a list of objects in each row; None without boxes."""
    objects = find_box_objects(path, columns)
    if objects is None:
        return None
    return _Found(objects.boxes, objects.file, objects.label, objects.split, objects)


def _warn_of_possible_boxes(
    options: ConvertOptions, path: str, columns: Sequence[str], found: _Found | None
) -> Iterator[str]:
    """Yields a warning about columns that look like boxes if each row becomes a record."""
    if not options.may_become_images or not format_of(path).may_have_box_rows:
        return
    boxes = found.boxes if found else find_possible_boxes(columns)
    if boxes:
        boxes = boxes._replace(form=_guess_form(path, boxes))
        shown = ", ".join(boxes.sides)
        declaration = f"{BOX}:{boxes.declaration}"
    else:
        shown = next(filter(names_boxes, columns), "")
        declaration = f"{shown}:bbox[xywh]"
    if shown:
        file = find_name(FILES, by_plain_name(columns))
        images = "`uri_column=` names the column of images"
        if file:
            images = f"{spell_option('uri_column', file)} reads the images"
        yield (
            f"{path} has columns that look like boxes, {shown}, but each row becomes a record "
            f"without its image: {images}, and {spell_option('feature_columns', declaration)} "
            "stores the boxes if this is their form"
        )


def _guess_form(path: str, boxes: BoxColumns) -> str:
    """Guesses the format of columns with the sides of boxes from the first rows."""
    try:
        first_rows = _read_first_rows(path, boxes.sides)
    except BeamTfrError:  # reading the rows raises the same error
        return boxes.form
    return guess_form(boxes.form, _join_rows(first_rows, boxes.sides))


def _join_rows(rows: Sequence[Mapping[str, Any]], sides: Sequence[str]) -> list[list[float]]:
    """Returns one box per row, or an empty list if any cell is not a number."""
    return join_sides([row[side] for row in rows] for side in sides)


def _imply_roles(
    options: ConvertOptions, found: _Found, first_rows: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns option -> column for files, classes and splits, if no option names the column yet."""
    implied: dict[str, Any] = {}
    if not options.uri_column:
        implied["uri_column"] = found.file
    if not options.label_column:
        implied["label_column"] = found.label
    gives_splits = options.split_column or options.shares
    if not gives_splits and _are_splits(first_rows, found.split):
        implied["split_column"] = found.split
    return implied


def _choose_form(
    boxes: BoxColumns, declared: Boxes | None, first_rows: Sequence[Mapping[str, Any]]
) -> str:
    """Returns the declared form of boxes, or a relative form that the first rows suggest."""
    if declared:
        return declared.form
    if not _are_shares(first_rows, boxes.sides):
        return boxes.form
    form = guess_form(boxes.form, _join_rows(first_rows, boxes.sides))
    return form if is_relative(form) else RELATIVE + form


def _find_declared(options: ConvertOptions) -> Boxes | None:
    """Returns the declared boxes; None if no boxes are declared."""
    declarations = {**(options.feature_columns or {})}
    declarations.pop(KNOWN, None)
    return find_boxes(parse_columns(declarations))


def _set_implied(
    options: ConvertOptions, path: str, implied: Mapping[str, Any], *, box: str, found: _Found
) -> ImpliedOptions:
    """Returns the options together with the implied options.

    Args:
        options, path: see `imply_boxes`.
        implied: the implied options.
        box: the name of the feature for boxes.
        found: the columns of the table.
    """
    selected = {name: value for name, value in implied.items() if value}
    texts = [
        spell_option(name, value) for name, value in selected.items() if name != "feature_columns"
    ]
    texts.append(spell_option("feature_columns", f"{box}:{implied['feature_columns'][box]}"))
    others = ""
    if not options.label_column and "label_column" not in selected:
        others = "; boxes have no classes unless `label_column=` names their column"
    if SOURCE_WIDTH in implied["feature_columns"]:
        others += "; sizes in the table are compared with those of the images"
    cure = found.cure
    if options.are_rows:
        cure = "`encoding=row` makes each row a record"
    if options.has_implied_encoding:
        selected["encoding"] = ""  # that of images
    warnings = [
        f"{path} has {found.noun}, which implies {join_texts(texts, separator=' and ')}{others}; "
        f"{cure}"
    ]
    if found.objects:
        warnings += found.objects.describe_names(path)
    return ImpliedOptions(dataclasses.replace(options, **selected), tuple(warnings))


def _may_have_boxes(options: ConvertOptions, path: str) -> bool:
    """Whether columns of a table may become boxes without being declared by an option."""
    if not format_of(path).may_have_box_rows:
        return False
    if options.are_rows:
        return options.may_become_images
    return options.encoding in IMAGE_ENCODINGS and options.feature_columns != {}


def _is_open(options: ConvertOptions, columns: Sequence[str], found: _Found) -> bool:
    """Whether no option says what the columns with the sides of boxes mean.

    The declaration of boxes may leave open which columns hold the sides.
    """
    declared = None if options.are_rows else _find_declared(options)
    if declared:
        fits = declared.form.removeprefix(RELATIVE) == found.boxes.form
        return fits and not declared.columns and declared.name not in columns
    objects = found.objects.column if found.objects else ""
    if BOX in columns and objects != BOX:
        return False
    if options.are_rows:
        return True
    if objects and options.label_column.partition(".")[0] not in ("", objects):
        return False  # the label is that of the image
    return {objects, *found.boxes.sides}.isdisjoint(options.feature_columns or {})


def _read_first_rows(path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    rows = read_first_rows(path, columns, _FIRST_ROWS)
    return [dict(zip(columns, cells, strict=True)) for _, cells in rows]


def _are_shares(rows: Iterable[Mapping[str, Any]], sides: Sequence[str]) -> bool:
    """Whether the sides of boxes are fractions of the image size, since none is larger than 1."""
    numbers = [*_numbers_in(rows, sides)]
    return bool(numbers) and 0 < max(numbers) <= 1


def _numbers_in(rows: Iterable[Mapping[str, Any]], sides: Sequence[str]) -> Iterator[float]:
    for row in rows:
        for side in sides:
            cell = row[side]
            for member in members_of(cell):
                with contextlib.suppress(ValueError):
                    number = to_float(member)
                    if number == number:
                        yield number


def _are_sizes(
    rows: Iterable[Mapping[str, Any]], sides: Sequence[str], sizes: Mapping[str, str]
) -> bool:
    """Whether `sizes` are sizes of images, not of boxes, since all boxes end within these sizes."""
    _, _, right, bottom = sides
    found = False
    for row in rows:
        numbers = [*_numbers_in([row], [right, bottom, *sizes.values()])]
        if len(numbers) == len(sides):
            found = True
            if numbers[0] > numbers[2] or numbers[1] > numbers[3]:
                return False
    return found


def _are_splits(rows: Iterable[Mapping[str, Any]], column: str) -> bool:
    """Whether a column holds only names of splits."""
    if not column:
        return False
    cells = {str(row[column]).lower() for row in rows if not is_missing(row[column])}
    return bool(cells) and cells <= _SPLIT_NAMES
