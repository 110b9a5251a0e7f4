"""Counts the images of a shard, and checks the order of its items."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfr.images import geometry
from beam_tfr.records.contents import ContentsColumn
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.feature_names import HEIGHT, SOURCE_HEIGHT, SOURCE_WIDTH, WIDTH
from beam_tfr.schema.items import Item
from beam_tfr.schema.plan import Counts, Shard, size_bucket

_SIDES = (HEIGHT, WIDTH, SOURCE_HEIGHT, SOURCE_WIDTH)


def count_images(rows: Any, columns: Mapping[str, ContentsColumn], sums: Sequence[bytes]) -> Counts:
    """Computes the counts of a shard of images from the contents of the shard.

    Args:
        rows: `pyarrow.Table` with the contents of the records.
        columns: result of `contents_columns`.
        sums: as in `sidecars.Sidecar`.
    """
    counts = Counts(adjusted=_count_adjusted(rows))
    sizes = collections.Counter[tuple[int, int, int, int]]()
    measured = list[tuple[int, ...]]()  # pixels, channels' sums, channels' squares
    sides = [rows[columns[name].name].to_pylist() for name in _SIDES]
    for height, width, source_height, source_width, text in zip(*sides, sums, strict=True):
        if height is None:  # a step of the user made another kind of record
            continue
        sizes[height, width, source_height, source_width] += 1
        if text:
            channels = map(int, text.split())
            measured.append((height * width, *channels))
    for (height, width, source_height, source_width), number in sizes.items():
        bucket = size_bucket(source_height, source_width)
        counts.source_sizes[bucket] = counts.source_sizes.get(bucket, 0) + number
        placed = geometry.compute_placement(source_height, source_width, (height, width), "crop")
        counts.cut_ppm += number * geometry.compute_cut_ppm(placed, source_height, source_width)
    if measured:
        counts.pixels, *totals = map(sum, zip(*measured, strict=True))
        number = len(totals) // 2
        counts.channel_sums = totals[:number]
        counts.channel_squares = totals[number:]
    return counts


def _count_adjusted(rows: Any) -> dict[str, int]:
    """Returns adjustment -> number of records; commas separate adjustments in the contents."""
    counter = collections.Counter[str]()
    for text in rows["adjusted"].to_pylist():
        if text:
            counter.update(text.split(","))
    return dict(counter)


class Sequencer:
    """A check that all items of a shard arrive in order before the next shard begins.

    A runner that puts a shuffle or a bundle boundary between the stages breaks this order. Its run
    must fail, rather than write a short shard.
    """

    def __init__(self) -> None:
        self.shard: Shard | None = None
        self._next = 0

    def check_order(self, item: Item) -> None:
        """Checks that an item is the next one.

        Raises:
            RunError: another item was expected.
        """
        expected = self.shard or item.shard
        if (item.shard, item.position) != (expected, self._next):
            raise _torn_apart(
                f"got {item.shard.name} position {item.position}, "
                f"expected {expected.name} position {self._next}"
            )

    def advance(self, item: Item) -> bool:
        """Moves past an item; returns whether it was the last item of its shard."""
        self.shard = item.shard
        self._next = self._next + (item.images or 1)
        if self._next < item.shard.total:
            return False
        self.shard = None
        self._next = 0
        return True

    def check_closed(self) -> None:
        """Checks that no shard is incomplete.

        Raises:
            RunError: a shard lacks its last item.
        """
        if self.shard is not None:
            raise _torn_apart(
                f"shard {self.shard.name} ended at {self._next} of {self.shard.total} images"
            )


def _torn_apart(detail: str) -> RunError:
    """Creates the exception for a runner that does not keep the items of a shard together."""
    return RunError(
        "this runner did not keep the images of a shard together "
        f"(a stage between ReadImages and WriteShards was not fused): {detail}"
    )
