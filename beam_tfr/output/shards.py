"""Counts the images of a shard, and checks the order of its items."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_tfr.images import geometry
from beam_tfr.records.contents import ContentsColumn
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.feature_names import HEIGHT, SOURCE_HEIGHT, SOURCE_WIDTH, WIDTH
from beam_tfr.schema.items import Item
from beam_tfr.schema.plan import Counts, Shard, size_bucket


def count_images(rows: Any, columns: Mapping[str, ContentsColumn], sums: Sequence[bytes]) -> Counts:
    """The counts of a shard of images that follow from the contents of its records.

    Args:
        rows: their `pyarrow.Table` of contents.
        columns: those of `contents_columns`.
        sums: as in `sidecars.Sidecar`.
    """
    kinds = [kind for text in rows["adjusted"].to_pylist() if text for kind in text.split(",")]
    counts = Counts(adjusted=dict(collections.Counter(kinds)))
    sides = (
        rows[columns[name].name].to_pylist()
        for name in (HEIGHT, WIDTH, SOURCE_HEIGHT, SOURCE_WIDTH)
    )
    images = [
        row for row in zip(*sides, sums, strict=True) if row[0] is not None
    ]  # a step may make other records
    for (height, width, source_height, source_width), number in collections.Counter(
        row[:4] for row in images
    ).items():
        bucket = size_bucket(source_height, source_width)
        counts.source_sizes[bucket] = counts.source_sizes.get(bucket, 0) + number
        placed = geometry.compute_placement(source_height, source_width, (height, width), "crop")
        counts.cut_ppm += number * geometry.compute_cut_ppm(placed, source_height, source_width)
    measured = [
        (height * width, *map(int, text.split())) for height, width, _, _, text in images if text
    ]
    counts.pixels, *channels = map(sum, zip(*measured, strict=True)) if measured else (0,)
    counts.channel_sums = channels[: len(channels) // 2]
    counts.channel_squares = channels[len(channels) // 2 :]
    return counts


class Sequencer:
    """Checks that all items of a shard arrive in order before the next one begins.

    A runner that puts a shuffle or a bundle boundary between the stages breaks this, and must fail
    loudly rather than write a short shard.
    """

    def __init__(self) -> None:
        self.shard: Shard | None = None
        self._next = 0

    def take(self, item: Item, begin: Callable[[Shard], None]) -> bool:
        """Takes the next item of a shard; returns whether it was the last.

        Args:
            item: the item.
            begin: called before the first item of a shard.

        Raises:
            RunError: another item was expected.
        """
        expected = self.shard or item.shard
        if (item.shard, item.position) != (expected, self._next):
            got = f"{item.shard.name} position {item.position}"
            raise RunError(f"{_BROKEN}: got {got}, expected {expected.name} position {self._next}")
        if self.shard is None:
            begin(item.shard)
        self.shard = item.shard
        self._next = self._next + (item.images or 1)
        if self._next < item.shard.total:
            return False
        self.shard = None
        self._next = 0
        return True

    def check_closed(self) -> None:
        """Checks that no shard is open.

        Raises:
            RunError: a shard lacks its last item.
        """
        if self.shard is not None:
            raise RunError(
                f"{_BROKEN}: shard {self.shard.name} ended at {self._next} of {self.shard.total} images"
            )


_BROKEN = "this runner did not keep the images of a shard together (a stage between ReadImages and WriteShards was not fused)"
