"""Counts the records and rejects of a shard, and checks the order of its items."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from beam_tfr.records.box_counts import add_boxes
from beam_tfr.records.examples import parse_example
from beam_tfr.records.shard_file import ShardFile
from beam_tfr.schema.dataset import RecordsDigest
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.items import Copied, ImageRef, Item, Record, Reject
from beam_tfr.schema.plan import Shard, ShardInfo, add_each, size_bucket


class ShardCounter:
    """Counts the records and rejects of a shard; `close` gives its `ShardInfo`."""

    def __init__(self, shard: Shard) -> None:
        self._info = ShardInfo(shard=shard)
        self._records = RecordsDigest()
        self.reject_lines: list[str] = []

    def count_record(self, record: Record, label_ids: Iterable[int], before: str = "") -> None:
        self._records.add(record.serialized)
        if before:
            _count(self._info.before, before)
        info = self._info  # without a `Counts` for each record, which takes longer than to count
        info.num_examples += 1
        for label_id in label_ids:
            if label_id >= 0:
                _count(info.class_counts, label_id)
        if image := record.image:
            for kind in image.adjusted:
                _count(info.adjusted, kind)
            info.pixels += image.height * image.width if image.channel_sums else 0
            info.channel_sums = add_each(info.channel_sums, image.channel_sums)
            info.channel_squares = add_each(info.channel_squares, image.channel_squares)
            info.cut_ppm += image.cut_ppm
            _count(info.source_sizes, size_bucket(image.source_height, image.source_width))

    def count_boxes(self, record: Record, ref: ImageRef) -> None:
        with contextlib.suppress(ValueError):  # a step of one's own may make records that are no Examples
            add_boxes(self._info, parse_example(record.serialized), ref.columns)

    def count_copied(self, copied: Copied) -> None:
        self._records.add_frames(copied.frames, copied.sizes)
        self._info.add(copied.counts)

    def count_reject(self, reject: Reject) -> None:
        _count(self._info.rejected, reject.reason)
        self.reject_lines.append(reject.to_json())

    def close(self, file_name: str, file: ShardFile | None) -> ShardInfo:
        if file is not None:
            self._info.file = file_name
            self._info.num_bytes = file.num_bytes
            self._info.sha256 = file.sha256
            self._info.records_sha256 = self._records.hexdigest()
        return self._info


def _count(counts: dict[Any, int], key: int | str) -> None:
    counts[key] = counts.get(key, 0) + 1


class Sequencer:
    """Checks that all items of a shard arrive in order before the next one begins.

    A runner that puts a shuffle or a bundle boundary between the stages breaks this, and must fail loudly rather than
    write a short shard.
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
        self.shard, self._next = item.shard, self._next + (item.images or 1)
        if self._next < item.shard.total:
            return False
        self.shard, self._next = None, 0
        return True

    def give_up(self, shard: Shard) -> None:
        """Abandons a shard, whether it is open or not.

        Raises:
            RunError: another shard is open.
        """
        if self.shard == shard:
            self.shard, self._next = None, 0
        self.check_closed()

    def check_closed(self) -> None:
        """Checks that no shard is open.

        Raises:
            RunError: a shard lacks its last item.
        """
        if self.shard is not None:
            raise RunError(f"{_BROKEN}: shard {self.shard.name} ended at {self._next} of {self.shard.total} images")


_BROKEN = (
    "this runner did not keep the images of a shard together (a stage between ReadImages and WriteShards was not fused)"
)
