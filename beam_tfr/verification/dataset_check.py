"""Checks a dataset: reads its shards in parallel and compares their sums, keys and digests with the manifest."""

from __future__ import annotations

import bisect
import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from beam_tfr import manifest as manifests
from beam_tfr.manifest import Manifest
from beam_tfr.options import default_threads
from beam_tfr.schema import MANIFEST_FILE
from beam_tfr.verification.manifest_check import check_files
from beam_tfr.verification.problems import Problem, Problems, shown
from beam_tfr.verification.record_check import RecordCheck
from beam_tfr.verification.shard_check import ShardCheck

MAX_PIXELS = 1 << 27  # of a stored image, whatever option max_pixels allows
_PROGRESS_S = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What `verify` found.

    Attributes:
        folder: of the dataset.
        problems: the first `MAX_PROBLEMS`, in the order of the dataset.
        num_problems: the number of all problems; reading stops after about `MAX_SHARD_PROBLEMS` of one shard.
        examples: records read.
        shards: shard files in the manifest.
        num_bytes: bytes of shard files read.
        seconds: time taken.
        dataset_digest: from the manifest.
    """

    folder: str
    problems: tuple[Problem, ...]
    num_problems: int
    examples: int
    shards: int
    num_bytes: int
    seconds: float
    dataset_digest: str

    @property
    def ok(self) -> bool:
        return self.num_problems == 0


def verify(
    folder: str,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    max_record_bytes: int | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Report:
    """Reads a dataset and compares it with its manifest.

    Takes 16 bytes of memory per record to compare keys (64 at the end), about four times the longest record per
    thread, and the pixels of one large image.

    Args:
        folder: local or gs://.
        threads: number of threads that read shards; None for one per core.
        progress: called from time to time, by the calling thread, with the number of records read and of all records.
        max_record_bytes: a longer record is a problem, like damage. None: 128 MiB, or 16 times the shard's file.
        max_pixels: a larger image, or one larger than the dataset's option max_pixels, is not decoded, which is also a
            problem.

    Raises:
        UsageError: the name of the folder is empty.
        DataError: there is no manifest, or it is invalid or was edited.
    """
    started = time.monotonic()
    manifest = manifests.read(folder)
    problems = Problems()
    for problem in check_files(manifest):
        problems.add(-1, problem)
    check = RecordCheck(manifest, max_pixels=max_pixels)
    entries = [(name, entry) for name, split in manifest.splits.items() for entry in split.shards]
    shards = [
        ShardCheck(manifest, split, entry, check, max_record_bytes, functools.partial(problems.add, index))
        for index, (split, entry) in enumerate(entries)
    ]
    _read_all(shards, threads or default_threads(), progress)
    for problem in _total_problems(manifest, shards):
        problems.add(len(shards), problem)
    return Report(
        folder=folder,
        problems=problems.first,
        num_problems=problems.count,
        examples=sum(shard.done for shard in shards),
        shards=len(shards),
        num_bytes=sum(shard.num_bytes for shard in shards),
        seconds=time.monotonic() - started,
        dataset_digest=manifest.dataset_digest,
    )


def _read_all(shards: Sequence[ShardCheck], threads: int, progress: Callable[[int, int], object] | None) -> None:
    """Reads all shards, in order, in several threads."""
    total = sum(shard.entry.num_examples for shard in shards)
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(threads) as executor:
        left = {executor.submit(shard.run, stop) for shard in shards}
        try:
            while left:
                ended, left = concurrent.futures.wait(left, _PROGRESS_S, concurrent.futures.FIRST_EXCEPTION)
                for future in ended:
                    future.result()
                if progress is not None:
                    progress(sum(shard.done for shard in shards), total)
        finally:  # also after an interrupt, or if a shard's check failed
            stop.set()
            executor.shutdown(cancel_futures=True)


def _total_problems(manifest: Manifest, shards: Sequence[ShardCheck]) -> Iterator[Problem]:
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
