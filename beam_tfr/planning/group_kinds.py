"""Divides groups of images among splits by the fractions of all their classes, for `stratify=`.

Groups of one kind have equal numbers of images of each class, so they are interchangeable, and it
is enough to decide how many groups of each kind go to each split. One worker can do that, because
it needs only the kinds.

The method is greedy, like `StratifiedGroupKFold` in scikit-learn, and the iterative stratification
by Sechidis, Tsoumakas and Vlahavas ("On the Stratification of Multi-Label Data", ECML PKDD 2011).
Groups with a large part of a class come first. Among the splits that lack images of its classes,
each group goes to the split where the sum of (images - share)^2 / share over the group's classes
falls most.
If every group has a single class, a split exceeds its share of a class by at most the size of the
largest group.
"""

import collections
import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, Self

from beam_tfr.planning.survey import order_keys

_PORTIONS = (
    64  # into which the remaining groups of a kind are divided; the last groups are placed singly
)
_ORDER = b"beam_tfr kinds"


class GroupKind(NamedTuple):
    """What groups that are divided together have in common.

    Attributes:
        images: (class, number of images), sorted.
        splits: the splits in which the groups may be; empty for all splits.
    """

    images: tuple[tuple[str, int], ...]
    splits: tuple[str, ...] = ()

    def encode(self) -> str:
        """Returns the kind as a string."""
        return json.dumps([self.images, self.splits], separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Self:
        """Returns the kind from a string made by `encode`."""
        images, splits = json.loads(text)
        return cls(tuple((name, number) for name, number in images), tuple(splits))


@dataclasses.dataclass(slots=True)
class _OpenClass:
    """A class whose groups are being divided.

    Attributes:
        images: number of all images of the class.
        ideals: the ideal number of these images in each split.
        missing: number of images that each split lacks; negative if a split has more than the ideal
            number.
        empty: splits without the class.
        units: number of groups and single images that are not placed yet.
        can_be_in_each: whether `units` was once enough for all empty splits.
    """

    images: int
    ideals: Sequence[float]
    missing: list[float]
    empty: set[int]
    units: int
    can_be_in_each: bool

    @classmethod
    def begin(
        cls, images: int, *, parts: Sequence[float], present: Sequence[int], units: int
    ) -> Self:
        """Creates the class before any group is placed, with the images that are in splits."""
        ideals = [images * part for part in parts]
        missing = [ideal - number for ideal, number in zip(ideals, present, strict=True)]
        empty = {split for split, number in enumerate(present) if not number}
        return cls(images, ideals, missing, empty, units, can_be_in_each=units >= len(empty))

    @property
    def is_due(self) -> bool:
        """Whether each remaining unit must go to a split without the class."""
        return self.can_be_in_each and self.units <= len(self.empty)

    def place(self, split: int, *, units: int, images: int) -> None:
        """Records that a split gets some units with a total number of images."""
        self.missing[split] -= images
        self.empty.discard(split)
        self.units -= units


class GroupDivider:
    """A divider of groups of several kinds among splits.

    Args:
        shares: split -> fraction; the sum may differ slightly from 1.
        images: class -> number of all images of the class.
        placed: (class, split) -> number of images that are in that split, and stay there.
        single: class -> number of images that are placed later, one by one.
        kinds: kind -> number of groups.
    """

    def __init__(
        self,
        shares: Mapping[str, Fraction],
        *,
        images: Mapping[str, int],
        placed: Mapping[tuple[str, str], int],
        single: Mapping[str, int],
        kinds: Mapping[GroupKind, int],
    ) -> None:
        self._splits = [*shares]
        self._kinds = kinds
        groups_of = collections.Counter[str]()
        for kind, groups in kinds.items():
            for name, _ in kind.images:
                groups_of[name] += groups
        total = sum(shares.values(), Fraction(0))
        parts = [float(share / total) for share in shares.values()]
        self._classes = dict[str, _OpenClass]()
        for name, groups in groups_of.items():
            self._classes[name] = _OpenClass.begin(
                images[name],
                parts=parts,
                present=[placed.get((name, split), 0) for split in self._splits],
                units=groups + single.get(name, 0),
            )

    def divide(self, seed: int) -> dict[GroupKind, dict[str, int]]:
        """Returns how many groups of each kind go to each split; leaves out splits without groups.

        Kinds with a larger part of a class come first. Kinds with similar parts take turns, because
        they may be allowed in different splits; a hash of the seed decides their order.
        """
        numbers = {kind: collections.Counter[int]() for kind in self._kinds}
        for _, kinds in itertools.groupby(self._order_kinds(seed), key=self._rank_kind):
            for kind, split, groups in self._place_in_turns(kinds):
                numbers[kind][split] += groups
        return {kind: self._name_splits(of_kind) for kind, of_kind in numbers.items()}

    def _place_in_turns(self, kinds: Iterable[GroupKind]) -> Iterator[tuple[GroupKind, int, int]]:
        """Places all groups of the given kinds in rounds, a portion of each kind in each round.

        Yields:
            The kind, the split, and how many groups of the kind go to this split.
        """
        left = {kind: self._kinds[kind] for kind in kinds}
        while left:
            for kind, groups in left.items():
                portion = self._limit_portion(kind, max(1, groups // _PORTIONS))
                split = self._choose_split(kind, portion)
                self._place(kind, split, portion)
                yield kind, split, portion
                left[kind] = groups - portion
            left = {kind: groups for kind, groups in left.items() if groups}

    def _name_splits(self, numbers: Mapping[int, int]) -> dict[str, int]:
        return {self._splits[split]: numbers[split] for split in sorted(numbers)}

    def _order_kinds(self, seed: int) -> list[GroupKind]:
        places = dict[GroupKind, tuple[int, bytes]]()
        for kind in self._kinds:
            (order,) = order_keys(seed, [kind.encode().encode()], _ORDER)
            places[kind] = (self._rank_kind(kind), order)
        return sorted(places, key=places.__getitem__)

    def _rank_kind(self, kind: GroupKind) -> int:
        """Returns a sort key, which is smaller for a kind with a larger part of a class."""
        largest = max(number / self._classes[name].images for name, number in kind.images)
        _, exponent = math.frexp(largest)
        return -exponent

    def _limit_portion(self, kind: GroupKind, groups: int) -> int:
        """Returns how many groups may be placed before a split without a class must get one."""
        for name, _ in kind.images:
            of_class = self._classes[name]
            if of_class.empty and of_class.can_be_in_each:
                groups = min(groups, of_class.units - len(of_class.empty))
        return max(1, groups)

    def _choose_split(self, kind: GroupKind, groups: int) -> int:
        allowed = [self._splits.index(split) for split in kind.splits]
        allowed = allowed or [*range(len(self._splits))]
        candidates = self._find_due(kind, allowed) or self._find_short(kind, allowed) or allowed
        return max(candidates, key=functools.partial(self._gain, kind, groups))

    def _find_due(self, kind: GroupKind, allowed: Sequence[int]) -> list[int]:
        """Returns the splits that need a group of this kind now, to get all classes.

        These splits lack a class that has no more units left than there are splits without it.
        """
        due = collections.Counter[int]()
        for name, _ in kind.images:
            of_class = self._classes[name]
            if of_class.is_due:
                due.update(of_class.empty)
        most = max((due[split] for split in allowed), default=0)
        return [split for split in allowed if due[split] == most > 0]

    def _find_short(self, kind: GroupKind, allowed: Sequence[int]) -> list[int]:
        """Returns the splits that lack images of the classes of a kind."""
        short = list[int]()
        for split in allowed:
            parts = [
                number * self._classes[name].missing[split] / self._classes[name].images
                for name, number in kind.images
            ]
            if math.fsum(parts) > 0:  # fsum is the same in every version of Python
                short.append(split)
        return short

    def _gain(self, kind: GroupKind, groups: int, split: int) -> float:
        """Returns the decrease of the sum of (images - share)^2 / share if a split gets groups."""
        gain = 0.0
        for name, number in kind.images:
            of_class = self._classes[name]
            images = groups * number
            gain += images * (2 * of_class.missing[split] - images) / of_class.ideals[split]
        return gain

    def _place(self, kind: GroupKind, split: int, groups: int) -> None:
        for name, number in kind.images:
            self._classes[name].place(split, units=groups, images=groups * number)
