"""Describes problems with the splits of a dataset.

The problems are images with the same bytes in several splits or classes, and classes that a split
lacks.
"""

import collections
import contextlib
import itertools
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_tfr.console.terminal import counted, printable
from beam_tfr.dataset.lookup import RecordLookup, read_shard_contents
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.schema.dataset import NO_SPLIT, sort_splits
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.encodings import noun_of
from beam_tfr.schema.errors import BeamTfrError

HASH_BYTES = 8  # of the SHA-256 of a source
NO_HASH = bytes(HASH_BYTES)  # if the hash is unknown
_LABEL = np.dtype("<i8")
_MOST_NAMES = 3  # of classes
_MOST_NOTES = 3  # of a kind
# Characters that Unicode says to hide (Default_Ignorable_Code_Point).
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_LONGEST_NUMBER = 19  # digits of names that are compared as numbers
# The names that systems and browsers give to copies: cat (1), cat - Copy, cat copy 2, Copy of cat.
_COPY = re.compile(r"(?is)(?:copy of )?(.+?)(?:(?: -)? copy(?: [0-9]{1,2})?)?(?: \([0-9]{1,2}\))?")
_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])[-_ ]+(?=[^\W\d_])")

UInt64 = npt.NDArray[np.uint64]


class SourceHashes(NamedTuple):
    """The hashes of the sources of some records in a split.

    Attributes:
        split: name of the split.
        hashes: the first `HASH_BYTES` of the SHA-256 of each source, concatenated.
        labels: the class ids of the records, from `encode_label`; empty if they are unknown.
    """

    split: str
    hashes: bytes | bytearray
    labels: bytes | bytearray = b""


def encode_label(labels: Sequence[int]) -> bytes:
    """Encodes the label of a record as bytes; encodes -1 unless there is exactly one label."""
    label = labels[0] if len(labels) == 1 else -1
    return label.to_bytes(_LABEL.itemsize, "little", signed=True)


class RecordPlace(NamedTuple):
    """The place of a record: the index of its `SourceHashes`, and the index of its hash in them."""

    part: int
    record: int


class Overlap(NamedTuple):
    """Sources that two splits share.

    Attributes:
        splits: the splits, in their usual order.
        number: number of different sources that are in both splits.
        first: a record from each split; both records have the same source.
    """

    splits: tuple[str, str]
    number: int
    first: tuple[RecordPlace, RecordPlace]


class Contradiction(NamedTuple):
    """Sources whose records have different classes.

    Attributes:
        number: number of different sources.
        first: two records with the same source and different classes.
    """

    number: int
    first: tuple[RecordPlace, RecordPlace]


class _SplitHashes:
    """The hashes of all sources in a split; each takes 16 bytes of memory.

    Attributes:
        different: the different hashes, sorted.
    """

    def __init__(self, parts: Sequence[tuple[int, SourceHashes]]) -> None:
        self._numbers = [number for number, _ in parts]
        arrays = [np.frombuffer(part.hashes, np.uint64) for _, part in parts]
        self._ends = np.cumsum([len(array) for array in arrays])
        self._hashes: UInt64 = np.concatenate(arrays)
        ordered: UInt64 = np.sort(self._hashes)  # `np.unique` is a hundred times slower
        # also leaves out `NO_HASH`, which is 0
        follows_other = np.diff(ordered, prepend=np.uint64(0)) != 0
        self.different: UInt64 = ordered[follows_other]

    def find_shared(self, other: "_SplitHashes") -> UInt64:
        """Returns the hashes that are also in another split, sorted."""
        if len(other.different) > len(self.different):
            return other.find_shared(self)
        indices = np.searchsorted(self.different, other.different)
        indices[indices == len(self.different)] = 0
        shared: UInt64 = other.different[self.different[indices] == other.different]
        return shared

    def find_first(self, source: np.uint64) -> RecordPlace:
        """Returns the place of the first record whose source has this hash."""
        place = _find_place(self._ends, int(np.argmax(self._hashes == source)))
        return place._replace(part=self._numbers[place.part])


def find_overlaps(parts: Sequence[SourceHashes]) -> list[Overlap]:
    """Finds the sources that two splits share, for each pair of splits with shared sources.

    The pair that shares the most sources comes first.
    """
    parts_of = collections.defaultdict[str, list[tuple[int, SourceHashes]]](list)
    for number, part in enumerate(parts):
        parts_of[part.split].append((number, part))
    if len(parts_of) < 2:
        return []
    splits = {split: _SplitHashes(parts_of[split]) for split in sort_splits(parts_of)}
    overlaps = []
    for (name, split), (other_name, other) in itertools.combinations(splits.items(), 2):
        shared = split.find_shared(other)
        if len(shared):
            places = (split.find_first(shared[0]), other.find_first(shared[0]))
            overlaps.append(Overlap((name, other_name), len(shared), places))
    return sorted(overlaps, key=lambda overlap: -overlap.number)


