"""Divides the images of each class among splits, for `stratify=`.

The images of a class are ordered by a hash of their keys, and cuts divide this order among the
splits. As for shards, a histogram shows which buckets contain cuts, and the keys in those few
buckets determine the exact cuts. So no worker ever holds all references, and every engine computes
the same result.

A unit is an image or a group of images, and goes to one split as a whole. Groups are placed first.
The groups of each kind are divided like the images of each class: see `group_kinds`. If all images
in a group, such as copies, are already in splits, the fractions choose among these splits. If only
some of the images are in splits, the others follow the majority of these.

An image with several classes counts as one of its rarest class, so the rarest classes are divided
best. The iterative stratification by Sechidis, Tsoumakas and Vlahavas ("On the Stratification of
Multi-Label Data", ECML PKDD 2011) also begins with the rarest class, but places one image after
another, so one worker needs all images.
"""

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from beam_tfr.layouts.parsing import Layout
from beam_tfr.planning.group_kinds import GroupDivider, GroupKind
from beam_tfr.planning.shares import Divider
from beam_tfr.planning.survey import ORDER_BYTES, Histogram, buckets_of, order_keys
from beam_tfr.schema.dataset import NO_SPLIT, sort_splits
from beam_tfr.schema.encoded_ref import (
    EncodedRef,
    SplitField,
    open_split,
    split_labels,
    to_bytes,
    to_text,
)

REJECTED = "\n"  # the class of images that are known to be rejects; no real class has this name
BUCKET_BITS = 12
MOST_KINDS = 100_000  # kinds of groups; with more, only the rarest class of each group counts
_ORDER = b"beam_tfr split"
_NO_SPLIT = NO_SPLIT.encode()
_END = b"\xff" * (ORDER_BYTES + 1)  # after all orders

Bucket = tuple[str, int]  # a stratum, and a bucket of its order


class Unit(NamedTuple):
    """An image or a group, which goes to one split.

    Attributes:
        stratum: what is divided together: the images of a class, or the groups of a kind.
        order: place of the unit in the order of the stratum.
        coarse: for a group, the stratum to use if there are too many kinds.
    """

    stratum: str
    order: bytes
    coarse: str = ""


