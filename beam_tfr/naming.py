"""Makes and parses the names of shards and their files.

A file is `flowers-train-00003-of-00016.tfrecord.gz`; its shard is numbered as Beam's own sinks do.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NAME = re.compile("[A-Za-z0-9_]+")  # of a dataset or a split
SUFFIXES = {"gzip": ".tfrecord.gz", "none": ".tfrecord"}  # compression -> suffix of the files
_NUMBER = "([0-9]{5}|[1-9][0-9]{5,})"
_SHARD = re.compile(f"({NAME.pattern})-{_NUMBER}-of-{_NUMBER}")
_FILE = re.compile(rf"({NAME.pattern})-({_SHARD.pattern})(\.tfrecord(?:\.gz)?)")


class ShardName(NamedTuple):
    """The `number`-th shard (from 0) of the `num_shards` of a split."""

    split: str
    number: int
    num_shards: int


class FileName(NamedTuple):
    """The file of a shard: name of the dataset, name of the shard, suffix."""

    dataset: str
    shard: str
    suffix: str


def shard_name(split: str, number: int, num_shards: int) -> str:
    """`train-00003-of-00016`."""
    return f"{split}-{number:05d}-of-{num_shards:05d}"


def parse_shard_name(text: str) -> ShardName | None:
    """The parts of what `shard_name` made; None for any other text."""
    match = _SHARD.fullmatch(text)
    return match and ShardName(match[1], int(match[2]), int(match[3]))


def file_name(dataset: str, shard: str, suffix: str) -> str:
    """`flowers-train-00003-of-00016.tfrecord.gz`."""
    return f"{dataset}-{shard}{suffix}"


def parse_file_name(text: str) -> FileName | None:
    """The parts of what `file_name` made; None for any other text."""
    match = _FILE.fullmatch(text)
    return match and FileName(match[1], match[2], match[6])
