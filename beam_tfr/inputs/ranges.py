"""Divides the names in a bucket into ranges, so that they can be listed at the same time.

A listing returns names in order, starting at any name, but not their number. So the names are
divided by the character after their common prefix, repeatedly, until there are enough ranges.
Ranges are half-open and adjacent, so each name is in exactly one of them.
"""

import bisect
import collections
import itertools
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

FEW = 1000  # names, a page; a range of fewer is not divided


class NameRange(NamedTuple):
    """The names from `start` on and before `end`, if any.

    Attributes:
        start, end: in the order of code points, which is that of UTF-8.
        depth: number of characters that all its names share.
        known: number of its names, if they are few.
    """

    start: str
    end: str
    depth: int = 0
    known: int | None = None


ListNames = Callable[
    [str, str], list[str]
]  # (start, end) -> the first names in this range, up to `FEW`
Run = Callable[..., Iterable[list[NameRange]]]  # of a function and the ranges that it divides


def after_prefix(prefix: str) -> str:
    """The smallest text greater than all that begin with a prefix; empty if there is none."""
    for end in range(len(prefix) - 1, -1, -1):
        if (code := ord(prefix[end])) < sys.maxunicode:
            return prefix[:end] + chr(
                0xE000 if code == 0xD7FF else code + 1
            )  # surrogates are no characters
    return ""


def divide(
    names: ListNames, start: str, end: str, parts: int, *, run: Run = map
) -> list[NameRange]:
    """Divides a range of names into `parts` ranges or more; into fewer if it holds few names.

    Args:
        names: function that lists names.
        start, end: bounds of the range.
        parts: wanted number of ranges.
        run: `map`, or a parallel version of it.
    """
    ranges = [NameRange(start, end)]
    while len(ranges) < parts and any(part.known is None for part in ranges):
        divided = run(
            lambda part: [part] if part.known is not None else _by_character(names, part, parts),
            ranges,
        )
        ranges = [*itertools.chain.from_iterable(divided)]
    return ranges


def _by_character(names: ListNames, whole: NameRange, most: int) -> list[NameRange]:
    """Divides a range by the next character of its names; if there are too many, the last part
    holds the rest."""
    depth = whole.depth + 1
    at = whole.start
    counts: dict[
        str, int | None
    ] = {}  # the beginning of names -> how many have it, if they are few
    while len(counts) < most and (page := names(at, whole.end)):
        counts.update(collections.Counter(name[:depth] for name in page))
        if len(page) < FEW:
            break
        last = page[-1][:depth]
        counts[last] = None
        at = after_prefix(last)
        if not at or (whole.end and at >= whole.end):
            break
    if [*counts.values()] == [
        None
    ]:  # the prefix of all its names is found at once, not one character after another
        return _by_character(
            names, whole._replace(depth=_shared(names, whole.start, whole.end)), most
        )
    starts = [whole.start, *[*counts][1:]]
    ends = [*starts[1:], whole.end]
    fields = zip(starts, ends, [depth] * len(starts), counts.values() or [0], strict=True)
    return [*itertools.starmap(NameRange, fields)]


def _shared(names: ListNames, start: str, end: str) -> int:
    """The length of the prefix that all names of a range share."""
    first = next(iter(names(start, end)), "")

    def has_others(length: int) -> bool:
        after = after_prefix(first[:length])
        return bool(after and (not end or after < end) and names(after, end))

    return bisect.bisect_left(range(1, len(first) + 1), True, key=has_others)
