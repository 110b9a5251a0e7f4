"""Reads the records of an epoch from the shards, in the order of `beam_tfr.order`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from beam_tfr.order import WINDOW, Epoch, Order, Run
from beam_tfr.records import RecordError, RecordFile
from beam_tfr.schema import DataError
from beam_tfr.splits import Part

_CURE = "copy the dataset again, or convert it again with `overwrite=True`; beam-tfr verify names all damage"


class Stored(NamedTuple):
    """A serialized record, and where it lies; `problem` says why there is none."""

    data: bytes
    file: str
    record: int
    problem: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """The parts of shards that are read, and how they are compressed: "gzip" or "none"."""

    parts: tuple[Part, ...]
    compression: str

    def read(self, run: Run) -> Iterator[Stored]:
        """As many records as the run has; from where the file is damaged or ends, with a problem instead of data.

        Raises:
            OSError: the file cannot be read.
        """
        part = self.parts[run.part]
        first = part.begin + run.skip
        file = RecordFile(part.file, compression=self.compression, skip=first)
        found, problem = 0, ""
        try:
            for data in itertools.islice(file, run.take):
                yield Stored(data, part.file, first + found)
                found += 1
        except RecordError as error:
            problem = f"{error}; {_CURE}"
        for number in range(first + found, first + run.take):
            ends = f"{part.file} ends after {file.record} of its {part.records} records; {_CURE}"
            yield Stored(b"", part.file, number, problem or ends)

    def apply(self, decode: Callable[[bytes], Any], stored: Stored) -> Any:
        """Decodes a record.

        Raises:
            DataError: `decode` raised ValueError, or the record could not be read.
        """
        if stored.problem:
            raise DataError(stored.problem)
        try:
            return decode(stored.data)
        except ValueError as error:
            raise DataError(f"{stored.file}: record {stored.record}: {error}; {_CURE}") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """What one of `num_workers` workers reads of an epoch: the steps first_step, first_step + num_workers, …

    Memory: the worker's own records of one window of each stream.
    """

    source: Source
    order: Order
    epoch: Epoch
    first_step: int
    num_workers: int

    def batches(self) -> Iterator[list[Stored]]:
        """The records of each step, without fillers."""
        streams = {number: _Stream(self, number) for number in self.order.host_streams}
        for step in range(self.first_step, self.order.steps, self.num_workers):
            positions = self.order.positions(step)
            indices, numbers = divmod(positions[positions < self.order.total], self.order.streams)
            yield [
                streams[number].take(index) for number, index in zip(numbers.tolist(), indices.tolist(), strict=True)
            ]

    def holds(self, positions: Any) -> Any:
        """Which positions are of this share: bool [n]."""
        steps = positions // self.order.step_size
        mine = (steps >= self.first_step) & ((steps - self.first_step) % self.num_workers == 0)
        return mine & (positions % self.order.num_hosts == self.order.host_index) & (positions < self.order.end)


class _Stream:
    """One stream of a share, read once, window by window."""

    def __init__(self, share: Share, number: int) -> None:
        self._share, self._number = share, number
        self._low, self._high = share.order.low(number), share.order.low(number + 1)
        self._window = -1  # the one that is held
        self._held: dict[int, Stored] = {}  # the records of this share, by their place in the window
        self._places: list[int] = []
        self._records: Iterator[Stored] = iter(())

    def take(self, index: int) -> Stored:
        """Example `index` of the stream; indices must ascend."""
        window, slot = divmod(index, WINDOW)
        if window != self._window:
            self._hold(window)
        return self._held.pop(self._places[slot])

    def _hold(self, window: int) -> None:
        share = self._share
        low = self._low + window * WINDOW
        if self._window < 0:  # nothing before the first window is read
            runs = share.epoch.runs(low, self._high)
            self._records = itertools.chain.from_iterable(map(share.source.read, runs))
        else:  # windows that hold nothing of this share
            passed = (window - self._window - 1) * WINDOW
            next(itertools.islice(self._records, passed, passed), None)
        places = share.epoch.window(self._number, window, min(WINDOW, self._high - low))
        indices = window * WINDOW + np.arange(len(places))
        wanted = {*places[share.holds(indices * share.order.streams + self._number)].tolist()}
        self._window, self._places = window, places.tolist()
        read = enumerate(itertools.islice(self._records, len(places)))
        self._held = {place: record for place, record in read if place in wanted}
