"""Checks a dataset: reads its shards in parallel and compares their sums, keys and digests with the
manifest."""

import collections
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.manifest import Manifest, check_not_replaced, dataset_digest, read_manifest
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.options import default_threads
from beam_tfr.records.box_counts import DROPPED, statistics
from beam_tfr.records.repeats import find_repeats, number_keys
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.errors import RunError, UsageError
from beam_tfr.schema.plan import Counts
from beam_tfr.verification.manifest_check import check_files
from beam_tfr.verification.record_check import RecordCheck
from beam_tfr.verification.report import (
    Problem,
    Problems,
    Report,
    ShardFound,
    Task,
    shown,
    tasks_of,
)
from beam_tfr.verification.shard_check import ContentsCheck, ShardCheck
from beam_tfr.verification.source_check import SourceCheck

_PROGRESS_S = 0.5
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

    Takes 16 bytes of memory per record to compare keys (100 at the end), about four times the
    longest record per thread, and `max_decode_bytes` of `ImageOptions`, 400 MB, to decode, or the
    pixels of one image that has more.

    Args:
        folder: local or gs://.
        sources: patterns or tables that the dataset was made from; compares each record with its
            source by SHA-256.
        exclude: patterns of files that are not sources.
        threads: number of threads that read shards; None for one per core.
        progress: called from time to time, in the calling thread.

    Raises:
        UsageError: an argument is wrong.
        DataError: there is no manifest, or it is invalid or was edited; or another dataset replaced
            this one meanwhile.
    """
    threads = default_threads() if threads is None else check_integer("threads", threads, 1)
    if exclude and not sources:
        raise UsageError("`exclude=` has no effect without `sources=`")
    manifest = read_manifest(storage.check_path(folder))
    with (
        SourceCheck(manifest, sources, exclude) if sources else contextlib.nullcontext() as compared
    ):
        check = DatasetCheck(manifest, compared)
        check.read(tasks_of(manifest), threads=threads, progress=progress)
        report = check.report()
    check_not_replaced(manifest)
    return report


class DatasetCheck:
    """Collects the results of checking shards, for a report.

    Args:
        manifest: manifest of the dataset.
        sources: the sources to compare the shards with.

    Attributes:
        found: position of a shard -> result of reading it.
        problems: all of them.
        contents: the check of the dataset's contents.
    """

    def __init__(self, manifest: Manifest, sources: SourceCheck | None = None) -> None:
        self._manifest = manifest
        self._sources = sources
        self._records = RecordCheck(manifest)
        self.found = dict[int, ShardFound]()
        self.problems = Problems()
        self.contents = ContentsCheck(manifest)
        self._started = time.monotonic()

    def shard(self, task: Task) -> ShardCheck:
        """The check of a shard."""
        return ShardCheck(self._manifest.folder, task, self._records, self.contents, self._sources)

    def add(self, found: Iterable[ShardFound]) -> None:
        """Takes the results of shards, and keeps only the first problems of all."""
        for shard in found:
            self.problems.merge(shard.problems)
            self.found[shard.task.position] = shard
            shard.problems = Problems()

    def read(
        self,
        tasks: Sequence[Task],
        *,
        threads: int | None = None,
        progress: OnProgress = lambda _: None,
    ) -> None:
        """Reads shards, in order, in several threads; the arguments are those of `verify`."""
        checks = [self.shard(task) for task in tasks]
        total = sum(task.entry.num_examples for task in tasks)
        stop = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(threads or default_threads()) as executor:
            try:
                pending = {executor.submit(check.run, stop.is_set) for check in checks}
                while pending:
                    ended, pending = concurrent.futures.wait(
                        pending, _PROGRESS_S, concurrent.futures.FIRST_EXCEPTION
                    )
                    for future in ended:
                        self.add([future.result()])
                    records = sum(check.found.done for check in checks)
                    num_bytes = sum(check.found.num_bytes for check in checks)
                    read = len(tasks) - len(pending)
                    progress(Progress("verifying", records, total, read, len(tasks), num_bytes))
            finally:  # also after an interrupt, or if a shard's check failed
                stop.set()
                executor.shutdown(cancel_futures=True)

    def report(self) -> Report:
        """Adds the checks of other files and across shards, and returns the report.

        Raises:
            UsageError: none of the sources was found.
            RunError: a shard was not read.
        """
        manifest = self._manifest
        sources = self._sources
        problems = self.problems
        tasks = tasks_of(manifest)
        lost = [task.entry.file for task in tasks if task.position not in self.found]
        if lost:
            raise RunError(
                f"the runner lost {len(lost)} shards, such as {lost[0]}; run the same command again"
            )
        found = [self.found[task.position] for task in tasks]
        for problem in check_files(manifest):
            problems.add(-1, problem)
        keys = (number_keys(shard.task.position, shard.keys).tobytes() for shard in found)
        problems.merge(repeat_problems(b"".join(keys), tasks))
        for problem in _total_problems(manifest, found):
            problems.add(len(tasks) + 1, problem)
        compared = sum(shard.sources for shard in found)
        if sources is not None:
            if problems.counts["source-gone"] == compared > 0:
                given = "the `input=` or `table=` that the dataset was made from, and the folder of `image_root=`"
                cure = f"matches none of the records; give {given}"
                raise UsageError(cure, option="sources", value=" ".join(sources.sources))
            problems.merge(sources.find_new(b"".join(shard.keys for shard in found)))
        counts = {
            "shards": len(tasks),
            "records_read": sum(shard.done for shard in found),
            "bytes_read": sum(shard.num_bytes for shard in found),
            "sources_read": compared if sources else None,
            "problems": problems.counts.total(),
        }
        return Report(
            folder=manifest.folder,
            dataset_digest=manifest.dataset_digest,
            counts=counts,
            kinds=problems.kinds,
            problems=problems.first,
            broken=tuple(shard.task.entry.file for shard in found if shard.num_problems),
            seconds=time.monotonic() - self._started,
        )


def repeat_problems(rows: bytes, tasks: Sequence[Task]) -> Problems:
    """The records that have the key of an earlier one; `rows` are those of `find_repeats`, with
    positions of shards."""
    problems = Problems()
    for (shard, record), (other, number) in find_repeats(rows):
        message = f"has the key of record {number} of {tasks[other].entry.file}"
        problem = Problem("repeated", tasks[shard].entry.file, message, record)
        problems.add(len(tasks), problem, shard << 32 | record)
    return problems


def _total_problems(manifest: Manifest, found: Sequence[ShardFound]) -> Iterator[Problem]:
    """Yields wrong sums over all shards; nothing if one is damaged, which would only repeat other
    problems."""
    if not all(shard.records_sha256 for shard in found):
        return
    records: dict[str, list[str]] = {name: [] for name in manifest.splits}
    labels: dict[str, collections.Counter[int]] = {
        name: collections.Counter() for name in manifest.splits
    }
    sizes: collections.Counter[int] = collections.Counter()
    boxes = Counts()
    for shard in found:
        records[shard.task.split].append(shard.records_sha256)
        labels[shard.task.split].update(shard.labels)
        sizes.update(shard.source_sizes)
        boxes.add(shard.boxes)
    pairs: list[tuple[str, object, object]] = []
    if manifest.names.label in manifest.features:
        for name, split in manifest.splits.items():
            for label, class_name in enumerate(manifest.class_names):
                what = f"split {shown(name)}: the number of records of class {shown(class_name)}"
                pairs.append((what, labels[name][label], split.class_counts.get(class_name, 0)))
    found_sizes = {str(size): number for size, number in sorted(sizes.items())}
    pairs += [
        ("statistics.source_sizes", found_sizes, manifest.statistics["source_sizes"]),
        (
            "dataset_digest",
            dataset_digest(manifest.fields, records),
            manifest.dataset_digest,
        ),
    ]
    box_statistics = manifest.statistics.get("boxes")
    if box_statistics:  # not of an earlier version
        counted = {
            name: value for name, value in statistics(boxes).items() if name != DROPPED
        }  # which no record holds
        pairs += [
            (f"statistics.boxes.{name}", value, box_statistics[name])
            for name, value in counted.items()
        ]
    pixels = sum(shard.pixels for shard in found)
    measured = manifest.statistics["pixels"]
    if (
        manifest.image_options.encoding != "keep" or measured > pixels
    ):  # statistics of kept files are of a sample
        pairs.append(("statistics.pixels", pixels, measured))
    for what, actual, expected in pairs:
        if actual != expected:
            message = f"{what} is {shown(expected)}, but the records have {shown(actual)}"
            yield Problem("manifest", MANIFEST_FILE, message)
