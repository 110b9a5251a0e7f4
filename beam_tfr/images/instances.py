"""Brings the masks of boxes, which are run lengths or polygons, to the places of their images;
never interpolates.

Run lengths are those of COCO (https://github.com/cocodataset/cocoapi, common/maskApi.c):
alternately of pixels outside and inside, down the columns of the upright image; or that file's text
of them. A polygon covers the pixels of the record whose centers are in it, by the even-odd rule,
and several polygons what any of them covers.
"""

import json
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.limits import BUDGET
from beam_tfr.images.mapping import Floats, map_points, source_size
from beam_tfr.images.masks import place_values
from beam_tfr.images.orientation import turn_upright
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Image

_BYTES = 3  # a pixel of the source and of the record, to decode a mask
# For runs of equal bytes: a third of the time of `images.masks`, and fewer bytes.
_PNG = (
    cv2.IMWRITE_PNG_STRATEGY,
    cv2.IMWRITE_PNG_STRATEGY_RLE,
    cv2.IMWRITE_PNG_FILTER,
    cv2.IMWRITE_PNG_FILTER_NONE,
)
_EDGES = 64  # of a polygon, at once
_LONGEST_SHIFT = 55  # bits of a number in a text of run lengths
_INVERSE = {6: 8, 8: 6}  # orientation -> the one that makes it; all others make themselves


def place_mask(data: bytes, number: int, image: Image, *, relative: bool, memory: int) -> bytes:
    """Places the mask of a box as its image is placed in the record.

    Args:
        data: as the table's column has it: JSON of run lengths or points, see `schema.columns`.
        number: of its box, for messages.
        image: the converted image.
        relative: whether polygons are shares of the sides of the image.
        memory: bytes for all that is decoded at once.

    Returns:
        A PNG of 0 and 1, of the size of the record.

    Raises:
        RejectError: `bad-value`: it is no mask of this image.
    """
    geometry = image.geometry
    shape = json.loads(data)
    width, height = source_size(geometry)
    with BUDGET.hold(_BYTES * (height * width + image.height * image.width), memory):
        if isinstance(shape, list):
            points = np.array(shape, np.float64).reshape(-1, 2) * (
                (width, height) if relative else 1
            )
            mask = _draw(map_points(points, geometry), image)
        else:
            try:
                values = decode_runs(shape["counts"], shape["size"], (height, width))
            except ValueError as error:
                raise RejectError("bad-value", f"the mask of box {number} {error}") from None
            if not geometry.turned:
                inverse = _INVERSE.get(geometry.orientation, geometry.orientation)
                values = turn_upright(values[:, :, None], inverse)[:, :, 0]
            mask = place_values(values, image)
        return cv2.imencode(".png", mask, _PNG)[1].tobytes()


def decode_runs(counts: Any, size: Any, expected: tuple[int, int]) -> NDArray[np.uint8]:
    """The mask of COCO's run lengths: 0 and 1, of the expected size (height, width).

    Raises:
        ValueError: they are not, or of another size.
    """
    if size != [*expected]:
        turned = ": it ignores EXIF orientation" if size == [*expected[::-1]] else ""
        raise ValueError(f"has the size {size!a:.60}, the image {[*expected]}{turned}")
    if isinstance(counts, str):
        counts = _parse_runs(counts)
    if not isinstance(counts, list) or not all(
        type(count) is int and count >= 0 for count in counts
    ):
        raise ValueError(
            "has `counts` that are no run lengths: a list of whole numbers, or COCO's text of them"
        )
    if sum(counts) != expected[0] * expected[1]:
        raise ValueError(
            f"has run lengths of fewer or more pixels than the {expected[0] * expected[1]} of the image"
        )
    inside = np.arange(len(counts)) % 2
    columns: NDArray[np.uint8] = np.repeat(inside.astype(np.uint8), counts)
    return columns.reshape(expected, order="F")


def _parse_runs(text: str) -> list[int]:
    """The numbers of COCO's text of run lengths: five bits a letter; from the fourth on, what the
    last but one lacks.

    Raises:
        ValueError: it is none.
    """
    counts = list[int]()
    value = shift = 0
    for letter in text:
        bits = ord(letter) - ord("0")
        if not 0 <= bits < 64 or shift > _LONGEST_SHIFT:
            raise ValueError(
                f"has a text of run lengths whose part {len(counts) + 1} is no number: it has {letter!a}"
            )
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            value -= (bits & 16) >> 4 << shift
            counts.append(value + counts[-2] if len(counts) > 2 else value)
            value = shift = 0
    if shift:
        raise ValueError("has a text of run lengths that ends within a number")
    return counts


def _draw(points: Floats, image: Image) -> NDArray[np.uint8]:
    """What polygons cover of a record, given their corners there; NaN separates them."""
    left, top, right, bottom = image.geometry.content
    mask = np.zeros((image.height, image.width), np.uint8)
    inside = mask[top:bottom, left:right]
    for polygon in np.split(points - (left, top), np.flatnonzero(np.isnan(points[:, 0]))):
        corners = polygon[~np.isnan(polygon[:, 0])]
        if len(corners):
            edges = np.stack([np.floor(corners.min(axis=0)), np.ceil(corners.max(axis=0))])
            (x0, y0), (x1, y1) = edges.clip(0, inside.shape[::-1]).astype(int).tolist()
            inside[y0:y1, x0:x1] |= _fill(corners - (x0, y0), y1 - y0, x1 - x0)
    return mask


def _fill(corners: Floats, height: int, width: int) -> NDArray[np.uint8]:
    """The pixels whose centers are in a polygon: those with an odd number of its edges to their
    left."""
    crossed = np.zeros((height, width + 1), np.uint8)
    centers = np.arange(height) + 0.5
    ends = np.roll(corners, -1, axis=0)
    for at in range(0, len(corners), _EDGES):
        (x0, y0) = corners[at : at + _EDGES].T
        (x1, y1) = ends[at : at + _EDGES].T
        edges, rows = np.nonzero((y0[:, None] <= centers) != (y1[:, None] <= centers))
        share = (centers[rows] - y0[edges]) / (y1[edges] - y0[edges])
        places = x0[edges] + share * (x1[edges] - x0[edges])
        np.bitwise_xor.at(
            crossed, (rows, np.ceil(places - 0.5).clip(0, width).astype(np.int64)), np.uint8(1)
        )
    return np.bitwise_xor.accumulate(crossed, axis=1)[:, :width]
