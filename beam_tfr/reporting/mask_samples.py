"""What some masks tell that counts of all do not: values by split, in margins, and odd masks."""

import collections
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.features.companions import SegmentationMask
from beam_tfr.features.gray_png import decode_stored
from beam_tfr.features.shapes import shown_size
from beam_tfr.inspection.records import InspectedRecord
from beam_tfr.reporting.histograms import Floats, Rows
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.feature_names import MASK, SOURCE_HEIGHT, SOURCE_WIDTH
from beam_tfr.schema.naming import parse_shard_names

_MOST_MASKS = 400
_MOST_PIXELS = 1 << 28  # of all masks, 268 million
_RECORDS_AT_A_TIME = 32
_GRID = 16  # rows and columns at which masks are compared
_LEAST_EXPECTED = 5  # masks of a split that should have a value which none has
_LEAST_COMPARED = 30  # masks, to say which are odd
_ODD = 6  # times as far from the median as half of the masks
_EDGE = 2  # pixels beside margins that may be theirs


class MissingValue(NamedTuple):
    """A value that no mask of a split has, of those that were looked at.

    Attributes:
        value: the value.
        split: the split.
        number: of its masks that were looked at.
        share: of the masks of other splits have it.
    """

    value: int
    split: str
    number: int
    share: float


class MaskSamples(NamedTuple):
    """What some masks tell.

    Attributes:
        missing: values that splits lack.
        margin: the value of margins, if masks have it within the image too; None if not.
        margin_share: share of the masks that have it within the image.
        unlike: records whose masks are the least like the others.
        odd: those of them that are unlike beyond doubt.
    """

    missing: Sequence[MissingValue] = ()
    margin: int | None = None
    margin_share: float = 0
    unlike: Sequence[int] = ()
    odd: Sequence[int] = ()


class _Mask(NamedTuple):
    """A mask that was looked at.

    Attributes:
        record: its number.
        split: its split.
        values: in it.
        inside: values within the image, where margins are around it; None without margins.
        grid: the values at some places: [cells].
    """

    record: int
    split: str
    values: frozenset[int]
    inside: frozenset[int] | None
    grid: NDArray[Any]


def look_at_masks(dataset: Manifest, *, number: int) -> MaskSamples:
    """Looks at some masks of each split, evenly spread over its records.

    Args:
        dataset: the dataset.
        number: of records that are shown as the least alike.

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
    order, odd = _find_unlike(masks)
    return MaskSamples(
        missing=[*_find_missing(masks)],
        margin=margin if inside else None,
        margin_share=len(inside) / max(len(padded), 1),
        unlike=order[:number],
        odd=odd,
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
                # Other programs may write other values.
                with contextlib.suppress(LookupError, TypeError, ValueError):
                    values = decode_stored(stored[MASK][0], shown_size(stored))
                    pixels -= values.size
                    yield _describe_mask(number, split, values, stored)
            if pixels < 0:
                break


def _choose_records(dataset: Manifest) -> dict[str, list[int]]:
    """Split -> numbers of some of its records, in their order."""
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
    return _Mask(record, split, _list_values(values), inside, grid)


def _list_values(pixels: NDArray[Any]) -> frozenset[int]:
    return frozenset(np.flatnonzero(np.bincount(pixels.ravel())).tolist())


def _cut_margins(values: NDArray[Any], height: int, width: int) -> NDArray[Any] | None:
    """The pixels of a mask within its image, of a source of this size; None without margins."""
    shown_height, shown_width = values.shape
    scale = min(shown_height / height, shown_width / width)
    top = int((shown_height - height * scale) / 2)
    left = int((shown_width - width * scale) / 2)
    if top <= _EDGE and left <= _EDGE:
        return None
    top += _EDGE
    left += _EDGE
    return values[top : shown_height - top, left : shown_width - left]


def _find_missing(masks: Sequence[_Mask]) -> Iterator[MissingValue]:
    numbers = collections.Counter(mask.split for mask in masks)
    counts = collections.Counter((mask.split, value) for mask in masks for value in mask.values)
    totals = collections.Counter(value for mask in masks for value in mask.values)
    for split in sort_splits(numbers):
        others = len(masks) - numbers[split]
        for value, total in sorted(totals.items()):
            share = total / max(others, 1)
            if not counts[split, value] and share * numbers[split] >= _LEAST_EXPECTED:
                yield MissingValue(value, split, numbers[split], share)


def _find_unlike(masks: Sequence[_Mask]) -> tuple[list[int], list[int]]:
    """Records by how unlike the others their masks are, and those that are so beyond doubt."""
    if len(masks) < _LEAST_COMPARED:
        return [], []
    likeness = _compare(np.stack([mask.grid for mask in masks]))
    order = np.argsort(likeness, kind="stable")
    low, middle = np.percentile(likeness, [25, 50])
    is_odd = likeness < middle - _ODD * max(middle - low, 0.05)
    records = np.array([mask.record for mask in masks])
    return records[order].tolist(), records[order[is_odd[order]]].tolist()


def _compare(grids: NDArray[Any]) -> Floats:
    """How usual the values of each mask are at their places, as a mean of logarithms: [masks]."""
    usual = np.zeros(grids.shape, np.float64)
    values: Rows = np.unique(grids)
    for value in values:
        has_value = grids == value
        share = (has_value.sum(axis=0) + 1) / (len(grids) + len(values))
        usual += np.log(share) * has_value
    likeness: Floats = usual.mean(axis=1)
    return likeness
