"""Divides the images of each class among splits, for `stratify=`.

The images of a class have an order, that of a hash of their keys, and cuts divide it among the
splits. As for shards, a histogram shows which buckets contain cuts, and the keys in those few
buckets determine the exact cuts. So no worker ever holds all references, and every engine
computes the same.

A unit is what goes to one split: an image, or a group of them. A group is as long in the order as
it has images, and belongs to the split in which its middle is. If images of it are in splits
already, it goes to that of most of them; where several have equally many, shares choose among
these.

A unit of several classes counts as one of its rarest, so the rarest are divided best. The iterative
stratification of Sechidis, Tsoumakas and Vlahavas ("On the Stratification of Multi-Label Data",
ECML PKDD 2011) also begins with the rarest class, but places one image after another, for which one
worker needs all of them.
"""

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from beam_tfr.planning.shares import Divider
from beam_tfr.planning.survey import ORDER_BYTES, Histogram, buckets_of, order_keys
from beam_tfr.schema.dataset import NO_SPLIT, sort_splits
from beam_tfr.schema.encoded_ref import EncodedRef, SplitField, split_labels

REJECTED = "\n"  # stands for the class of images that are known to be rejects; no class is named so
BUCKET_BITS = 12
MOST_IN_ONE_PLACE = 64  # groups of a class, if each split shall have one
_AMONG = "\t"  # before the splits in which a unit may be; no class is named so
_WHOLE = -1  # stands for all buckets of such a class
_ORDER = b"beam_tfr split"
_SIZE_BYTES = 8
_NO_SPLIT = NO_SPLIT.encode()
_END = b"\xff" * (ORDER_BYTES + 1)  # behind all orders

Bucket = tuple[str, int]  # a class, and a bucket of its order


class Unit(NamedTuple):
    """Images that go to one split.

    Attributes:
        name: the class that it counts as; then a tab and the splits in which it may be, if these
            are not all.
        order: its place in the order of that class.
        size: number of its images.
    """

    name: str
    order: bytes
    size: int

    def encode(self) -> bytes:
        """Encodes place and size so that they sort by place."""
        return self.order + self.size.to_bytes(_SIZE_BYTES, "big")


@dataclasses.dataclass(slots=True)
class ClassCounts:
    """The images of each class.

    Attributes:
        images: class -> images, wherever they are.
        placed: (class, split) -> images that are in that split, and stay there.
        single: class -> images that are in no split and in no group yet.
    """

    images: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    placed: collections.Counter[tuple[str, str]] = dataclasses.field(
        default_factory=collections.Counter
    )
    single: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, refs: Iterable[bytes]) -> None:
        """Counts encoded references."""
        kinds = collections.Counter(
            (ref.split, ref.labels, bool(ref.reason)) for ref in EncodedRef.parse_all(refs)
        )
        for (split, labels, is_rejected), images in kinds.items():
            field = SplitField.parse(split)
            for name in _list_classes(labels, is_rejected=is_rejected):
                self.images[name] += images
                if field.name:
                    self.placed[name, field.name.decode()] += images
                elif not field.group:
                    self.single[name] += images

    def merge(self, other: "ClassCounts") -> None:
        """Adds the counts of other references."""
        self.images.update(other.images)
        self.placed.update(other.placed)
        self.single.update(other.single)

    def find_rarest(self, names: Iterable[str]) -> str:
        """The rarest of some classes; of equally rare ones, the first by name."""
        return min(names, key=lambda name: (self.images[name], name))


def _list_classes(labels: bytes, *, is_rejected: bool) -> list[str]:
    """The classes of an image, each once; an empty one if it has none."""
    if is_rejected:
        return [REJECTED]
    return [*dict.fromkeys(split_labels(labels))] or [""]


def list_single_units(refs: Sequence[bytes], counts: ClassCounts, seed: int) -> list[Unit | None]:
    """The unit of each encoded reference; None if it is in a split already."""
    parsed = EncodedRef.parse_all(refs)
    orders = order_keys(seed, [ref.key for ref in parsed], _ORDER)
    units = list[Unit | None]()
    for ref, order in zip(parsed, orders, strict=True):
        if SplitField.parse(ref.split).name:
            units.append(None)
            continue
        names = _list_classes(ref.labels, is_rejected=bool(ref.reason))
        name = names[0] if len(names) == 1 else counts.find_rarest(names)
        units.append(Unit(name, order, 1))
    return units