@dataclasses.dataclass(slots=True)
class ClassCounts:
    """The numbers of images of each class.

    Attributes:
        images: class -> number of images, in splits or not.
        placed: (class, split) -> number of images that are in that split, and stay there.
        single: class -> number of images that are not in a split or a group yet.
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
        """Returns the rarest of some classes; of equally rare classes, the first by name."""
        return min(names, key=lambda name: (self.images[name], name))


def _list_classes(labels: bytes, *, is_rejected: bool) -> list[str]:
    """Returns the different classes of an image, or an empty string as the only class."""
    if is_rejected:
        return [REJECTED]
    return [*dict.fromkeys(split_labels(labels))] or [""]


def list_single_units(refs: Sequence[bytes], counts: ClassCounts, seed: int) -> list[Unit | None]:
    """Returns the unit for each encoded reference, or None if the image is already in a split."""
    parsed = EncodedRef.parse_all(refs)
    orders = order_keys(seed, [ref.key for ref in parsed], _ORDER)
    units = list[Unit | None]()
    for ref, order in zip(parsed, orders, strict=True):
        if SplitField.parse(ref.split).name:
            units.append(None)
            continue
        names = _list_classes(ref.labels, is_rejected=bool(ref.reason))
        name = names[0] if len(names) == 1 else counts.find_rarest(names)
        units.append(Unit(name, order))
    return units


class Group(NamedTuple):
    """The images in a group.

    Attributes:
        name: name of the group.
        refs: encoded references of the images.
        splits: split -> number of images that are already in the split or, if no image is in a
            split, number of images of which the split held a copy.
    """

    name: bytes
    refs: Sequence[bytes]
    splits: Mapping[str, int]

    @classmethod
    def gather(cls, name: bytes, refs: Iterable[bytes]) -> "Group":
        """Creates a group from its encoded references, in any order."""
        ordered = sorted(refs)
        splits = collections.Counter[str]()
        borrowed = collections.Counter[str]()
        for ref in EncodedRef.parse_all(ordered):
            field = SplitField.parse(ref.split)
            if field.name:
                counts = borrowed if field.is_borrowed else splits
                counts[field.name.decode()] += 1
        return cls(name, ordered, splits or borrowed)

    def list_open_splits(self) -> list[str]:
        """Returns the splits with images of the group, among which fractions choose; [] for any.

        New images follow the majority of the other images.
        """
        are_all_placed = sum(self.splits.values()) == len(self.refs)
        return sort_splits(self.splits) if are_all_placed else self._list_fullest()

    def _list_fullest(self) -> list[str]:
        """Returns the splits that have the most images of the group, or [] if no split has any."""
        most = max(self.splits.values(), default=0)
        return sort_splits(split for split, images in self.splits.items() if images == most)

    def find_split(self, shares: Collection[str], seed: int) -> str:
        """Returns the split of the group, or an empty string if fractions are to choose it.

        Args:
            shares: splits that have fractions. If a split of the group has no fraction, the group
                goes to the split with most of its images, and a hash of its name breaks ties.
            seed: seed for the hash.
        """
        may_choose = bool(shares) and {*self.splits} <= {*shares}
        splits = self.list_open_splits() if may_choose else self._list_fullest()
        if len(splits) == 1:
            return splits[0]
        if may_choose:
            return ""
        order = order_keys(seed, [self.name], _ORDER)[0]
        return splits[int.from_bytes(order, "big") % len(splits)]

    def count_borrowed(self) -> collections.Counter[str]:
        """Returns split -> number of images of which the split only held a copy."""
        fields = [SplitField.parse(ref.split) for ref in EncodedRef.parse_all(self.refs)]
        return collections.Counter(field.name.decode() for field in fields if field.is_borrowed)

    def encode_refs(self, split: str) -> list[bytes]:
        """Returns the group's encoded references in a split, or in no split if `split` is empty."""
        field = SplitField(split.encode(), b"" if split else self.name, is_final=bool(split))
        return [ref.encode_in(field.encode()) for ref in EncodedRef.parse_all(self.refs)]

    def make_unit(self, counts: ClassCounts, seed: int) -> Unit:
        """Creates the unit for a group whose split is chosen by fractions."""
        images = collections.Counter[str]()
        for ref in EncodedRef.parse_all(self.refs):
            images.update(_list_classes(ref.labels, is_rejected=bool(ref.reason)))
        if len(images) > 1:
            del images[REJECTED]
        splits = tuple(self.list_open_splits())
        kind = GroupKind(tuple(sorted(images.items())), splits)
        rarest = counts.find_rarest(images)
        coarse = GroupKind(((rarest, images[rarest]),), splits)
        (order,) = order_keys(seed, [self.name], _ORDER)
        return Unit(kind.encode(), order, coarse.encode())


@dataclasses.dataclass(slots=True)
class StrataSurvey:
    """A survey of the units to be placed in each stratum.

    Attributes:
        units: stratum -> number of units.
        buckets: stratum -> number of units in each bucket of the order.
    """

    units: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    buckets: dict[str, Histogram] = dataclasses.field(default_factory=dict)

    def add(self, units: Iterable[Unit]) -> None:
        """Counts units."""
        units = [*units]
        buckets_of_stratum = collections.defaultdict[str, list[int]](list)
        buckets = buckets_of([unit.order for unit in units], BUCKET_BITS)
        for unit, bucket in zip(units, buckets, strict=True):
            buckets_of_stratum[unit.stratum].append(bucket)
        for stratum, of_stratum in buckets_of_stratum.items():
            self.units[stratum] += len(of_stratum)
            self._histogram(stratum).add(of_stratum)

    def merge(self, other: "StrataSurvey") -> None:
        """Adds the survey of other units."""
        self.units.update(other.units)
        for stratum, histogram in other.buckets.items():
            self._histogram(stratum).merge(histogram)

    def _histogram(self, stratum: str) -> Histogram:
        return self.buckets.setdefault(stratum, Histogram(BUCKET_BITS))


