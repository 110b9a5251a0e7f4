"""Counts the values in the masks of records."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import Stored
from beam_tfr.features.gray_png import decode_stored
from beam_tfr.schema.feature_names import FILENAME, HEIGHT, MASK, WIDTH
from beam_tfr.schema.plan import Counts

ABOVE = 256  # represents all values from 256 on, which only 16-bit masks have
_BLOCK_PIXELS = 1 << 20
_MORE = "more"  # name of `ABOVE` in the manifest
_SHOWN_VALUES = 10
# A mask with this many values, and this many times as many as most others, looks smoothed.
_ODD_NUMBER = 8
_ODD_TIMES = 4
_SMOOTH_NUMBER = 64  # all masks look smoothed if most have this many values
_MAIN_SHARE = 0.95  # fraction of pixels with the main values; smoothing makes values between them
_IGNORE = 255  # the usual value for "ignore", whatever the numbers of classes are


def count_masks(stored: Stored) -> Counts:
    """Counts the values in a record's mask.

    Raises:
        ValueError: the mask cannot be decoded.
    """
    size = stored[HEIGHT][0], stored[WIDTH][0]
    numbers = _count_values(decode_stored(stored[MASK][0], size))
    present = np.flatnonzero(numbers).tolist()
    key = stored[FILENAME][0].decode("utf-8", "backslashreplace")
    return Counts(
        mask_pixels={value: int(numbers[value]) for value in present},
        mask_images=dict.fromkeys(present, 1),
        mask_numbers={len(present): 1},
        mask_examples={len(present): key},
    )


def _count_values(values: NDArray[Any]) -> NDArray[np.int64]:
    """Counts how many pixels of a mask [height, width] have each value, up to `ABOVE`.

    Counts block by block, since NumPy needs eight bytes for each pixel.
    """
    numbers = np.zeros(ABOVE + 1, np.int64)
    pixels = values.reshape(-1)
    for begin in range(0, pixels.size, _BLOCK_PIXELS):
        block = pixels[begin : begin + _BLOCK_PIXELS]
        if block.dtype != np.uint8:
            block = np.minimum(block, ABOVE)
        numbers += np.bincount(block, minlength=numbers.size)
    return numbers


def mask_statistics(counts: Counts) -> dict[str, Any]:
    """Computes the statistics of masks for the manifest."""
    values = dict[str, dict[str, int]]()
    for value, pixels in sorted(counts.mask_pixels.items()):
        name = _MORE if value == ABOVE else str(value)
        values[name] = {"images": counts.mask_images[value], "pixels": pixels}
    most = max(counts.mask_numbers, default=0)
    return {
        "values": values,
        "per_image": {
            "median": _find_median(counts.mask_numbers),
            "max": most,
            "example": counts.mask_examples.get(most, ""),
        },
    }


def _find_median(numbers: Mapping[int, int]) -> int:
    """Finds the lower median of numbers, given how often each occurs."""
    half = (sum(numbers.values()) + 1) // 2
    ordered = sorted(numbers)
    sums = itertools.accumulate(numbers[number] for number in ordered)
    for number, reached in zip(ordered, sums, strict=True):
        if reached >= half:
            return number
    return 0


def describe_masks(statistics: Mapping[str, Any]) -> Iterator[str]:
    """Yields sentences about the statistics: which values occur, and which of them seem odd."""
    values = statistics["values"]
    total = max(sum(value["pixels"] for value in values.values()), 1)
    shown = sorted(values, key=lambda name: (-values[name]["pixels"], name))[:_SHOWN_VALUES]
    parts = []
    for name in shown:
        share = values[name]["pixels"] / total
        shown_name = f"{ABOVE} and above" if name == _MORE else name
        parts.append(f"{shown_name} in {values[name]['images']:,} ({share:.1%} of pixels)")
    if len(values) > len(shown):
        parts.append(f"{len(values) - len(shown)} more")
    noun = "value" if len(values) == 1 else "values"
    yield f"{len(values)} {noun}, margins included: {', '.join(parts)}"
    yield from _describe_odd(statistics["per_image"], _count_main(values))


def _count_main(values: Mapping[str, Any]) -> int:
    """Returns the number of main values of masks if other values may come from smoothing, else 0.

    Values from smoothing are many and scattered, unlike numbers of classes, and cover few pixels.
    """
    numbers = {int(name) for name in values if name != _MORE}
    highest = max(numbers - {_IGNORE}, default=0)
    if len(values) < _SMOOTH_NUMBER and highest < 2 * len(values):
        return 0
    pixels = sorted((value["pixels"] for value in values.values()), reverse=True)
    least = _MAIN_SHARE * sum(pixels)
    covered = itertools.accumulate(pixels)
    return next((count for count, sums in enumerate(covered, start=1) if sums >= least), 0)


def _describe_odd(per_image: Mapping[str, Any], main_values: int) -> Iterator[str]:
    """Yields a sentence about masks that look smoothed, if there are any.

    Args:
        per_image: statistics of the number of values per mask.
        main_values: result of `_count_main`.
    """
    most = per_image["max"]
    median = per_image["median"]
    example = per_image["example"]
    if median >= _SMOOTH_NUMBER:
        yield (
            f"most masks have {median} or more values, and that of {example} has {most}: unless "
            "these are numbers of instances, were the masks smoothed by a resize, or stored as "
            "JPEG?"
        )
    elif main_values and median >= max(_ODD_NUMBER, _ODD_TIMES * main_values):
        yield (
            f"most masks have {median} or more values, and that of {example} has {most}, but "
            f"{_MAIN_SHARE:.0%} of the pixels have only {main_values} of them: were they smoothed "
            "by a resize, or stored as JPEG?"
        )
    elif most >= max(_ODD_NUMBER, _ODD_TIMES * median):
        yield (
            f"the mask of {example} has {most} values, but most masks have {median}: was it "
            "smoothed by a resize, or stored as JPEG?"
        )