class Group(NamedTuple):
    """The images of a group.

    Attributes:
        name: of the group.
        refs: their encoded references.
        splits: split -> images that are in it already.
    """

    name: bytes
    refs: Sequence[bytes]
    splits: Mapping[str, int]

    @classmethod
    def gather(cls, name: bytes, refs: Iterable[bytes]) -> "Group":
        """Makes a group of its encoded references, in any order."""
        ordered = sorted(refs)
        splits = collections.Counter[str]()
        for ref in EncodedRef.parse_all(ordered):
            split = SplitField.parse(ref.split).name.decode()
            if split:
                splits[split] += 1
        return cls(name, ordered, splits)

    def list_splits(self) -> list[str]:
        """The splits that most of its images are in, equally many in each; may be none."""
        most = max(self.splits.values(), default=0)
        return sort_splits(split for split, images in self.splits.items() if images == most)

    def find_split(self, shares: Collection[str], seed: int) -> str:
        """The split that most of its images are in; empty if shares are to choose one.

        Args:
            shares: splits that have shares, which choose one of several; without them, a hash of
                the name of the group does.
            seed: seed for the hash.
        """
        splits = self.list_splits()
        if len(splits) == 1:
            return splits[0]
        if shares and {*splits} <= {*shares}:
            return ""
        order = order_keys(seed, [self.name], _ORDER)[0]
        return splits[int.from_bytes(order, "big") % len(splits)]

    def encode_refs(self, split: str) -> list[bytes]:
        """Its encoded references in a split; in none yet if that is empty."""
        field = SplitField(split.encode(), b"" if split else self.name, is_final=bool(split))
        return [ref.encode_in(field.encode()) for ref in EncodedRef.parse_all(self.refs)]

    def make_unit(self, counts: ClassCounts, seed: int) -> Unit:
        """The unit of a group of which shares choose the split."""
        names = set[str]()
        for ref in EncodedRef.parse_all(self.refs):
            names.update(_list_classes(ref.labels, is_rejected=bool(ref.reason)))
        usable = names - {REJECTED}
        order = order_keys(seed, [self.name], _ORDER)[0]
        name = counts.find_rarest(usable or names)
        splits = self.list_splits()
        if splits:
            name += _AMONG + ",".join(splits)
        return Unit(name, order, len(self.refs))


@dataclasses.dataclass(slots=True)
class StrataSurvey:
    """The units of each class that are to be placed.

    Attributes:
        images: class -> their images.
        units: class -> their number.
        buckets: class -> images by bucket of the order.
    """

    images: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    units: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    buckets: dict[str, Histogram] = dataclasses.field(default_factory=dict)

    def add(self, units: Iterable[Unit]) -> None:
        """Counts units."""
        units = [*units]
        buckets_of_class = collections.defaultdict[str, list[int]](list)
        buckets = buckets_of([unit.order for unit in units], BUCKET_BITS)
        for unit, bucket in zip(units, buckets, strict=True):
            self.units[unit.name] += 1
            buckets_of_class[unit.name] += [bucket] * unit.size
        for name, of_class in buckets_of_class.items():
            self.images[name] += len(of_class)
            self._histogram(name).add(of_class)

    def merge(self, other: "StrataSurvey") -> None:
        """Adds the survey of other units."""
        self.images.update(other.images)
        self.units.update(other.units)
        for name, histogram in other.buckets.items():
            self._histogram(name).merge(histogram)

    def _histogram(self, name: str) -> Histogram:
        return self.buckets.setdefault(name, Histogram(BUCKET_BITS))


class _Cut(NamedTuple):
    """A cut in the order of a class.

    Attributes:
        number: of the split that begins there, from 1.
        rank: images before it in its bucket.
    """

    number: int
    rank: int


@dataclasses.dataclass(frozen=True, slots=True)
class StrataDraft:
    """The buckets that contain the cuts.

    Attributes:
        splits: name of units -> the splits in which they may be, in order.
        cuts: bucket -> the cuts in it.
    """

    splits: dict[str, tuple[str, ...]]
    cuts: dict[Bucket, list[_Cut]]

    def find_candidates(self, units: Sequence[Unit]) -> Iterator[tuple[Bucket, bytes]]:
        """Yields (bucket, encoded unit) for each unit in such a bucket."""
        buckets = buckets_of([unit.order for unit in units], BUCKET_BITS)
        for unit, number in zip(units, buckets, strict=True):
            for bucket in ((unit.name, number), (unit.name, _WHOLE)):
                if bucket in self.cuts:
                    yield bucket, unit.encode()

    def pick_cuts(self, bucket: Bucket, units: Iterable[bytes]) -> list[tuple[int, bytes]]:
        """The (number, place) of each cut in a bucket, from all its units in any order."""
        ordered = sorted(units)
        sizes = [int.from_bytes(unit[ORDER_BYTES:], "big") for unit in ordered]
        middles = []
        begin = 0
        for size in sizes:
            middles.append(2 * begin + size)
            begin += size
        cuts = self.cuts[bucket]
        positions = [bisect.bisect_left(middles, 2 * cut.rank) for cut in cuts]
        if bucket[1] == _WHOLE:
            positions = _keep_apart(positions, len(ordered))
        places = [unit[:ORDER_BYTES] for unit in ordered]
        places.append(_end_of_bucket(bucket[1]))
        return [(cut.number, places[at]) for cut, at in zip(cuts, positions, strict=True)]

    def finish(self, picked: Iterable[tuple[Bucket, Sequence[tuple[int, bytes]]]]) -> "StrataCuts":
        """The cuts, from those that were picked in each bucket."""
        cuts = {name: [_END] * (len(splits) - 1) for name, splits in self.splits.items()}
        for (name, _), of_bucket in picked:
            for number, place in of_bucket:
                cuts[name][number - 1] = place
        return StrataCuts(self.splits, cuts)


