"""The records of an epoch in the order of `beam_tfr.order`, as graph ops.

    parts ──flat_map──▶ records ──batch──▶ windows ──[cache]──shuffle──▶ records of a stream ──batch──▶ pieces
    pieces of all streams ──interleave──▶ chunks: the records at consecutive positions of the epoch

Everything is stateless: the order depends neither on the timing of threads nor on `tf.random.set_seed`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.order import FILLER, GAMMA, LAST_SHIFT, MULTIPLIERS, PARTS, RECORDS, START, WINDOW, Order
from beam_tfr.splits import Selection

BUFFER_BYTES = 256 << 10  # 256 KiB for each open file
_LOST = " is damaged from record "
_ON = " on (counted from 0); run `beam-tfr verify` for the cause"
COMPRESSIONS = {"gzip": "GZIP", "none": ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Streams:
    """The streams of one selection.

    Attributes:
        selection: where the records lie.
        order: which positions this host reads.
        compression: of the files, as the manifest names it.
        seed: of the shuffle; None keeps the order on disk.
        padding: the components of a filler, without its place.
        strict: whether a record that cannot be read raises an error; else it is an empty string.
        remember: of (windows of a stream, its number) makes windows that are cached between epochs, and may be decoded;
            None caches none. Every epoch then cuts the streams alike, and only their windows are shuffled.
    """

    selection: Selection
    order: Order
    compression: str
    seed: int | None
    padding: tuple[Any, ...]
    strict: bool
    remember: Callable[[Any, int], Any] | None = None

    def chunks(self, rounds: int) -> Callable[[Any, Any], Any]:
        """A function of (epoch, first position), both scalar int64, to this host's records from there to the end.

        Its elements are (records, string [n], places, int64 [n, 2]), where n is at most what `rounds` records of each
        stream give this host. A place is (epoch, number of the example in the selection, or `FILLER`).
        """
        mine = self.order.host_streams
        remembered = None
        if self.remember:
            records = self._records(None)
            remembered = [
                self.remember(self._windows(tf.constant(v, tf.int64), tf.constant(0, tf.int64), records), v)
                for v in mine
            ]

        def chunks(epoch: Any, first: Any) -> Any:
            begin = first // self.order.streams
            if remembered is not None:
                pieces = [
                    self._pieces(windows.skip(begin // WINDOW), tf.constant(v, tf.int64), epoch, begin, rounds)
                    for v, windows in zip(mine, remembered, strict=True)
                ]
                together = tf.data.Dataset.zip(tuple(pieces)).map(
                    lambda *pieces: tf.nest.map_structure(lambda *same: tf.stack(same), *pieces)
                )
            else:
                records = self._records(epoch)
                together = (
                    tf.data.Dataset.from_tensor_slices(tf.range(mine.start, mine.stop, mine.step, tf.int64))
                    .interleave(
                        lambda v: self._pieces(self._windows(v, begin, records), v, epoch, begin, rounds),
                        cycle_length=len(mine),
                        num_parallel_calls=len(mine),
                        deterministic=True,
                    )
                    .batch(len(mine), drop_remainder=True)
                )
            return together.enumerate().map(lambda number, pieces: self._dealt(pieces, first, begin + number * rounds))

        return chunks

    def side_by_side(self, epoch: Any, size: int) -> Any:
        """The chunks of all streams as they come, `size` records of one stream each: (records, places)."""
        records, begin = self._records(epoch), tf.constant(0, tf.int64)
        return tf.data.Dataset.range(self.order.streams).interleave(
            lambda v: self._pieces(self._windows(v, begin, records), v, epoch, begin, size, fill=False),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=False,
        )

    def _records(self, epoch: Any) -> tuple[Any, ...]:
        """The runs of records that an epoch consists of, as `order.Epoch` has them.

        Each as its file, its first record there, where it begins and ends in the epoch, and the number of its first
        example in the selection. `epoch` None: not shuffled.
        """
        parts = self.selection.parts
        files = tf.constant([part.file for part in parts], tf.string)
        begins = tf.constant([part.begin for part in parts], tf.int64)
        counts = np.array([part.take for part in parts], np.int64)
        numbers, takes = tf.constant(np.cumsum(counts) - counts), tf.constant(counts)
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

    def _windows(self, stream: Any, begin: Any, records: tuple[Any, ...]) -> Any:
        """The unshuffled windows of a stream from the one with example `begin`: (records [n], numbers [n])."""
        files, begins, starts, ends, numbers = records
        low, high = self._low(stream) + begin // WINDOW * WINDOW, self._low(stream + 1)
        skip = tf.maximum(starts, low) - starts
        take = tf.minimum(ends, high) - starts - skip
        parts = tuple(tf.boolean_mask(column, take > 0) for column in (files, begins + skip, take))

        def window(index: Any, records: Any) -> Any:
            places = low + index * WINDOW + tf.range(tf.size(records, tf.int64))
            part = tf.searchsorted(ends, places, side="right")
            if self.strict:
                lost = tf.equal(records, "")
                at = tf.argmax(lost)
                record = tf.gather(begins - starts, part[at]) + places[at]
                tf.raw_ops.Assert(
                    condition=~tf.reduce_any(lost),
                    data=[tf.strings.join([tf.gather(files, part[at]), _LOST, tf.strings.as_string(record), _ON])],
                )
            return records, tf.gather(numbers - starts, part) + places

        compression = COMPRESSIONS[self.compression]
        return (
            tf.data.Dataset.from_tensor_slices(parts)
            .flat_map(lambda *part: read_part(*part, compression=compression))
            .batch(WINDOW)
            .enumerate()
            .map(window)
        )

    def _pieces(self, windows: Any, stream: Any, epoch: Any, begin: Any, rounds: int, *, fill: bool = True) -> Any:
        """A shuffled stream from its example `begin` on, in batches of `rounds`, padded with fillers to the last."""
        first_window = begin // WINDOW
        all_rounds = -(-self.order.end // self.order.streams)

        def shuffle(index: Any, window: Any) -> Any:
            *contents, numbers = window
            size = tf.size(numbers)
            index += first_window
            chosen = tf.range(size)
            if self.seed is not None:
                chosen = permutation(size, self.seed, epoch, RECORDS, stream, index)
            # Not `take` behind it: what caches the windows must see their end.
            chosen = chosen[: tf.maximum(all_rounds - index * WINDOW, 0)]
            places = tf.stack([tf.fill([size], epoch), numbers], axis=1)
            return tf.nest.map_structure(lambda column: tf.gather(column, chosen), (*contents, places))

        pieces = windows.enumerate().map(shuffle).unbatch().skip(begin - first_window * WINDOW)
        if fill and all_rounds * self.order.streams > self.order.total:
            missing = all_rounds - tf.maximum(self._low(stream + 1) - self._low(stream), begin)
            filler = tf.data.Dataset.from_tensors((*self.padding, tf.fill([2], tf.constant(FILLER, tf.int64))))
            pieces = pieces.concatenate(filler.repeat(tf.maximum(missing, 0)))
        return pieces.batch(rounds)

    def _dealt(self, pieces: Any, first: Any, begin: Any) -> Any:
        """This host's part, by position, of [streams, rounds, …] from round `begin` on: [n, …]."""
        mine = np.array(self.order.host_streams)
        rounds = tf.shape(pieces[-1], tf.int64)[1]
        positions = (begin + tf.range(rounds))[:, None] * self.order.streams + mine
        wanted = (positions >= first) & (positions < self.order.end)
        wanted &= positions % self.order.num_hosts == self.order.host_index
        # Not tf.transpose: oneDNN complains of int64 on standard error, once, where the processor lacks AVX-512.
        chosen = tf.boolean_mask(tf.range(rounds)[:, None] + np.arange(len(mine)) * rounds, wanted)
        return tf.nest.map_structure(
            lambda column: tf.gather(tf.reshape(column, tf.concat([[-1], tf.shape(column)[2:]], 0)), chosen), pieces
        )


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


def draw(*key: Any) -> Any:
    """The hashes of `beam_tfr.order.draw`, as graph ops: uint64 [n], or [1] of scalars."""
    shift, xor = tf.bitwise.right_shift, tf.bitwise.bitwise_xor
    state = tf.zeros([1], tf.uint64)
    for word in key:
        state = xor(state, tf.cast(word, tf.uint64)) + tf.constant(GAMMA, tf.uint64)
        for bits, multiplier in MULTIPLIERS:
            state = xor(state, shift(state, tf.constant(bits, tf.uint64))) * tf.constant(multiplier, tf.uint64)
        state = xor(state, shift(state, tf.constant(LAST_SHIFT, tf.uint64)))
    return state


def permutation(size: Any, *key: Any) -> Any:
    """The permutation of `beam_tfr.order.permutation`, as graph ops: int32 [size]."""
    return tf.argsort(draw(*key, tf.range(tf.cast(size, tf.int64))), stable=True)
