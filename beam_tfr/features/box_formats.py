"""Converts boxes between formats, which are named as in Keras.

Coordinates are continuous: x to the right and y down from the corner of the image. They are in
pixels or, in formats with the prefix `RELATIVE`, in fractions of the image's width and height.
"""

import math
from collections.abc import Sequence
from typing import Any

from beam_tfr.features.cells import check_cell, to_float

RELATIVE = "rel_"
_KINDS = ("xyxy", "yxyx", "xywh", "center_xywh")
BOX_FORMATS = (*_KINDS, *(RELATIVE + kind for kind in _KINDS))
Corners = tuple[float, float, float, float]  # xmin, ymin, xmax, ymax


def is_relative(form: str) -> bool:
    """Whether coordinates in a format are fractions of the sides of the image."""
    return form.startswith(RELATIVE)


def to_corners(box: Any, form: str) -> Corners:
    """Converts a box in one of `BOX_FORMATS` to its xmin, ymin, xmax and ymax.

    Args:
        box: what should be a list of four numbers, possibly as strings.
        form: the format.

    Raises:
        ValueError: `box` is not a box, has no area, or ends before the image begins.
    """
    check_cell(box)
    if not isinstance(box, list) or len(box) != 4:
        raise ValueError(f"{box!r:.60} is not a box of four numbers")
    numbers = [to_float(number) for number in box]
    left, top, right, bottom = _corners(numbers, form.removeprefix(RELATIVE))
    width = right - left
    height = bottom - top
    if not 0 < width < math.inf or not 0 < height < math.inf:
        raise ValueError(f"{numbers} is not a box with an area in the format {form}")
    if right <= 0 or bottom <= 0:
        raise ValueError(f"{numbers} is outside its image")
    return left, top, right, bottom


def _corners(numbers: Sequence[float], kind: str) -> Corners:
    first, second, third, fourth = numbers
    match kind:
        case "yxyx":
            return second, first, fourth, third
        case "xywh":
            return first, second, first + third, second + fourth
        case "center_xywh":
            left = first - third / 2
            top = second - fourth / 2
            return left, top, left + third, top + fourth
    return first, second, third, fourth


def from_corners(sides: Any, form: str) -> tuple[Any, Any, Any, Any]:
    """Computes the four columns of boxes in one of `BOX_FORMATS`.

    Args:
        sides: columns of xmin, ymin, xmax and ymax, as arrays or tensors, in the unit of the
            format.
        form: the format.
    """
    left, top, right, bottom = sides
    width = right - left
    height = bottom - top
    match form.removeprefix(RELATIVE):
        case "yxyx":
            return top, left, bottom, right
        case "xywh":
            return left, top, width, height
        case "center_xywh":
            x = left + width / 2
            y = top + height / 2
            return x, y, width, height
    return left, top, right, bottom


def is_outside(corners: Sequence[float], size: Sequence[float]) -> bool:
    """Whether a box is entirely outside an image of this width and height."""
    left, top, right, bottom = corners
    width, height = size
    is_before = min(right, bottom) <= 0
    return is_before or left >= width or top >= height