def _keep_apart(positions: Sequence[int], units: int) -> list[int]:
    """Moves the cuts between units so that each split has a unit."""
    apart = list[int]()
    before = 0
    for position in positions:
        before = max(position, before + 1)
        apart.append(before)
    most = units
    for index in reversed(range(len(apart))):
        most = min(apart[index], most - 1)
        apart[index] = most
    return apart


def _end_of_bucket(number: int) -> bytes:
    """The first place in the order that is behind a bucket."""
    following = number + 1
    if number == _WHOLE or following >> BUCKET_BITS:
        return _END
    return (following << (8 * ORDER_BYTES - BUCKET_BITS)).to_bytes(ORDER_BYTES, "big")


@dataclasses.dataclass(frozen=True, slots=True)
class StrataCuts:
    """Where the splits begin in the order of each class.

    Attributes:
        splits: name of units -> the splits in which they may be, in order.
        cuts: name of units -> the places at which the second, third, … split begins.
    """

    splits: dict[str, tuple[str, ...]]
    cuts: dict[str, list[bytes]]

    def choose_split(self, unit: Unit) -> str:
        """The split of a unit."""
        number = bisect.bisect_right(self.cuts[unit.name], unit.order)
        return self.splits[unit.name][number]


def draft_strata(
    survey: StrataSurvey,
    counts: ClassCounts,
    shares: Mapping[str, Fraction],
    *,
    are_groups: bool = False,
) -> StrataDraft:
    """Finds the buckets that contain the cuts between splits, for each class.

    Args:
        survey: of the units to place.
        counts: of all images.
        shares: split -> share.
        are_groups: whether the units are groups; single images, which are placed after them, then
            make up for what is missing.
    """
    divider = Divider(shares, fills_empty=not are_groups)
    placed = counts.placed.copy()
    splits_of = dict[str, tuple[str, ...]]()
    cuts = dict[Bucket, list[_Cut]]()
    for name in sorted(survey.images):
        class_name, _, among = name.partition(_AMONG)
        splits = tuple(among.split(",")) if among else tuple(shares)
        present = {split: placed[class_name, split] for split in splits}
        numbers = divider.divide(survey.images[name], present, splits)
        for split, number in zip(splits, numbers, strict=True):
            placed[class_name, split] += number
        splits_of[name] = splits
        ends = [*itertools.accumulate(numbers)][:-1]
        needs_groups = (
            are_groups
            and not any(present.values())
            and counts.single[class_name] < len(splits) <= survey.units[name]
        )
        if needs_groups and survey.units[name] <= MOST_IN_ONE_PLACE:
            cuts[name, _WHOLE] = [_Cut(number, end) for number, end in enumerate(ends, 1)]
        else:
            _locate_cuts(cuts, name, survey.buckets[name], ends)
    return StrataDraft(splits_of, cuts)


def _locate_cuts(
    cuts: dict[Bucket, list[_Cut]], name: str, histogram: Histogram, ends: Sequence[int]
) -> None:
    """Adds the cuts of a class, each in its bucket; none for those behind all of its images."""
    counts = histogram.counts()
    before = np.cumsum(counts, dtype=np.int64)
    buckets = np.searchsorted(before, ends, side="right").tolist()
    for number, (bucket, end) in enumerate(zip(buckets, ends, strict=True), 1):
        if bucket < len(counts):
            rank = end - int(before[bucket] - counts[bucket])
            cuts.setdefault((name, bucket), []).append(_Cut(number, rank))


def update_splits(
    refs: Iterable[bytes], splits: Mapping[bytes, bytes], groups: Mapping[bytes, bytes]
) -> Iterator[bytes]:
    """Yields encoded references with what is known of their splits and groups.

    Args:
        refs: encoded references. Of groups, images that are in a split without being known to stay
            there go where the others of their group are.
        splits: key -> the split that the image is in, and stays in.
        groups: key -> group, which replaces another.
    """
    for encoded in refs:
        ref = EncodedRef.parse(encoded)
        field = SplitField.parse(ref.split)
        if field.name == _NO_SPLIT:
            yield encoded
            continue
        group = groups.get(ref.key, field.group)
        known = splits.get(ref.key, b"")
        name = known if group and splits else field.name or known
        is_final = bool(name) and not group
        yield ref.encode_in(SplitField(name, group, is_final).encode())
