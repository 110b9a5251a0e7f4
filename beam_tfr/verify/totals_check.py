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
from beam_tfr.verify.problems import Problem, Tell, shown
from beam_tfr.verify.shard_check import ShardCheck


def check_totals(manifest: Manifest, shards: Sequence[ShardCheck], tell: Tell) -> None:
    """Tells the problems of shards that were all read."""
    for problem in _repeated_keys(shards):
        tell(problem)
    if not all(shard.records_sha256 for shard in shards):
        return  # the sums over what could be read would only repeat the problem

    def expect(what: str, found: object, expected: object) -> None:
        if found != expected:
            tell(Problem(MANIFEST_FILE, f"{what} is {shown(expected)}, but the records have {shown(found)}"))

    records: dict[str, list[str]] = {name: [] for name in manifest.splits}
    labels: dict[str, collections.Counter[int]] = {name: collections.Counter() for name in manifest.splits}
    for shard in shards:
        records[shard.split].append(shard.records_sha256)
        labels[shard.split].update(shard.labels)
    if manifest.names.label in manifest.features:
        for name, split in manifest.splits.items():
            for label, class_name in enumerate(manifest.class_names):
                what = f"split {shown(name)}: the number of records of class {shown(class_name)}"
                expect(what, labels[name][label], split.class_counts.get(class_name, 0))
    expect("statistics.pixels", sum(shard.pixels for shard in shards), manifest.statistics["pixels"])
    sizes: collections.Counter[int] = collections.Counter()
    for shard in shards:
        sizes.update(shard.source_sizes)
    found = {str(size): number for size, number in sorted(sizes.items())}
    expect("statistics.source_sizes", found, manifest.statistics["source_sizes"])
    expect("dataset_digest", manifests.dataset_digest(manifest.fields, records), manifest.dataset_digest)


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
