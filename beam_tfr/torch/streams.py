"""Reads one process's share of the records of an epoch, in the order of `beam_tfr.order`."""

import itertools
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest, check_not_replaced
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.order import WHOLE_SPLIT, WINDOW, Epoch, Order, Run, permutation
from beam_tfr.records.tfrecords import RecordError, RecordFile, max_record_bytes_in
from beam_tfr.schema.errors import DataError, UsageError


class Stored(NamedTuple):
    """A serialized record and its location."""

    data: bytes
    file: str
    record: int


def damage(problem: str) -> DataError:
    """The error for a record that cannot be read or decoded."""
    return DataError(f"{problem}; {REPAIR_OR_COPY}; `beam-tfr verify` names all damage")


class Share(NamedTuple):
    """One worker's share of an epoch.

    Memory: the worker's own records of one window of each stream.

    Attributes:
        dataset: the dataset.
        parts: parts of its shards.
        steps: those of the worker.
    """

    dataset: Manifest
    parts: tuple[ShardPart, ...]
    order: Order
    epoch: Epoch
    steps: range

    def batches(self) -> Iterator[list[Stored]]:
        """The records of each step, without fillers.

        Raises:
            OSError: a file cannot be read.
            DataError: a record is damaged, or the dataset was replaced.
        """
        streams = {number: self._stream(number) for number in self.order.host_streams}
        for step in self.steps:
            positions = self.order.positions(step)
            numbers = positions[positions < self.order.total] % self.order.streams
            yield [next(streams[number]) for number in numbers.tolist()]

    def _stream(self, number: int) -> Iterator[Stored]:
        """The records of this share in a stream, read window by window."""
        low = self.order.low(number)
        high = self.order.low(number + 1)
        first = (
            self.steps.start * self.order.step_size // self.order.streams // WINDOW
        )  # of the windows to read
        runs = self.epoch.runs(low + first * WINDOW, high)
        records = itertools.chain.from_iterable(map(self._read, runs))
        for window in range(first, -(-(high - low) // WINDOW)):
            places = self.epoch.window(number, window, min(WINDOW, high - low - window * WINDOW))
            positions = (window * WINDOW + np.arange(len(places))) * self.order.streams + number
            steps = positions // self.order.step_size
            wanted = (steps >= self.steps.start) & (
                (steps - self.steps.start) % self.steps.step == 0
            )
            wanted &= (positions % self.order.num_hosts == self.order.host_index) & (
                positions < self.order.end
            )
            mine = dict.fromkeys(places[wanted].tolist())
            try:
                numbered = zip(range(len(places)), records, strict=False)
                held = {place: record for place, record in numbered if place in mine}
            finally:  # also if a file is gone
                check_not_replaced(self.dataset)
            yield from map(held.pop, mine)

    def _read(self, run: Run) -> Iterator[Stored]:
        part = self.parts[run.part]
        first = part.begin + run.skip
        form = self.dataset.compression
        longest = max_record_bytes_in(part.num_bytes)
        file = RecordFile(part.file, compression=form, skip=first, max_record_bytes=longest)
        number = first
        end = first + run.take
        try:
            for data in itertools.islice(file, run.take):
                yield Stored(data, part.file, number)
                number += 1
        except RecordError as error:
            raise damage(str(error)) from None
        if number < end:
            raise damage(f"{part.file} ends after {file.record} of its {part.records} records")


def global_batches(
    lookup: RecordLookup, order: Order, steps: range, *, seed: int, epoch: int
) -> Iterator[list[Stored]]:
    """The records of some steps with shuffle="global", each read by itself; otherwise like
    `Share.batches`."""
    shuffled = permutation(order.total, seed, epoch, WHOLE_SPLIT)
    for step in steps:
        positions = order.positions(step)
        numbers = shuffled[positions[positions < order.total]].tolist()
        places = map(lookup.locate, numbers)
        records = lookup.read_records(numbers)
        yield [
            Stored(data, part.file, row) for data, (part, row) in zip(records, places, strict=True)
        ]


def rank_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The rank of this process and the world size: as given, else from torch.distributed, else from
    the environment.

    Raises:
        UsageError: they are wrong, or only one of them is given.
    """
    if (rank is None) != (world_size is None):
        raise UsageError(
            f"give both `rank=` and `world_size=`, or neither: got {rank} and {world_size}"
        )
    if rank is None:
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_available() and distributed.is_initialized():
            rank = distributed.get_rank()
            world_size = distributed.get_world_size()
        elif {"RANK", "WORLD_SIZE"} <= os.environ.keys():
            rank = int(os.environ["RANK"])
            world_size = int(os.environ["WORLD_SIZE"])
        else:
            rank = 0
            world_size = 1
    world_size = check_integer("world_size", world_size, 1)
    rank = check_integer("rank", rank, 0)
    if rank >= world_size:
        why = f"must be less than `world_size={world_size}`: ranks are numbered from 0"
        raise UsageError(why, option="rank", value=rank)
    return rank, world_size
