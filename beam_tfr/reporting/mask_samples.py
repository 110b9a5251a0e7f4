"""Examines some masks more closely than counts do: values by split, margins, and odd masks."""

import collections
import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.features.companions import SegmentationMask
from beam_tfr.features.gray_png import decode_stored
from beam_tfr.features.shapes import shown_size
from beam_tfr.inspection.pictures import read_square
from beam_tfr.inspection.records import InspectedRecord
from beam_tfr.reporting.histograms import Floats
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.feature_names import MASK, SOURCE_HEIGHT, SOURCE_WIDTH
from beam_tfr.schema.naming import parse_shard_names

_MOST_MASKS = 400
_MOST_VALUES = 1_000  # in a mask; a mask with more shows depth or noise, not classes
_MOST_PIXELS = 1 << 28  # in all masks together: 268 million
_RECORDS_AT_A_TIME = 32
_GRID = 16  # rows and columns at which masks are compared
_LEAST_EXPECTED = 5  # expected number of masks in a split with a value that none has
_LEAST_COMPARED = 30  # masks needed to tell which are odd
_ODD = 6  # times as far from the median as half of the masks
_EDGE = 2  # pixels next to margins that may belong to them
_NEARLY_ALL = 0.95  # fraction of masks
_MOST_WRONG = 0.1  # fraction of masks; if more differ, these are not mistakes
_FIT_SIDE = 96  # pixels of the square on which edges are compared
_LEAST_STRENGTH = 1  # mean strength of an image's edges, 0 to 765; with less, it is flat
_POOR_FIT = 1.5  # a mask at a random place has a fit of about 1
_USUAL_FIT = 2  # median fit if masks match their images; with less, fits mean little


class MissingValue(NamedTuple):
    """A value that no mask of a split has, among the masks that were examined.

    Attributes:
        value: the value.
        split: name of the split.
        number: number of masks examined in the split, not counting copies from other splits.
        num_copies: number of copies from other splits that have the value.
        share: fraction of the masks in other splits that have the value.
    """

    value: int
    split: str
    number: int
    num_copies: int
    share: float


class Misfit(NamedTuple):
    """A mask whose edges barely match those of its image.

    Attributes:
        record: number of the record.
        fit: how many times stronger the image's edges are at the mask's edges than elsewhere.
    """

    record: int
    fit: float


class LackingMask(NamedTuple):
    """A mask that lacks values that nearly all others have.

    Attributes:
        record: number of the record.
        values: the values that the mask lacks.
        is_empty: whether the mask has only one value.
    """

    record: int
    values: list[int]
    is_empty: bool


class ValueCount(NamedTuple):
    """The number of masks that have a value.

    Attributes:
        value: the value.
        splits: split -> number of masks with the value, among those examined.
    """

    value: int
    splits: Mapping[str, int]


class MaskSamples(NamedTuple):
    """The results of examining some masks.

    Attributes:
        missing: values that splits lack.
        margin: the value of margins, if masks have it within the image too; otherwise None.
        margin_share: fraction of the masks that have this value within the image.
        unlike: the masks, starting with those whose edges match their images least.
        misfits: masks among these that certainly do not match their images.
        odd: records whose masks have values in places where others hardly ever have them.
        lacking: masks that lack values that nearly all others have.
        rare: value -> record, for values that only one mask has.
        numbers: split -> number of masks that were examined.
        counts: for each value, the number of masks in each split.
    """

    missing: Sequence[MissingValue] = ()
    margin: int | None = None
    margin_share: float = 0
    unlike: Sequence[Misfit] = ()
    misfits: Sequence[Misfit] = ()
    odd: Sequence[int] = ()
    lacking: Sequence[LackingMask] = ()
    rare: Mapping[int, int] = MappingProxyType({})
    numbers: Mapping[str, int] = MappingProxyType({})
    counts: Sequence[ValueCount] = ()


class _Mask(NamedTuple):
    """A mask that was examined.

    Attributes:
        record: number of the record.
        split: name of the split.
        values: the values in the mask.
        inside: the values within the image; None if the mask has no margins.
        grid: the values at some places: [cells].
        fit: see `Misfit`; NaN if the mask or the image has no edges.
    """

    record: int
    split: str
    values: frozenset[int]
    inside: frozenset[int] | None
    grid: NDArray[Any]
    fit: float


