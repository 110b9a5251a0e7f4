"""The shards to check, and what was found in one of them."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from typing import NamedTuple

from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.options.kinds import is_number
from beam_tfr.schema import UsageError, sha256_hex
from beam_tfr.verification.problems import KINDS, Problem, Problems


class Task(NamedTuple):
    """A shard to read: its number among all shards of the dataset, its split and its file."""

    position: int
    split: str
    entry: ShardEntry


@dataclasses.dataclass(slots=True)
class ShardFound:
    """The result of reading a shard.

    Attributes:
        task: the shard.
        done: records read.
        num_bytes: bytes of the file read.
        problems: its problems, and those of its sources.
        num_problems: number of problems, without those of its sources.
        sources: number of records compared with their sources.
        keys: 16 bytes for each record.
        labels: class id -> records.
        pixels: stored pixels, by the records' own heights and widths.
        source_sizes: see `schema.ShardInfo`.
        records_sha256: see `schema.ShardInfo`; empty until the shard was read to its end and every checksum was right.
    """

    task: Task
    done: int = 0
    num_bytes: int = 0
    problems: Problems = dataclasses.field(default_factory=Problems)
    num_problems: int = 0
    sources: int = 0
    keys: bytearray = dataclasses.field(default_factory=bytearray)
    labels: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    pixels: int = 0
    source_sizes: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    records_sha256: str = ""

    def add(self, problem: Problem) -> None:
        self.num_problems += problem.kind in KINDS
        self.problems.add(self.task.position, problem)


def choose(manifest: Manifest, sample: float | None = None) -> list[Task]:
    """The shards to read: all of a dataset, or a share of each split.

    Raises:
        UsageError: the share is not above 0, or it is above 1.
    """
    shards = ((name, entry) for name, split in manifest.splits.items() for entry in split.shards)
    tasks = [Task(position, split, entry) for position, (split, entry) in enumerate(shards)]
    if sample is None:
        return tasks
    if not is_number(sample) or not 0 < sample <= 1:
        raise UsageError("must be a share of the shards, above 0 and at most 1", option="sample", value=sample)
    chosen = []
    for _, same_split in itertools.groupby(tasks, lambda task: task.split):
        mixed = sorted(same_split, key=lambda task: sha256_hex(task.entry.file.encode()))
        chosen += mixed[: math.ceil(sample * len(mixed))]
    return sorted(chosen)
