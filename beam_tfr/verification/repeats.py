"""Finds records with equal keys in a whole dataset, by hashes of 24 bytes per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from beam_tfr.verification.problems import Problem, Problems
from beam_tfr.verification.shard_check import ShardFound, Task

_ROW = np.dtype([("hash", "<u8", 2), ("shard", "<u4"), ("record", "<u4")])


def rows_of(found: ShardFound) -> np.ndarray:
    """The hash of each key of a shard, with its place."""
    hashes = np.frombuffer(bytes(found.keys), "<u8").reshape(-1, 2)
    rows = np.empty(len(hashes), _ROW)
    rows["hash"], rows["shard"], rows["record"] = hashes, found.task.position, np.arange(len(hashes))
    return rows


def keys_by_bucket(found: ShardFound) -> Iterator[tuple[int, bytes]]:
    """Yields (bucket, rows) of a shard; equal keys are in the same of 256 buckets."""
    rows = rows_of(found)
    buckets = rows["hash"][:, 0] & np.uint64(0xFF)
    for bucket in np.unique(buckets):
        yield int(bucket), rows[buckets == bucket].tobytes()


def find_repeats(data: bytes, tasks: Sequence[Task]) -> Problems:
    """The records that have the key of an earlier one.

    Args:
        data: rows of `keys_by_bucket` of one bucket, in any order; or of all.
        tasks: all shards of the dataset.
    """
    rows = np.frombuffer(data, _ROW)
    rows = rows[np.lexsort((rows["record"], rows["shard"], rows["hash"][:, 0], rows["hash"][:, 1]))]
    again = np.flatnonzero((rows["hash"][1:] == rows["hash"][:-1]).all(axis=1))
    problems = Problems()
    for before, row in zip(rows[again].tolist(), rows[again + 1].tolist(), strict=True):
        (_, shard, record), (_, other, number) = row, before
        told = f"has the key of record {number} of {tasks[other].entry.file}"
        order = shard << 32 | record
        problems.add(len(tasks), Problem("repeated", tasks[shard].entry.file, told, record), order=order)
    return problems


def all_repeats(found: Iterable[ShardFound], tasks: Sequence[Task]) -> Problems:
    """`find_repeats` of all shards at once."""
    return find_repeats(b"".join(rows_of(one).tobytes() for one in found), tasks)
