"""Finds columns with coordinates in images, by their names."""

import re
from collections.abc import Iterable

# Boxes, their sides, and lists of points.
_PLACES = re.compile(
    r"(?i)(.*[_./ ])?(b?box(es)?|box_[xywh]|[xy]([0-2]|_?min|_?max))"
    r"|.*(key_?points|landmarks|polygons?)"
)
# Lists of boxes; CrowdHuman's fbox is the box of a whole person.
_BOXES = re.compile(r"(?i)(.*[_./])?(bounding_?|gt_?)?[bf]?box(es)?(_?string)?")
# An x that is a word of a name, as in `left_eye_x`, `x_1` or `centerX`.
_X = re.compile(r"(?<![A-Za-z])[xX](?![A-Za-z])|(?<=[a-z])X(?![a-z])")
_Y = str.maketrans("xX", "yY")


def names_places(column: str) -> bool:
    """Whether a column is named for boxes, a side of boxes, or points."""
    return bool(_PLACES.fullmatch(column))


def names_boxes(column: str) -> bool:
    """Whether a column is named for whole boxes, with all of their sides."""
    return bool(_BOXES.fullmatch(column))


def find_point_columns(columns: Iterable[str]) -> list[str]:
    """Finds pairs of columns with the x and y of points, such as left_eye_x and left_eye_y."""
    names = dict.fromkeys(columns)
    pairs = list[str]()
    for name in names:
        partner = _X.sub(lambda match: match[0].translate(_Y), name)
        if partner != name and partner in names:
            pairs += [name, partner]
    return pairs


def find_coordinates(columns: Iterable[str]) -> list[str]:
    """Finds the columns whose names suggest coordinates; keeps the order of `columns`."""
    names = [*columns]
    points = {*find_point_columns(names)}
    return [name for name in names if name in points or names_places(name)]
