"""The records of an epoch in the order of `beam_tfr.order`, as graph ops.

    parts ──flat_map──▶ records of a stream ──batch──▶ blocks of it
    blocks of all streams ──interleave──▶ blocks ──[cache]──batch──▶ windows ──flat_map──▶ chunks

A chunk holds records at consecutive positions of the epoch, copied once: from the windows of all streams.
Everything is stateless: the order depends neither on the timing of threads nor on `tf.random.set_seed`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr import order
from beam_tfr.manifest import REPAIR, Manifest, replaced
from beam_tfr.order import FILLER, GAMMA, LAST_SHIFT, MULTIPLIERS, PARTS, RECORDS, START, WINDOW, Order
from beam_tfr.splits import Selection

BUFFER_BYTES = 256 << 10  # 256 KiB for each open file
_LOST = " is damaged from record "
_ON = f" on (counted from 0); `beam-tfr verify` names the cause; {REPAIR}"
COMPRESSIONS = {"gzip": "GZIP", "none": ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Streams:
    """The streams of one selection.

    Attributes:
        dataset: the dataset.
        selection: where the records lie.
        order: which positions this host reads.
        seed: seed for the shuffle; None keeps the order on disk.
        padding: a serialized filler.
        strict: whether a record that cannot be read raises an error; else it is an empty string.
        remember: of blocks, makes blocks that are cached between epochs, and may be decoded; None caches none. Every
            epoch then cuts the streams alike, and only their windows are shuffled.
    """

    dataset: Manifest
    selection: Selection
    order: Order
    seed: int | None
    padding: bytes
    strict: bool
    remember: Callable[[Any], Any] | None = None

    def chunks(self, size: int) -> Callable[[Any, Any], Any]:
        """A function of (epoch, first position), both scalar int64, to this host's records from there to the end.

        Its elements are (records, string [n], places, int64 [n, 2]), where n is at most `size`. A place is (epoch,
        number of the example in the selection, or `FILLER`).
        """
        mine = np.array(self.order.host_streams)
        remembered = self.remember(self._blocks(mine, 0, self._records(None))) if self.remember else None

        def chunks(epoch: Any, first: Any) -> Any:
            window = first // self.order.streams // WINDOW
            if remembered is None:
                blocks = self._blocks(mine, window, self._records(epoch))
            else:
                blocks = remembered.skip(window * (WINDOW // _block(len(mine))))
            return self._dealt(blocks, mine, epoch, first, size)

        return chunks

    @functools.cached_property
    def _parts(self) -> tuple[Any, ...]:
        """The files of the selection, their first records there, numbers of records, and numbers of the first."""
        parts, counts = self.selection.parts, np.array([part.take for part in self.selection.parts], np.int64)
        with tf.init_scope():  # not part of a function's graph, which TensorFlow copies several times
            files = tf.constant([part.file for part in parts], tf.string)
            begins = tf.constant([part.begin for part in parts], tf.int64)
            return files, begins, tf.constant(counts), tf.constant(np.cumsum(counts) - counts)

    def _records(self, epoch: Any) -> tuple[Any, ...]:
        """The runs of records that an epoch consists of, as `order.Epoch` has them.

        Each as its file, its first record there, where it begins and ends in the epoch, and the number of its first
        example in the selection. `epoch` None: not shuffled.
        """
        files, begins, takes, numbers = self._parts
        parts = self.selection.parts
        if self.seed is not None and epoch is not None:
            chosen = permutation(len(parts), self.seed, epoch, PARTS)
            ends = tf.cumsum(tf.gather(takes, chosen))
            drawn = tf.bitwise.right_shift(draw(self.seed, epoch, START), tf.constant(1, tf.uint64))
            start = tf.cast(drawn, tf.int64) % self.order.total  # [1]
            first = tf.searchsorted(ends, start, side="right")
            chosen = tf.gather(chosen, (first + tf.range(len(parts) + 1)) % len(parts))
            takes = tf.gather(takes, chosen)
            before = takes[:1] - (tf.gather(ends, first) - start)
            skips = tf.pad(before, [[0, len(parts)]])
            takes = tf.concat([takes[:1] - before, takes[1:-1], before], 0)
            files, begins, numbers = (tf.gather(column, chosen) for column in (files, begins, numbers))
            begins, numbers = begins + skips, numbers + skips
        ends = tf.cumsum(takes)
        return files, begins, ends - takes, ends, numbers

    def _low(self, stream: Any) -> Any:
        """Where a stream begins in the epoch."""
        return tf.gather(np.array([self.order.low(v) for v in range(self.order.streams + 1)], np.int64), stream)

    def _blocks(self, streams: Any, window: Any, records: tuple[Any, ...]) -> Any:
        """Blocks of these streams [V] from a window on: (records, numbers), both [V * B], stream by stream.

        Fillers follow the records of a stream, to the same number of whole blocks in each.
        """
        files, begins, starts, ends, numbers = records
        count, block = streams.shape[0], _block(streams.shape[0])
        begin = tf.cast(window, tf.int64) * WINDOW
        rounds = -(-max(self.order.total, self.order.end) // self.order.streams)

        def standing(*part: Any) -> Any:
            self._check_current()  # which says why a file is gone
            return part

        def of_stream(v: Any) -> Any:
            low, high = self._low(v) + begin, self._low(v + 1)
            skip = tf.maximum(starts, low) - starts
            take = tf.minimum(ends, high) - starts - skip
            some = tf.where(take > 0)[:, 0]
            parts = tuple(tf.gather(column, some) for column in (files, begins + skip, take))
            fillers = tf.data.Dataset.from_tensors(self.padding).repeat(
                -(-rounds // block) * block - begin - tf.maximum(high - low, 0)
            )
            return (
                tf.data.Dataset.from_tensor_slices(parts)
                .map(standing)
                .flat_map(lambda *part: read_part(*part, compression=COMPRESSIONS[self.dataset.compression]))
                .concatenate(fillers)
                .batch(block, drop_remainder=True)
            )

        def numbered(index: Any, records: Any) -> Any:
            self._check_current()
            records = tf.reshape(records, [count * block])
            end = self._low(streams + 1)[:, None]
            places = self._low(streams)[:, None] + begin + index * block + tf.range(block, dtype=tf.int64)
            real = tf.reshape(places < end, [-1])
            places = tf.reshape(tf.minimum(places, end - 1), [-1])
            part = tf.searchsorted(ends, places, side="right")
            if self.strict:
                lost = tf.equal(records, "")
                at = tf.argmax(lost)
                record = tf.gather(begins - starts, part[at]) + places[at]
                tf.raw_ops.Assert(
                    condition=~tf.reduce_any(lost),
                    data=[tf.strings.join([tf.gather(files, part[at]), _LOST, tf.strings.as_string(record), _ON])],
                )
            return records, tf.where(real, tf.gather(numbers - starts, part) + places, FILLER)

        return (
            tf.data.Dataset.from_tensor_slices(streams)
            .interleave(of_stream, cycle_length=count, num_parallel_calls=count, deterministic=True)
            .batch(count, drop_remainder=True)
            .enumerate()
            .map(numbered)
        )

    def _check_current(self) -> None:
        """Fails unless the dataset still stands, like `manifest.check_current`."""
        path, before, after = self.dataset.stamp
        digest = self.dataset.dataset_digest.encode()
        file = {"filenames": path, "buffer_size": tf.constant(0, tf.int64)}
        size = {"header_bytes": before, "record_bytes": len(digest), "footer_bytes": after}
        stands = first_that_works(
            lambda: tf.equal(
                _strings(tf.raw_ops.FixedLengthRecordDataset(**file, **size)).get_single_element(), digest
            ),
            lambda: tf.constant(False),
        )
        tf.raw_ops.Assert(condition=stands, data=[replaced(self.dataset.folder)])

    def _dealt(self, blocks: Any, streams: Any, epoch: Any, first: Any, size: int) -> Any:
        """This host's part of blocks that begin with the window of position `first`, by position."""
        count, block = streams.shape[0], _block(streams.shape[0])

        def deal(window: Any, group: Any) -> Any:
            *contents, numbers = tf.nest.map_structure(
                lambda column: tf.reshape(column, tf.concat([[-1], tf.shape(column)[2:]], 0)), group
            )
            window += first // self.order.streams // WINDOW
            rounds = tf.range(tf.size(numbers) // count)
            lies = (rounds // block * count + np.arange(count)[:, None]) * block + rounds % block  # [streams, rounds]
            if self.seed is not None:
                hashes = draw(self.seed, epoch, RECORDS, streams[:, None], window, rounds)
                hashes = tf.where(tf.gather(numbers, lies) == FILLER, tf.uint64.max, hashes)
                lies = tf.gather(lies, tf.argsort(hashes, stable=True), batch_dims=1)
            positions = (window * WINDOW + tf.cast(rounds, tf.int64))[:, None] * self.order.streams + streams
            wanted = (positions >= first) & (positions < self.order.end)
            wanted &= positions % self.order.num_hosts == self.order.host_index
            # Not tf.transpose: oneDNN complains of int64 on standard error, once, where the processor lacks AVX-512.
            lies = tf.gather_nd(lies, tf.where(wanted)[:, ::-1])
            numbers = tf.gather(numbers, lies)
            places = tf.stack([tf.fill(tf.shape(numbers), epoch), numbers], axis=1)

            def chunk(at: Any) -> Any:
                records = tf.nest.map_structure(lambda column: tf.gather(column, lies[at : at + size]), contents)
                return (*records, places[at : at + size])

            return tf.data.Dataset.range(0, tf.size(lies, tf.int64), size).map(chunk)

        windows = blocks.batch(WINDOW // block)
        if not self.remember:
            windows = windows.prefetch(1)  # the next one is read while this one is decoded
        return windows.enumerate().flat_map(deal)


def _block(streams: int) -> int:
    """The number of records of a stream to read at a time: a window, or a part of one."""
    return max(1, WINDOW >> (streams - 1).bit_length())


def read_part(file: Any, skip: Any, take: Any, *, compression: str) -> Any:
    """Records [skip, skip + take) of a file: exactly `take` elements, empty strings from where it cannot be read.

    A file that is gone raises NotFoundError with its name: there `ignore_errors` would try for ever.
    """
    # Not tf.data.TFRecordDataset and its like: they wrap each file in a function, which costs as much as 40 records.
    files = {"filenames": file, "buffer_size": tf.constant(BUFFER_BYTES, tf.int64)}
    first_byte = tf.raw_ops.FixedLengthRecordDataset(header_bytes=0, record_bytes=1, footer_bytes=0, **files)
    there = _strings(first_byte).take(1).skip(1)
    records = _strings(tf.raw_ops.TFRecordDataset(compression_type=compression, **files))
    lost = tf.data.Dataset.from_tensors("").repeat()
    return there.concatenate(records.skip(skip).ignore_errors(log_warning=True)).concatenate(lost).take(take)


def _strings(variant: Any) -> Any:
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def first_that_works(way: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """The result of a function, or of another one if the first raises an error.

    Costs a small iterator: microseconds for a batch, half the time of decoding for a single image.
    """
    first, second = (tf.data.Dataset.from_tensors(0).map(lambda _, way=way: way()) for way in (way, other))
    return first.ignore_errors().concatenate(second).take(1).get_single_element()


def draw(*key: Any) -> Any:
    """The hashes of `beam_tfr.order.draw`, as graph ops: uint64 [n], or [1] of scalars."""
    # Few nodes: each takes time when the graph is made, and again when the first iterator is.
    known = [*itertools.takewhile(lambda word: isinstance(word, int), key)]
    shift, xor = tf.bitwise.right_shift, tf.bitwise.bitwise_xor
    state, gamma, last = (tf.constant(value, tf.uint64) for value in (order.draw(*known), GAMMA, LAST_SHIFT))
    steps = [(tf.constant(bits, tf.uint64), tf.constant(multiplier, tf.uint64)) for bits, multiplier in MULTIPLIERS]
    for word in key[len(known) :]:
        state = xor(state, tf.cast(word, tf.uint64)) + gamma
        for bits, multiplier in steps:
            state = xor(state, shift(state, bits)) * multiplier
        state = xor(state, shift(state, last))
    return state


def permutation(size: Any, *key: Any) -> Any:
    """The permutation of `beam_tfr.order.permutation`, as graph ops: int32 [size]."""
    return tf.argsort(draw(*key, tf.range(tf.cast(size, tf.int64))), stable=True)