@dataclasses.dataclass(slots=True)
class GroupSurvey:
    """A survey of the groups of each kind to be placed.

    Attributes:
        kinds: survey by the images of all classes of a group; None if there are more than
            `MOST_KINDS` kinds.
        coarse: survey by the images of the rarest class of a group, which makes few kinds.
    """

    kinds: StrataSurvey | None = dataclasses.field(default_factory=StrataSurvey)
    coarse: StrataSurvey = dataclasses.field(default_factory=StrataSurvey)

    def add(self, units: Iterable[Unit]) -> None:
        """Counts units of groups."""
        units = [*units]
        self.coarse.add(unit._replace(stratum=unit.coarse) for unit in units)
        if self.kinds:
            self.kinds.add(units)
            self._limit_kinds()

    def merge(self, other: "GroupSurvey") -> None:
        """Adds the survey of other units."""
        self.coarse.merge(other.coarse)
        if self.kinds and other.kinds:
            self.kinds.merge(other.kinds)
            self._limit_kinds()
        else:
            self.kinds = None

    def _limit_kinds(self) -> None:
        if self.kinds and len(self.kinds.units) > MOST_KINDS:
            self.kinds = None


class _Cut(NamedTuple):
    """A cut in the order of a stratum.

    Attributes:
        number: number of the split that begins at the cut, from 1.
        rank: number of units before the cut in its bucket.
    """

    number: int
    rank: int


@dataclasses.dataclass(frozen=True, slots=True)
class StrataDraft:
    """The buckets that contain the cuts.

    Attributes:
        splits: stratum -> the splits of its units, in order.
        cuts: bucket -> the cuts in the bucket.
        are_coarse: whether the coarse strata of the units are used.
    """

    splits: dict[str, tuple[str, ...]]
    cuts: dict[Bucket, list[_Cut]]
    are_coarse: bool = False

    def find_candidates(self, units: Sequence[Unit]) -> Iterator[tuple[Bucket, bytes]]:
        """Yields (bucket, place in the order) for each unit in a bucket with cuts."""
        buckets = buckets_of([unit.order for unit in units], BUCKET_BITS)
        for unit, number in zip(units, buckets, strict=True):
            stratum = unit.coarse if self.are_coarse else unit.stratum
            if (stratum, number) in self.cuts:
                yield (stratum, number), unit.order

    def pick_cuts(self, bucket: Bucket, orders: Iterable[bytes]) -> list[tuple[int, bytes]]:
        """Returns the (number, place) of each cut in a bucket, from its places in any order."""
        places = [*sorted(orders), _end_of_bucket(bucket[1])]
        return [(cut.number, places[cut.rank]) for cut in self.cuts[bucket]]

    def finish(self, picked: Iterable[tuple[Bucket, Sequence[tuple[int, bytes]]]]) -> "StrataCuts":
        """Returns all cuts, given the cuts picked in each bucket."""
        cuts = {stratum: [_END] * (len(splits) - 1) for stratum, splits in self.splits.items()}
        for (stratum, _), of_bucket in picked:
            for number, place in of_bucket:
                cuts[stratum][number - 1] = place
        return StrataCuts(self.splits, cuts, self.are_coarse)


def _end_of_bucket(number: int) -> bytes:
    """Returns the first place in the order that is after a bucket."""
    following = number + 1
    if following >> BUCKET_BITS:
        return _END
    return (following << (8 * ORDER_BYTES - BUCKET_BITS)).to_bytes(ORDER_BYTES, "big")


@dataclasses.dataclass(frozen=True, slots=True)
class StrataCuts:
    """The places where splits begin in the order of each stratum.

    Attributes:
        splits: stratum -> the splits of its units, in order.
        cuts: stratum -> the places at which the second, third, … split begins.
        are_coarse: whether the coarse strata of the units are used.
    """

    splits: dict[str, tuple[str, ...]]
    cuts: dict[str, list[bytes]]
    are_coarse: bool

    def choose_split(self, unit: Unit) -> str:
        """Returns the split of a unit."""
        stratum = unit.coarse if self.are_coarse else unit.stratum
        number = bisect.bisect_right(self.cuts[stratum], unit.order)
        return self.splits[stratum][number]


