"""Reads and writes COCO's run lengths of a mask.

Run lengths count pixels alternately outside and inside the mask, down the columns. They are a list,
or a string as in common/maskApi.c of https://github.com/cocodataset/cocoapi.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import IGNORES_ORIENTATION
from beam_tfr.features.pixel_parts import PixelBudget, PixelPart, find_part, transpose

_LONGEST_SHIFT = 55  # bits of a number in a string of run lengths
MOST_RUNS = 1 << 22  # for all masks of an image, as lists


class TooManyRunsError(ValueError):
    """Masks with too many run lengths to list."""


def decode_run_lengths(
    counts: Any, size: Any, expected: tuple[int, int], budget: PixelBudget
) -> PixelPart:
    """Decodes run lengths to the smallest part of the mask with all of its pixels, 0 and 1.

    Args:
        counts: a list of the run lengths, or their string.
        size: height and width that the mask states.
        expected: height and width of the image.
        budget: the number of pixels that the part may have.

    Raises:
        ValueError: `counts` are not run lengths, or belong to a mask with a different size.
        RejectError: the budget is exhausted.
    """
    if size != [*expected]:
        turned = ""
        if size == [*expected[::-1]]:
            turned = f": it ignores {IGNORES_ORIENTATION}"
        raise ValueError(f"has the size {size!r:.60}, but the image has {[*expected]}{turned}")
    counts = _list_counts(counts)
    pixels = expected[0] * expected[1]
    if sum(counts) != pixels:
        raise ValueError(f"has run lengths that do not add up to the {pixels} pixels of the image")
    begins, ends = _find_runs(counts)
    if not begins.size:
        return PixelPart.empty()
    return _draw_runs(begins, ends, expected[0], budget)


def _find_runs(counts: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Finds where the runs of pixels inside the mask begin and end, down the columns, in order."""
    lengths = np.array(counts, np.int64)
    all_ends = np.cumsum(lengths)
    is_inside = np.arange(lengths.size) % 2 == 1
    is_run = is_inside & (lengths > 0)
    ends = all_ends[is_run]
    return ends - lengths[is_run], ends


def _draw_runs(
    begins: NDArray[np.int64], ends: NDArray[np.int64], height: int, budget: PixelBudget
) -> PixelPart:
    """Draws the smallest part that contains the pixels of the runs.

    Args:
        begins, ends: result of `_find_runs`, with at least one run.
        budget: the number of pixels that the part may have.
    """
    first_columns, first_rows = np.divmod(begins, height)
    last_columns, last_rows = np.divmod(ends - 1, height)
    left = int(first_columns[0])
    width = int(last_columns[-1]) + 1 - left
    top = 0
    part_height = height
    if np.array_equal(first_columns, last_columns):  # otherwise a run continues in the next column
        top = int(first_rows.min())
        part_height = int(last_rows.max()) + 1 - top
    budget.spend(width * part_height)
    begins_in_part = (first_columns - left) * part_height + first_rows - top
    ends_in_part = (last_columns - left) * part_height + last_rows - top + 1
    changes = np.stack([begins_in_part, ends_in_part], axis=1).reshape(-1)
    lengths = np.diff(changes, prepend=0, append=width * part_height)
    is_inside = np.arange(lengths.size) % 2
    columns = np.repeat(is_inside.astype(np.uint8), lengths).reshape(width, part_height)
    return PixelPart(left, top, transpose(columns))


def enclose_run_lengths(counts: Any, size: Any) -> list[float]:
    """Returns left, top, width and height of the mask's pixels, or an empty list if there are none.

    Args:
        counts, size: see `decode_run_lengths`.

    Raises:
        ValueError: `counts` are not run lengths, or the mask has no height.
    """
    counts = _list_counts(counts)
    if not isinstance(size, list) or not size or not _is_length(size[0]) or not size[0]:
        raise ValueError(f"has the size {size!r:.60}")
    height = size[0]
    columns = list[int]()
    rows = list[int]()
    begin = 0
    for number, count in enumerate(counts):
        end = begin + count
        if number % 2 and count:
            first, top = divmod(begin, height)
            last, bottom = divmod(end - 1, height)
            columns += (first, last)
            rows += (top, bottom) if first == last else (0, height - 1)
        begin = end
    if not columns:
        return []
    left = min(columns)
    top = min(rows)
    return [left, top, max(columns) + 1 - left, max(rows) + 1 - top]


def _list_counts(counts: Any) -> list[int]:
    """Returns run lengths as a list.

    Raises:
        ValueError: `counts` are not run lengths.
    """
    if isinstance(counts, str):
        counts = _parse_text(counts)
    if not isinstance(counts, list) or not all(map(_is_length, counts)):
        raise ValueError(
            "has `counts` that are not run lengths: a list of whole numbers, or COCO's string"
        )
    return counts


def _is_length(count: Any) -> bool:
    return type(count) is int and count >= 0


def _parse_text(text: str) -> list[int]:
    """Parses the numbers in COCO's string of run lengths.

    Each letter holds five bits. From the fourth number on, the string holds the difference between
    each number and the number two places before it.

    Raises:
        ValueError: the string does not hold run lengths.
    """
    counts = list[int]()
    value = 0
    shift = 0
    for letter in text:
        bits = ord(letter) - ord("0")
        if not 0 <= bits < 64 or shift > _LONGEST_SHIFT:
            raise ValueError(
                f"has a string of run lengths that is invalid at {letter!r}, in number "
                f"{len(counts) + 1}"
            )
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:  # more of the number follows
            continue
        value -= (bits & 16) >> 4 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = 0
        shift = 0
    if shift:
        raise ValueError("has a string of run lengths that ends within a number")
    return counts


def encode_run_lengths(mask: NDArray[np.uint8], most: int = MOST_RUNS) -> dict[str, list[int]]:
    """Encodes a mask of 0 and 1, [height, width], as run lengths and its size.

    Raises:
        TooManyRunsError: there are more than `most` run lengths.
    """
    height, width = mask.shape
    part = find_part(mask)
    changes = _find_changes(part, height, most)
    inner = changes[changes < height * width]
    counts = np.diff(inner, prepend=0, append=height * width)
    return {"size": [height, width], "counts": counts.tolist()}


def _find_changes(part: PixelPart, height: int, most: int) -> NDArray[np.int64]:
    """Finds where runs begin and end, down the columns of an image of this height, in order.

    Raises the same errors as `encode_run_lengths`.
    """
    part_height, part_width = part.pixels.shape
    # A row of 0 above ends the runs of the previous column; a final 0 ends those of the last one.
    pixels = np.zeros(part_width * (part_height + 1) + 1, np.uint8)
    columns = pixels[:-1].reshape(part_width, part_height + 1)
    columns[:, 1:] = transpose(part.pixels)
    is_change = pixels[1:] != pixels[:-1]
    if np.count_nonzero(is_change) > most:
        raise TooManyRunsError(f"more than {most:,} run lengths")
    column_numbers, row_numbers = np.divmod(np.flatnonzero(is_change) + 1, part_height + 1)
    is_above = row_numbers == 0
    column_numbers -= is_above
    row_numbers = np.where(is_above, part_height, row_numbers - 1)
    changes = (part.left + column_numbers) * height + part.top + row_numbers
    # A run that continues in the next column ends where another begins.
    places, times = np.unique(changes, return_counts=True)
    single: NDArray[np.int64] = places[times == 1]
    return single
