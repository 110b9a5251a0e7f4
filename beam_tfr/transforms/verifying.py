"""VerifyShards: runs the checks of `verify` on any runner, shard by shard."""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, PBegin, PCollection
from apache_beam.typehints import with_output_types

from beam_tfr import manifest, storage
from beam_tfr.repeats import parts_of, rows_of
from beam_tfr.transforms.counting import Shown, count
from beam_tfr.verification.dataset_check import DatasetCheck, choose, repeat_problems
from beam_tfr.verification.problems import Problems
from beam_tfr.verification.record_check import RecordCheck
from beam_tfr.verification.shard_check import ShardCheck, ShardFound


@with_output_types(None)
class VerifyShards(beam.PTransform):
    """Checks the shards of a dataset, each on one worker, and writes the report to a JSON file.

    Shuffles the hashes of the keys, 24 bytes per record, in 256 parts.

    Args:
        folder: folder of the dataset.
        report: path of the file to write.
        sample, seed: see `verify`.

    Output: a PCollection of one None, once the report is written.
    """

    def __init__(self, folder: str, report: str, *, sample: float | None = None, seed: int = 0) -> None:
        super().__init__()
        self._folder, self._report = folder, report
        self._positions = [task.position for task in choose(manifest.read(folder), sample, seed)]

    def expand(self, begin: PBegin) -> PCollection[None]:
        read = (
            begin
            | "Shards" >> beam.Create(self._positions)
            | "SpreadShards" >> beam.Reshuffle()
            | "ReadShards" >> beam.ParDo(_Read(self._folder)).with_outputs("keys", main="found")
        )
        repeats = read.keys | "GroupKeys" >> beam.GroupByKey() | "FindRepeats" >> beam.Map(_find_repeats, self._folder)
        started = begin | "Start" >> beam.Create([None])
        write = functools.partial(_write, folder=self._folder, path=self._report, started=time.time())
        return started | "WriteReport" >> beam.Map(write, AsIter(read.found), AsIter(repeats))


class _Read(Shown):
    def __init__(self, folder: str) -> None:
        super().__init__(folder=folder)
        self._folder = folder

    def setup(self) -> None:
        self._manifest = manifest.read(self._folder)
        self._tasks = choose(self._manifest)
        self._check = RecordCheck(self._manifest)

    def process(self, position: int) -> Iterator[Any]:
        found, problems = ShardCheck(self._folder, self._tasks[position], self._check).run(threading.Event())
        for part in parts_of(rows_of(position, found.keys)):
            yield beam.pvalue.TaggedOutput("keys", part)
        found.keys.clear()
        count("verified-shards")
        count("verified-records", found.done)
        count("verified-bytes", found.num_bytes)
        yield found, problems


def _find_repeats(grouped: tuple[int, Iterable[bytes]], folder: str) -> Problems:
    return repeat_problems(b"".join(grouped[1]), choose(manifest.read(folder)))


def _write(
    _: None,
    read: Iterable[tuple[ShardFound, Problems]],
    repeats: Iterable[Problems],
    *,
    folder: str,
    path: str,
    started: float,
) -> None:
    check = DatasetCheck(manifest.read(folder))
    for found, problems in read:
        check.add([found], problems)
    for problems in repeats:
        check.add([], problems)
    fields = dataclasses.asdict(check.report()) | {"seconds": time.time() - started}
    storage.write_bytes(path, json.dumps(fields).encode(), scratch=path.rpartition("/")[0])
