"""Maps points and boxes of a source to its record, as its pixels are.

Coordinates are continuous: x to the right and y down from the corner of the picture, so the first
pixel covers 0 to 1 and its center is at 0.5. Those of a source refer to the upright image, as
viewers show it, or with `upright=False` to the pixels as stored, as tools see it that ignore EXIF.
A record is mapped as a decoder that ignores EXIF shows it, such as TensorFlow's. A source with an
orientation is kept unchanged only with --ignore_orientation; its record then shows the stored
pixels.
"""

import contextlib
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_tfr.images.limits import BUDGET
from beam_tfr.images.orientation import MIRRORED_DOWN, MIRRORED_RIGHT, turn_upright
from beam_tfr.schema.items import Geometry, Image

Floats = NDArray[np.float64]
_INVERSE = {6: 8, 8: 6}  # orientation -> the one that makes it; all others make themselves


@np.errstate(over="ignore", invalid="ignore")  # of absurd numbers, which are outside of everything
def map_points(points: ArrayLike, geometry: Geometry, *, upright: bool = True) -> Floats:
    """Maps points of a source to its record.

    They are [n, 2] (x, y) in pixels. Points outside of what the record shows stay outside.

    Raises:
        ZeroDivisionError: the image was not made by `convert_image`.
    """
    mapped: Floats = np.array(points, np.float64).reshape(-1, 2)
    if upright and not geometry.turned:
        mapped = _turn_back(mapped, geometry)
    elif geometry.turned and not upright:
        mapped = _turn_upright(mapped, geometry)
    for axis in (0, 1):
        start, end = geometry.window[axis::2]
        first, last = geometry.content[axis::2]
        scale = (last - first) / (end - start)
        column = mapped[:, axis]
        column -= start
        column *= scale
        column += first
    return mapped


@np.errstate(over="ignore", invalid="ignore")
def map_boxes(
    boxes: ArrayLike, geometry: Geometry, *, upright: bool = True
) -> tuple[Floats, Floats]:
    """Maps boxes of a source to its record, and clips them to the part shown.

    They are [n, 4] finite (xmin, ymin, xmax, ymax) in pixels.

    Returns:
        The boxes in pixels of the record, inside `geometry.content`; and for each the share of its
        area that is visible, 0 to 1. What the source itself lacks of a box is not visible either. A
        box without area has none.
    """
    corners = map_points(boxes, geometry, upright=upright).reshape(-1, 2, 2)
    low = corners.min(axis=1)
    high = corners.max(axis=1)
    left, top, right, bottom = geometry.content
    moved = np.stack([low, high], axis=1)
    clipped = np.clip(moved, (left, top), (right, bottom))
    sides = high - low
    shown = clipped[:, 1] - clipped[:, 0]
    nothing = np.zeros_like(sides)
    shares = np.divide(shown, sides, out=nothing, where=sides > 0)
    return clipped.reshape(-1, 4), shares.prod(axis=1)


def source_size(geometry: Geometry, *, upright: bool = True) -> tuple[int, int]:
    """The (width, height) of a source, upright or as stored."""
    if upright and _swaps_sides(geometry):
        return geometry.height, geometry.width
    return geometry.width, geometry.height


def _swaps_sides(geometry: Geometry) -> bool:
    """Whether the width of a source is the height of the upright one."""
    return geometry.orientation >= 5


def _turn_upright(points: Floats, geometry: Geometry) -> Floats:
    """Turns points of the stored source as `turn_upright` turns its pixels."""
    turned = np.fliplr(points) if _swaps_sides(geometry) else points
    _mirror(turned, geometry)
    return turned


def _turn_back(points: Floats, geometry: Geometry) -> Floats:
    """Turns points of the upright source to the stored one."""
    _mirror(points, geometry)
    return np.fliplr(points) if _swaps_sides(geometry) else points


def _mirror(points: Floats, geometry: Geometry) -> None:
    """Mirrors points of the upright source."""
    width, height = source_size(geometry)
    if geometry.orientation in MIRRORED_RIGHT:
        points[:, 0] = width - points[:, 0]
    if geometry.orientation in MIRRORED_DOWN:
        points[:, 1] = height - points[:, 1]


@dataclasses.dataclass(frozen=True)
class RecordPixels:
    """Where the pixels of a source are in its record: a `features.base.PixelMap`.

    Attributes:
        image: the converted image.
        max_decode_bytes: for all that is decoded at once.
    """

    image: Image
    max_decode_bytes: int

    @property
    def source_size(self) -> tuple[int, int]:
        return source_size(self.image.geometry)

    @property
    def stored_size(self) -> tuple[int, int]:
        return source_size(self.image.geometry, upright=False)

    @property
    def shown_size(self) -> tuple[int, int]:
        return self.source_size if self.image.geometry.turned else self.stored_size

    @property
    def size(self) -> tuple[int, int]:
        return self.image.width, self.image.height

    @property
    def content(self) -> tuple[int, int, int, int]:
        return self.image.geometry.content

    def map_points(self, points: ArrayLike) -> Floats:
        return map_points(points, self.image.geometry)

    def map_boxes(self, boxes: ArrayLike) -> tuple[Floats, Floats]:
        return map_boxes(boxes, self.image.geometry)

    def turn_pixels(self, pixels: NDArray[Any]) -> NDArray[Any]:
        geometry = self.image.geometry
        if geometry.turned:
            return pixels
        inverse = _INVERSE.get(geometry.orientation, geometry.orientation)
        turned = turn_upright(pixels[:, :, None], inverse)
        return turned[:, :, 0]

    def map_pixels(self, pixels: NDArray[Any], *, outside: int = 0) -> NDArray[Any]:
        geometry = self.image.geometry
        window_left, window_top, window_right, window_bottom = geometry.window
        left, top, right, bottom = geometry.content
        columns = _nearest(window_left, window_right, right - left)
        rows = _nearest(window_top, window_bottom, bottom - top)
        size = (self.image.height, self.image.width)
        placed = np.full(size, outside, pixels.dtype)
        placed[top:bottom, left:right] = pixels[np.ix_(rows, columns)]
        return placed

    def hold_memory(self, num_bytes: int) -> contextlib.AbstractContextManager[None]:
        return BUDGET.hold(num_bytes, self.max_decode_bytes)


def _nearest(start: int, end: int, size: int) -> NDArray[np.int64]:
    """The pixels from `start` to `end` that the centers of `size` pixels lie in."""
    centers = 2 * np.arange(size) + 1  # twice
    return start + centers * (end - start) // (2 * size)