def look_at_masks(dataset: Manifest, copied: Collection[int]) -> MaskSamples:
    """Examines some masks from each split, evenly spread over its records.

    Args:
        dataset: the dataset.
        copied: records with copies in other splits; their masks do not count when a split lacks a
            value.

    Raises:
        DataError: a record is damaged, or the dataset was replaced.
    """
    kinds = [
        kind for kind in dataset.feature_kinds.companions if isinstance(kind, SegmentationMask)
    ]
    if not kinds:
        return MaskSamples()
    masks = [*_read_masks(dataset)]
    margin = kinds[0].handling.outside
    padded = [mask for mask in masks if mask.inside is not None]
    inside = [mask for mask in padded if mask.inside and margin in mask.inside]
    unlike = _order_by_fit(masks)
    counts = _count_values(masks)
    return MaskSamples(
        missing=[*_find_missing(masks, copied)],
        margin=margin if inside else None,
        margin_share=len(inside) / max(len(padded), 1),
        unlike=unlike,
        misfits=_find_misfits(unlike),
        odd=_find_odd(masks),
        lacking=_find_lacking(masks),
        rare=_find_rare(masks),
        numbers=collections.Counter(mask.split for mask in masks),
        counts=counts,
    )


def _read_masks(dataset: Manifest) -> Iterator[_Mask]:
    lookup = RecordLookup.whole(dataset)
    chosen = _choose_records(dataset)
    for split, numbers in chosen.items():
        pixels = _MOST_PIXELS // len(chosen)
        for begin in range(0, len(numbers), _RECORDS_AT_A_TIME):
            some = numbers[begin : begin + _RECORDS_AT_A_TIME]
            for number, data in zip(some, lookup.read_records(some), strict=True):
                stored = InspectedRecord(number, "", 0, data).values
                # Masks from other programs may have unexpected values.
                with contextlib.suppress(LookupError, TypeError, ValueError, ArithmeticError):
                    values = decode_stored(stored[MASK][0], shown_size(stored))
                    pixels -= values.size
                    mask = _describe_mask(number, split, values, stored)
                    if len(mask.values) <= _MOST_VALUES:
                        yield mask
            if pixels < 0:
                break


