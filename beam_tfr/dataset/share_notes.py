"""Describes classes that `stratify=` could not divide according to the shares of the splits."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Self

from beam_tfr.console.terminal import counted, printable
from beam_tfr.dataset.groups import LargestGroup, find_largest_group
from beam_tfr.dataset.history import read_history
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.dataset import shares_of
from beam_tfr.schema.differences import join_texts

_MOST_NAMES = 10


class _ClassShares(NamedTuple):
    """The numbers of images of a class, or of all images if there are no classes, in each split.

    Attributes:
        name: name of the class; an empty string for all images.
        numbers: split -> number of images.
        ideals: split -> number of images according to the share of the split; may be a fraction.
    """

    name: str
    numbers: Mapping[str, int]
    ideals: Mapping[str, Fraction]

    @classmethod
    def divide(cls, name: str, sizes: Mapping[str, int], shares: Mapping[str, Fraction]) -> Self:
        """Counts the images in each split that has a share; `sizes` may omit empty splits."""
        numbers = {split: sizes.get(split, 0) for split in shares}
        images = sum(numbers.values())
        total = sum(shares.values(), Fraction(0))
        ideals = {split: images * share / total for split, share in shares.items()}
        return cls(name, numbers, ideals)

    @property
    def images(self) -> int:
        return sum(self.numbers.values())

    @property
    def worst_split(self) -> str:
        """The split that is farthest from its share."""
        return max(self.numbers, key=self.gap)

    @property
    def smallest_split(self) -> str:
        """The split with the smallest share."""
        return min(self.ideals, key=lambda split: self.ideals[split])

    def gap(self, split: str) -> Fraction:
        """Returns by how many images a split differs from its share."""
        return abs(self.numbers[split] - self.ideals[split])

    @property
    def is_off(self) -> bool:
        """Whether a split differs from its share by more than one image.

        A split whose share is less than one image still gets an image.
        """
        small_shares = [ideal for ideal in self.ideals.values() if ideal < 1]
        return self.gap(self.worst_split) > 1 + len(small_shares)


def describe_dataset_shares(dataset: Manifest) -> Iterator[str]:
    """Yields the sentences of `describe_shares` for a dataset."""
    sizes = {name: split.num_examples for name, split in dataset.splits.items()}
    yield from describe_shares(
        dataset.splits,
        dataset.class_names,
        dataset.options,
        sizes=sizes,
        find_largest=functools.partial(find_largest_group, dataset),
        other_reasons=_list_other_reasons(dataset),
    )


def _list_other_reasons(dataset: Manifest) -> Iterator[str]:
    """Yields reasons, apart from options, why classes in a dataset may differ from their shares."""
    if dataset.counts["rejected"].keys() - {"duplicate"}:
        yield "rejected images are missing"
    if _was_updated(dataset):
        yield "updates place only new images; `resplit=` divides all images again"


def _was_updated(dataset: Manifest) -> bool:
    """Whether images were added or removed since all images were last divided among the splits."""
    updates = read_history(dataset.folder)
    return bool(updates) and not updates[-1].get("resplit")


def describe_shares(
    splits: Mapping[str, Any],
    class_names: Sequence[str],
    options: Mapping[str, Any],
    *,
    sizes: Mapping[str, int],
    find_largest: Callable[[], LargestGroup | None],
    other_reasons: Iterable[str] = (),
) -> Iterator[str]:
    """Yields sentences about classes that are not divided according to the shares of the splits.

    If there are no classes, the sentences are about all images.

    Args:
        splits: name -> `Split` of a dataset, or `SplitPlan` of a plan.
        class_names: names of all classes.
        options: options of the dataset or plan.
        sizes: split -> number of images.
        find_largest: finds the largest group of images; returns None if the group is not known.
        other_reasons: reasons, apart from options, why classes may differ from their shares.
    """
    shares = shares_of(options)
    if not options.get("stratify") or not shares:
        return
    classes = [_ClassShares.divide("", sizes, shares)]
    if class_names:
        classes = [_share_class(name, splits, shares) for name in class_names]
    present = [entry for entry in classes if entry.images]
    few = [entry for entry in present if entry.images < len(shares)]
    if few:
        yield _describe_few(few, len(shares))
    off = [entry for entry in present if entry.images >= len(shares) and entry.is_off]
    if off:
        whole = _ClassShares.divide("", sizes, shares)
        reasons = [*_list_reasons(options, find_largest, whole), *other_reasons]
        yield _describe_gaps(off, reasons)


def _share_class(
    name: str, splits: Mapping[str, Any], shares: Mapping[str, Fraction]
) -> _ClassShares:
    sizes = {split: splits[split].class_counts.get(name, 0) for split in splits}
    return _ClassShares.divide(name, sizes, shares)


def _list_reasons(
    options: Mapping[str, Any],
    find_largest: Callable[[], LargestGroup | None],
    whole: _ClassShares,
) -> Iterator[str]:
    """Yields the reasons, based on the options, why classes may differ from their shares.

    Args:
        whole: the shares of all images.
    """
    if options.get("duplicates") == "group":
        yield "copies stay together"
    if options.get("duplicates") == "drop":
        yield "copies are dropped, and other images stay in their splits"
    if options.get("group_column") or "{group}" in options.get("layout", ""):
        yield _describe_groups(find_largest(), whole)


def _describe_few(classes: Sequence[_ClassShares], splits: int) -> str:
    """Describes classes that have fewer images than there are splits."""
    names = join_texts([printable(entry.name) for entry in classes], most=_MOST_NAMES)
    return (
        f"some classes have fewer images than there are splits ({splits}), so some splits lack "
        f"these classes: {names}; add images, or use fewer splits"
    )


def _describe_gaps(classes: Sequence[_ClassShares], reasons: Sequence[str]) -> str:
    """Describes classes that differ from their shares."""
    worst = max(classes, key=lambda entry: entry.gap(entry.worst_split))
    split = worst.worst_split
    images = counted(worst.numbers[split], "image")
    instead = f"{images} in {split} instead of {float(worst.ideals[split]):,.1f}"
    if not worst.name:
        subject = "splits differ from their shares by more than one image"
    elif len(classes) == 1:
        subject = f"class {printable(worst.name)} differs from its shares by more than one image"
    else:
        subject = (
            f"{len(classes):,} classes differ from their shares by more than one image, most of "
            f"all {printable(worst.name)}"
        )
    because = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{subject}: {instead}{because}"


def _describe_groups(largest: LargestGroup | None, whole: _ClassShares) -> str:
    """Explains that groups stay together; `whole` holds the shares of all images."""
    if largest is None:
        return "groups stay together, and `beam-tfr plan` names the largest"
    images = counted(largest.images, "image")
    reason = f"groups stay together, and the largest, {printable(largest.name)}, has {images}"
    split = whole.smallest_split
    if largest.images <= whole.ideals[split]:
        return reason
    return (
        f"{reason}, more than the share of {split}: use larger shares, fewer folds or smaller "
        "groups"
    )
