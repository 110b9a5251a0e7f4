"""The records of an epoch in their order, as graph ops: streams side by side, windows of each shuffled without state.

    parts ──flat_map──▶ records ──batch──▶ windows ──[cache]──shuffle──▶ records of a stream ──batch──▶ pieces
    pieces of all streams ──interleave──▶ chunks: the records of some rounds, one of each stream after the other

The order depends on nothing but the dataset, the split, `seed`, epoch and number of streams: not on the batch size, the
machine, the timing of threads, or `tf.random.set_seed`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.reader.layout import Layout
from beam_tfr.selection import Selection

WINDOW = 256  # records of a stream that are shuffled at a time: together with 8 streams as good as a buffer of 2,048
BUFFER_BYTES = 256 << 10  # 256 KiB of each open file
PADDING = -1  # the number of what only fills up a batch
COMPRESSIONS = {"gzip": "GZIP", "none": ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Streams:
    """The streams of one selection.

    Attributes:
        selection: its parts are shuffled as wholes, then windows of their records.
        layout: who gets what.
        compression: of the files, as the manifest names it.
        seed: of the shuffle; None leaves the order as it is on disk.
        padding: what fills up streams that are too short: the components of an element, without its place.
        strict: a record that cannot be read raises; else it is an empty string.
        remember: of (windows of a stream, its number) makes windows that are remembered from epoch to epoch, and may be
            decoded; None remembers none.
    """

    selection: Selection
    layout: Layout
    compression: str
    seed: int | None
    padding: tuple[Any, ...]
    strict: bool
    remember: Callable[[Any, int], Any] | None = None

    def chunks(self, rounds: int) -> Callable[[Any, Any], Any]:
        """A function of (epoch, first round), both scalar int64, to the chunks of this host from there to the end of
        the epoch: (records, string [n], places, int64 [n, 2]), with n = `rounds` times the streams of the host, less
        in the last one. A place is (epoch, number of the example in the selection), or `PADDING`.
        """
        layout = self.layout
        mine = range(layout.host_index, layout.streams, layout.num_hosts)
        remembered = None
        if self.remember:
            remembered = [
                self.remember(self._windows(tf.constant(v, tf.int64), None, self._order(None)), v) for v in mine
            ]

        def chunks(epoch: Any, first: Any) -> Any:
            order = self._order(epoch)
            if remembered is not None:
                skipped = first // WINDOW
                pieces = [
                    self._pieces(windows.skip(skipped), tf.constant(v, tf.int64), epoch, first, rounds)
                    for v, windows in zip(mine, remembered, strict=True)
                ]
                together = tf.data.Dataset.zip(tuple(pieces)).map(
                    lambda *pieces: tf.nest.map_structure(lambda *same: tf.stack(same), *pieces)
                )
            else:
                together = (
                    tf.data.Dataset.from_tensor_slices(tf.range(mine.start, mine.stop, mine.step, tf.int64))
                    .interleave(
                        lambda v: self._pieces(self._windows(v, first, order), v, epoch, first, rounds),
                        cycle_length=len(mine),
                        num_parallel_calls=len(mine),
                        deterministic=True,
                    )
                    .batch(len(mine), drop_remainder=True)
                )
            return together.map(lambda *pieces: tf.nest.map_structure(_in_rounds, pieces))

        return chunks

    def side_by_side(self, epoch: Any, size: int) -> Any:
        """The chunks of all streams as they come, `size` records of one stream each: (records, places)."""
        order, first = self._order(epoch), tf.constant(0, tf.int64)
        return tf.data.Dataset.range(self.layout.streams).interleave(
            lambda v: self._pieces(self._windows(v, first, order), v, epoch, first, size),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=False,
        )

    def _order(self, epoch: Any) -> tuple[Any, ...]:
        """Files, their first records, their last ones, and their places: of the parts in this epoch's order."""
        parts = self.selection.parts
        files = tf.constant([part.file for part in parts], tf.string)
        begins = tf.constant([part.begin for part in parts], tf.int64)
        takes = np.array([part.take for part in parts], np.int64)
        numbers = tf.constant(np.cumsum(takes) - takes)
        takes = tf.constant(takes)
        if self.seed is not None and epoch is not None:
            order = shuffled(
                tf.range(len(parts)), fold(self._key(epoch), self.layout.streams)
            )  # no stream has this key
            files, begins, takes, numbers = (tf.gather(column, order) for column in (files, begins, takes, numbers))
        ends = tf.cumsum(takes)
        return files, begins, ends - takes, ends, numbers

    def _key(self, epoch: Any) -> Any:
        return fold(tf.constant([self.seed, 0], tf.int64), epoch)

    def _windows(self, stream: Any, first: Any, order: tuple[Any, ...]) -> Any:
        """The windows of a stream from the one that holds its example `first` (None: from the beginning):
        (records, string [n], numbers, int64 [n]), not shuffled.
        """
        files, begins, starts, ends, numbers = order
        total, streams = self.layout.total, self.layout.streams
        low, high = stream * total // streams, (stream + 1) * total // streams
        if first is not None:
            low += first // WINDOW * WINDOW
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
                    data=[_lost_message(tf.gather(files, part[at]), record)],
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

    def _pieces(self, windows: Any, stream: Any, epoch: Any, first: Any, rounds: int) -> Any:
        """What a stream gives from its example `first` on, `rounds` at a time."""
        layout = self.layout
        begin = first // WINDOW

        def shuffle(index: Any, window: Any) -> Any:
            *contents, numbers = window
            size = tf.size(numbers)
            chosen = tf.range(size)
            if self.seed is not None:
                chosen = shuffled(chosen, fold(fold(self._key(epoch), stream), index + begin))
            # Not `take` behind it: what remembers the windows must see their end.
            left = tf.maximum(layout.rounds - (index + begin) * WINDOW, 0)
            chosen = chosen[:left]
            places = tf.stack([tf.fill([size], epoch), numbers], axis=1)
            return tf.nest.map_structure(lambda column: tf.gather(column, chosen), (*contents, places))

        size = tf.minimum(
            (stream + 1) * layout.total // layout.streams - stream * layout.total // layout.streams, layout.rounds
        )
        pieces = windows.enumerate().map(shuffle).unbatch()
        pieces = pieces.skip(first - begin * WINDOW)
        if layout.fills:
            nothing = tf.data.Dataset.from_tensors((*self.padding, tf.fill([2], tf.constant(PADDING, tf.int64))))
            pieces = pieces.concatenate(nothing.repeat(layout.rounds - tf.maximum(size, first)))
        return pieces.batch(rounds)


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


def _lost_message(file: Any, record: Any) -> Any:
    return tf.strings.join(
        [
            "damaged shard ",
            file,
            ": it cannot be read from record ",
            tf.strings.as_string(record),
            " on (counted from 0): it is cut off, or its checksums do not fit; `beam-tfr verify` says which",
        ]
    )


def _in_rounds(piece: Any) -> Any:
    """[streams, rounds, …] to [rounds * streams, …], round by round."""
    shape = tf.shape(piece)
    number = tf.range(shape[0] * shape[1])
    # Not tf.transpose: oneDNN complains of int64 on standard error, once, where the processor lacks AVX-512.
    in_rounds = number % shape[0] * shape[1] + number // shape[0]
    return tf.gather(tf.reshape(piece, tf.concat([[-1], shape[2:]], 0)), in_rounds)


def fold(key: Any, number: Any) -> Any:
    return tf.random.fold_in(key, number, alg="philox")


def shuffled(values: Any, key: Any) -> Any:
    return tf.random.experimental.stateless_shuffle(values, key, alg="philox")
