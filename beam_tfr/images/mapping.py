"""Maps points and boxes of a source to its record, as its pixels are.

Coordinates are continuous: x to the right and y down from the corner of the picture, so the first
pixel covers 0 to 1 and its center is at 0.5. Those of a source refer to the upright image, as
viewers show it, or with `upright=False` to the pixels as stored, as tools see it that ignore EXIF.
A record is mapped as a decoder that ignores EXIF shows it, such as TensorFlow's. A source with an
orientation is kept unchanged only with --ignore_orientation; its record then shows the stored
pixels.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_tfr.images.orientation import MIRRORED_DOWN, MIRRORED_RIGHT
from beam_tfr.schema.items import Geometry

Floats = NDArray[np.float64]


@np.errstate(over="ignore", invalid="ignore")  # of absurd numbers, which are outside of everything
def map_points(points: ArrayLike, geometry: Geometry, *, upright: bool = True) -> Floats:
    """Maps [n, 2] points (x, y) of a source, in pixels, to pixels of its record; those outside stay
    outside.

    Raises:
        ZeroDivisionError: the image was not made by `convert_image`.
    """
    mapped: Floats = np.array(points, np.float64).reshape(-1, 2)
    if upright != geometry.turned:
        mapped = _turned(mapped, geometry, back=upright)
    for axis in (0, 1):
        start, end = geometry.window[axis::2]
        first, last = geometry.content[axis::2]
        scale = (last - first) / (end - start)
        mapped[:, axis] = (mapped[:, axis] - start) * scale + first
    return mapped


@np.errstate(over="ignore", invalid="ignore")
def map_boxes(
    boxes: ArrayLike, geometry: Geometry, *, upright: bool = True
) -> tuple[Floats, Floats]:
    """Maps [n, 4] finite boxes (xmin, ymin, xmax, ymax) of a source, in pixels, and clips them to
    the part shown.

    Returns:
        The boxes in pixels of the record, inside `geometry.content`; and for each the share of its
        area that is visible, 0 to 1. What the source itself lacks of a box is not visible either. A
        box without area has none.
    """
    corners = map_points(boxes, geometry, upright=upright).reshape(-1, 2, 2)
    low = corners.min(axis=1)
    high = corners.max(axis=1)
    left, top, right, bottom = geometry.content
    clipped = np.clip(np.stack([low, high], axis=1), (left, top), (right, bottom))
    sides = high - low
    shares = np.divide(
        clipped[:, 1] - clipped[:, 0], sides, out=np.zeros_like(sides), where=sides > 0
    )
    return clipped.reshape(-1, 4), shares.prod(axis=1)


def source_size(geometry: Geometry, *, upright: bool = True) -> tuple[int, int]:
    """The (width, height) of a source, upright or as stored."""
    swapped = upright and geometry.orientation >= 5
    return (geometry.height, geometry.width) if swapped else (geometry.width, geometry.height)


def _turned(points: Floats, geometry: Geometry, *, back: bool) -> Floats:
    """Turns points of the stored source as `orientation.turn_upright` turns its pixels; with `back` the
    other way."""
    swapped = geometry.orientation >= 5
    width, height = source_size(geometry)
    points = points[:, ::-1].copy() if swapped and not back else points
    if geometry.orientation in MIRRORED_RIGHT:
        points[:, 0] = width - points[:, 0]
    if geometry.orientation in MIRRORED_DOWN:
        points[:, 1] = height - points[:, 1]
    return points[:, ::-1].copy() if swapped and back else points