def draft_images(
    survey: StrataSurvey, counts: ClassCounts, shares: Mapping[str, Fraction]
) -> StrataDraft:
    """Finds the buckets that contain the cuts between splits, for the images of each class.

    Args:
        survey: survey of the images to place.
        counts: the number of images of each class, and of each class in each split.
        shares: split -> fraction.
    """
    divider = Divider(shares)
    divided = dict[str, Mapping[str, int]]()
    for name in sorted(survey.units):
        present = {split: counts.placed[name, split] for split in shares}
        numbers = divider.divide(survey.units[name], present)
        divided[name] = dict(zip(shares, numbers, strict=True))
    return _draft_strata(survey, divided)


def draft_groups(
    survey: GroupSurvey, counts: ClassCounts, shares: Mapping[str, Fraction], seed: int
) -> StrataDraft:
    """Finds the buckets that contain the cuts between splits, for the groups of each kind.

    Args:
        survey: survey of the groups to place.
        counts: the number of images of each class, and of each class in each split.
        shares: split -> fraction.
        seed: decides which of two kinds is divided first.
    """
    strata = survey.kinds or survey.coarse
    kinds = {GroupKind.decode(stratum): groups for stratum, groups in strata.units.items()}
    divider = GroupDivider(
        shares, images=counts.images, placed=counts.placed, single=counts.single, kinds=kinds
    )
    divided = {kind.encode(): numbers for kind, numbers in divider.divide(seed).items()}
    return _draft_strata(strata, divided, are_coarse=survey.kinds is None)


def _draft_strata(
    survey: StrataSurvey, divided: Mapping[str, Mapping[str, int]], *, are_coarse: bool = False
) -> StrataDraft:
    """Finds the buckets that contain the cuts.

    Args:
        divided: stratum -> split -> number of units that the split gets.
    """
    splits_of = dict[str, tuple[str, ...]]()
    cuts = dict[Bucket, list[_Cut]]()
    for stratum, numbers in divided.items():
        splits_of[stratum] = tuple(numbers)
        firsts = [*itertools.accumulate(numbers.values())][:-1]
        located = survey.buckets[stratum].locate(firsts)
        for number, (bucket, rank) in enumerate(located, 1):
            cuts.setdefault((stratum, bucket), []).append(_Cut(number, rank))
    return StrataDraft(splits_of, cuts, are_coarse)


def regroup(refs: Iterable[bytes], layout: Layout) -> Iterator[bytes]:
    """Yields encoded references in splits, with the groups that a layout finds in their keys."""
    for encoded in refs:
        ref = EncodedRef.parse(encoded)
        group = layout.group_of(to_text(ref.key))
        if group is not None and ref.split != _NO_SPLIT:
            encoded = ref.encode_in(ref.split + to_bytes(open_split(group)))
        yield encoded


def update_splits(
    refs: Iterable[bytes],
    splits: Mapping[bytes, bytes] | None,
    groups: Mapping[bytes, bytes],
    copied: Mapping[bytes, bytes] | None = None,
) -> Iterator[bytes]:
    """Yields encoded references with their known splits and groups.

    Args:
        refs: encoded references.
        splits: key -> the split that the image is in, and stays in; other images are not in a split
            yet. None if each image is in the split of its reference.
        groups: key -> the group that replaces the group of the reference.
        copied: key -> the split of a copy, for images that are no longer rejects.
    """
    copied = copied or {}
    for encoded in refs:
        ref = EncodedRef.parse(encoded)
        field = SplitField.parse(ref.split)
        if field.name == _NO_SPLIT:
            yield encoded
            continue
        group = groups.get(ref.key, field.group)
        name = field.name if splits is None else splits.get(ref.key, b"")
        is_borrowed = ref.key in copied and not ref.reason
        if is_borrowed:
            name = copied[ref.key]
        is_final = bool(name) and not group
        yield ref.encode_in(SplitField(name, group, is_final, is_borrowed).encode())
