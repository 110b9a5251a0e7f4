"""Checks a dataset: reads its shards in parallel and collects what does not fit the manifest."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence

from beam_tfr import manifest as manifests
from beam_tfr.options import default_threads
from beam_tfr.verify.manifest_check import check_files
from beam_tfr.verify.problems import Problem, Problems
from beam_tfr.verify.record_check import RecordCheck
from beam_tfr.verify.shard_check import ShardCheck
from beam_tfr.verify.totals_check import total_problems

MAX_RECORD_BYTES = 64 << 20  # 64 MiB
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
    max_record_bytes: int = MAX_RECORD_BYTES,
    max_pixels: int = MAX_PIXELS,
) -> Report:
    """Reads a dataset and compares it with its manifest.

    Takes 16 bytes of memory per record to compare keys (64 at the end), about four times the longest record per
    thread, and the pixels of one large image.

    Args:
        folder: local or gs://.
        threads: number of threads that read shards; None for one per core.
        progress: called from time to time, by the calling thread, with the number of records read and of all records.
        max_record_bytes: a longer record is a problem, like damage.
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
    for problem in total_problems(manifest, shards):
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
