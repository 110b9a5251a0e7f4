"""Steps that do something for each shard of a dataset, on any runner: check it, export it."""

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
        shards: what stands for each shard.
        step: what takes them; its output is that of this transform.
    """

    shards: Sequence[Any]
    step: beam.PTransform

    def expand(self, begin: PBegin) -> Any:
        spread = begin | "Shards" >> beam.Create(self.shards) | "SpreadShards" >> beam.Reshuffle()
        return spread | "EachShard" >> self.step


@dataclasses.dataclass(eq=False, repr=False)
class VerifyShards(beam.PTransform):
    """Checks the shards of a dataset, each on one worker, and writes the report to a JSON file.

    Shuffles the hashes of the keys, 24 bytes per record, in 256 parts.

    Attributes:
        folder: folder of the dataset.
        report: path of the file to write.

    Output: a PCollection of one None, once the report is written.
    """

    folder: str
    report: str

    def expand(self, begin: PBegin) -> PCollection[None]:
        positions = [task.position for task in list_tasks(read_manifest(self.folder))]
        step = beam.ParDo(_Read(self.folder)).with_outputs("keys", main="found")
        read = begin | "ReadShards" >> ForEachShard(positions, step)
        repeats = (
            read.keys
            | "GroupKeys" >> beam.GroupByKey()
            | "FindRepeats"
            >> beam.ParDo(FunctionDoFn(functools.partial(_find_repeats, self.folder)))
        )
        write = FunctionDoFn(
            functools.partial(_write, folder=self.folder, path=self.report, started=time.time())
        )
        checked = (read.found, repeats) | "FlattenChecked" >> beam.Flatten()
        return (
            begin
            | "Start" >> beam.Create([None])
            | "WriteReport" >> beam.ParDo(write, AsIter(checked))
        )


class _Read(CloudDoFn):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def setup(self) -> None:
        super().setup()
        dataset = read_manifest(self._folder)
        self._tasks = list_tasks(dataset)
        self._check = DatasetCheck(dataset)

    def process(self, position: int) -> Iterator[Any]:
        found = self._check.shard(self._tasks[position]).run()
        for part in divide_by_hash(number_keys(position, found.key_hashes)):
            yield beam.pvalue.TaggedOutput("keys", part)
        found.key_hashes.clear()
        count("verified-shards")
        count("verified-records", found.num_records)
        count("verified-bytes", found.num_bytes)
        yield found


def _find_repeats(folder: str, grouped: tuple[int, Iterable[bytes]]) -> Iterator[Problems]:
    yield find_repeated_keys(b"".join(grouped[1]), list_tasks(read_manifest(folder)))


def _write(
    _: None, checked: Iterable[TaskResult | Problems], folder: str, path: str, started: float
) -> Iterator[None]:
    check = DatasetCheck(read_manifest(folder))
    for found in checked:
        if isinstance(found, TaskResult):
            check.add(found)
        else:
            check.problems.merge(found)
    fields = check.report().as_json() | {"seconds": time.time() - started}
    storage.write_bytes(path, json.dumps(fields).encode(), scratch=path.rpartition("/")[0])
    yield None


class ExportShards(ForEachShard):
    """Writes shards of a dataset in another format, each on one worker.

    Args:
        job: what is exported, and how.
        parts: the shards, with the number of images of each that are exported.

    Output: a PCollection of None for each shard.
    """

    def __init__(self, job: ExportJob, parts: Mapping[ShardPart, int]) -> None:
        super().__init__(
            [*parts.items()], beam.ParDo(FunctionDoFn(functools.partial(_export, job)))
        )


def _export(job: ExportJob, shard: tuple[ShardPart, int]) -> Iterator[None]:
    part, images = shard
    job.write(part, functools.partial(count, "exported-bytes"))
    count("exported-images", images)
    count("exported-shards")
    yield
