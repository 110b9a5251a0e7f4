"""Counts the boxes of records by size, and by how much of each box is stored."""

import collections
from collections.abc import Mapping
from typing import Any

from beam_tfr.features.base import Stored
from beam_tfr.schema.feature_names import BOXES, HEIGHT, SIDES, VISIBLE, WIDTH
from beam_tfr.schema.plan import Counts

# COCO's sizes: boxes with fewer pixels of the stored image than this; all others are `LARGE`.
_PIXELS_BELOW = {"small": 32**2, "medium": 96**2}
LARGE = "large"
SIZES = (*_PIXELS_BELOW, LARGE)
CLIPPED = "clipped"
DROPPED = "dropped"
WHOLE = 1 - 1e-5  # visible fraction of a box that is not clipped, allowing for rounded numbers


def count_boxes(stored: Stored, source: Stored | None) -> Counts:
    """Counts the boxes of a record.

    Args:
        stored: the record.
        source: the reference of the record, which also has the dropped boxes, or None if there is
            none.
    """
    pixels = sum(stored.get(HEIGHT, ())) * sum(stored.get(WIDTH, ()))
    sides = [stored.get(side, ()) for side in SIDES]  # a user's step may have removed them
    boxes = [*zip(*sides, strict=False)]
    counts = collections.Counter[str]()
    for left, top, right, bottom in boxes:
        area = (right - left) * (bottom - top) * pixels
        counts[_size_of(area)] += 1
    counts[CLIPPED] = sum(share < WHOLE for share in stored.get(VISIBLE, ()))
    if source is not None:
        number = len(source.get(BOXES, ())) // 4
        counts[DROPPED] = max(0, number - len(boxes))
    return Counts(boxes=counts, box_numbers={len(boxes): 1})


def _size_of(area: float) -> str:
    """Returns the size class of a box that covers the given number of pixels."""
    pixels = round(area, 1)  # its sides are 32-bit fractions
    for size, below in _PIXELS_BELOW.items():
        if pixels < below:
            return size
    return LARGE


def box_statistics(counts: Counts) -> dict[str, Any]:
    """Computes the statistics of boxes for the manifest."""
    statistics: dict[str, Any] = {}
    for name in (*SIZES, CLIPPED, DROPPED):
        statistics[name] = counts.boxes.get(name, 0)
    records = max(sum(counts.box_numbers.values()), 1)
    mean = _number_stored(counts.boxes) / records
    most = max(counts.box_numbers, default=0)
    statistics["per_image"] = {"mean": round(mean, 4), "max": most}
    return statistics


def _number_stored(counts: Mapping[str, int]) -> int:
    """Returns the number of boxes that were not dropped."""
    return sum(counts.get(size, 0) for size in SIZES)


def dropped_share(statistics: Mapping[str, Any]) -> float:
    """Computes the fraction of boxes that were dropped, from `box_statistics`."""
    total = _number_stored(statistics) + statistics[DROPPED]
    return float(statistics[DROPPED] / max(total, 1))


def describe_boxes(statistics: Mapping[str, Any]) -> str:
    """Describes the statistics in a sentence."""
    number = _number_stored(statistics)
    sizes = ", ".join(f"{statistics[size]:,} {size}" for size in SIZES)
    mean = statistics["per_image"]["mean"]
    most = statistics["per_image"]["max"]
    dropped = dropped_share(statistics)
    clipped = statistics[CLIPPED] / max(number + statistics[DROPPED], 1)
    return (
        f"{number:,} ({sizes}), {mean:.1f} per image, at most {most:,}; "
        f"{dropped:.1%} of all were dropped, {clipped:.1%} clipped"
    )
