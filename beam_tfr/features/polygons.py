"""The polygons around an object.

All their corners are in one list, with a corner of NaN between two polygons. They are filled by the
even-odd rule: a polygon covers the pixels whose centers are in it.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import Floats
from beam_tfr.features.cells import as_list, flatten_list, group_numbers, to_finite

Corner = tuple[float, float]
_EDGES = 64  # of a polygon, at once


def parse_polygons(part: Any) -> list[tuple[float, ...]]:
    """The corners of the polygons of a box.

    Args:
        part: a list of numbers, of points or of polygons.

    Raises:
        ValueError: it is none.
    """
    members = as_list(part)
    has_polygons = any(isinstance(member, list) and len(member) > 2 for member in members)
    polygons = members if has_polygons else [flatten_list(members)]
    corners = list[tuple[float, ...]]()
    for numbers in polygons:
        points = group_numbers(numbers, 2)
        if corners:
            corners.append((math.nan, math.nan))
        corners += [(to_finite(x), to_finite(y)) for x, y in points]
    return corners


def enclose_polygons(part: Any) -> list[float]:
    """The left, top, width and height of the polygons of a box; empty without corners.

    Raises as `parse_polygons`.
    """
    corners = [corner for corner in parse_polygons(part) if not _is_gap(corner)]
    if not corners:
        return []
    columns = [x for x, _ in corners]
    rows = [y for _, y in corners]
    left = min(columns)
    top = min(rows)
    return [left, top, max(columns) - left, max(rows) - top]


def list_polygons(corners: Iterable[tuple[float, ...]]) -> list[list[float]]:
    """The numbers of each polygon, one after the other."""
    polygons = []
    for is_gap, group in itertools.groupby(corners, _is_gap):
        if not is_gap:
            polygons.append([*itertools.chain.from_iterable(group)])
    return polygons


def _is_gap(corner: tuple[float, ...]) -> bool:
    return math.isnan(corner[0])


def iter_polygons(corners: Floats) -> Iterator[Floats]:
    """Yields the corners [n, 2] of each polygon, given those of all."""
    is_gap = np.isnan(corners[:, 0])
    ends = np.flatnonzero(is_gap)
    for polygon in np.split(corners, ends):
        sound = polygon[~np.isnan(polygon[:, 0])]
        if len(sound):
            yield sound


def clip_polygon(corners: Sequence[Corner]) -> list[Corner]:
    """The part of a polygon that its image shows; empty if there is none.

    It is cut off at each side in turn (Sutherland and Hodgman, 1974).

    Args:
        corners: x and y as shares of the image.
    """
    clipped = list(corners)
    for axis in (0, 1):
        clipped = _cut_polygon(clipped, axis, 0, 1)
        clipped = _cut_polygon(clipped, axis, 1, -1)
    return clipped if len(set(clipped)) > 2 else []


def _cut_polygon(
    corners: Sequence[Corner], axis: int, limit: float, direction: int
) -> list[Corner]:
    """The part of a polygon on one side of a line.

    Args:
        corners: those of the polygon.
        axis: 0 if the line is at an x, 1 if at a y.
        limit: that x or y.
        direction: 1 for what is beyond it, -1 for what is before.
    """
    kept = list[Corner]()
    for begin, end in zip([*corners[-1:], *corners[:-1]], corners, strict=True):
        begins_inside = direction * (begin[axis] - limit) >= 0
        ends_inside = direction * (end[axis] - limit) >= 0
        if begins_inside != ends_inside:
            share = (limit - begin[axis]) / (end[axis] - begin[axis])
            crossing = [
                side + share * (other - side) for side, other in zip(begin, end, strict=True)
            ]
            crossing[axis] = limit
            kept.append((crossing[0], crossing[1]))
        if ends_inside:
            kept.append(end)
    return kept


def join_polygons(polygons: Sequence[Sequence[Corner]]) -> list[Corner]:
    """One polygon that covers what several do.

    From the first corner of each, a line goes to that of the next, and back at the end; so these
    lines cover nothing.
    """
    if len(polygons) == 1:
        return [*polygons[0]]
    path = list[Corner]()
    for polygon in polygons:
        path += [*polygon, polygon[0]]
    between = polygons[1:-1]
    path += [polygon[0] for polygon in reversed(between)]
    return path


def fill_polygons(corners: Floats, mask: NDArray[np.uint8]) -> None:
    """Sets the pixels of a mask that any of several polygons covers to 1.

    Args:
        corners: [n, 2], in pixels of the mask.
        mask: the mask [height, width], which is changed.
    """
    height, width = mask.shape
    for polygon in iter_polygons(corners):
        first = np.floor(polygon.min(axis=0))
        last = np.ceil(polygon.max(axis=0))
        ends = np.stack([first, last]).clip(0, (width, height))
        (left, top), (right, bottom) = ends.astype(int).tolist()
        part = mask[top:bottom, left:right]
        part |= _cover(polygon - (left, top), bottom - top, right - left)


def _cover(corners: Floats, height: int, width: int) -> NDArray[np.uint8]:
    """The pixels that a polygon covers.

    They have an odd number of its edges to their left.
    """
    crossings = np.zeros((height, width + 1), np.uint8)
    centers = np.arange(height) + 0.5
    ends = np.roll(corners, -1, axis=0)
    for first in range(0, len(corners), _EDGES):
        edges = slice(first, first + _EDGES)
        rows, places = _cross_rows(corners[edges], ends[edges], centers)
        columns = np.ceil(places - 0.5).clip(0, width)
        pixels = (rows, columns.astype(np.int64))
        np.bitwise_xor.at(crossings, pixels, np.uint8(1))
    return np.bitwise_xor.accumulate(crossings, axis=1)[:, :width]


def _cross_rows(
    begins: Floats, ends: Floats, centers: NDArray[np.floating[Any]]
) -> tuple[NDArray[np.int64], Floats]:
    """The rows of pixels that edges cross, and where.

    Args:
        begins, ends: points [n, 2] of the edges.
        centers: of the rows, from the top.
    """
    x0, y0 = begins.T
    x1, y1 = ends.T
    begins_above = y0[:, None] <= centers
    ends_above = y1[:, None] <= centers
    edges, rows = np.nonzero(begins_above != ends_above)
    heights = y1[edges] - y0[edges]
    shares = (centers[rows] - y0[edges]) / heights
    widths = x1[edges] - x0[edges]
    return rows, x0[edges] + shares * widths