def _choose_records(dataset: Manifest) -> dict[str, list[int]]:
    """Maps each split to the numbers of some of its records, in order."""
    records = collections.defaultdict[str, list[range]](list)
    first = 0
    for shard in dataset.shards:
        split = parse_shard_names(shard.file).split
        records[split].append(range(first, first + shard.num_examples))
        first += shard.num_examples
    chosen = {}
    for split, ranges in records.items():
        ends = np.cumsum([len(numbers) for numbers in ranges])
        most = min(_MOST_MASKS // len(records), int(ends[-1]))
        places = np.linspace(0, ends[-1] - 1, most).astype(np.int64)
        parts = np.searchsorted(ends, places, side="right")
        starts = np.array([numbers.start for numbers in ranges])
        before = ends - [len(numbers) for numbers in ranges]
        chosen[split] = (starts[parts] + places - before[parts]).tolist()
    return chosen


def _describe_mask(
    record: int, split: str, values: NDArray[Any], stored: Mapping[str, Sequence[Any]]
) -> _Mask:
    rows = np.linspace(0, values.shape[0] - 1, _GRID).astype(np.int64)
    columns = np.linspace(0, values.shape[1] - 1, _GRID).astype(np.int64)
    grid = values[np.ix_(rows, columns)].ravel()
    content = _cut_margins(values, stored[SOURCE_HEIGHT][0], stored[SOURCE_WIDTH][0])
    inside = None if content is None else _list_values(content)
    fit = _measure_fit(values, stored)
    return _Mask(record, split, _list_values(values), inside, grid, fit)


def _measure_fit(values: NDArray[Any], stored: Mapping[str, Sequence[Any]]) -> float:
    """Measures how much stronger the image's edges are at the mask's edges than elsewhere."""
    image = read_square(stored, _FIT_SIDE)
    if image is None:
        return np.nan
    rows = np.linspace(0, values.shape[0] - 1, _FIT_SIDE).round().astype(np.int64)
    columns = np.linspace(0, values.shape[1] - 1, _FIT_SIDE).round().astype(np.int64)
    mask = values[np.ix_(rows, columns)].astype(np.int64)
    pixels = image.astype(np.float64)
    steps = []
    edges = []
    for axis in (0, 1):
        steps.append(np.abs(np.diff(pixels, axis=axis)).sum(axis=2).ravel())
        edges.append((np.diff(mask, axis=axis) != 0).ravel())
    strength = np.concatenate(steps)
    is_edge = np.concatenate(edges)
    if not is_edge.any() or strength.mean() < _LEAST_STRENGTH:
        return np.nan
    return float(strength[is_edge].mean() / strength.mean())


def _list_values(pixels: NDArray[Any]) -> frozenset[int]:
    return frozenset(np.flatnonzero(np.bincount(pixels.ravel())).tolist())


def _cut_margins(values: NDArray[Any], height: int, width: int) -> NDArray[Any] | None:
    """Returns the part of a mask that covers its image; None if there are no margins.

    Args:
        values: the mask [height, width].
        height, width: size of the source image.
    """
    shown_height, shown_width = values.shape
    scale = min(shown_height / height, shown_width / width)
    top = int((shown_height - height * scale) / 2)
    left = int((shown_width - width * scale) / 2)
    if top <= _EDGE and left <= _EDGE:
        return None
    top += _EDGE
    left += _EDGE
    return values[top : shown_height - top, left : shown_width - left]


def _find_missing(masks: Sequence[_Mask], copied: Collection[int]) -> Iterator[MissingValue]:
    originals = [mask for mask in masks if mask.record not in copied]
    copies = [mask for mask in masks if mask.record in copied]
    numbers = collections.Counter(mask.split for mask in originals)
    counts = _count_values(originals)
    copies_with = {count.value: count.splits for count in _count_values(copies)}
    for split in sort_splits(numbers):
        others = len(originals) - numbers[split]
        for value, having in counts:
            share = sum(having.values()) / max(others, 1)
            if split not in having and share * numbers[split] >= _LEAST_EXPECTED:
                num_copies = copies_with.get(value, {}).get(split, 0)
                yield MissingValue(value, split, numbers[split], num_copies, share)


def _count_values(masks: Sequence[_Mask]) -> list[ValueCount]:
    counts = collections.defaultdict[int, collections.Counter[str]](collections.Counter)
    for mask in masks:
        for value in mask.values:
            counts[value][mask.split] += 1
    return [ValueCount(value, counts[value]) for value in sorted(counts)]


def _find_rare(masks: Sequence[_Mask]) -> dict[int, int]:
    """Finds values that only one mask has, as value -> record."""
    records = collections.defaultdict[int, list[int]](list)
    for mask in masks:
        for value in mask.values:
            records[value].append(mask.record)
    return {value: having[0] for value, having in sorted(records.items()) if len(having) == 1}


def _find_lacking(masks: Sequence[_Mask]) -> list[LackingMask]:
    """Finds masks that lack values that nearly all others have; those that lack most come first."""
    if len(masks) < _LEAST_COMPARED:
        return []
    totals = collections.Counter(value for mask in masks for value in mask.values)
    usual = {value for value, total in totals.items() if total >= _NEARLY_ALL * len(masks)}
    lacking = []
    for mask in masks:
        lacked = sorted(usual - mask.values)
        is_empty = len(mask.values) == 1
        if lacked:
            lacking.append(LackingMask(mask.record, lacked, is_empty))
    return sorted(lacking, key=lambda mask: (-len(mask.values), mask.record))


def _order_by_fit(masks: Sequence[_Mask]) -> list[Misfit]:
    """Sorts masks by how well their edges match those of their images, the worst first."""
    known = [Misfit(mask.record, mask.fit) for mask in masks if not np.isnan(mask.fit)]
    return sorted(known, key=lambda mask: (mask.fit, mask.record))


def _find_misfits(ordered: Sequence[Misfit]) -> list[Misfit]:
    """Finds masks that do not match their images, provided that nearly all other masks do."""
    if len(ordered) < _LEAST_COMPARED or ordered[len(ordered) // 2].fit < _USUAL_FIT:
        return []
    misfits = [mask for mask in ordered if mask.fit < _POOR_FIT]
    return misfits if len(misfits) <= _MOST_WRONG * len(ordered) else []


def describe_fit(fit: float) -> str:
    """Describes how well a mask fits its image."""
    return f"edges {fit:.1f} times as strong as elsewhere"


def _find_odd(masks: Sequence[_Mask]) -> list[int]:
    """Finds masks with values in places where others hardly ever have them, the oddest first."""
    if len(masks) < _LEAST_COMPARED:
        return []
    likeness = _compare(np.stack([mask.grid for mask in masks]))
    order = np.argsort(likeness, kind="stable")
    low, middle = np.percentile(likeness, [25, 50])
    is_odd = likeness < middle - _ODD * max(middle - low, 0.05)
    records = np.array([mask.record for mask in masks])
    odd: list[int] = records[order[is_odd[order]]].tolist()
    return odd


def _compare(grids: NDArray[Any]) -> Floats:
    """Returns how usual each mask's values are at their places: mean logarithms [masks]."""
    num_masks, num_places = grids.shape
    values, numbers = np.unique(grids, return_inverse=True)
    # One number for each value at each place, so the time does not grow with masks times values.
    pairs = numbers.reshape(grids.shape) * num_places + np.arange(num_places)
    _, kinds, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    shares = (counts + 1) / (num_masks + len(values))
    usual = np.log(shares)[kinds].reshape(grids.shape)
    likeness: Floats = usual.mean(axis=1)
    return likeness
