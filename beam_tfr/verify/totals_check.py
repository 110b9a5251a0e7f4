"""Checks what only all shards together can show: unique keys, and the sums and digests of the manifest."""

from __future__ import annotations

import bisect
import collections
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from beam_tfr import manifest as manifests
from beam_tfr.manifest import Manifest
from beam_tfr.schema import MANIFEST_FILE
from beam_tfr.verify.problems import Problem, shown
from beam_tfr.verify.shard_check import ShardCheck


def total_problems(manifest: Manifest, shards: Sequence[ShardCheck]) -> Iterator[Problem]:
    """Yields the problems that shards which were all read have with each other and with the manifest's sums."""
    yield from _repeated_keys(shards)
    if not all(shard.records_sha256 for shard in shards):
        return  # the sums over what could be read would only repeat the problem
    records: dict[str, list[str]] = {name: [] for name in manifest.splits}
    labels: dict[str, collections.Counter[int]] = {name: collections.Counter() for name in manifest.splits}
    sizes: collections.Counter[int] = collections.Counter()
    for shard in shards:
        records[shard.split].append(shard.records_sha256)
        labels[shard.split].update(shard.labels)
        sizes.update(shard.source_sizes)
    pairs: list[tuple[str, object, object]] = []
    if manifest.names.label in manifest.features:
        for name, split in manifest.splits.items():
            for label, class_name in enumerate(manifest.class_names):
                what = f"split {shown(name)}: the number of records of class {shown(class_name)}"
                pairs.append((what, labels[name][label], split.class_counts.get(class_name, 0)))
    found_sizes = {str(size): number for size, number in sorted(sizes.items())}
    pairs += [
        ("statistics.pixels", sum(shard.pixels for shard in shards), manifest.statistics["pixels"]),
        ("statistics.source_sizes", found_sizes, manifest.statistics["source_sizes"]),
        ("dataset_digest", manifests.dataset_digest(manifest.fields, records), manifest.dataset_digest),
    ]
    for what, found, expected in pairs:
        if found != expected:
            yield Problem(MANIFEST_FILE, f"{what} is {shown(expected)}, but the records have {shown(found)}")


def _repeated_keys(shards: Sequence[ShardCheck]) -> Iterator[Problem]:
    hashes = np.frombuffer(b"".join(shard.keys for shard in shards), np.uint64).reshape(-1, 2)
    order = np.lexsort((hashes[:, 0], hashes[:, 1]))  # stable: equal keys stay in the order of the dataset
    hashes = hashes[order]
    again = (hashes[1:] == hashes[:-1]).all(axis=1)
    ends = list(itertools.accumulate(len(shard.keys) // 16 for shard in shards))
    for first, second in zip(order[:-1][again].tolist(), order[1:][again].tolist(), strict=True):
        (file, record), (other, number) = _place(shards, ends, second), _place(shards, ends, first)
        yield Problem(file, f"has the key of record {number} of {other}", record)


def _place(shards: Sequence[ShardCheck], ends: list[int], position: int) -> tuple[str, int]:
    """File and number of the record at a position of the whole dataset."""
    index = bisect.bisect_right(ends, position)
    return shards[index].entry.file, position - (ends[index - 1] if index else 0)
