"""Computes which examples each step contains, for any number of hosts.

Both readers, `beam_tfr.reader` and `beam_tfr.torch`, follow these rules:

1. An epoch is a sequence of positions 0, 1, 2, …, one for each example. Step t of an epoch holds
   the positions [t B, (t + 1) B), where B is the global batch size; of these, host h of H reads the
   positions p with p % H == h.
2. Position p is example p // V of stream p % V. The streams cut the epoch's records into V
   consecutive runs, the first N % V of which have one record more than the others.
3. The epoch's records are in the order on disk. When shuffled, the parts (shards, or slices of
   them) are permuted by (seed, epoch), and the sequence is a circle that begins at a record drawn
   from (seed, epoch).
4. When shuffled, each stream permutes its records in windows of 256 (fewer if 256 records would
   fill the memory: `dataset.windows`), by (seed, epoch, stream, window).
5. With shuffle="global", position p is instead record `permutation(N, seed, epoch, WHOLE_SPLIT)[p]`
   of the N records in the order on disk, and there are no streams.

So the order depends only on the dataset, the split, `shuffle`, `seed`, the epoch and the number of
streams V. Batch size and hosts only determine how this order is divided.

Permutations sort 64-bit hashes (`hash_numbers`). For `reader.streams`, TensorFlow computes them
(`ArrayOps`), because a pipeline that calls Python is slower, and can hang when the process ends.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.dataset.reader_arguments import check_choice, check_integer
from beam_tfr.dataset.windows import WINDOW as WINDOW
from beam_tfr.schema.errors import UsageError

REMAINDERS = (None, "keep", "drop", "pad")
FILLER = -1  # the example number of elements that only fill up a batch

# Purposes of hashes, so that no two permutations share their hashes.
PARTS = 0
START = 1
RECORDS = 2
WHOLE_SPLIT = 3

# SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
GAMMA = 0x9E3779B97F4A7C15
MULTIPLIERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31

Int64 = NDArray[np.int64]


class ArrayOps(NamedTuple):
    """The functions that compute the order, from NumPy or, with the same names, TensorFlow."""

    numpy: Any
    shift_right: Callable[[Any, int], Any]


NUMPY = ArrayOps(np, np.right_shift)


def hash_numbers(*key: Any, ops: ArrayOps = NUMPY) -> Any:
    """Computes 64-bit hashes of non-negative whole numbers: uint64 [1].

    For arrays, returns a hash for each element: uint64 [n].
    """
    state = ops.numpy.zeros(1, np.uint64)  # an array: NumPy warns when a scalar overflows
    for word in key:
        number = ops.numpy.asarray(word, np.uint64)
        state = (state ^ number) + GAMMA
        for bits, multiplier in MULTIPLIERS:
            state = (state ^ ops.shift_right(state, bits)) * multiplier
        state = state ^ ops.shift_right(state, LAST_SHIFT)
    return state


def permutation(size: int, *key: Any, ops: ArrayOps = NUMPY) -> Any:
    """Returns the numbers below `size`, sorted by their hashes: int64 [size]."""
    numbers = ops.numpy.arange(size, dtype=np.int64)
    hashes = hash_numbers(*key, numbers, ops=ops)
    return ops.numpy.argsort(hashes, kind="stable")


class RecordRun(NamedTuple):
    """Records [skip, skip + take) of a part."""

    part: int
    skip: int
    take: int


class Epoch:
    """The records of one epoch in sequence, as runs that each belong to one part.

    Args:
        counts: number of records in each part, in the order on disk.
        seed: seed for the shuffle; None keeps the order on disk.
        number: number of the epoch.
        ops: functions that compute the runs.

    Attributes:
        parts, skips: the part of each run, and how many of its records to skip: int64 [n].
        begins, ends: where each run begins and ends in the epoch: int64 [n].
    """

    def __init__(
        self, counts: Any, *, seed: int | None, number: Any, ops: ArrayOps = NUMPY
    ) -> None:
        xp = ops.numpy
        self.seed = seed
        self.number = number
        takes = xp.asarray(counts, np.int64)
        self.parts = xp.arange(takes.shape[0], dtype=np.int64)
        self.skips = xp.zeros_like(takes)
        if seed is not None:
            self.parts = permutation(takes.shape[0], seed, number, PARTS, ops=ops)
            takes = self._turn_circle(xp.take(takes, self.parts), ops)
        self.ends = xp.cumsum(takes)
        self.begins = self.ends - takes

    def _turn_circle(self, takes: Any, ops: ArrayOps) -> Any:
        """Rotates the circle of parts so that the sequence begins at a record drawn for the epoch.

        The part that holds this record becomes two runs: the first run starts with this record, and
        the last run has the part's records before it.

        Args:
            takes: number of records in each part: int64 [n].
            ops: functions that compute the runs.

        Returns:
            The number of records in each run: int64 [n + 1].
        """
        xp = ops.numpy
        size = takes.shape[0]
        ends = xp.cumsum(takes)
        hashes = hash_numbers(self.seed, self.number, START, ops=ops)
        start = xp.asarray(ops.shift_right(hashes, 1), np.int64)  # [1]
        start = start % xp.maximum(ends[-1], 1)
        first = xp.sum(xp.asarray(ends <= start, np.int64))
        circle = (first + xp.arange(size + 1, dtype=np.int64)) % size
        self.parts = xp.take(self.parts, circle)
        takes = xp.take(takes, circle)
        first_begin = xp.take(ends, circle[:1]) - takes[:1]
        before = start - first_begin
        after = takes[:1] - before
        self.skips = xp.concatenate([before, self.skips])
        return xp.concatenate([after, takes[1:-1], before])

    def runs(self, low: int, high: int) -> Iterator[RecordRun]:
        """Returns the runs that hold records [low, high) of the epoch, in order."""
        skips = np.maximum(low - self.begins, 0)
        ends = np.minimum(high, self.ends)
        takes = ends - self.begins - skips
        skips = self.skips + skips
        for run in np.flatnonzero(takes > 0):
            yield RecordRun(int(self.parts[run]), int(skips[run]), int(takes[run]))

    def window(self, stream: int, window: int, size: int) -> Int64:
        """Returns the order of the `size` records in a window of a stream: int64 [size]."""
        if self.seed is None:
            return np.arange(size)
        places: Int64 = permutation(size, self.seed, self.number, RECORDS, stream, window)
        return places


_LEAST = {"streams": 1, "num_hosts": 1, "host_index": 0}  # arguments of `Order`


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """The order in which the `total` examples of an epoch are divided among steps and hosts.

    Example: 10 examples, streams=2, batch_size=4, num_hosts=2, remainder="keep". Stream 0 has
    records 0 to 4, stream 1 has 5 to 9. Unshuffled, the positions hold 0 5 1 6 | 2 7 3 8 | 4 9;
    host 0 reads 0 1 | 2 3 | 4, and host 1 the others.

    Attributes:
        total: examples in an epoch, at least one.
        streams: V, the number of runs of records that are read in parallel.
        num_hosts, host_index: H and h.
        batch_size: B, in total over all hosts; None for single examples, where a step is one
            example for each host.
        remainder: what to do with the examples that do not fill the last step: "keep", "drop" or
            "pad". None: "keep" on one host, "drop" on several.
        window: number of records of a stream that are read, and shuffled, together.

    Raises:
        UsageError: the arguments contradict each other.
    """

    total: int
    streams: int = 8
    num_hosts: int = 1
    host_index: int = 0
    batch_size: int | None = None
    remainder: str | None = None
    window: int = WINDOW

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            self._set(name, check_integer(name, getattr(self, name), least))
        if self.batch_size is not None:
            self._set("batch_size", check_integer("batch_size", self.batch_size, 1))
        check_choice("remainder", self.remainder, REMAINDERS)
        self._check_hosts()
        if self.remainder is None:
            self._set("remainder", "keep" if self.num_hosts == 1 else "drop")
        self._check_remainder()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_hosts(self) -> None:
        if self.host_index >= self.num_hosts:
            raise UsageError(
                f"must be less than the number of hosts, {self.num_hosts}: hosts are numbered "
                "from 0",
                option="host_index",
                value=self.host_index,
            )
        if self.step_size % self.num_hosts:
            raise UsageError(
                f"is not a multiple of the {self.num_hosts} hosts, which share it equally",
                option="batch_size",
                value=self.batch_size,
            )

    def _check_remainder(self) -> None:
        fail = functools.partial(UsageError, option="remainder", value=self.remainder)
        last_step_size = self.total % self.step_size
        if self.remainder == "keep":
            if 0 < last_step_size < self.num_hosts:
                raise fail(
                    f"{self.total} examples would give some of the {self.num_hosts} hosts one "
                    'step more than others, which would wait forever. Use "drop" or "pad"'
                )
        elif self.batch_size is None and self.num_hosts == 1:
            raise fail("has no effect without `batch_size=`: set both, or leave this out")
        if self.steps == 0:
            raise fail(
                f"leaves no complete step of {self.step_size} from {self.total} examples: use a "
                'smaller `batch_size=`, or `remainder="pad"`'
            )

    @property
    def step_size(self) -> int:
        """The number of positions in a step, on all hosts."""
        return self.batch_size or self.num_hosts

    @property
    def host_step_size(self) -> int:
        """The number of positions in a step on this host."""
        return self.step_size // self.num_hosts

    @property
    def steps(self) -> int:
        """The number of steps (batches, or examples) per epoch, equal on all hosts."""
        if self.remainder == "drop":
            return self.total // self.step_size
        return -(-self.total // self.step_size)

    @property
    def has_short_step(self) -> bool:
        """Whether the last step of an epoch has fewer examples than the others."""
        return self.remainder == "keep" and self.total % self.step_size > 0

    @property
    def end(self) -> int:
        """The position after the last position in an epoch.

        With "pad", positions from `total` on are fillers.
        """
        if self.remainder == "keep":
            return self.total
        return self.steps * self.step_size

    @property
    def host_streams(self) -> range:
        """The streams that this host reads.

        If the number of streams is a multiple of the number of hosts, these streams hold only this
        host's examples. Otherwise, the host also reads examples of other hosts, without decoding
        them.
        """
        shared = math.gcd(self.num_hosts, self.streams)
        return range(self.host_index % shared, self.streams, shared)

    def low(self, stream: int) -> int:
        """Returns where a stream begins in the epoch; it ends at `low(stream + 1)`."""
        shortest, longer = divmod(self.total, self.streams)
        return stream * shortest + min(stream, longer)

    def positions(self, step: int) -> Int64:
        """Returns this host's positions in a step, ascending: int64 [n]."""
        begin = step * self.step_size
        end = min(begin + self.step_size, self.end)
        return np.arange(begin + self.host_index, end, self.num_hosts)
