"""Which examples: `train`, `train+validation`, `train[:80%]`, as runs of records in shards."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.manifest import Manifest, Split
from beam_tfr.schema import NO_SPLIT, UsageError

_TERM = re.compile(r"(?P<name>[^\[\]+]+)(\[(?P<begin>[^:\]]*):(?P<end>[^:\]]*)\])?")
_BOUND = re.compile(r"-?[0-9]+|-?[0-9]+(\.[0-9]+)?%")
_HELP = 'write a name, several ("train+validation"), or a slice ("train[:80%]", "train[1000:]")'


class Part(NamedTuple):
    """Records [begin, begin + take) of a file that must hold `records`."""

    file: str
    records: int
    begin: int
    take: int


class Selection(NamedTuple):
    """What `split` asks for.

    Attributes:
        text: as it was asked for.
        splits: those of the dataset that it touches.
        parts: in the order of their names in `text`, then of their shards.
    """

    text: str
    splits: tuple[Split, ...]
    parts: tuple[Part, ...]

    @property
    def total(self) -> int:
        return sum(part.take for part in self.parts)


def select(dataset: Manifest, text: str) -> Selection:
    """
    Raises:
        UsageError: a split that is not there, a slice that is none, is empty or has examples twice.
    """
    names = sorted(dataset.splits.keys() - {NO_SPLIT})
    terms = text.split("+") if isinstance(text, str) else []
    ranges: dict[str, list[tuple[int, int]]] = {}
    parts: list[Part] = []
    for term in terms or [text]:
        match = _TERM.fullmatch(term.strip()) if isinstance(term, str) else None
        name = match["name"].strip() if match else term
        if name not in names:
            hint = "" if match else f"; {_HELP}"
            raise UsageError(f"split {text!r} is not in {dataset.folder}; there are: {', '.join(names)}{hint}")
        split = dataset.splits[name]
        total = split.num_examples
        begin = _bound(text, match["begin"], total, 0) if match else 0
        end = _bound(text, match["end"], total, total) if match else total
        if begin >= end:
            raise UsageError(f"split {text!r}: {term.strip()} holds no example; {name} has {total}")
        for other in ranges.setdefault(name, []):
            if begin < other[1] and other[0] < end:
                both = (max(begin, other[0]), min(end, other[1]))
                raise UsageError(f"split {text!r} has examples {both[0]} to {both[1] - 1} of {name} twice")
        ranges[name].append((begin, end))
        parts += _parts(dataset.folder, split, begin, end)
    return Selection(text, tuple(dataset.splits[name] for name in ranges), tuple(parts))


def _bound(text: str, bound: str | None, total: int, default: int) -> int:
    """An end of a slice as a number of examples; percentages are rounded down, so that [:p%] and [p%:] are a whole."""
    bound = (bound or "").strip()
    if not bound:
        return default
    if not _BOUND.fullmatch(bound):
        raise UsageError(f"split {text!r}: {bound!r} is neither a number of examples nor a percentage; {_HELP}")
    number = math.floor(total * Fraction(bound[:-1]) / 100) if bound.endswith("%") else int(bound)
    number = number + total if bound.startswith("-") else number
    if not 0 <= number <= total:
        raise UsageError(f"split {text!r}: {bound} lies outside the {total} examples there are")
    return number


def _parts(folder: str, split: Split, begin: int, end: int) -> list[Part]:
    parts, first = [], 0
    for shard in split.shards:
        low, high = max(begin, first), min(end, first + shard.num_examples)
        if low < high:
            parts.append(Part(storage.join(folder, shard.file), shard.num_examples, low - first, high - low))
        first += shard.num_examples
    return parts
