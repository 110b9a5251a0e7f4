"""Maps points and boxes of a source to the pixels of its record.

Coordinates are continuous: x to the right and y down from the corner of the picture, so the first
pixel covers 0 to 1 and its center is at 0.5. Coordinates of a source refer to the upright image, as
viewers show it, or with `upright=False` to the pixels as stored, as tools that ignore EXIF show
them. Coordinates of a record refer to the image as shown by a decoder that ignores EXIF, such as
TensorFlow's.

A source with an orientation is kept unchanged only with --ignore_orientation; its record then shows
the stored pixels.
"""

import contextlib
import dataclasses
import functools
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_tfr.features.pixel_parts import PixelPart
from beam_tfr.images.limits import BUDGET
from beam_tfr.images.orientation import MIRRORED_DOWN, MIRRORED_RIGHT, turn_upright
from beam_tfr.schema.items import Geometry, Image

Floats = NDArray[np.float64]
_Sample = TypeVar("_Sample", bound=np.generic)
_INVERSE = {6: 8, 8: 6}  # orientation -> its inverse; all others are their own inverse


@np.errstate(over="ignore", invalid="ignore")  # for absurd numbers, which are outside of everything
def map_points(points: ArrayLike, geometry: Geometry, *, upright: bool = True) -> Floats:
    """Maps points of a source, [n, 2] (x, y) in pixels, to its record.

    Points outside the part that the record shows stay outside.

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
    """Maps boxes of a source to its record, and clips them to the visible part.

    Boxes are [n, 4] finite (xmin, ymin, xmax, ymax) in pixels.

    Returns:
        The boxes in pixels of the record, inside `geometry.content`, and for each box the fraction
        of its area that is visible, 0 to 1. Parts outside the source count as not visible. For a
        box with no area, the fraction is 0.
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
    """Returns the (width, height) of a source, upright or as stored."""
    if upright and _swaps_sides(geometry):
        return geometry.height, geometry.width
    return geometry.width, geometry.height


def _swaps_sides(geometry: Geometry) -> bool:
    """Whether the width of the stored source is the height of the upright source."""
    return geometry.orientation >= 5


def _turn_upright(points: Floats, geometry: Geometry) -> Floats:
    """Rotates points of the stored source as `turn_upright` rotates its pixels."""
    turned = np.fliplr(points) if _swaps_sides(geometry) else points
    _mirror(turned, geometry)
    return turned


def _turn_back(points: Floats, geometry: Geometry) -> Floats:
    """Rotates points of the upright source back to the stored source."""
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
    """The mapping from the pixels of a source to those of its record: a `features.base.PixelMap`.

    Attributes:
        image: the converted image.
        max_decode_bytes: memory limit for everything that is decoded at the same time.
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
        left, top, right, bottom = self.content
        size = (self.image.height, self.image.width)
        placed = np.full(size, outside, pixels.dtype)
        placed[top:bottom, left:right] = _select(pixels, self._rows, self._columns)
        return placed

    def map_part(self, part: PixelPart) -> PixelPart:
        shown = self._turn_part(part)
        left, top, _, _ = self.content
        first_row, last_row = np.searchsorted(self._rows, (shown.top, shown.bottom)).tolist()
        first_column, last_column = np.searchsorted(
            self._columns, (shown.left, shown.right)
        ).tolist()
        rows = self._rows[first_row:last_row] - shown.top
        columns = self._columns[first_column:last_column] - shown.left
        return PixelPart(left + first_column, top + first_row, _select(shown.pixels, rows, columns))

    def _turn_part(self, part: PixelPart) -> PixelPart:
        """Rotates a part of `source_size` to `shown_size`."""
        geometry = self.image.geometry
        if geometry.turned:
            return part
        corners = np.array([(part.left, part.top), (part.right, part.bottom)], np.float64)
        left, top = _turn_back(corners, geometry).min(axis=0).astype(int).tolist()
        return PixelPart(left, top, self.turn_pixels(part.pixels))

    @functools.cached_property
    def _rows(self) -> NDArray[np.int64]:
        """The rows of `shown_size` that the rows of the content show, in order."""
        _, top, _, bottom = self.content
        _, window_top, _, window_bottom = self.image.geometry.window
        return _nearest(window_top, window_bottom, bottom - top)

    @functools.cached_property
    def _columns(self) -> NDArray[np.int64]:
        """The columns of `shown_size` that the columns of the content show, in order."""
        left, _, right, _ = self.content
        window_left, _, window_right, _ = self.image.geometry.window
        return _nearest(window_left, window_right, right - left)

    def hold_memory(self, num_bytes: int) -> contextlib.AbstractContextManager[None]:
        return BUDGET.hold(num_bytes, self.max_decode_bytes)


def _select(
    pixels: NDArray[_Sample], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[_Sample]:
    """Selects the pixels in some rows and columns, each in order.

    Returns a view if the rows and the columns are consecutive.
    """
    return pixels[_as_slice(rows)][:, _as_slice(columns)]


def _as_slice(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Returns an array of numbers as a slice if possible; otherwise unchanged."""
    if not numbers.size:
        return slice(0, 0)
    begin = int(numbers[0])
    end = begin + numbers.size
    is_gapless = np.array_equal(numbers, np.arange(begin, end))
    return slice(begin, end) if is_gapless else numbers


def _nearest(start: int, end: int, size: int) -> NDArray[np.int64]:
    """Divides the pixels from `start` to `end` into `size` parts; returns their centers."""
    centers = 2 * np.arange(size) + 1  # doubled
    return start + centers * (end - start) // (2 * size)
