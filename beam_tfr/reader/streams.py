"""The records of an epoch in the order of `beam_tfr.order`, as graph ops.

    parts ──flat_map──▶ records of a stream ──batch──▶ blocks of it
    blocks of all streams ──interleave──▶ blocks ──batch──▶ windows ──flat_map──▶ chunks

A chunk holds records at consecutive positions of the epoch, copied once: from the windows of all
streams. Everything is stateless: the order depends neither on the timing of threads nor on
`tf.random.set_seed`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest, replaced_message
from beam_tfr.dataset.splits import Selection
from beam_tfr.order import FILLER, RECORDS, WINDOW, ArrayOps, Epoch, Order, hash_numbers

BUFFER_BYTES = 256 << 10  # 256 KiB for each open file
_LOST = " is damaged from record "
_ON = f" on (counted from 0); `beam-tfr verify` names the cause; {REPAIR_OR_COPY}"
TENSORFLOW = ArrayOps(tf.experimental.numpy, tf.bitwise.right_shift)
COMPRESSIONS = {"gzip": "GZIP", "none": ""}


class PartTensors:
    """The parts of a selection as tensors."""

    def __init__(self, selection: Selection) -> None:
        counts = np.array([part.take for part in selection.parts], np.int64)
        with (
            tf.init_scope()
        ):  # not part of a function's graph, which TensorFlow copies several times
            self.files = tf.constant([part.file for part in selection.parts], tf.string)
            self.records = tf.constant(
                [part.begin for part in selection.parts], tf.int64
            )  # the first of each, there
            self.counts = tf.constant(counts)
            self.numbers = tf.constant(np.cumsum(counts) - counts)  # of the first example of each

    def locate(self, number: Any) -> tuple[Any, Any]:
        """The file of the example with this number, and its record there, both as text."""
        part = tf.searchsorted(self.numbers, [number], side="right")[0] - 1
        record = tf.gather(self.records, part) + number - tf.gather(self.numbers, part)
        return tf.gather(self.files, part), tf.strings.as_string(record)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Streams:
    """The streams of one selection.

    Attributes:
        dataset: the dataset.
        parts: where the records lie.
        order: which positions this host reads.
        seed: seed for the shuffle; None keeps the order on disk.
        padding: a serialized filler.
    """

    dataset: Manifest
    parts: PartTensors
    order: Order
    seed: int | None
    padding: bytes

    def chunks(self, size: int, epoch: Any, first: Any) -> Any:
        """This host's records of an epoch from a position on, both scalar int64.

        Its elements are (records, string [n], places, int64 [n, 2]), where n is at most `size`. A
        place is (epoch, number of the example in the selection, or `FILLER`).
        """
        window = first // self.order.streams // WINDOW
        return self._shuffled(self._blocks(window, epoch), epoch, first, size)

    @functools.cached_property
    def _streams(self) -> Any:
        """The streams that this host reads: int64 [V]."""
        return np.array(self.order.host_streams)

    @property
    def _block(self) -> int:
        """The number of records of a stream to read at a time: a window, or a part of one."""
        return max(1, WINDOW >> (len(self._streams) - 1).bit_length())

    def _low(self, stream: Any) -> Any:
        """Where a stream begins in the epoch."""
        return tf.gather(
            np.array([self.order.low(v) for v in range(self.order.streams + 1)], np.int64), stream
        )

    def _blocks(self, window: Any, epoch: Any) -> Any:
        """Blocks of this host's streams from a window of an epoch on: (records, numbers), [V * B]
        each, by stream.

        Fillers follow the records of a stream, to the same number of whole blocks in each.
        """
        streams = self._streams
        block = self._block
        begin = tf.cast(window, tf.int64) * WINDOW
        rounds = -(-max(self.order.total, self.order.end) // self.order.streams)
        runs = Epoch(self.parts.counts, seed=self.seed, number=epoch, ops=TENSORFLOW)
        run_parts = runs.parts
        run_skips = runs.skips
        begins = runs.begins
        ends = runs.ends
        numbers = (
            tf.gather(self.parts.numbers, run_parts) + run_skips - begins
        )  # minus places in the epoch

        def read(part: Any, skip: Any, take: Any) -> Any:
            record = tf.gather(self.parts.records, part) + skip
            return read_part(
                tf.gather(self.parts.files, part),
                record,
                take,
                COMPRESSIONS[self.dataset.compression],
            )

        def current(*part: Any) -> Any:
            self._check_current()  # which says why a file is gone
            return part

        def records_of(stream: Any) -> Any:
            low = self._low(stream) + begin
            high = self._low(stream + 1)
            skips = tf.maximum(low - begins, 0)
            takes = tf.minimum(high, ends) - begins - skips
            nonempty = tf.where(takes > 0)[:, 0]
            parts = tuple(
                tf.gather(column, nonempty) for column in (run_parts, run_skips + skips, takes)
            )
            missing = -(-rounds // block) * block - begin - tf.maximum(high - low, 0)
            fillers = tf.data.Dataset.from_tensors(self.padding).repeat(missing)
            records = tf.data.Dataset.from_tensor_slices(parts).map(current).flat_map(read)
            return records.concatenate(fillers).batch(block, drop_remainder=True)

        def numbered(index: Any, records: Any) -> Any:
            self._check_current()
            records = tf.reshape(records, [-1])
            stream_ends = self._low(streams + 1)[:, None]
            places = (
                self._low(streams)[:, None]
                + begin
                + index * block
                + tf.range(block, dtype=tf.int64)
            )
            real = tf.reshape(places < stream_ends, [-1])
            places = tf.reshape(tf.minimum(places, stream_ends - 1), [-1])
            found = tf.gather(numbers, tf.searchsorted(ends, places, side="right")) + places
            lost = tf.equal(records, "")
            file, record = self.parts.locate(found[tf.argmax(lost)])
            message = tf.strings.join([file, _LOST, record, _ON])
            tf.raw_ops.Assert(condition=~tf.reduce_any(lost), data=[message])
            return records, tf.where(real, found, FILLER)

        blocks = tf.data.Dataset.from_tensor_slices(streams).interleave(
            records_of,
            cycle_length=len(streams),
            num_parallel_calls=len(streams),
            deterministic=True,
        )
        return blocks.batch(len(streams), drop_remainder=True).enumerate().map(numbered)

    def _check_current(self) -> None:
        """Fails unless the dataset still stands, like `check_not_replaced`."""
        path, before, after = self.dataset.digest_location
        digest = self.dataset.fields["manifest_digest"].encode()
        file = {"filenames": path, "buffer_size": tf.constant(0, tf.int64)}
        size = {"header_bytes": before, "record_bytes": len(digest), "footer_bytes": after}

        def is_same() -> Any:
            stored = _strings(
                tf.raw_ops.FixedLengthRecordDataset(**file, **size)
            ).get_single_element()
            return tf.equal(stored, digest)

        stands = first_that_works(is_same, lambda: tf.constant(False))
        tf.raw_ops.Assert(condition=stands, data=[replaced_message(self.dataset.folder)])

    def _shuffled(self, blocks: Any, epoch: Any, first: Any, size: int) -> Any:
        """This host's part of blocks that begin with the window of position `first`, by
        position."""
        streams = self._streams
        block = self._block
        count = len(streams)

        def shuffle_window(window: Any, group: Any) -> Any:
            records, numbers = (tf.reshape(column, [-1]) for column in group)
            window += first // self.order.streams // WINDOW
            rounds = tf.range(tf.size(numbers) // count)
            slots = (
                rounds // block * count + np.arange(count)[:, None]
            ) * block + rounds % block  # [streams, rounds]
            if self.seed is not None:
                hashes = hash_numbers(
                    self.seed, epoch, RECORDS, streams[:, None], window, rounds, ops=TENSORFLOW
                )
                hashes = tf.where(tf.gather(numbers, slots) == FILLER, tf.uint64.max, hashes)
                slots = tf.gather(slots, tf.argsort(hashes, stable=True), batch_dims=1)
            positions = (window * WINDOW + tf.cast(rounds, tf.int64))[
                :, None
            ] * self.order.streams + streams
            wanted = (positions >= first) & (positions < self.order.end)
            wanted &= positions % self.order.num_hosts == self.order.host_index
            # Not tf.transpose: oneDNN complains of int64 on standard error, once, where the
            # processor lacks AVX-512.
            slots = tf.gather_nd(slots, tf.where(wanted)[:, ::-1])
            numbers = tf.gather(numbers, slots)
            places = tf.stack([tf.fill(tf.shape(numbers), epoch), numbers], axis=1)

            def chunk(at: Any) -> Any:
                return tf.gather(records, slots[at : at + size]), places[at : at + size]

            return tf.data.Dataset.range(0, tf.size(slots, tf.int64), size).map(chunk)

        windows = blocks.batch(WINDOW // block).prefetch(
            1
        )  # the next one is read while this one is decoded
        return windows.enumerate().flat_map(shuffle_window)


def read_part(file: Any, skip: Any, take: Any, compression: str) -> Any:
    """Records [skip, skip + take) of a file: exactly `take` elements, empty strings from where it
    cannot be read.

    A file that is gone raises NotFoundError with its name: there `ignore_errors` would try for
    ever.
    """
    # Not tf.data.TFRecordDataset and its like: they wrap each file in a function, which costs as
    # much as 40 records.
    files = {"filenames": file, "buffer_size": tf.constant(BUFFER_BYTES, tf.int64)}
    first_byte = tf.raw_ops.FixedLengthRecordDataset(
        header_bytes=0, record_bytes=1, footer_bytes=0, **files
    )
    existing = _strings(first_byte).take(1).skip(1)
    records = _strings(tf.raw_ops.TFRecordDataset(compression_type=compression, **files))
    lost = tf.data.Dataset.from_tensors("").repeat()
    return (
        existing.concatenate(records.skip(skip).ignore_errors(log_warning=True))
        .concatenate(lost)
        .take(take)
    )


def _strings(variant: Any) -> Any:
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def first_that_works(way: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """The result of a function, or of another one if the first raises an error.

    Costs a small iterator: microseconds for a batch, half the time of decoding for a single image.
    """
    first, second = (
        tf.data.Dataset.from_tensors(0).map(lambda _, way=way: way()) for way in (way, other)
    )
    return first.ignore_errors().concatenate(second).take(1).get_single_element()
