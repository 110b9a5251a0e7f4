"""Reads the records of an epoch in the order of `beam_tfr.order`, as graph ops.

    parts ──flat_map──▶ records of a stream ──batch──▶ blocks of the stream
    blocks of all streams ──interleave──▶ blocks ──batch──▶ windows ──flat_map──▶ chunks

A chunk holds records at consecutive positions of the epoch, which are copied only once, from the
windows of all streams. Everything is stateless: the order depends neither on the timing of threads
nor on `tf.random.set_seed`.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest, replaced_message
from beam_tfr.dataset.splits import ExampleSelection
from beam_tfr.dataset.windows import MOST_WINDOW_BYTES, TOO_LARGE
from beam_tfr.order import FILLER, RECORDS, ArrayOps, Epoch, Order, hash_numbers

BUFFER_BYTES = 256 << 10  # 256 KiB for each open file
COMPRESSIONS = {"gzip": "GZIP", "none": ""}
TENSORFLOW = ArrayOps(tf.experimental.numpy, tf.bitwise.right_shift)
_LOST = " is damaged from record "
_ON = f" on (counted from 0); `beam-tfr verify` names the cause; {REPAIR_OR_COPY}"


class PartTensors:
    """The parts of a selection as tensors.

    Attributes:
        counts: number of records in each part: int64 [n].
        files: file of each part: string [n].
        records: number of each part's first record in its file: int64 [n].
        numbers: number of each part's first example in the selection: int64 [n].
    """

    def __init__(self, selection: ExampleSelection) -> None:
        files = [os.fsencode(part.file) for part in selection.parts]  # names may contain any bytes
        records = [part.begin for part in selection.parts]
        takes = [part.take for part in selection.parts]
        counts = np.array(takes, np.int64)
        # Otherwise the tensors would be in a function's graph, which TensorFlow copies repeatedly.
        with tf.init_scope():
            self.files = tf.constant(files, tf.string)
            self.records = tf.constant(records, tf.int64)
            self.counts = tf.constant(counts)
            self.numbers = tf.constant(np.cumsum(counts) - counts)

    def locate(self, number: Any) -> tuple[Any, Any]:
        """Returns the file of an example and the number of its record in the file, as strings.

        Args:
            number: number of the example in the selection.
        """
        following = tf.math.count_nonzero(self.numbers <= number)
        part = following - 1
        first = tf.gather(self.numbers, part)
        record = tf.gather(self.records, part) + number - first
        file = tf.gather(self.files, part)
        return file, tf.strings.as_string(record)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Streams:
    """The streams of one selection.

    Attributes:
        dataset: the dataset.
        parts: where the records are stored.
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
        """Returns this host's records of an epoch, starting at a position.

        `epoch` and the position, `first`, are scalar int64. The elements are (records, places),
        string [n] and int64 [n, 2], where n is at most `size`. A place is (epoch, number of the
        example in the selection, or `FILLER`).
        """
        first_window = first // self.order.streams // self.order.window
        blocks = Blocks(self, epoch, first_window).read_blocks()

        def shuffle_window(index: Any, group: Any) -> Any:
            records, numbers = map(_flatten, group)
            window = first_window + index
            slots = self._shuffle(numbers, epoch, window)
            slots = self._select(slots, window, first)
            numbers = tf.gather(numbers, slots)
            epochs = tf.fill(tf.shape(numbers), epoch)
            places = tf.stack([epochs, numbers], axis=1)

            def cut_chunk(begin: Any) -> Any:
                end = begin + size
                chunk = tf.gather(records, slots[begin:end])
                return chunk, places[begin:end]

            end = tf.size(slots, tf.int64)
            begins = tf.data.Dataset.range(0, end, size)
            return begins.map(cut_chunk)

        windows = blocks.batch(self.order.window // self.block)
        windows = windows.prefetch(1)  # the next window is read while this one is decoded
        return windows.enumerate().flat_map(shuffle_window)

    @functools.cached_property
    def numbers(self) -> Any:
        """The numbers of the streams that this host reads: int64 [V]."""
        return np.array(self.order.host_streams)

    @property
    def block(self) -> int:
        """The number of records to read from a stream in one turn: a window, or a part of one."""
        most_streams = 1 << (len(self.numbers) - 1).bit_length()
        return max(1, self.order.window // most_streams)

    def begin(self, stream: Any) -> Any:
        """Returns where in the epoch a stream begins, which is where the previous stream ends."""
        numbers = range(self.order.streams + 1)
        begins = np.array([*map(self.order.low, numbers)], np.int64)
        return tf.gather(begins, stream)

    def _shuffle(self, numbers: Any, epoch: Any, window: Any) -> Any:
        """Returns where the records of each stream are in a window that has the order of the epoch.

        Args:
            numbers: numbers of the examples in the window, one block after another: int64 [n].
            epoch, window: numbers of the epoch and the window, scalar int64.

        Returns:
            Slots in the window: int32 [V, n / V]. Fillers come last.
        """
        count = len(self.numbers)
        rounds = tf.range(tf.size(numbers) // count)
        first_blocks = rounds // self.block * count
        blocks = first_blocks + np.arange(count)[:, None]
        slots = blocks * self.block + rounds % self.block
        if self.seed is None:
            return slots
        streams = self.numbers[:, None]
        hashes = hash_numbers(self.seed, epoch, RECORDS, streams, window, rounds, ops=TENSORFLOW)
        stream_numbers = tf.gather(numbers, slots)
        is_filler = tf.equal(stream_numbers, FILLER)
        hashes = tf.where(is_filler, tf.uint64.max, hashes)
        order = tf.argsort(hashes, stable=True)
        return tf.gather(slots, order, batch_dims=1)

    def _select(self, slots: Any, window: Any, first: Any) -> Any:
        """Returns the slots of this host's positions in a window, from `first` on, in order."""
        num_rounds = tf.shape(slots, tf.int64)[1]
        rounds = tf.range(num_rounds) + window * self.order.window
        first_positions = rounds[:, None] * self.order.streams
        positions = first_positions + self.numbers
        in_epoch = (positions >= first) & (positions < self.order.end)
        of_host = positions % self.order.num_hosts == self.order.host_index
        selected = tf.where(in_epoch & of_host)  # (round, stream)
        # Not tf.transpose: on processors without AVX-512, oneDNN prints complaints about int64 on
        # standard error.
        return tf.gather_nd(slots, selected[:, ::-1])


class Blocks:
    """Blocks of records from this host's streams, beginning with a window of an epoch.

    Args:
        streams: the streams.
        epoch, window: numbers of the epoch and the window, scalar int64.
    """

    def __init__(self, streams: Streams, epoch: Any, window: Any) -> None:
        self._streams = streams
        self._dataset = streams.dataset
        self._parts = streams.parts
        # The first record of each stream.
        self._first = tf.cast(window, tf.int64) * streams.order.window
        self._runs = Epoch(streams.parts.counts, seed=streams.seed, number=epoch, ops=TENSORFLOW)
        numbers = tf.gather(streams.parts.numbers, self._runs.parts) + self._runs.skips
        self._offsets = numbers - self._runs.begins  # number of an example minus its place

    def read_blocks(self) -> Any:
        """Returns a dataset of (records, numbers), [V * B] each, ordered by stream.

        Fillers follow the records of a stream, so that all streams have the same number of whole
        blocks.
        """
        count = len(self._streams.numbers)
        streams = tf.data.Dataset.from_tensor_slices(self._streams.numbers)
        blocks = streams.interleave(
            self._read_stream, cycle_length=count, num_parallel_calls=count, deterministic=True
        )
        groups = blocks.batch(count, drop_remainder=True).enumerate()
        return groups.scan(tf.constant(0, tf.int64), self._add_numbers)

    def _read_stream(self, stream: Any) -> Any:
        """Returns the blocks of a stream."""
        begin = self._streams.begin(stream) + self._first
        end = self._streams.begin(stream + 1)
        skips = tf.maximum(begin - self._runs.begins, 0)
        ends = tf.minimum(end, self._runs.ends)
        takes = ends - self._runs.begins - skips
        columns = (self._runs.parts, self._runs.skips + skips, takes)
        nonempty = tf.where(takes > 0)[:, 0]
        runs = tuple(tf.gather(column, nonempty) for column in columns)
        records = tf.data.Dataset.from_tensor_slices(runs).map(self._check_run)
        records = records.flat_map(self._read_run)
        num_records = tf.maximum(end - begin, 0)
        num_fillers = self._stream_size() - self._first - num_records
        filler = tf.data.Dataset.from_tensors(self._streams.padding)
        padded = records.concatenate(filler.repeat(num_fillers))
        return padded.batch(self._streams.block, drop_remainder=True)

    def _stream_size(self) -> int:
        """Returns the number of records per stream in an epoch, rounded up to whole blocks."""
        order = self._streams.order
        block = self._streams.block
        num_positions = max(order.total, order.end)
        rounds = math.ceil(num_positions / order.streams)
        return math.ceil(rounds / block) * block

    def _check_run(self, *run: Any) -> Any:
        self._check_not_replaced()  # a replaced dataset may explain why a file is gone
        return run

    def _read_run(self, part: Any, skip: Any, take: Any) -> Any:
        file = tf.gather(self._parts.files, part)
        first = tf.gather(self._parts.records, part)
        compression = COMPRESSIONS[self._dataset.compression]
        return read_part(file, first + skip, take, compression)

    def _add_numbers(self, held: Any, group: Any) -> Any:
        """Adds the numbers of examples to a block from each stream.

        Fails if records are lost, or take too much memory.

        Args:
            held: bytes of the records in the window so far, scalar int64.
            group: number of the block in each stream, and the records [V, B].
        """
        self._check_not_replaced()
        index, records = group
        records = _flatten(records)
        places, is_example = self._places(index)
        runs = tf.searchsorted(self._runs.ends, places, side="right")
        numbers = tf.gather(self._offsets, runs) + places
        is_lost = tf.equal(records, "")
        first_lost = numbers[tf.argmax(is_lost)]
        file, record = self._parts.locate(first_lost)
        message = tf.strings.join([file, _LOST, record, _ON])
        tf.raw_ops.Assert(condition=~tf.reduce_any(is_lost), data=[message])
        begins_window = tf.equal(index % (self._streams.order.window // self._streams.block), 0)
        held = tf.where(begins_window, tf.zeros_like(held), held) + _num_bytes(records)
        self._check_memory(held, numbers[0])
        return held, (records, tf.where(is_example, numbers, FILLER))

    def _check_memory(self, held: Any, number: Any) -> None:
        """Fails if the records of a window take too much memory.

        Args:
            held: number of bytes in the records, scalar int64.
            number: number of one of the last examples.
        """
        if self._streams.order.window == 1:
            return
        file, record = self._parts.locate(number)
        message = tf.strings.join([file, ": the records around number ", record, TOO_LARGE])
        tf.raw_ops.Assert(condition=held <= MOST_WINDOW_BYTES, data=[message])

    def _places(self, index: Any) -> tuple[Any, Any]:
        """Returns where in the epoch the records of one block from each stream are.

        Also returns which of the records are examples. Fillers have the place of the last example.

        Args:
            index: number of the block in each stream.

        Returns:
            int64 and bool [V * B].
        """
        streams = self._streams.numbers[:, None]
        block = self._streams.block
        first = self._first + index * block
        begins = self._streams.begin(streams) + first
        ends = self._streams.begin(streams + 1)
        places = begins + tf.range(block, dtype=tf.int64)
        in_stream = tf.minimum(places, ends - 1)
        return _flatten(in_stream), _flatten(places < ends)

    def _check_not_replaced(self) -> None:
        """Fails if the dataset was replaced, like `check_not_replaced`."""
        path, before, after = self._dataset.digest_location
        digest = self._dataset.fields["manifest_digest"].encode()

        def is_same() -> Any:
            stored = tf.raw_ops.FixedLengthRecordDataset(
                filenames=path,
                header_bytes=before,
                record_bytes=len(digest),
                footer_bytes=after,
                buffer_size=tf.constant(0, tf.int64),
            )
            return tf.equal(_strings(stored).get_single_element(), digest)

        stands = first_that_works(is_same, lambda: tf.constant(False))
        message = replaced_message(self._dataset.folder)
        tf.raw_ops.Assert(condition=stands, data=[message])


def read_part(file: Any, skip: Any, take: Any, compression: str) -> Any:
    """Reads records [skip, skip + take) of a file: exactly `take` elements.

    Once the file cannot be read, the remaining elements are empty strings. A file that is gone
    raises NotFoundError with its name, since `ignore_errors` would retry forever.
    """
    # Not tf.data.TFRecordDataset and the like, which wrap each file in a function: that costs as
    # much as reading 40 records.
    buffer_size = tf.constant(BUFFER_BYTES, tf.int64)
    first_byte = tf.raw_ops.FixedLengthRecordDataset(
        filenames=file, header_bytes=0, record_bytes=1, footer_bytes=0, buffer_size=buffer_size
    )
    stored = tf.raw_ops.TFRecordDataset(
        filenames=file, compression_type=compression, buffer_size=buffer_size
    )
    existing = _strings(first_byte).take(1).skip(1)
    records = _strings(stored).skip(skip).ignore_errors(log_warning=True)
    lost = tf.data.Dataset.from_tensors("").repeat()
    return existing.concatenate(records).concatenate(lost).take(take)


def _flatten(tensor: Any) -> Any:
    return tf.reshape(tensor, [-1])


def _num_bytes(records: Any) -> Any:
    """Returns the number of bytes in several records: scalar int64."""
    lengths = tf.strings.length(records)
    return tf.reduce_sum(tf.cast(lengths, tf.int64))


def _strings(variant: Any) -> Any:
    spec = tf.TensorSpec([], tf.string)
    return tf.data.experimental.from_variant(variant, spec)


def first_that_works(function: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """Returns the result of a function, or of another function if the first raises an error.

    This costs a small iterator: microseconds for a batch, but half the decoding time of a single
    image.
    """
    start = tf.data.Dataset.from_tensors(0)
    results = start.map(lambda _: function()).ignore_errors()
    others = start.map(lambda _: other())
    return results.concatenate(others).take(1).get_single_element()
