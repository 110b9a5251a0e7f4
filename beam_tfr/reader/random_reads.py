"""The records of an epoch in the order of shuffle="global", each read by itself.

    epoch ──▶ numbers of this host's examples ──batch──▶ chunks of numbers ──map──▶ chunks of records

What reads is Python (`dataset.lookup`), several chunks at a time.
"""

import atexit
import dataclasses
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.dataset.lookup import Lookup
from beam_tfr.order import FILLER, Order, global_order
from beam_tfr.schema.errors import DataError

CHUNKS = 4  # read at a time
_QUIET_S = 0.2  # without a call, at the end of the process


class _Calls:
    """The calls of TensorFlow's threads to Python. At the end of the process, they fail from then on, and it waits for
    those that run: Python would never let them return, and TensorFlow would wait for them for ever.
    """

    def __init__(self) -> None:
        self.ending = False
        self._begun = self._running = 0
        self._lock = threading.Lock()
        atexit.register(self._end)

    def __enter__(self) -> None:
        with self._lock:
            self._begun += 1
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1

    def _end(self) -> None:
        self.ending, seen = True, -1 if self._begun else 0
        while self._running or seen != self._begun:
            seen = self._begun
            time.sleep(_QUIET_S)


_calls = _Calls()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomReads:
    """The records of one selection, in a permutation of all.

    At the start of an epoch, a host takes up to 32 bytes of memory for each example of the split.

    Attributes:
        lookup: reads the records.
        order: which positions this host reads.
        seed: seed for the shuffle.
        padding: a serialized filler.

    Raises:
        DataError: there are no contents, or the first are damaged.
        NotInstalledError: pyarrow is missing.
    """

    lookup: Lookup
    order: Order
    seed: int
    padding: bytes

    def __post_init__(self) -> None:
        self.lookup.check()

    def chunks(self, size: int, epoch: Any, first: Any) -> Any:
        """The same as `Streams.chunks`."""

        def read(numbers: Any) -> Any:
            records, problem = tf.numpy_function(self._read, [numbers], [tf.string, tf.string])
            tf.raw_ops.Assert(condition=tf.equal(problem, ""), data=[problem])
            places = tf.stack([tf.fill(tf.shape(numbers), epoch), numbers], axis=1)
            return tf.ensure_shape(records, [None]), places

        numbers = tf.ensure_shape(tf.numpy_function(self._numbers, [epoch, first], tf.int64), [None])
        batches = tf.data.Dataset.from_tensor_slices(numbers).batch(size)
        return batches.map(read, num_parallel_calls=CHUNKS, deterministic=True)

    def _numbers(self, epoch: int, first: int) -> Any:
        """The examples of this host from a position of an epoch on: int64 [n]."""
        with _calls:
            numbers = global_order(self.order.total, self.seed, int(epoch))
            fillers = np.full(max(self.order.end - len(numbers), 0), FILLER)
        mine = slice(int(first) + self.order.host_index, self.order.end, self.order.num_hosts)
        return np.concatenate([numbers, fillers])[mine]

    def _read(self, numbers: Any) -> tuple[Any, bytes]:
        """The records of some numbers, and what is wrong with them: an exception would come with a stack trace."""
        wanted = [number for number in numbers.tolist() if number != FILLER]
        try:
            with _calls:
                if _calls.ending:
                    raise DataError("the process ends")
                found = iter(self.lookup.read(wanted))
        except (DataError, OSError) as error:
            return np.full(len(numbers), b"", object), str(error).encode()
        records = [self.padding if number == FILLER else next(found) for number in numbers.tolist()]
        return np.array(records, object), b""
