"""Divides the names in a bucket into ranges that can be listed in parallel.

A listing returns names in order from any start, but not how many names there are. So the names
are divided by the character after their common prefix, repeatedly, until there are enough ranges.
Ranges are half-open and adjacent, so each name is in exactly one of them.
"""

import bisect
import collections
import itertools
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

FEW = 1000  # names, a page of a listing; a range with fewer is not divided
_LAST_BEFORE_SURROGATES = 0xD7FF
_FIRST_BEHIND_SURROGATES = 0xE000


class NameRange(NamedTuple):
    """The names from `start` on and, if there is an `end`, before `end`.

    Attributes:
        start, end: in the order of code points, which is also the order of UTF-8.
        depth: number of characters that all names in the range share.
        num_names: number of names, if there are few; such a range is not divided.
    """

    start: str
    end: str
    depth: int = 0
    num_names: int | None = None


# (start, end) -> at most the first `FEW` names in this range.
ListNames = Callable[[str, str], list[str]]
# `map`, or a parallel version of it, called with a function and the ranges that it divides.
Run = Callable[..., Iterable[list[NameRange]]]


def after_prefix(prefix: str) -> str:
    """Returns the smallest string after all strings with a prefix, or "" if there is none."""
    stem = prefix.rstrip(chr(sys.maxunicode))
    if not stem:
        return ""
    code = ord(stem[-1])
    following = _FIRST_BEHIND_SURROGATES if code == _LAST_BEFORE_SURROGATES else code + 1
    return stem[:-1] + chr(following)


def divide(
    list_names: ListNames, start: str, end: str, parts: int, *, run: Run = map
) -> list[NameRange]:
    """Divides a range of names into at least `parts` ranges; into fewer if it has few names.

    Args:
        list_names: function that lists names.
        start, end: bounds of the range.
        parts: desired number of ranges.
        run: `map`, or a parallel version of it.
    """

    def divide_further(part: NameRange) -> list[NameRange]:
        if part.num_names is not None:
            return [part]
        return _divide_by_character(list_names, part, parts)

    ranges = [NameRange(start, end)]
    while len(ranges) < parts and None in [part.num_names for part in ranges]:
        divided = run(divide_further, ranges)
        ranges = list(itertools.chain.from_iterable(divided))
    return ranges


def _divide_by_character(list_names: ListNames, whole: NameRange, most: int) -> list[NameRange]:
    """Divides a range by the next character of its names.

    If there are too many characters, the last part holds the rest.
    """
    depth = whole.depth + 1
    counts = _count_beginnings(list_names, whole, most)
    if not counts:
        return [whole._replace(depth=depth, num_names=0)]
    numbers = list(counts.values())
    if numbers == [None]:
        # All names share this character too: find the whole prefix that they share at once.
        depth = _find_shared_length(list_names, whole.start, whole.end)
        return _divide_by_character(list_names, whole._replace(depth=depth), most)
    starts = list(counts)
    starts[0] = whole.start
    ends = [*starts[1:], whole.end]
    return [
        NameRange(start, end, depth, number)
        for start, end, number in zip(starts, ends, numbers, strict=True)
    ]


def _count_beginnings(list_names: ListNames, whole: NameRange, most: int) -> dict[str, int | None]:
    """Counts names by their beginnings: their common prefix and one more character.

    Returns:
        Beginning -> number of names; None if there are too many to count.
    """
    depth = whole.depth + 1
    start = whole.start
    counts = dict[str, int | None]()
    while len(counts) < most:
        page = list_names(start, whole.end)
        counts.update(collections.Counter(name[:depth] for name in page))
        if len(page) < FEW:
            break
        last = page[-1][:depth]
        counts[last] = None  # the page may not hold all names that begin like this
        start = after_prefix(last)
        if not start or (whole.end and start >= whole.end):
            break
    return counts


def _find_shared_length(list_names: ListNames, start: str, end: str) -> int:
    """Returns the length of the prefix that all names in a range share."""
    first = next(iter(list_names(start, end)), "")

    def has_others(length: int) -> bool:
        """Whether names follow those that share `length` characters with the first name."""
        after = after_prefix(first[:length])
        if not after or (end and after >= end):
            return False
        return bool(list_names(after, end))

    return bisect.bisect_left(range(1, len(first) + 1), True, key=has_others)
