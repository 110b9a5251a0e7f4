"""Finds columns with the sides of boxes, and other columns about images, by their names."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr.schema.feature_names import SOURCE_HEIGHT, SOURCE_WIDTH

BOX = "box"  # the name of the feature that such columns become
# Names of columns, as `_plain_name` spells them.
_CORNERS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x1", "y1", "x2", "y2"),
    ("x0", "y0", "x1", "y1"),
    ("xtl", "ytl", "xbr", "ybr"),
    ("minx", "miny", "maxx", "maxy"),
    ("topx", "topy", "bottomx", "bottomy"),
    ("startx", "starty", "endx", "endy"),
    ("left", "top", "right", "bottom"),
    ("ulx", "uly", "lrx", "lry"),
    ("tlx", "tly", "brx", "bry"),
    ("xstart", "ystart", "xend", "yend"),
    ("xtopleft", "ytopleft", "xbottomright", "ybottomright"),
    ("topleftx", "toplefty", "bottomrightx", "bottomrighty"),
    ("xlefttop", "ylefttop", "xrightbottom", "yrightbottom"),
    ("lefttopx", "lefttopy", "rightbottomx", "rightbottomy"),
    ("xleft", "ytop", "xright", "ybottom"),
    ("leftx", "topy", "rightx", "bottomy"),
)
# A side of a corner, as in upperleftcornerx, for LISA's `Upper left corner X`.
_CORNER_SIDE = re.compile("[xy]?(?:upper|lower|top|bottom|left|right|corner)+[xy]?")
_CENTERS = (("xcenter", "ycenter"), ("centerx", "centery"), ("cx", "cy"), ("xc", "yc"))
_STARTS = (("x", "y"), *((left, top) for left, top, _, _ in _CORNERS))
_SIZES = (("w", "h"), ("width", "height"), ("dx", "dy"))
# Like CelebA's x_1, these may be a point next to the size of the image.
_POINTS = (("x", "y"), ("x1", "y1"), ("x0", "y0"))

_Sides = tuple[str, tuple[str, ...]]  # format and names of four columns


def _list_sides() -> Iterator[_Sides]:
    """Yields names for sides that only boxes have."""
    for corners in _CORNERS:
        yield "xyxy", corners
    for start, size in itertools.product(_STARTS, _SIZES):
        may_be_image = start in _POINTS and size == ("width", "height")
        if not may_be_image:
            yield "xywh", (*start, *size)
    for center, size in itertools.product(_CENTERS, _SIZES):
        yield "center_xywh", (*center, *size)


_SIDES = (*_list_sides(),)  # the first that a table has are used
# More sides, for columns with the prefix `bbox_`, as in exports from makesense.ai.
_MARKED_SIDES = tuple(("xywh", (*point, "width", "height")) for point in _POINTS)
FILES = (
    *("filename", "file", "filepath", "path", "image", "imagepath", "imagefile", "imagename"),
    *("imagefilename", "img", "imgpath", "imgname", "frame", "photo"),
    *("imageid", "imageindex", "uri", "imageuri", "gcsuri", "imagegcsuri", "sourceref", "imageurl"),
)
CLASSES = (
    *("class", "classname", "label", "labelname", "category", "categoryname"),
    *("classid", "labelid", "categoryid", "findinglabel", "annotationtag"),
)
SPLITS = ("set", "subset", "mluse")  # in addition to `split`, which any table may have
_WIDTHS = ("width", "imagewidth", "imgwidth")
_HEIGHTS = ("height", "imageheight", "imgheight")


class BoxColumns(NamedTuple):
    """Four columns with the sides of boxes.

    Attributes:
        form: one of `BOX_FORMATS`.
        sides: the columns, in the order of that format.
    """

    form: str
    sides: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """The declaration of the feature that the columns become."""
        return f"bbox[{self.form}]={'+'.join(self.sides)}"


def find_size_columns(columns: Iterable[str], sides: Sequence[str]) -> dict[str, str]:
    """Returns feature -> column for the width and height of images, or an empty dict.

    Args:
        columns: the columns of the table.
        sides: the columns with the sides of boxes.
    """
    by_name = by_plain_name(name for name in columns if name not in sides)
    width = find_name(_WIDTHS, by_name)
    height = find_name(_HEIGHTS, by_name)
    if not width or not height:
        return {}
    return {SOURCE_WIDTH: width, SOURCE_HEIGHT: height}


def find_box_columns(columns: Iterable[str]) -> BoxColumns | None:
    """Finds the columns with the sides of boxes, by their names; None if there are none.

    Names with the prefix `bbox_` have priority: a column `width` next to such columns is the
    image's width.
    """
    all_columns = [*columns]
    marked = [name for name in all_columns if _plain_name(name) != letters_of(name)]
    return find_marked_sides(marked) or _find_sides(all_columns, _SIDES)


def find_marked_sides(columns: Iterable[str]) -> BoxColumns | None:
    """Finds the sides of boxes among names that only boxes have; None if there are none."""
    return _find_sides(columns, (*_SIDES, *_MARKED_SIDES))


def find_possible_boxes(columns: Sequence[str]) -> BoxColumns | None:
    """Finds columns that may be the sides of boxes; None if there are none.

    Unlike in `find_box_columns`, a `width` next to `x` and `y` may be the width of the image, and
    the names may share a prefix or suffix, as in GTSRB's `Roi.X1`.
    """
    boxes = find_box_columns(columns) or _find_sides(columns, _MARKED_SIDES)
    return boxes or _find_longer_names(columns)


def _find_longer_names(columns: Iterable[str]) -> BoxColumns | None:
    """Finds the first sides of boxes whose names have the same prefix and suffix."""
    by_letters = {letters_of(column): column for column in columns}
    for form, sides in (*_SIDES, *_MARKED_SIDES):
        for letters in by_letters:
            before, side, behind = letters.rpartition(sides[0])
            names = [f"{before}{name}{behind}" for name in sides]
            if side and by_letters.keys() >= {*names}:
                return BoxColumns(form, tuple(by_letters[name] for name in names))
    return None


def _find_sides(columns: Iterable[str], sides: Iterable[_Sides]) -> BoxColumns | None:
    """Returns the first set of sides whose columns all exist; None if there is none."""
    by_name = by_plain_name(columns)
    for form, names in sides:
        if by_name.keys() >= {*names} and not _are_of_corners(names, by_name):
            return BoxColumns(form, tuple(by_name[name] for name in names))
    return None


def _are_of_corners(sides: Sequence[str], by_name: Mapping[str, str]) -> bool:
    """Whether there are columns for a third corner, as for quadrangles: x1 … y4."""
    return sides[0] in ("x0", "x1") and sides[2] in ("x1", "x2") and {"x3", "y3"} <= {*by_name}


def find_corners(columns: Iterable[str]) -> dict[str, list[str]]:
    """Finds the columns with the corners of quadrangles: x or y -> columns, or an empty dict."""
    by_name = by_plain_name(columns)
    for first in (0, 1):
        corners = {side: [f"{side}{first + place}" for place in range(4)] for side in "xy"}
        if by_name.keys() >= {*corners["x"], *corners["y"]}:
            return {side: [by_name[name] for name in names] for side, names in corners.items()}
    return {}


def by_plain_name(columns: Iterable[str]) -> dict[str, str]:
    """Maps names as spelled by `_plain_name` to columns."""
    by_name = dict[str, str]()
    for column in columns:
        by_name.setdefault(_plain_name(column), column)
    return by_name


def _plain_name(column: str) -> str:
    """Returns a column's name in lower case, without the prefix `bbox_` and without punctuation.

    In the names of corners, upper and lower become top and bottom, and `corner` is left out.
    """
    name = re.sub(r"^(?:bbox|box|boundingbox)(?=.)", "", letters_of(column))
    if not _CORNER_SIDE.fullmatch(name):
        return name
    return name.replace("corner", "").replace("upper", "top").replace("lower", "bottom")


def letters_of(column: str) -> str:
    """Returns the letters and digits of a column's name, in lower case."""
    return re.sub(r"[^a-z0-9]", "", column.lower())


def find_name(names: Iterable[str], by_name: Mapping[str, str]) -> str:
    """Returns the column with the first possible name, or an empty string if there is none."""
    for name in names:
        if name in by_name:
            return by_name[name]
    return ""
