"""Tables with a row for each box: which columns hold the sides of boxes, files, classes, splits."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.features.box_formats import RELATIVE
from beam_tfr.features.boxes import Boxes
from beam_tfr.features.cells import is_missing, to_float
from beam_tfr.features.registry import find_boxes, parse_columns
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import KNOWN
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.feature_names import SOURCE_HEIGHT, SOURCE_WIDTH
from beam_tfr.tables.formats import format_of, read_rows

BOX = "box"  # the name of the feature that such columns become
_FIRST_ROWS = 1_000  # which show whether sides are shares of the image, and splits
# Format -> the names of four columns, as `_plain_name` spells them; the first that are there.
_SIDES = (
    ("xyxy", ("xmin", "ymin", "xmax", "ymax")),
    ("xyxy", ("x1", "y1", "x2", "y2")),
    ("xyxy", ("x0", "y0", "x1", "y1")),
    ("xyxy", ("xtl", "ytl", "xbr", "ybr")),
    ("xyxy", ("minx", "miny", "maxx", "maxy")),
    ("xyxy", ("startx", "starty", "endx", "endy")),
    ("xyxy", ("left", "top", "right", "bottom")),
    ("xywh", ("x", "y", "w", "h")),
    ("xywh", ("xmin", "ymin", "w", "h")),
    ("xywh", ("xmin", "ymin", "width", "height")),
    ("xywh", ("left", "top", "w", "h")),
    ("xywh", ("left", "top", "width", "height")),
    ("center_xywh", ("xcenter", "ycenter", "w", "h")),
    ("center_xywh", ("xcenter", "ycenter", "width", "height")),
    ("center_xywh", ("centerx", "centery", "w", "h")),
    ("center_xywh", ("centerx", "centery", "width", "height")),
    ("center_xywh", ("cx", "cy", "w", "h")),
)
# Besides those, of columns with `bbox_` before their names, as of makesense.ai; others, as CelebA's
# x_1, may have a point, and the size of its image.
_MARKED_SIDES = (
    ("xywh", ("x", "y", "width", "height")),
    ("xywh", ("x1", "y1", "width", "height")),
)
_FILES = (
    *("filename", "file", "filepath", "path", "image", "imagepath", "imagefile", "imagename"),
    *("imagefilename", "img", "imgpath", "imgname", "frame", "photo"),
    *("imageid", "uri", "imageuri", "gcsuri"),
)
_CLASSES = (
    *("class", "classname", "label", "labelname", "category", "categoryname"),
    *("classid", "labelid", "categoryid"),
)
_WIDTHS = ("width", "imagewidth", "imgwidth")
_HEIGHTS = ("height", "imageheight", "imgheight")
_SPLITS = ("set", "subset", "mluse")  # besides `split`, which any table may have
_SPLIT_NAMES = {
    *("train", "training", "val", "valid", "validate", "validation", "dev", "test", "testing"),
    *("eval", "unassigned"),
}


class BoxColumns(NamedTuple):
    """Four columns with the sides of boxes.

    Attributes:
        form: one of `BOX_FORMATS`.
        sides: the columns, in its order.
    """

    form: str
    sides: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """The declaration of the feature that they become."""
        return f"bbox[{self.form}]={'+'.join(self.sides)}"


def find_size_columns(columns: Iterable[str], sides: Sequence[str]) -> dict[str, str]:
    """The features of the size of an image -> the columns with it; none without both.

    Args:
        columns: those of the table.
        sides: those of them with the sides of boxes.
    """
    by_name = _by_plain_name(name for name in columns if name not in sides)
    width = _find_name(_WIDTHS, by_name)
    height = _find_name(_HEIGHTS, by_name)
    if not width or not height:
        return {}
    return {SOURCE_WIDTH: width, SOURCE_HEIGHT: height}


class ImpliedOptions(NamedTuple):
    """What columns with the sides of boxes imply.

    Attributes:
        options: those of the conversion, with those that are implied.
        warnings: say so.
    """

    options: ConvertOptions
    warnings: tuple[str, ...] = ()


def find_box_columns(columns: Iterable[str]) -> BoxColumns | None:
    """The columns with the sides of boxes, by their names; None if there are none.

    Those with `bbox_` before their names come first: a column `width` beside is that of the image.
    """
    all_columns = [*columns]
    marked = [name for name in all_columns if _plain_name(name) != _letters_of(name)]
    return _find_sides(marked, (*_SIDES, *_MARKED_SIDES)) or _find_sides(all_columns, _SIDES)


def find_possible_boxes(columns: Sequence[str]) -> BoxColumns | None:
    """The columns that may be the sides of boxes.

    As `find_box_columns`, but a `width` beside `x` and `y` may be that of an image, and the names
    may have more in common, such as GTSRB's `Roi.X1`.
    """
    boxes = find_box_columns(columns) or _find_sides(columns, _MARKED_SIDES)
    return boxes or _find_longer_names(columns)


def _find_longer_names(columns: Iterable[str]) -> BoxColumns | None:
    """The first sides of boxes whose names have the same before and behind them."""
    by_letters = {_letters_of(column): column for column in columns}
    for form, sides in (*_SIDES, *_MARKED_SIDES):
        for letters in by_letters:
            before, side, behind = letters.rpartition(sides[0])
            names = [f"{before}{name}{behind}" for name in sides]
            if side and by_letters.keys() >= {*names}:
                return BoxColumns(form, tuple(by_letters[name] for name in names))
    return None


def _find_sides(
    columns: Iterable[str], sides: Iterable[tuple[str, tuple[str, ...]]]
) -> BoxColumns | None:
    """The first of some sides, by their format and names, that columns have; None if none is."""
    by_name = _by_plain_name(columns)
    for form, names in sides:
        if by_name.keys() >= {*names}:
            return BoxColumns(form, tuple(by_name[name] for name in names))
    return None


def imply_boxes(options: ConvertOptions, path: str, columns: Sequence[str]) -> ImpliedOptions:
    """The options that follow from columns with the sides of boxes.

    Args:
        options: those that are given.
        path: the first table.
        columns: its columns.
    """
    found = find_box_columns(columns)
    if found is None or not _may_imply(options, path, columns, found):
        return ImpliedOptions(options)
    by_name = _by_plain_name(columns)
    if not options.uri_column and not _find_name(_FILES, by_name):
        warning = (
            f"{path} has columns that look like boxes, {', '.join(found.sides)}: `uri_column=` "
            "names that of the images; without it, each row is a record"
        )
        return ImpliedOptions(options, (warning,))
    split_column = _find_name(_SPLITS, by_name)
    sizes = find_size_columns(columns, found.sides)
    others = [*sizes.values(), *filter(None, [split_column])]
    first_rows = _read_first_rows(path, [*found.sides, *others])
    declared = _find_declared(options)
    found = found._replace(form=_choose_form(found, declared, first_rows))
    box = declared.name if declared else BOX
    features = {**(options.feature_columns or {}), box: found.declaration}
    if sizes and found.form == "xyxy" and _are_sizes(first_rows, found.sides, sizes):
        features |= dict.fromkeys(sizes, "int64=0")
    implied = _imply_roles(options, by_name)
    gives_splits = options.split_column or options.shares
    if not gives_splits and _are_splits(first_rows, split_column):
        implied["split_column"] = split_column
    implied["feature_columns"] = features
    return _set_implied(options, path, implied, box=box, side=found.sides[0])


def _imply_roles(options: ConvertOptions, by_name: Mapping[str, str]) -> dict[str, Any]:
    """The columns of files and classes that are not given, by their names."""
    implied: dict[str, Any] = {}
    if not options.uri_column:
        implied["uri_column"] = _find_name(_FILES, by_name)
    if not options.label_column:
        implied["label_column"] = _find_name(_CLASSES, by_name)
    return implied


def _choose_form(
    found: BoxColumns, declared: Boxes | None, first_rows: Iterable[Mapping[str, Any]]
) -> str:
    """The form of boxes: that which is declared, or in shares if the first rows say so."""
    if declared:
        return declared.form
    if _are_shares(first_rows, found.sides):
        return RELATIVE + found.form
    return found.form


def _find_declared(options: ConvertOptions) -> Boxes | None:
    """The boxes that are declared; None if there are none."""
    declarations = {**(options.feature_columns or {})}
    declarations.pop(KNOWN, None)
    return find_boxes(parse_columns(declarations))


def _set_implied(
    options: ConvertOptions, path: str, implied: Mapping[str, Any], *, box: str, side: str
) -> ImpliedOptions:
    """The options with those that are implied.

    Args:
        options, path: see `imply_boxes`.
        implied: those that are implied.
        box: the feature of boxes.
        side: one of the columns that it is made of.
    """
    selected = {name: value for name, value in implied.items() if value}
    texts = [f"`{name}={value}`" for name, value in selected.items() if name != "feature_columns"]
    texts.append(f"`feature_columns={box}:{implied['feature_columns'][box]}`")
    others = ""
    if not options.label_column and "label_column" not in selected:
        others = "; boxes have no class, unless `label_column=` names its column"
    if SOURCE_WIDTH in implied["feature_columns"]:
        others += "; its sizes are compared with those of the images"
    cure = f"`feature_columns={side}`"
    if options.are_rows:
        cure = "`encoding=row`"
    if options.has_implied_encoding:
        selected["encoding"] = ""  # that of images
    warning = (
        f"{path} has a row for each box, which implies {join_texts(texts, separator=' and ')}"
        f"{others}; {cure} takes each row for itself"
    )
    return ImpliedOptions(dataclasses.replace(options, **selected), (warning,))


def _may_imply(
    options: ConvertOptions, path: str, columns: Sequence[str], found: BoxColumns
) -> bool:
    """Whether nothing that is given says what the columns of sides are.

    Boxes may be declared without the columns that they are made of.
    """
    if not format_of(path).may_have_box_rows:
        return False
    if options.are_rows:
        return options.may_become_images and BOX not in columns
    if options.encoding not in IMAGE_ENCODINGS or options.feature_columns == {}:
        return False
    declared = _find_declared(options)
    if declared:
        fits = declared.form.removeprefix(RELATIVE) == found.form
        return fits and not declared.columns and declared.name not in columns
    declares_sides = any(name in (options.feature_columns or {}) for name in found.sides)
    return not declares_sides and BOX not in columns


def _read_first_rows(path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    rows = itertools.islice(read_rows(path, columns), _FIRST_ROWS)
    return [dict(zip(columns, cells, strict=True)) for _, cells in rows]


def _are_shares(rows: Iterable[Mapping[str, Any]], sides: Sequence[str]) -> bool:
    """Whether the sides of boxes are shares of their images: none is larger than 1."""
    numbers = [*_numbers_in(rows, sides)]
    return bool(numbers) and 0 < max(numbers) <= 1


def _numbers_in(rows: Iterable[Mapping[str, Any]], sides: Sequence[str]) -> Iterator[float]:
    for row in rows:
        for side in sides:
            try:
                number = to_float(row[side])
            except ValueError:
                continue
            if number == number:
                yield number


def _are_sizes(
    rows: Iterable[Mapping[str, Any]], sides: Sequence[str], sizes: Mapping[str, str]
) -> bool:
    """Whether columns have the sizes of images, not of boxes: all boxes end within them."""
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
    """Whether a column holds the names of splits, and nothing else."""
    if not column:
        return False
    cells = {row[column] for row in rows if not is_missing(row[column])}
    return bool(cells) and {str(cell).lower() for cell in cells} <= _SPLIT_NAMES


def _by_plain_name(columns: Iterable[str]) -> dict[str, str]:
    """The columns, by the names that `_plain_name` spells."""
    by_name = dict[str, str]()
    for column in columns:
        by_name.setdefault(_plain_name(column), column)
    return by_name


def _plain_name(column: str) -> str:
    """The name of a column in lower case, without `bbox_` before it, and marks in it."""
    return re.sub(r"^(?:bbox|box|boundingbox)(?=.)", "", _letters_of(column))


def _letters_of(column: str) -> str:
    """The letters and digits of the name of a column, in lower case."""
    return re.sub(r"[^a-z0-9]", "", column.lower())


def _find_name(names: Iterable[str], by_name: Mapping[str, str]) -> str:
    """The column with the first of some names; empty if there is none."""
    for name in names:
        if name in by_name:
            return by_name[name]
    return ""
