"""Reads one process's share of the records of an epoch, in the order of `beam_tfr.order`."""

import collections
import itertools
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest, check_not_replaced
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.dataset.windows import MOST_WINDOW_BYTES, TOO_LARGE
from beam_tfr.order import WHOLE_SPLIT, Epoch, Order, RecordRun, permutation
from beam_tfr.records.tfrecords import RecordError, RecordFile, max_record_bytes_in
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.untrusted import quote


class LocatedRecord(NamedTuple):
    """A serialized record, with its file and its number in that file."""

    data: bytes
    file: str
    number: int


def damage(problem: str) -> DataError:
    """Creates the exception for a record that cannot be read or decoded."""
    return DataError(f"{problem}; {REPAIR_OR_COPY}; `beam-tfr verify` names all damage")


class Share(NamedTuple):
    """One worker's share of an epoch.

    Only the worker's own records from one window of each stream are held in memory.

    Attributes:
        dataset: the dataset.
        parts: the selected parts of the dataset's shards.
        order: which positions each rank reads.
        epoch: the epoch.
        steps: the worker's steps.
    """

    dataset: Manifest
    parts: tuple[ShardPart, ...]
    order: Order
    epoch: Epoch
    steps: range

    def batches(self) -> Iterator[list[LocatedRecord]]:
        """Yields the records of each step, without fillers.

        Raises:
            OSError: a file cannot be read.
            DataError: a record is damaged, or the dataset was replaced.
        """
        held = collections.Counter[int]()
        streams = {number: self._stream(number, held) for number in self.order.host_streams}
        for step in self.steps:
            positions = self.order.positions(step)
            examples = positions[positions < self.order.total]
            numbers = examples % self.order.streams
            yield [next(streams[number]) for number in numbers.tolist()]

    def _stream(self, stream: int, held: collections.Counter[int]) -> Iterator[LocatedRecord]:
        """Yields the records of a stream that are in this share; reads window by window.

        Args:
            stream: number of the stream.
            held: stream -> bytes of the records in its window, which are added.
        """
        window = self.order.window
        begin = self.order.low(stream)
        end = self.order.low(stream + 1)
        first_round = self.steps.start * self.order.step_size // self.order.streams
        first_window = first_round // window
        runs = self.epoch.runs(begin + first_window * window, end)
        records = itertools.chain.from_iterable(map(self._read_run, runs))
        for first in range(first_window * window, end - begin, window):
            size = min(window, end - begin - first)
            places = self.epoch.window(stream, first // window, size)
            selected = places[self._selects(stream, first, size)]
            mine = dict.fromkeys(selected.tolist())
            kept = dict[int, LocatedRecord]()
            held[stream] = 0
            try:
                for place, record in zip(range(size), records, strict=False):
                    held[stream] += len(record.data)
                    self._check_memory(record, held)
                    if place in mine:
                        kept[place] = record
            finally:  # even if a file is gone
                check_not_replaced(self.dataset)
            yield from map(kept.pop, mine)

    def _check_memory(self, last: LocatedRecord, held: collections.Counter[int]) -> None:
        """Checks that the windows of all streams do not fill the memory.

        Raises:
            DataError: the windows take too much memory.
        """
        if self.order.window > 1 and held.total() > MOST_WINDOW_BYTES:
            raise DataError(f"{last.file}: the records around number {last.number}{TOO_LARGE}")

    def _selects(self, stream: int, first: int, size: int) -> NDArray[np.bool_]:
        """Returns whether each record of a stream from `first` on is in this share: bool [size]."""
        rounds = first + np.arange(size)
        positions = rounds * self.order.streams + stream
        steps = positions // self.order.step_size - self.steps.start
        of_worker = (steps >= 0) & (steps % self.steps.step == 0)
        of_host = positions % self.order.num_hosts == self.order.host_index
        in_epoch = positions < self.order.end
        selected: NDArray[np.bool_] = of_worker & of_host & in_epoch
        return selected

    def _read_run(self, run: RecordRun) -> Iterator[LocatedRecord]:
        """Yields the records of one run from its file.

        Raises:
            DataError: a record is damaged, or the file ends before the run does.
        """
        part = self.parts[run.part]
        first = part.begin + run.skip
        file = RecordFile(
            part.file,
            compression=self.dataset.compression,
            skip=first,
            max_record_bytes=max_record_bytes_in(part.num_bytes),
        )
        number = first
        try:
            for data in itertools.islice(file, run.take):
                yield LocatedRecord(data, part.file, number)
                number += 1
        except RecordError as error:
            raise damage(str(error)) from None
        if number < first + run.take:
            raise damage(f"{part.file} ends after {file.record} of its {part.records} records")


def global_batches(
    lookup: RecordLookup, order: Order, steps: range, *, seed: int, epoch: int
) -> Iterator[list[LocatedRecord]]:
    """Yields the records of some steps with shuffle="global", reading each record by itself.

    In all other respects, this is like `Share.batches`.
    """
    shuffled = permutation(order.total, seed, epoch, WHOLE_SPLIT)
    for step in steps:
        positions = order.positions(step)
        numbers = shuffled[positions[positions < order.total]].tolist()
        batch = []
        for number, data in zip(numbers, lookup.read_records(numbers), strict=True):
            part, row = lookup.locate(number)
            batch.append(LocatedRecord(data, part.file, row))
        yield batch


def find_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Returns the rank of this process and the world size, as specified or detected.

    Raises:
        UsageError: the values are wrong, or only one of them is specified.
    """
    if rank is None and world_size is None:
        rank, world_size = _rank_of_process()
    if rank is None or world_size is None:
        raise UsageError(
            "give both `rank=` and `world_size=`, or neither: "
            f"got {quote(rank)} and {quote(world_size)}"
        )
    world_size = check_integer("world_size", world_size, 1)
    rank = check_integer("rank", rank, 0)
    if rank >= world_size:
        raise UsageError(
            f"must be less than {spell_option('world_size', world_size)}: ranks are numbered from "
            "0",
            option="rank",
            value=rank,
        )
    return rank, world_size


def _rank_of_process() -> tuple[int, int]:
    """Returns the rank and world size from torch.distributed or the environment, or 0 and 1."""
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    if {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1
