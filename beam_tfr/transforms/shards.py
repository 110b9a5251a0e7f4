"""Applies steps to each shard of a dataset, on any runner, to check or export the dataset."""

import dataclasses
import functools
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, PBegin, PCollection

from beam_tfr import storage
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.exports.export_formats import ExportJob
from beam_tfr.records.repeats import divide_by_hash, number_keys
from beam_tfr.transforms.counting import CloudDoFn, FunctionDoFn, count
from beam_tfr.verification.dataset_check import DatasetCheck, find_repeated_keys
from beam_tfr.verification.report import Problems, TaskResult, list_tasks


@dataclasses.dataclass(eq=False, repr=False)
class ForEachShard(beam.PTransform):
    """Applies a step to each shard of a dataset, on any worker.

    Attributes:
        shards: elements that represent the shards.
        step: the transform to apply to them, whose output is also the output of this transform.
    """

    shards: Sequence[Any]
    step: beam.PTransform

    def expand(self, begin: PBegin) -> Any:
        listed = begin | "Shards" >> beam.Create(self.shards)
        spread = listed | "SpreadShards" >> beam.Reshuffle()
        return spread | "EachShard" >> self.step


@dataclasses.dataclass(eq=False, repr=False)
class VerifyShards(beam.PTransform):
    """Checks the shards of a dataset, each on one worker, and writes the report to a JSON file.

    Shuffles the hashes of the keys, 24 bytes per record, in 256 parts.

    Attributes:
        folder: folder of the dataset.
        report: path of the file to write.

    Output: a PCollection with a single None, once the report is written.
    """

    folder: str
    report: str

    def expand(self, begin: PBegin) -> PCollection[None]:
        positions = [task.position for task in list_tasks(read_manifest(self.folder))]
        verifying = beam.ParDo(_Verify(self.folder)).with_outputs("keys", main="results")
        verified = begin | "ReadShards" >> ForEachShard(positions, verifying)
        finding = FunctionDoFn(functools.partial(_find_repeats, self.folder))
        grouped = verified.keys | "GroupKeys" >> beam.GroupByKey()
        repeats = grouped | "FindRepeats" >> beam.ParDo(finding)
        results = (verified.results, repeats) | "FlattenChecked" >> beam.Flatten()
        write = functools.partial(
            _write_report, folder=self.folder, path=self.report, started=time.time()
        )
        writing = beam.ParDo(FunctionDoFn(write), AsIter(results))
        return begin | "Start" >> beam.Create([None]) | "WriteReport" >> writing


class _Verify(CloudDoFn):
    """Verifies the shard at a position; sends the hashes of its keys to another output."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def setup(self) -> None:
        super().setup()
        dataset = read_manifest(self._folder)
        self._tasks = list_tasks(dataset)
        self._check = DatasetCheck(dataset)

    def process(self, position: int) -> Iterator[Any]:
        result = self._check.shard(self._tasks[position]).run()
        for part in divide_by_hash(number_keys(position, result.key_hashes)):
            yield beam.pvalue.TaggedOutput("keys", part)
        result.key_hashes.clear()
        count("verified-shards")
        count("verified-records", result.num_records)
        count("verified-bytes", result.num_bytes)
        yield result


def _find_repeats(folder: str, part: tuple[int, Iterable[bytes]]) -> Iterator[Problems]:
    """Finds repeated keys in one part of the hashes of all keys."""
    _, hashes = part
    yield find_repeated_keys(b"".join(hashes), list_tasks(read_manifest(folder)))


def _write_report(
    _: None, results: Iterable[TaskResult | Problems], folder: str, path: str, started: float
) -> Iterator[None]:
    """Writes the report on a dataset, from the results of the shards and the repeated keys."""
    check = DatasetCheck(read_manifest(folder))
    for result in results:
        if isinstance(result, TaskResult):
            check.add(result)
        else:
            check.problems.merge(result)
    fields = check.report().as_json() | {"seconds": time.time() - started}
    storage.write_bytes(path, json.dumps(fields).encode(), scratch=path.rpartition("/")[0])
    yield None


class ExportShards(ForEachShard):
    """Writes shards of a dataset in another format, each on one worker.

    Args:
        job: what to export, and how.
        parts: the shards, each with the number of its images to export.

    Output: a PCollection of None for each shard.
    """

    def __init__(self, job: ExportJob, parts: Mapping[ShardPart, int]) -> None:
        exporting = FunctionDoFn(functools.partial(_export_shard, job))
        super().__init__([*parts.items()], beam.ParDo(exporting))


def _export_shard(job: ExportJob, shard: tuple[ShardPart, int]) -> Iterator[None]:
    part, images = shard
    job.write(part, functools.partial(count, "exported-bytes"))
    count("exported-images", images)
    count("exported-shards")
    yield
