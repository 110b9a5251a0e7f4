"""Expands number ranges in patterns, as in shells and WebDataset: `x-{00..31}.tar`."""

import math
import re
from collections.abc import Iterable, Sequence

from beam_tfr.schema.errors import UsageError

MOST_PATTERNS = 100_000  # most patterns that one pattern may stand for
_RANGE = re.compile(
    r"\{(?P<first>[0-9]{1,9})\.\.(?P<last>[0-9]{1,9})(?:\.\.(?P<step>[0-9]{1,9}))?\}"
)


def expand_ranges(patterns: Iterable[str], *, option: str) -> list[str]:
    """Replaces each pattern that has ranges with the patterns that it stands for, in order.

    If either end of a range has a leading zero, all numbers in the range are padded with zeros to
    the length of the longer end.

    Args:
        patterns: patterns, with or without ranges.
        option: the option or argument that specifies the patterns.

    Raises:
        UsageError: a pattern stands for too many patterns.
    """
    expanded = list[str]()
    for pattern in patterns:
        sizes = [len(_list_numbers(match)) for match in _RANGE.finditer(pattern)]
        if math.prod(sizes) > MOST_PATTERNS:
            raise UsageError(
                f"stands for more than {MOST_PATTERNS:,} patterns; use * instead",
                option=option,
                value=pattern,
            )
        expanded += _expand(pattern)
    return expanded


def _expand(pattern: str) -> list[str]:
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    before = pattern[: match.start()]
    ends = _expand(pattern[match.end() :])
    width = _count_digits(match)
    return [f"{before}{number:0{width}d}{end}" for number in _list_numbers(match) for end in ends]


def _list_numbers(match: re.Match[str]) -> Sequence[int]:
    """Lists the numbers in a range, which may count down."""
    first = int(match["first"])
    last = int(match["last"])
    step = max(1, int(match["step"] or 1))
    if last < first:
        return range(first, last - 1, -step)
    return range(first, last + 1, step)


def _count_digits(match: re.Match[str]) -> int:
    """Returns the width that the numbers of a range are padded to with zeros; 1 without padding."""
    texts = [match["first"], match["last"]]
    is_padded = any(text.startswith("0") and len(text) > 1 for text in texts)
    return max(map(len, texts)) if is_padded else 1
