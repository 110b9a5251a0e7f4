"""Defines the shapes that show the values of a record in a picture of the record."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.schema.feature_names import HEIGHT, OBJECT_LABEL, WIDTH

_MOST_SHOWN_PIXELS = 1 << 27  # 134 million per image


class Rectangle(NamedTuple):
    """A box, with its class and the name of the class.

    Left, top, right and bottom are fractions of the image.
    """

    corners: tuple[float, float, float, float]
    label: int
    name: bytes


class Dots(NamedTuple):
    """The points [n, 2] of an object of a class, as fractions of the image."""

    points: NDArray[np.float64]
    label: int


class Outline(NamedTuple):
    """The corners of a polygon around an object of a class.

    The corners are [n, 2], as fractions of the image.
    """

    corners: NDArray[np.float64]
    label: int


class Tint(NamedTuple):
    """The covered pixels of an image: uint8 or uint16 [height, width].

    Without a label, each pixel has the number of its class, or 0 if nothing covers it. With a
    label, pixels are 0 and 1, and all covered pixels are of that class.
    """

    pixels: NDArray[Any]
    label: int | None = None


Shape = Rectangle | Dots | Outline | Tint


def shown_size(stored: Mapping[str, Sequence[Any]]) -> tuple[int, int]:
    """Returns the (height, width) of the masks in a record, which any program may have written.

    Raises:
        LookupError, TypeError: the record does not state the size.
        ValueError: there are too many pixels to decode for a picture.
    """
    height = stored[HEIGHT][0]
    width = stored[WIDTH][0]
    if height * width > _MOST_SHOWN_PIXELS:
        raise ValueError(f"{height}x{width} pixels are too many to show")
    return height, width


def box_classes(stored: Mapping[str, Sequence[Any]], number: int) -> Sequence[int]:
    """Returns the class of each box of a record; 0 for all boxes if there are no labels."""
    return stored.get(OBJECT_LABEL) or [0] * number
