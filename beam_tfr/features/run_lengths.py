"""COCO's run lengths of a mask.

See https://github.com/cocodataset/cocoapi, common/maskApi.c.

They are alternately of pixels outside and inside, down the columns; or that file's text of them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LONGEST_SHIFT = 55  # bits of a number in a text of run lengths


def decode_run_lengths(counts: Any, size: Any, expected: tuple[int, int]) -> NDArray[np.uint8]:
    """The mask of run lengths: 0 and 1, [height, width].

    Args:
        counts: a list of the run lengths, or their text.
        size: that of the mask, as it says: height and width.
        expected: that of the image.

    Raises:
        ValueError: they are no run lengths, or those of a mask of another size.
    """
    if size != [*expected]:
        turned = ": it ignores EXIF orientation" if size == [*expected[::-1]] else ""
        raise ValueError(f"has the size {size!r:.60}, the image {[*expected]}{turned}")
    counts = _list_counts(counts)
    pixels = expected[0] * expected[1]
    if sum(counts) != pixels:
        raise ValueError(f"has run lengths of fewer or more pixels than the {pixels} of the image")
    is_inside = np.arange(len(counts)) % 2
    columns: NDArray[np.uint8] = np.repeat(is_inside.astype(np.uint8), counts)
    return columns.reshape(expected, order="F")


def enclose_run_lengths(counts: Any, size: Any) -> list[float]:
    """The left, top, width and height of the pixels inside; empty if there are none.

    Args:
        counts, size: see `decode_run_lengths`.

    Raises:
        ValueError: they are no run lengths, or those of a mask without height.
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
    """Run lengths as a list.

    Raises:
        ValueError: they are none.
    """
    if isinstance(counts, str):
        counts = _parse_text(counts)
    if not isinstance(counts, list) or not all(map(_is_length, counts)):
        raise ValueError(
            "has `counts` that are no run lengths: a list of whole numbers, or COCO's text of them"
        )
    return counts


def _is_length(count: Any) -> bool:
    return type(count) is int and count >= 0


def _parse_text(text: str) -> list[int]:
    """The numbers of COCO's text of run lengths.

    Five bits a letter; from the fourth on, a number is what the last but one lacks.

    Raises:
        ValueError: it is none.
    """
    counts = list[int]()
    value = 0
    shift = 0
    for letter in text:
        bits = ord(letter) - ord("0")
        if not 0 <= bits < 64 or shift > _LONGEST_SHIFT:
            raise ValueError(
                f"has a text of run lengths whose part {len(counts) + 1} is no number: "
                f"it has {letter!r}"
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
        raise ValueError("has a text of run lengths that ends within a number")
    return counts


def encode_run_lengths(mask: NDArray[Any]) -> dict[str, list[int]]:
    """The run lengths of a mask of 0 and 1, [height, width], and its size."""
    pixels = mask.reshape(-1, order="F")
    changes = np.flatnonzero(np.diff(pixels, prepend=0)).tolist()
    return {
        "size": [*mask.shape],
        "counts": np.diff([*changes, pixels.size], prepend=0).tolist(),
    }
