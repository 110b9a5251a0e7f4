"""Parses, clips and draws the polygons around an object.

All corners are in one list; a corner of NaN separates two polygons. Polygons are filled by the
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
from beam_tfr.features.pixel_parts import PixelBudget, PixelPart

Corner = tuple[float, float]
_BLOCK_CROSSINGS = 1 << 17  # crossings of edges with rows of pixels to compute together
_PIXELS_A_CROSSING = 16  # pixels that take as much time as one crossing


def parse_polygons(part: Any) -> list[tuple[float, ...]]:
    """Parses the corners of the polygons of a box.

    Args:
        part: a list of numbers, of points or of polygons.

    Raises:
        ValueError: `part` is not such a list.
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
    """Returns left, top, width and height of the polygons of a box; [] if there are no corners.

    Raises the same errors as `parse_polygons`.
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
    """Lists the numbers of each polygon, corner by corner."""
    polygons = []
    for is_gap, group in itertools.groupby(corners, _is_gap):
        if not is_gap:
            polygons.append([*itertools.chain.from_iterable(group)])
    return polygons


def _is_gap(corner: tuple[float, ...]) -> bool:
    return math.isnan(corner[0])


def iter_polygons(corners: Floats) -> Iterator[Floats]:
    """Yields the corners [n, 2] of each polygon, given the corners of all polygons."""
    is_gap = np.isnan(corners[:, 0])
    ends = np.flatnonzero(is_gap)
    for polygon in np.split(corners, ends):
        sound = polygon[~np.isnan(polygon[:, 0])]
        if len(sound):
            yield sound


def clip_polygon(corners: Sequence[Corner]) -> list[Corner]:
    """Returns the part of a polygon that is inside its image, or an empty list if there is none.

    The polygon is cut off at each side in turn (Sutherland and Hodgman, 1974).

    Args:
        corners: x and y as fractions of the image.
    """
    clipped = list(corners)
    for axis in (0, 1):
        clipped = _cut_polygon(clipped, axis, 0, 1)
        clipped = _cut_polygon(clipped, axis, 1, -1)
    return clipped if len(set(clipped)) > 2 else []


def _cut_polygon(
    corners: Sequence[Corner], axis: int, limit: float, direction: int
) -> list[Corner]:
    """Returns the part of a polygon on one side of a line.

    Args:
        axis: 0 for a vertical line, 1 for a horizontal line.
        limit: the x or y of the line.
        direction: 1 to keep what is beyond the line, -1 to keep what is before it.
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
    """Joins several polygons into one that covers the same pixels.

    Lines connect the first corner of each polygon to that of the next polygon, and lead back the
    same way at the end, so these lines enclose nothing.
    """
    if len(polygons) == 1:
        return [*polygons[0]]
    path = list[Corner]()
    for polygon in polygons:
        path += [*polygon, polygon[0]]
    between = polygons[1:-1]
    path += [polygon[0] for polygon in reversed(between)]
    return path


def draw_polygons(corners: Floats, size: tuple[int, int], budget: PixelBudget) -> PixelPart:
    """Draws the pixels of a canvas that any of several polygons covers, as 1.

    Args:
        corners: [n, 2], in pixels of the canvas.
        size: width and height of the canvas.
        budget: the number of pixels that may be processed, around each polygon and along its edges.

    Raises:
        RejectError: the budget is spent.
    """
    polygons = []
    places = []
    for polygon in iter_polygons(corners):
        place = _enclose(polygon, size)
        if place is not None:
            polygons.append(polygon)
            places.append(place)
    if not places:
        return PixelPart.empty()
    left, top, _, _ = np.min(places, axis=0).tolist()
    _, _, right, bottom = np.max(places, axis=0).tolist()
    part = PixelPart(left, top, np.zeros((bottom - top, right - left), np.uint8))
    for polygon, place in zip(polygons, places, strict=True):
        _draw_polygon(polygon, place, part, budget)
    return part


def _enclose(corners: Floats, size: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Returns left, top, right and bottom of the pixels that a polygon may cover, or None."""
    width, height = size
    first = np.floor(corners.min(axis=0))
    last = np.ceil(corners.max(axis=0))
    left, right = np.clip([first[0], last[0]], 0, width).astype(int).tolist()
    top, bottom = np.clip([first[1], last[1]], 0, height).astype(int).tolist()
    is_outside = left == right or top == bottom
    return None if is_outside else (left, top, right, bottom)


def _draw_polygon(
    corners: Floats, place: tuple[int, int, int, int], part: PixelPart, budget: PixelBudget
) -> None:
    """Sets the pixels of a part that a polygon covers to 1.

    These are the pixels with an odd number of the polygon's edges to their left.

    Args:
        corners: [n, 2], in pixels of the canvas.
        place: result of `_enclose`.
        budget: see `draw_polygons`.
    """
    left, top, right, bottom = place
    width = right - left
    height = bottom - top
    edges = _Edges(corners - (left, top), height)
    budget.spend(width * height + _PIXELS_A_CROSSING * edges.num_crossings)
    crossings = np.zeros((height, width + 1), np.uint8)
    for rows, places in edges.cross_rows():
        columns = np.ceil(places - 0.5).clip(0, width)
        pixels = rows * (width + 1) + columns.astype(np.int64)
        np.bitwise_xor.at(crossings.reshape(-1), pixels, np.uint8(1))
    np.bitwise_xor.accumulate(crossings, axis=1, out=crossings)
    covered = PixelPart(left - part.left, top - part.top, crossings[:, :width])
    shown = covered.place_on(part.pixels)
    shown |= covered.pixels


class _Edges:
    """The edges of a polygon, and the rows of pixels whose centers they cross.

    Args:
        corners: [n, 2], in pixels of the rows.
        height: the number of rows.
    """

    def __init__(self, corners: Floats, height: int) -> None:
        self._begins = corners
        self._ends = np.roll(corners, -1, axis=0)
        centers = np.arange(height) + 0.5
        highest = np.minimum(self._begins[:, 1], self._ends[:, 1])
        lowest = np.maximum(self._begins[:, 1], self._ends[:, 1])
        self._first_rows = np.searchsorted(centers, highest)
        self._numbers = np.searchsorted(centers, lowest) - self._first_rows

    @property
    def num_crossings(self) -> int:
        """The number of rows that edges cross, summed over all edges."""
        return int(self._numbers.sum())

    def cross_rows(self) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """Yields, for each block of edges, the rows that the edges cross, and where they do so."""
        totals = np.cumsum(self._numbers)
        blocks = totals // _BLOCK_CROSSINGS
        cuts = np.flatnonzero(np.diff(blocks)) + 1
        for edges in np.split(np.arange(totals.size), cuts):
            yield self._cross(edges)

    def _cross(self, edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
        """Computes the rows that the given edges cross, and where they do so."""
        numbers = self._numbers[edges]
        crossing = np.repeat(edges, numbers)
        firsts = np.cumsum(numbers) - numbers
        rows_of_edge = np.arange(crossing.size) - np.repeat(firsts, numbers)
        rows = self._first_rows[crossing] + rows_of_edge
        x0, y0 = self._begins[crossing].T
        x1, y1 = self._ends[crossing].T
        shares = (rows + 0.5 - y0) / (y1 - y0)
        return rows, x0 + shares * (x1 - x0)
