"""Finds the records in shards that a value of `split=`, such as "train[:80%]", selects."""

import itertools
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, ShardEntry, Split
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.untrusted import quote

_BOUND = re.compile(r"-?[0-9]+|-?[0-9]+(\.[0-9]+)?%")
_HELP = (
    'specify one split ("train"), several splits ("train+validation"), all splits ("all"), all '
    'except some ("all-fold4"), or a slice ("train[:80%]", "all[1000:]")'
)
_ALL = "all"  # stands for all splits, unless a split has this name


class ShardPart(NamedTuple):
    """Records [begin, begin + take) of a file.

    The file must hold `records` records in `num_bytes` bytes.
    """

    file: str
    records: int
    begin: int
    take: int
    num_bytes: int

    @classmethod
    def whole(cls, folder: str, entry: ShardEntry) -> "ShardPart":
        """Returns the part that covers all records of a shard in a dataset's folder."""
        path = storage.join(folder, entry.file)
        return cls(path, entry.num_examples, 0, entry.num_examples, entry.num_bytes)

    @property
    def file_name(self) -> str:
        return self.file.rpartition("/")[2]


class ExampleSelection(NamedTuple):
    """The examples that `split=` selects.

    Attributes:
        splits: the splits that the examples come from.
        parts: the parts of shards, in the order of the names in `split=`; no part is empty.
    """

    splits: tuple[Split, ...]
    parts: tuple[ShardPart, ...]

    @property
    def total(self) -> int:
        return sum(part.take for part in self.parts)


class _Slice(NamedTuple):
    """Examples [begin, end) of a split."""

    split: str
    begin: int
    end: int


def choose_splits(dataset: Manifest, split: str | None, names: Sequence[str]) -> Sequence[str]:
    """Returns the names of the splits that a string such as "all-fold4" selects; None selects all.

    Raises:
        UsageError: a split does not exist.
    """
    if split is None:
        return names
    chosen = list[str]()
    try:
        for term in split.split("+"):
            chosen += _find_names(dataset, term)
    except ValueError as error:
        raise UsageError(str(error), option="split", value=split) from None
    if not {*chosen} <= {*names}:
        raise UsageError(
            f"is not in {dataset.folder}; the splits are: {', '.join(names)}",
            option="split",
            value=split,
        )
    return [*dict.fromkeys(chosen)]


def select_examples(dataset: Manifest, text: str) -> ExampleSelection:
    """Resolves the value of `split=`.

    Raises:
        UsageError: a split does not exist, or a slice is malformed, empty or overlaps another.
    """
    if not isinstance(text, str):
        raise UsageError(f"must be a string: {_HELP}", option="split", value=quote(text))
    try:
        slices = list[_Slice]()
        for term in text.split("+"):
            slices += _parse_slice(dataset, term.strip())
        _check_overlaps(slices)
    except ValueError as error:
        raise UsageError(str(error), option="split", value=text) from None
    parts = list[ShardPart]()
    for split, begin, end in slices:
        parts += _cut_shards(dataset.folder, dataset.splits[split], begin, end)
    names = dict.fromkeys(piece.split for piece in slices)
    splits = [dataset.splits[name] for name in names]
    return ExampleSelection(tuple(splits), tuple(parts))


def _find_names(dataset: Manifest, term: str) -> list[str]:
    """Returns the splits that a term without a slice selects: a name, "all" or "all-fold4".

    Raises:
        ValueError: a name after "-" does not exist, or no split is left.
    """
    name, *left_out = (part.strip() for part in term.split("-"))
    if name == _ALL and _ALL not in dataset.splits:
        return _all_but(dataset, left_out)
    return [term.strip()]


def _all_but(dataset: Manifest, left_out: Sequence[str]) -> list[str]:
    """Returns the splits that have records, except those in `left_out`.

    Raises:
        ValueError: a split to leave out does not exist, or no split is left.
    """
    names = dataset.split_names
    for name in left_out:
        if name not in names:
            raise ValueError(
                f"{name!r} is not in {dataset.folder}; the splits are: {', '.join(names)}"
            )
    rest = [name for name in names if name not in left_out and dataset.splits[name].num_examples]
    if not rest:
        raise ValueError(f"leaves out all splits: {', '.join(names)}")
    return sort_splits(rest)


def _parse_slice(dataset: Manifest, term: str) -> list[_Slice]:
    """Parses a term of `split=`: a split, several splits such as "all", or a slice of them.

    Raises:
        ValueError: the split does not exist, or the slice is malformed or empty.
    """
    names = dataset.split_names
    absent = f"is not in {dataset.folder}; the splits are: {', '.join(names)}"
    name, bracket, bounds = term.partition("[")
    name = name.rstrip()
    is_closed = bounds.endswith("]") and bounds.count(":") == 1
    if not name or "]" in name or (bracket and not is_closed):
        raise ValueError(f"{absent}; {_HELP}")
    chosen = _find_names(dataset, name)
    if not {*chosen} <= {*names}:
        raise ValueError(absent)
    total = sum(dataset.splits[split].num_examples for split in chosen)
    begin_text, _, end_text = bounds.removesuffix("]").partition(":")
    begin = _parse_bound(begin_text.strip() or "0", total)
    end = _parse_bound(end_text.strip() or "100%", total)
    if begin >= end:
        raise ValueError(f"{term} is empty; {name} has {total}")
    return _slice_splits(dataset, chosen, begin, end)


def _slice_splits(dataset: Manifest, names: Sequence[str], begin: int, end: int) -> list[_Slice]:
    """Returns the slices that hold the examples [begin, end) of consecutive splits."""
    slices = list[_Slice]()
    first = 0
    for name in names:
        total = dataset.splits[name].num_examples
        low = max(begin - first, 0)
        high = min(end - first, total)
        if low < high:
            slices.append(_Slice(name, low, high))
        first += total
    return slices


def _parse_bound(bound: str, total: int) -> int:
    """Parses a slice bound; returns a number of examples.

    Percentages are rounded down, so [:p%] and [p%:] never overlap.

    Raises:
        ValueError: the bound is malformed, or outside the split.
    """
    if not _BOUND.fullmatch(bound):
        raise ValueError(f"{bound!r} is neither a number of examples nor a percentage; {_HELP}")
    if bound.endswith("%"):
        percentage = Fraction(bound[:-1])
        number = math.floor(total * percentage / 100)
    else:
        number = int(bound)
    if bound.startswith("-"):
        number += total
    if not 0 <= number <= total:
        raise ValueError(f"{bound} is outside the {total} examples")
    return number


def _check_overlaps(slices: list[_Slice]) -> None:
    """Checks that no example is in two slices.

    Raises:
        ValueError: two slices overlap.
    """
    for first, second in itertools.combinations(slices, 2):
        begin = max(first.begin, second.begin)
        end = min(first.end, second.end)
        if first.split == second.split and begin < end:
            raise ValueError(f"selects examples {begin} to {end - 1} of {first.split} twice")


def _cut_shards(folder: str, split: Split, begin: int, end: int) -> list[ShardPart]:
    """Returns the parts of shards that hold examples [begin, end) of a split."""
    parts = []
    first = 0
    above = storage.join(folder, "")
    for shard in split.shards:
        total = shard.num_examples
        low = max(begin - first, 0)
        high = min(end - first, total)
        if low < high:
            path = above + shard.file
            parts.append(ShardPart(path, total, low, high - low, shard.num_bytes))
        first += total
    return parts
