"""In which order an epoch is read, and who reads what of it: arithmetic alone, no file is opened.

The law. All records of a split, shard after shard, are one circle. Shuffled, epoch e permutes the shards and begins at
some record of the circle, both drawn from (seed, e). The ranks share the epoch in equal runs, each rank's run is cut
into `streams` runs, and batch t of a rank comes from its stream t modulo `streams`. A stream permutes its records in
windows, each drawn from (seed, e, rank, stream, window). So the order depends on the dataset and on seed, epoch,
world_size, streams and batch_size; neither on the number of workers nor on anything that happens while it is read.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_tfr.schema import UsageError

WINDOW = 512  # records of a stream that are shuffled at a time, if no four batches are more


class Part(NamedTuple):
    """Records [skip, skip + take) of the run with this index."""

    run: int
    skip: int
    take: int


class Epoch:
    """The records of one epoch, one after the other.

    Args:
        counts: records of each run: a shard, or what is read of it.
        seed: None for the order in which they lie.
        number: of the epoch.
    """

    def __init__(self, counts: Sequence[int], *, seed: int | None, number: int) -> None:
        sizes = np.asarray(counts, np.int64)
        self._order = np.arange(len(sizes)) if seed is None else permutation(len(sizes), seed, number, "shards")
        self._ends = np.cumsum(sizes[self._order])
        self._begins = self._ends - sizes[self._order]
        self._total = int(sizes.sum())
        self._first = 0 if seed is None else _draw(seed, number, "first") % max(self._total, 1)

    def parts(self, low: int, high: int) -> Iterator[Part]:
        """Where records [low, high) of the epoch lie, in this order."""
        for turn in (0, self._total):  # beyond the end of the circle it goes on at its beginning
            begin, end = self._first + low - turn, self._first + high - turn
            skip = np.maximum(begin - self._begins, 0)
            take = np.minimum(end, self._ends) - self._begins - skip
            for place in np.flatnonzero(take > 0):
                yield Part(int(self._order[place]), int(skip[place]), int(take[place]))


class Batch(NamedTuple):
    """Records [begin, end) of a stream."""

    stream: int
    begin: int
    end: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """What one rank reads of every epoch: the records [low, low + size), in `steps` batches.

    All batches have `batch_size` records but the last, which has what is left, possibly nothing.
    """

    low: int
    size: int
    steps: int
    batch_size: int
    streams: int

    @property
    def window(self) -> int:
        """Records that a stream shuffles at a time; no batch lies in two windows."""
        return self.batch_size * max(4, -(-WINDOW // self.batch_size))

    def stream(self, number: int) -> tuple[int, int]:
        """(first record, number of records) of a stream, in the epoch."""
        low = self._before(number)
        return self.low + low, self._before(number + 1) - low

    def batch(self, step: int) -> Batch:
        stream, turn = step % self.streams, step // self.streams
        size = self.stream(stream)[1]
        return Batch(stream, turn * self.batch_size, min((turn + 1) * self.batch_size, size))

    def _before(self, stream: int) -> int:
        """Records of all streams before one."""
        batches = self.steps // self.streams * stream + min(self.steps % self.streams, stream)
        has_last = self.steps > 0 and (self.steps - 1) % self.streams < stream
        return batches * self.batch_size - (self.steps * self.batch_size - self.size) * has_last


def share(total: int, *, rank: int, world_size: int, batch_size: int, remainder: str, streams: int) -> Share:
    """Shares `total` records among the ranks, so that all have the same number of batches.

    Args:
        remainder: "drop" leaves out what does not fill a batch on every rank; "keep" makes the last batch smaller;
            "pad" too, for the caller to fill it up.

    Raises:
        UsageError: nothing would be left, or ranks would have different numbers of batches.
    """
    together = world_size * batch_size
    if remainder == "drop":
        steps = total // together
        low, size = rank * steps * batch_size, steps * batch_size
        if total and not steps:
            raise UsageError(
                f"remainder 'drop' leaves nothing: {total} examples are fewer than {world_size} x {batch_size}, one "
                "batch on every rank. Take a smaller batch_size, or remainder='pad'"
            )
    else:
        low = total * rank // world_size
        size = total * (rank + 1) // world_size - low
        steps = -(-total // together)
        if remainder == "keep" and steps != -(-(total // world_size) // batch_size):
            raise UsageError(
                f"remainder 'keep' would give some of {world_size} ranks {steps} batches and others {steps - 1}, as "
                f"{total} examples fall: distributed training would hang. Take remainder='drop' or 'pad'"
            )
    return Share(low=low, size=size, steps=steps, batch_size=batch_size, streams=streams)


def permutation(size: int, *key: Any) -> Any:
    """int64 [size], a permutation of range(size) that depends on nothing but the key.

    It sorts the raw output of the counter-based generator Philox, which NumPy promises never to change (NEP 19; it
    does not promise that of `Generator.permutation`).
    """
    return np.argsort(np.random.Philox(key=_draw(*key)).random_raw(size), kind="stable")


def _draw(*key: Any) -> int:
    """A number of 128 bits."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=16).digest(), "little")
