"""Resolves `split=`: "train", "train+validation" or "train[:80%]", to runs of records in shards."""

import functools
import math
import re
from fractions import Fraction
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, Split
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.errors import UsageError

_TERM = re.compile(r"(?P<name>[^\[\]+]+)(\[(?P<begin>[^:\]]*):(?P<end>[^:\]]*)\])?")
_BOUND = re.compile(r"-?[0-9]+|-?[0-9]+(\.[0-9]+)?%")
_HELP = 'write a name, several ("train+validation"), or a slice ("train[:80%]", "train[1000:]")'


class ShardPart(NamedTuple):
    """Records [begin, begin + take) of a file that must hold `records`, in `num_bytes`."""

    file: str
    records: int
    begin: int
    take: int
    num_bytes: int


class Selection(NamedTuple):
    """The examples that `split=` selects.

    Attributes:
        splits: the splits in it.
        parts: in the order of the names in `split=`, then of their shards; none is empty.
    """

    splits: tuple[Split, ...]
    parts: tuple[ShardPart, ...]

    @property
    def total(self) -> int:
        return sum(part.take for part in self.parts)


def select_examples(dataset: Manifest, text: str) -> Selection:
    """Resolves the value of `split=`.

    Raises:
        UsageError: a split does not exist, or a slice is malformed, empty or overlaps another.
    """
    if not isinstance(text, str):
        raise UsageError(f"must be text: {_HELP}", option="split", value=repr(text))
    fail = functools.partial(UsageError, option="split", value=text)
    names = sorted(dataset.splits.keys() - {NO_SPLIT})
    ranges: dict[str, list[tuple[int, int]]] = {}
    parts: list[ShardPart] = []
    for term in text.split("+"):
        match = _TERM.fullmatch(term.strip())
        if match is None or (name := match["name"].strip()) not in names:
            hint = "" if match else f"; {_HELP}"
            raise fail(f"is not in {dataset.folder}; there are: {', '.join(names)}{hint}")
        split = dataset.splits[name]
        total = split.num_examples
        begin = _bound(text, match["begin"], total, 0)
        end = _bound(text, match["end"], total, total)
        if begin >= end:
            raise fail(f"{term.strip()} is empty; {name} has {total}")
        for other in ranges.setdefault(name, []):
            if begin < other[1] and other[0] < end:
                first = max(begin, other[0])
                last = min(end, other[1]) - 1
                raise fail(f"has examples {first} to {last} of {name} twice")
        ranges[name].append((begin, end))
        parts += _parts(dataset.folder, split, begin, end)
    return Selection(tuple(dataset.splits[name] for name in ranges), tuple(parts))


def _bound(text: str, bound: str | None, total: int, default: int) -> int:
    """A slice bound as a number of examples; percentages are rounded down, so [:p%] and [p%:] never
    overlap."""
    bound = (bound or "").strip()
    if not bound:
        return default
    if not _BOUND.fullmatch(bound):
        message = f"{bound!r} is neither a number of examples nor a percentage; {_HELP}"
        raise UsageError(message, option="split", value=text)
    number = math.floor(total * Fraction(bound[:-1]) / 100) if bound.endswith("%") else int(bound)
    number = number + total if bound.startswith("-") else number
    if not 0 <= number <= total:
        raise UsageError(f"{bound} is outside the {total} examples", option="split", value=text)
    return number


def _parts(folder: str, split: Split, begin: int, end: int) -> list[ShardPart]:
    parts = []
    first = 0
    above = storage.join(folder, "")
    for shard in split.shards:
        low = max(begin, first)
        high = min(end, first + shard.num_examples)
        if low < high:
            parts.append(
                ShardPart(
                    above + shard.file, shard.num_examples, low - first, high - low, shard.num_bytes
                )
            )
        first += shard.num_examples
    return parts
