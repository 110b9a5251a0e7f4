"""Ranges of numbers in patterns, as shells and WebDataset write them: `x-{000000..000131}.tar`."""

import math
import re
from collections.abc import Iterable, Sequence

from beam_tfr.schema.errors import UsageError

MOST_PATTERNS = 100_000  # that a pattern stands for
_RANGE = re.compile(
    r"\{(?P<first>[0-9]{1,9})\.\.(?P<last>[0-9]{1,9})(?:\.\.(?P<step>[0-9]{1,9}))?\}"
)


def expand_ranges(patterns: Iterable[str], *, option: str) -> list[str]:
    """Replaces patterns with ranges by those that they stand for, in order.

    Numbers have as many digits as the longer end of the range if one of the ends begins with 0.

    Args:
        patterns: some may have ranges.
        option: the option or argument that they were given for.

    Raises:
        UsageError: one stands for too many.
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
    """The numbers of a range, whose first may be the highest."""
    first = int(match["first"])
    last = int(match["last"])
    step = max(1, int(match["step"] or 1))
    if last < first:
        return range(first, last - 1, -step)
    return range(first, last + 1, step)


def _count_digits(match: re.Match[str]) -> int:
    """How many digits numbers have at least."""
    texts = [match["first"], match["last"]]
    is_padded = any(text.startswith("0") and len(text) > 1 for text in texts)
    return max(map(len, texts)) if is_padded else 1
