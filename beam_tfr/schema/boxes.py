"""Formats of boxes, which have the names of Keras.

Coordinates are continuous: x to the right and y down from the corner of the image, in pixels, or
after `RELATIVE` in shares of the image's width and height.
"""

from collections.abc import Sequence
from typing import Any

BOXES = "boxes"
CLASSES = "classes"
MASKS = "masks"  # what the readers call them
RELATIVE = "rel_"
_KINDS = ("xyxy", "yxyx", "xywh", "center_xywh")
BOX_FORMATS = (*_KINDS, *(RELATIVE + kind for kind in _KINDS))


def is_outside(sides: Sequence[float], size: Sequence[float]) -> bool:
    """Whether a box of these xmin, ymin, xmax and ymax is wholly outside of an image of this width
    and height."""
    left, top, right, bottom = sides
    return bool(right <= 0 or bottom <= 0 or left >= size[0] or top >= size[1])


def in_format(form: str, sides: Any) -> tuple[Any, Any, Any, Any]:
    """The four columns of boxes in one of `BOX_FORMATS`.

    Args:
        form: the format.
        sides: columns of xmin, ymin, xmax and ymax, as arrays or tensors, in the unit of the
            format.
    """
    left, top, right, bottom = sides
    width = right - left
    height = bottom - top
    return {
        "xyxy": (left, top, right, bottom),
        "yxyx": (top, left, bottom, right),
        "xywh": (left, top, width, height),
        "center_xywh": (left + width / 2, top + height / 2, width, height),
    }[form.removeprefix(RELATIVE)]
