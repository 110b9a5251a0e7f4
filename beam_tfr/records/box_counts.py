"""Counts the boxes of records, by size and by how much of each is stored."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfr.records.examples import parse_example
from beam_tfr.schema.feature_names import BOXES, HEIGHT, SIDES, VISIBLE, WIDTH
from beam_tfr.schema.plan import Counts

SIZES = {
    "small": 32**2,
    "medium": 96**2,
}  # COCO's: fewer pixels of the stored image than this; all others are "large"
LARGE = "large"
CLIPPED = "clipped"
DROPPED = "dropped"
WHOLE = 1 - 1e-5  # the visible share of a box that is not clipped, but for rounding in texts


def add_boxes(
    total: Counts, values: Mapping[str, Sequence[Any]], columns: bytes | None = None
) -> None:
    """Counts the boxes of a record.

    Args:
        total: the counts to which they are added.
        values: feature -> values, of the record.
        columns: `ImageRef.columns`, which hold those that were dropped too.
    """
    counts: collections.Counter[str] = collections.Counter()
    pixels = sum(values.get(HEIGHT, ())) * sum(values.get(WIDTH, ()))
    for left, top, right, bottom in zip(*(values.get(side, ()) for side in SIDES), strict=False):
        area = round((right - left) * (bottom - top) * pixels, 1)  # sides are shares of 32 bits
        counts[next((size for size, below in SIZES.items() if area < below), LARGE)] += 1
    number = counts.total()
    counts[CLIPPED] = sum(share < WHOLE for share in values.get(VISIBLE, ()))
    if columns is not None:
        counts[DROPPED] = max(0, len(parse_example(columns).get(BOXES, ())) // 4 - number)
    total.add(Counts(boxes=counts, box_numbers={number: 1}))


def _stored(counts: Mapping[str, int]) -> int:
    """The number of boxes in such counts."""
    return sum(counts.get(size, 0) for size in (*SIZES, LARGE))


def statistics(counts: Counts) -> dict[str, Any]:
    """The statistics of boxes in the manifest."""
    records = max(sum(counts.box_numbers.values()), 1)
    return {
        **{name: counts.boxes.get(name, 0) for name in (*SIZES, LARGE, CLIPPED, DROPPED)},
        "per_image": {
            "mean": round(_stored(counts.boxes) / records, 4),
            "max": max(counts.box_numbers, default=0),
        },
    }


def dropped_share(found: Mapping[str, Any]) -> float:
    """The share of boxes that were dropped, by `statistics`."""
    return float(found[DROPPED] / max(_stored(found) + found[DROPPED], 1))


def tell(found: Mapping[str, Any]) -> str:
    """The statistics as a sentence."""
    number = _stored(found)
    per_image = found["per_image"]
    sizes = ", ".join(f"{found[size]:,} {size}" for size in (*SIZES, LARGE))
    clipped = found[CLIPPED] / max(number + found[DROPPED], 1)
    dropped = dropped_share(found)
    each = f"{per_image['mean']:.1f} an image, at most {per_image['max']:,}"
    return f"{number:,} ({sizes}), {each}; {dropped:.1%} of all were dropped, {clipped:.1%} clipped"