def find_contradiction(parts: Sequence[SourceHashes]) -> Contradiction | None:
    """Finds sources whose records have different classes; returns None if there are none.

    Ignores records with no class or several classes.
    """
    hashes = np.frombuffer(b"".join(part.hashes for part in parts), np.uint64)
    labels = np.frombuffer(b"".join(part.labels for part in parts), _LABEL)
    if len(labels) != len(hashes):
        return None
    known = np.flatnonzero((labels >= 0) & (hashes != 0))
    records = known[np.argsort(hashes[known], kind="stable")]
    is_same = hashes[records[1:]] == hashes[records[:-1]]
    differs = labels[records[1:]] != labels[records[:-1]]
    pairs = np.flatnonzero(is_same & differs)
    if not len(pairs):
        return None
    first = int(pairs[np.argmin(records[pairs])])
    ends = np.cumsum([len(part.hashes) // HASH_BYTES for part in parts])
    places = (_find_place(ends, records[first]), _find_place(ends, records[first + 1]))
    return Contradiction(len({*hashes[records[pairs]].tolist()}), places)


def _find_place(ends: npt.NDArray[np.int_], index: int) -> RecordPlace:
    """Returns the place of a record; `ends` holds the running total of records after each part."""
    part = int(np.searchsorted(ends, index, side="right"))
    begin = int(ends[part - 1]) if part else 0
    return RecordPlace(part, int(index) - begin)


def describe_contradiction(number: int, keys: Sequence[str], noun: str) -> str:
    """Describes sources with different classes; see `describe_overlap` for the arguments."""
    return _describe_equal_bytes(number, "different classes", keys, noun)


def describe_contradictions(
    dataset: Manifest, shards: Sequence[ShardEntry], parts: Sequence[SourceHashes]
) -> Iterator[str]:
    """Yields a sentence about sources in several classes, if each image should have one class.

    Args:
        dataset: the dataset.
        shards: the shard of each part.
        parts: the hashes of the sources in each shard.
    """
    label = dataset.feature_kinds.label
    if label is None or label.is_list:
        return
    contradiction = find_contradiction(parts)
    if contradiction:
        keys = [_read_key(dataset, shards[part], record) for part, record in contradiction.first]
        noun = noun_of(dataset.options["encoding"])[:-1]
        yield describe_contradiction(contradiction.number, keys, noun)


def describe_overlap(overlap: Overlap, keys: Sequence[str], noun: str = "image") -> str:
    """Describes sources that two splits share.

    Args:
        overlap: the shared sources.
        keys: the keys of two records with the same source, one from each split.
        noun: what a record holds, such as "image".
    """
    return _describe_equal_bytes(overlap.number, " and ".join(overlap.splits), keys, noun)


def _describe_equal_bytes(number: int, places: str, keys: Sequence[str], noun: str) -> str:
    verb = "has" if number == 1 else "have"
    first, second = map(printable, keys)
    sources = counted(number, noun)
    return f"{sources} {verb} the same bytes in {places}, such as {first} and {second}"


def describe_overlaps(
    dataset: Manifest, shards: Sequence[ShardEntry], overlaps: Sequence[Overlap]
) -> Iterator[str]:
    """Yields sentences about the sources that splits of a dataset share.

    Args:
        dataset: the dataset.
        shards: the shard of each `SourceHashes`.
        overlaps: result of `find_overlaps`.
    """
    for overlap in overlaps[:_MOST_NOTES]:
        keys = [_read_key(dataset, shards[part], record) for part, record in overlap.first]
        yield describe_overlap(overlap, keys, noun_of(dataset.options["encoding"])[:-1])
    if len(overlaps) > _MOST_NOTES:
        pairs = counted(len(overlaps) - _MOST_NOTES, "more pair")
        yield f"{pairs} of splits have the same bytes in common"


def _read_key(dataset: Manifest, shard: ShardEntry, record: int) -> str:
    """Reads the key of a record; if this fails, returns the number of the record in its shard."""
    with contextlib.suppress(BeamTfrError, OSError):
        table = read_shard_contents(dataset, shard, ["key"])
        lookup = RecordLookup(dataset, [ShardPart.whole(dataset.folder, shard)])
        return lookup.whole_key(record, table.column("key")[record].as_py())
    return f"record {record} of {shard.file}"


def describe_classes(
    splits: Mapping[str, Any], classes: Collection[str], encoding: str
) -> Iterator[str]:
    """Yields sentences about classes that a split lacks, or that have at most one image.

    Also yields sentences about classes or splits whose different names may mean the same thing.

    Args:
        splits: name -> `Split` of a dataset, or `SplitPlan` of a plan.
        classes: names of all classes.
        encoding: the encoding of the records.
    """
    noun = noun_of(encoding)[:-1]
    counts = {
        split: splits[split].class_counts for split in sort_splits(splits) if split != NO_SPLIT
    }
    totals = collections.Counter[str]()
    for of_split in counts.values():
        totals.update(of_split)
    if len(counts) > 1:
        present = [name for name in classes if totals[name]]
        notes = [*_describe_missing(counts, present, noun)]
        yield from notes[:_MOST_NOTES]
        if len(notes) > _MOST_NOTES:
            yield f"{counted(len(notes) - _MOST_NOTES, 'more split')} lack classes"
    yield from _describe_alike("classes", classes)
    yield from _describe_alike("splits", [*counts])
    yield from _describe_rare(classes, totals, noun)


def _describe_rare(
    classes: Collection[str], totals: collections.Counter[str], noun: str
) -> Iterator[str]:
    """Yields sentences about classes that have no image in any split, or only one."""
    absent = [name for name in classes if not totals[name]]
    if absent:
        yield f"{_name_classes(absent)} no {noun}"
    alone = [name for name in classes if totals[name] == 1]
    if alone:
        each = "" if len(alone) == 1 else " each"
        yield f"{_name_classes(alone)} 1 {noun}{each}"


def _describe_alike(noun: str, names: Iterable[str]) -> Iterator[str]:
    """Yields a sentence about names whose differences are easy to overlook."""
    groups = collections.defaultdict[str, list[str]](list)
    for name in names:
        groups[_fold(name)].append(name)
    alike = [group for group in groups.values() if len(group) > 1]
    if alike:
        listed = [" and ".join(_spell_apart(group)) for group in alike]
        yield (
            f"{noun} differ only in case, marks between words, marks of copies, leading zeros or "
            f"invisible characters: {join_texts(listed, most=_MOST_NAMES)}"
        )


def _fold(name: str) -> str:
    """Removes easily overlooked details from a name, such as case, hyphens and leading zeros."""
    seen = _as_seen(name)
    copy = _COPY.fullmatch(seen)
    folded = _BETWEEN_WORDS.sub("", copy[1] if copy else seen).casefold()
    return str(int(folded)) if folded.isdecimal() and len(folded) < _LONGEST_NUMBER else folded


def _as_seen(name: str) -> str:
    """Removes invisible characters from a name, and unifies letters that look alike."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", name)).strip()


def _spell_apart(names: Sequence[str]) -> list[str]:
    """Formats names for a message; escapes their characters if some of the names look alike."""
    shown = [*map(printable, names)]
    if len({*map(_as_seen, shown)}) == len(names):
        return shown
    return [*map(ascii, names)]


def describe_unlabelled(dataset: Manifest) -> Iterator[str]:
    """Yields a sentence about images without a label, if each image should have one."""
    label = dataset.feature_kinds.label
    if label is None or label.is_list:
        return
    number = 0
    for name, split in dataset.splits.items():
        if name != NO_SPLIT:
            number += split.num_examples - sum(split.class_counts.values())
    if number:
        verb = "has" if number == 1 else "have"
        noun = noun_of(dataset.options["encoding"])[:-1]
        yield f"{counted(number, noun)} {verb} no class, so the label is -1"


def _describe_missing(
    counts: Mapping[str, Mapping[str, int]], present: Sequence[str], noun: str
) -> Iterator[str]:
    """Yields a sentence for each split that lacks classes that other splits have."""
    for split, of_split in counts.items():
        missing = [name for name in present if not of_split.get(name)]
        if missing and len(missing) == len(present):
            yield f"no {noun} in {split} has a class"
        elif missing:
            yield f"{_name_classes(missing)} no {noun} in {split}"


def _name_classes(names: Sequence[str]) -> str:
    """Returns the beginning of a sentence about classes: "classes a, b, c, and 7 more have"."""
    if len(names) == 1:
        return f"class {printable(names[0])} has"
    listed = join_texts([*map(printable, names)], most=_MOST_NAMES, separator=", ")
    return f"classes {listed} have"
