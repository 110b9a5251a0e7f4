"""verify: reads again everything that a manifest promises, once, and tells what is not so and where.

from beam_tfr.verify import verify
report = verify("gs://bucket/flowers")
for problem in report.problems:
    print(problem)
"""

from __future__ import annotations

import bisect
import collections
import concurrent.futures
import dataclasses
import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from beam_tfr import manifest as manifests
from beam_tfr import storage
from beam_tfr.manifest import Manifest, ShardEntry
from beam_tfr.records import RecordError, RecordFile
from beam_tfr.schema import MANIFEST_FILE, RecordsDigest
from beam_tfr.verify.manifest_check import check_extra, check_labels, check_manifest, check_rejects
from beam_tfr.verify.problems import Problem, Problems, Tell, leads_outside, shown, unreadable
from beam_tfr.verify.record_check import RecordCheck

MAX_RECORD_BYTES = 64 << 20  # 64 MiB
MAX_PIXELS = 1 << 27  # of a stored image, whatever option max_pixels allows
MAX_SHARD_PROBLEMS = 1000  # after that many a shard is not read to its end
_PROGRESS_S = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What `verify` found.

    Attributes:
        folder: of the dataset.
        problems: the first `MAX_PROBLEMS`, in the order of the dataset.
        num_problems: all that were found; of one shard, about the first `MAX_SHARD_PROBLEMS`.
        examples: records read.
        shards: shard files in the manifest.
        num_bytes: read of shard files.
        seconds: it took.
        dataset_digest: as the manifest has it.
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

    Costs 16 bytes of memory per record for the uniqueness of keys (four times that when they are compared at the end),
    per thread about four times the longest record, and the pixels of one large image.

    Args:
        folder: local or gs://.
        threads: that read shards; None for one per usable core.
        progress: called now and then, by the calling thread, with the records read and those promised.
        max_record_bytes: a longer record is a problem, as damage is.
        max_pixels: a larger image, or one larger than the dataset's option max_pixels, is not decoded, which is a
            problem too.

    Raises:
        UsageError: the name of the folder is empty.
        DataError: there is no manifest, or it was edited, or it is none.
    """
    started = time.monotonic()
    manifest = manifests.read(folder)
    problems = Problems()
    check_manifest(manifest, problems.at(-4))
    check_labels(manifest, problems.at(-3))
    check_rejects(manifest, problems.at(-2))
    check_extra(manifest, problems.at(-1))
    check = RecordCheck(manifest, max_pixels=max_pixels)
    entries = [(name, entry) for name, split in manifest.splits.items() for entry in split.shards]
    shards = [
        _ShardCheck(manifest, split, entry, check, max_record_bytes, problems.at(index))
        for index, (split, entry) in enumerate(entries)
    ]
    _read_all(shards, threads or _usable_cores(), progress)
    _check_whole(manifest, shards, problems.at(len(shards)))
    return Report(
        folder=folder,
        problems=problems.first(),
        num_problems=problems.count,
        examples=sum(shard.done for shard in shards),
        shards=len(shards),
        num_bytes=sum(shard.num_bytes for shard in shards),
        seconds=time.monotonic() - started,
        dataset_digest=manifest.dataset_digest,
    )


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _ShardCheck:
    """Reads one shard, once.

    Attributes:
        done: records read so far.
        num_bytes: of the file, read so far.
        keys: 16 bytes for each record.
        labels: class id -> records.
        pixels: stored pixels.
        source_sizes: as in `schema.ShardInfo`.
        records_sha256: as in `schema.ShardInfo`; empty until the shard was read to its end with every checksum right.
    """

    def __init__(
        self, manifest: Manifest, split: str, entry: ShardEntry, check: RecordCheck, max_record_bytes: int, tell: Tell
    ) -> None:
        self.split, self.entry = split, entry
        self.done = self.num_bytes = self.pixels = 0
        self.keys = bytearray()
        self.labels: collections.Counter[int] = collections.Counter()
        self.source_sizes: collections.Counter[int] = collections.Counter()
        self.records_sha256 = ""
        self._folder = manifest.folder
        self._check, self._max_record_bytes, self._tell = check, max_record_bytes, tell
        self._problems = 0
        self._damaged = False

    def run(self, stop: threading.Event) -> None:
        try:
            if message := leads_outside(self._folder, self.entry.file):
                self._problem(message)
            else:
                self._read(storage.join(self._folder, self.entry.file), stop)
        except RecordError as error:
            self._problem(error.problem, error.record, error.offset)
        except OSError as error:
            self._problem(unreadable(error))

    def _problem(self, message: str, record: int | None = None, offset: int | None = None) -> None:
        self._problems += 1
        self._tell(Problem(self.entry.file, record, offset, message))

    def _read(self, path: str, stop: threading.Event) -> None:
        size = storage.size_bytes(path)
        if size is not None and size != self.entry.num_bytes:
            self._problem(f"it has {size} bytes, expected {self.entry.num_bytes}")
        file_sha256, records_sha256 = hashlib.sha256(), RecordsDigest()

        def on_bytes(chunk: bytes) -> None:
            self.num_bytes += len(chunk)
            file_sha256.update(chunk)

        file = RecordFile(
            path,
            compression="gzip" if path.endswith(".gz") else "none",
            max_record_bytes=self._max_record_bytes,
            on_bytes=on_bytes,
            on_damage=self._on_damage,
        )
        for record in file:
            if stop.is_set():
                return
            if file.record >= self.entry.num_examples:
                self._problem(
                    f"it has more than the {self.entry.num_examples} records of the manifest", file.record, file.offset
                )
                return
            records_sha256.add(record)
            checked = self._check(record)
            for message in checked.problems:
                self._problem(message, file.record, file.offset)
            if self._problems > MAX_SHARD_PROBLEMS:  # a kilobyte of gzip can hold a million broken records
                self._problem("it has more problems: the rest of it was not read")
                return
            self.keys += checked.key_hash or os.urandom(16)
            self.labels.update(checked.labels)
            self.pixels += checked.pixels
            if checked.source_size:
                self.source_sizes[checked.source_size] += 1
            self.done += 1
        if file.record != self.entry.num_examples:
            self._problem(f"it has {file.record} records, expected {self.entry.num_examples}")
        if file_sha256.hexdigest() != self.entry.sha256:
            self._problem(f"its SHA-256 is {file_sha256.hexdigest()}, expected {shown(self.entry.sha256)}")
        if not self._damaged:
            self.records_sha256 = records_sha256.hexdigest()

    def _on_damage(self, error: RecordError) -> None:
        self._damaged = True
        self._problem(error.problem, error.record, error.offset)
        self.keys += os.urandom(16)  # keeps its place, equals no key


def _read_all(shards: Sequence[_ShardCheck], threads: int, progress: Callable[[int, int], object] | None) -> None:
    """Runs all shards, in their order, in some threads."""
    total = sum(shard.entry.num_examples for shard in shards)
    stop = threading.Event()
    left = iter(shards)  # shared: a list's iterator hands each item to one thread

    def work() -> None:
        for shard in left:
            if stop.is_set():
                return
            shard.run(stop)

    with concurrent.futures.ThreadPoolExecutor(threads) as executor:
        workers = {executor.submit(work) for _ in range(threads)}
        try:
            while workers:
                ended, workers = concurrent.futures.wait(workers, _PROGRESS_S, concurrent.futures.FIRST_EXCEPTION)
                for worker in ended:
                    worker.result()
                if progress is not None:
                    progress(sum(shard.done for shard in shards), total)
        finally:  # also at an interrupt, or when a worker failed
            stop.set()


def _check_whole(manifest: Manifest, shards: Sequence[_ShardCheck], tell: Tell) -> None:
    """What only all shards together can show."""
    for problem in _repeated_keys(shards):
        tell(problem)
    if not all(shard.records_sha256 for shard in shards):
        return  # what is wrong has been told; sums over a part of the dataset would only repeat it

    def expect(what: str, found: object, expected: object) -> None:
        if found != expected:
            tell(
                Problem(MANIFEST_FILE, None, None, f"{what} is {shown(expected)}, but the records have {shown(found)}")
            )

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


def _repeated_keys(shards: Sequence[_ShardCheck]) -> Iterator[Problem]:
    hashes = np.frombuffer(b"".join(shard.keys for shard in shards), np.uint64).reshape(-1, 2)
    order = np.lexsort((hashes[:, 0], hashes[:, 1]))  # stable: equal keys stay in the order of the dataset
    hashes = hashes[order]
    again = (hashes[1:] == hashes[:-1]).all(axis=1)
    ends = list(itertools.accumulate(len(shard.keys) // 16 for shard in shards))
    for first, second in zip(order[:-1][again].tolist(), order[1:][again].tolist(), strict=True):
        (file, record), (other, number) = _place(shards, ends, second), _place(shards, ends, first)
        yield Problem(file, record, None, f"has the key of record {number} of {other}")


def _place(shards: Sequence[_ShardCheck], ends: list[int], position: int) -> tuple[str, int]:
    """File and record number of the record that stands at a position of the whole dataset."""
    index = bisect.bisect_right(ends, position)
    return shards[index].entry.file, position - (ends[index - 1] if index else 0)
