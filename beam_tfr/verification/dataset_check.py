"""Checks a dataset: reads its shards in parallel, and compares their totals with the manifest."""

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.copies.summary import describe_copies
from beam_tfr.dataset.manifest import Manifest, check_not_replaced, read_manifest
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.dataset.share_notes import describe_dataset_shares
from beam_tfr.dataset.split_notes import (
    SourceHashes,
    describe_classes,
    describe_contradictions,
    describe_overlaps,
    find_overlaps,
)
from beam_tfr.options import default_threads
from beam_tfr.records.repeats import find_repeats, number_keys
from beam_tfr.schema.errors import DataError, RunError, UsageError
from beam_tfr.verification.manifest_check import check_files
from beam_tfr.verification.record_check import RecordCheck
from beam_tfr.verification.report import (
    Problem,
    ProblemKind,
    Problems,
    Report,
    Section,
    TaskResult,
    VerifyTask,
    list_tasks,
)
from beam_tfr.verification.shard_check import ContentsCheck, ShardCheck
from beam_tfr.verification.source_check import SourceCheck
from beam_tfr.verification.totals_check import find_wrong_totals

_PROGRESS_S = 0.5
_MUCH_BYTES = 256 << 20  # 256 MiB
_MUCH_RATIO = 64  # photos in GZIP shrink by less than 2
OnProgress = Callable[[Progress], object]


def verify(
    folder: str,
    *,
    sources: Sequence[str] = (),
    exclude: Sequence[str] = (),
    threads: int | None = None,
    progress: OnProgress = lambda _: None,
) -> Report:
    """Reads a dataset and compares it with its manifest.

    This uses 24 bytes of memory per record to compare keys and sources (100 bytes at the end),
    about four times the size of the longest record per thread and, to decode images,
    `max_decode_bytes` of `ImageOptions` (400 MB), or the size of the pixels of a single image if
    that is larger.

    Args:
        folder: local or gs://.
        sources: patterns or tables that the dataset was made from; each record is compared with its
            source by SHA-256.
        exclude: patterns of files that are not sources.
        threads: number of threads that read shards; None for one per core.
        progress: called from time to time, in the thread of the caller.

    Raises:
        UsageError: an argument is wrong.
        DataError: there is no manifest, or the manifest is invalid or was edited; or another
            dataset replaced this one during the check.
    """
    if threads is None:
        threads = default_threads()
    else:
        threads = check_integer("threads", threads, 1)
    if exclude and not sources:
        raise UsageError("`exclude=` has no effect without `sources=`")
    manifest = read_manifest(storage.check_path(folder))
    with contextlib.ExitStack() as stack:
        source_check = None
        if sources:
            source_check = stack.enter_context(SourceCheck(manifest, sources, exclude))
        check = DatasetCheck(manifest, source_check)
        check.read(list_tasks(manifest), threads=threads, progress=progress)
        report = check.report()
    check_not_replaced(manifest)
    return report


