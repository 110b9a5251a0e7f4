"""Fills polygons by the even-odd rule.

A polygon covers the pixels whose centers are in it.
"""

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import Floats

_EDGES = 64  # of a polygon, at once


def fill_polygons(points: Floats, mask: NDArray[np.uint8]) -> None:
    """Sets the pixels of a mask that any of several polygons covers to 1.

    The mask is [height, width].

    Args:
        points: [n, 2] corners in pixels of the mask, with NaN between polygons.
        mask: the mask, which is changed.
    """
    is_gap = np.isnan(points[:, 0])
    for polygon in np.split(points, np.flatnonzero(is_gap)):
        corners = polygon[~np.isnan(polygon[:, 0])]
        if not len(corners):
            continue
        ends = np.stack([np.floor(corners.min(axis=0)), np.ceil(corners.max(axis=0))])
        (left, top), (right, bottom) = ends.clip(0, mask.shape[::-1]).astype(int).tolist()
        covered = _cover(corners - (left, top), bottom - top, right - left)
        mask[top:bottom, left:right] |= covered


def _cover(corners: Floats, height: int, width: int) -> NDArray[np.uint8]:
    """The pixels that a polygon covers.

    These have an odd number of its edges to their left.
    """
    crossings = np.zeros((height, width + 1), np.uint8)
    centers = np.arange(height) + 0.5
    ends = np.roll(corners, -1, axis=0)
    for first in range(0, len(corners), _EDGES):
        (x0, y0) = corners[first : first + _EDGES].T
        (x1, y1) = ends[first : first + _EDGES].T
        edges, rows = np.nonzero((y0[:, None] <= centers) != (y1[:, None] <= centers))
        shares = (centers[rows] - y0[edges]) / (y1[edges] - y0[edges])
        places = x0[edges] + shares * (x1[edges] - x0[edges])
        columns = np.ceil(places - 0.5).clip(0, width).astype(np.int64)
        np.bitwise_xor.at(crossings, (rows, columns), np.uint8(1))
    return np.bitwise_xor.accumulate(crossings, axis=1)[:, :width]