class DatasetCheck:
    """Collects the results of verifying shards, for a report.

    Args:
        manifest: manifest of the dataset.
        sources: the sources to compare the shards with.

    Attributes:
        results: position of a shard -> result of verifying it.
        problems: all problems.
        contents: the check for the dataset's contents.
    """

    def __init__(self, manifest: Manifest, sources: SourceCheck | None = None) -> None:
        self._manifest = manifest
        self._sources = sources
        self._records = RecordCheck(manifest)
        self.results = dict[int, TaskResult]()
        self.problems = Problems()
        self.contents = ContentsCheck(manifest)
        self._started = time.monotonic()
        self._num_records = 0
        self._num_bytes = 0
        self._num_sources = 0

    def shard(self, task: VerifyTask) -> ShardCheck:
        """Returns the check for a shard."""
        return ShardCheck(self._manifest.folder, task, self._records, self.contents, self._sources)

    def add(self, result: TaskResult) -> None:
        """Adds the result for a shard, keeping only the first problems of all shards."""
        self.problems.merge(result.problems)
        result.problems = Problems()
        self.results[result.task.position] = result
        self._num_records += result.num_records
        self._num_bytes += result.num_bytes
        self._num_sources += result.num_sources

    def read(
        self,
        tasks: Sequence[VerifyTask],
        *,
        threads: int | None = None,
        progress: OnProgress = lambda _: None,
    ) -> None:
        """Reads the shards in order, in several threads; see `verify` for the arguments."""
        checks = [self.shard(task) for task in tasks]
        stop = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(threads or default_threads()) as executor:
            try:
                pending = {executor.submit(check.run, stop.is_set) for check in checks}
                while pending:
                    ended, pending = concurrent.futures.wait(
                        pending, _PROGRESS_S, concurrent.futures.FIRST_EXCEPTION
                    )
                    for future in ended:
                        self.add(future.result())
                    progress(_measure_progress(checks, len(pending)))
            finally:  # also after an interrupt, or if a shard's check failed
                stop.set()
                executor.shutdown(cancel_futures=True)

    def report(self) -> Report:
        """Adds the checks of other files and of the whole dataset, and returns the report.

        Raises:
            UsageError: no source was found.
            RunError: a shard was not read.
        """
        results = self._order_results()
        self._check_across_shards(results)
        if self._sources is not None:
            self._check_sources(self._sources, results)
        counts = {
            "shards": len(results),
            "records_read": self._num_records,
            "bytes_read": self._num_bytes,
            "sources_read": self._num_sources if self._sources else None,
            "problems": self.problems.counts.total(),
        }
        return Report(
            folder=self._manifest.folder,
            dataset_digest=self._manifest.dataset_digest,
            counts=counts,
            kinds=self.problems.kinds,
            problems=self.problems.first,
            broken=tuple(result.task.entry.file for result in results if result.num_problems),
            notes=(
                *self._describe_splits(results),
                *_describe_sizes(results),
                *self._describe_exclusions(),
            ),
            seconds=time.monotonic() - self._started,
        )

    def _describe_splits(self, results: Sequence[TaskResult]) -> Iterator[str]:
        """Yields notes about the splits."""
        dataset = self._manifest
        hashes = [
            SourceHashes(result.task.split, result.source_hashes, result.source_labels)
            for result in results
        ]
        shards = [result.task.entry for result in results]
        yield from describe_overlaps(dataset, shards, find_overlaps(hashes))
        yield from describe_contradictions(dataset, shards, hashes)
        with contextlib.suppress(DataError, OSError):  # contents are damaged: a problem
            yield from describe_copies(dataset)
        encoding = dataset.options["encoding"]
        yield from describe_classes(dataset.splits, dataset.class_names, encoding)
        yield from describe_dataset_shares(dataset)

    def _describe_exclusions(self) -> Iterator[str]:
        """Yields messages about patterns in `exclude` that match no source."""
        if self._sources is not None:
            yield from self._sources.describe_exclusions()

    def _order_results(self) -> list[TaskResult]:
        """Returns the results of all shards, in the order of the manifest.

        Raises:
            RunError: a shard was not read.
        """
        tasks = list_tasks(self._manifest)
        lost = [task.entry.file for task in tasks if task.position not in self.results]
        if lost:
            raise RunError(
                f"the runner lost {len(lost)} shards, such as {lost[0]}; run the same command again"
            )
        return [self.results[task.position] for task in tasks]

    def _check_across_shards(self, results: Sequence[TaskResult]) -> None:
        """Adds the problems of all other files, repeated keys, and wrong totals."""
        for problem in check_files(self._manifest):
            self.problems.add(problem, Section.FILES)
        rows = [
            number_keys(result.task.position, result.key_hashes).tobytes() for result in results
        ]
        tasks = [result.task for result in results]
        self.problems.merge(find_repeated_keys(b"".join(rows), tasks))
        for problem in find_wrong_totals(self._manifest, results):
            self.problems.add(problem, Section.TOTALS)

    def _check_sources(self, sources: SourceCheck, results: Sequence[TaskResult]) -> None:
        """Adds the problems with new sources.

        Raises:
            UsageError: no record has a source among the specified ones.
        """
        if self.problems.counts[ProblemKind.SOURCE_GONE] == self._num_sources > 0:
            raise UsageError(
                "matches none of the records; specify the `input=` or `table=` that the dataset "
                "was made from, and the folder passed as `image_root=`, if any",
                option="sources",
                value=" ".join(sources.patterns),
            )
        self.problems.merge(sources.find_new(b"".join(result.key_hashes for result in results)))


def _measure_progress(checks: Sequence[ShardCheck], num_pending: int) -> Progress:
    records = 0
    total = 0
    num_bytes = 0
    for check in checks:
        records += check.result.num_records
        total += check.result.task.entry.num_examples
        num_bytes += check.result.num_bytes
    num_ended = len(checks) - num_pending
    return Progress("verifying", records, total, num_ended, len(checks), num_bytes)


def _describe_sizes(results: Sequence[TaskResult]) -> Iterator[str]:
    """Yields a note if records take far more memory than the sizes of their files suggest."""
    file_bytes = sum(result.num_bytes for result in results)
    record_bytes = sum(result.record_bytes for result in results)
    if record_bytes <= max(_MUCH_BYTES, _MUCH_RATIO * file_bytes):
        return
    ratio = record_bytes // file_bytes
    average = record_bytes // sum(result.num_records for result in results)
    yield (
        f"uncompressed, the records take {record_bytes:,} bytes, {ratio:,} times as many as the "
        f"shards, {average:,} on average; readers refuse records that take more than 1 GiB together"
    )


def find_repeated_keys(rows: bytes, tasks: Sequence[VerifyTask]) -> Problems:
    """Finds records with the same key as an earlier record, and returns them as problems.

    Args:
        rows: rows for `find_repeats`; the file numbers are positions of shards.
        tasks: all shards.
    """
    problems = Problems()
    for (shard, record), (earlier_shard, earlier_record) in find_repeats(rows):
        earlier_file = tasks[earlier_shard].entry.file
        message = f"has the same key as record {earlier_record} of {earlier_file}"
        problem = Problem(ProblemKind.REPEATED, tasks[shard].entry.file, message, record)
        problems.add(problem, Section.REPEATED_KEYS, shard, record)
    return problems
