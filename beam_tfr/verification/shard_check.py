"""Checks one shard: its file, its records, and every image in them."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import threading
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.manifest import ShardEntry
from beam_tfr.records.repeats import HASH_BYTES, hash_key
from beam_tfr.records.tfrecords import HEADER_BYTES, RecordError, RecordFile, longest_in
from beam_tfr.schema import RecordsDigest
from beam_tfr.verification.contents_check import ContentsCheck, ShardContents
from beam_tfr.verification.problems import Problem, Problems, shown, unreadable
from beam_tfr.verification.record_check import RecordCheck
from beam_tfr.verification.source_check import SOURCES_AT_A_TIME, SourceCheck, SourceRecord

MAX_SHARD_PROBLEMS = 1000  # a shard with more is not read to its end


class Task(NamedTuple):
    """A shard to read: its number among all shards of the dataset, its split and its file."""

    position: int
    split: str
    entry: ShardEntry


@dataclasses.dataclass(slots=True)
class ShardFound:
    """The result of reading a shard.

    Attributes:
        task: the shard.
        done: records read.
        num_bytes: bytes of the file read.
        num_problems: number of problems, without those of its sources.
        sources: number of records compared with their sources.
        keys: 16 bytes for each record.
        labels: class id -> records.
        pixels: stored pixels.
        source_sizes: see `schema.ShardInfo`.
        records_sha256: see `schema.ShardInfo`; empty until the shard was read to its end and every checksum was right.
    """

    task: Task
    done: int = 0
    num_bytes: int = 0
    num_problems: int = 0
    sources: int = 0
    keys: bytearray = dataclasses.field(default_factory=bytearray)
    labels: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    pixels: int = 0
    source_sizes: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    records_sha256: str = ""


class ShardCheck:
    """Reads and checks one shard, once.

    Args:
        folder: folder of the dataset.
        task: the shard.
        check: the check of its records.
        max_record_bytes: a longer record is a problem; None: `records.longest_in` of the file.
        sources: the sources to compare the records with, if any.
        contents: the check of its contents, if they are to be checked.

    Attributes:
        found: the result so far.
    """

    def __init__(
        self,
        folder: str,
        task: Task,
        check: RecordCheck,
        max_record_bytes: int | None = None,
        sources: SourceCheck | None = None,
        contents: ContentsCheck | None = None,
    ) -> None:
        self.found, self._entry, self._path = ShardFound(task), task.entry, storage.join(folder, task.entry.file)
        self._check = check
        self._max_record_bytes = longest_in(self._entry.num_bytes) if max_record_bytes is None else max_record_bytes
        self._sources, self._waiting = sources, list[SourceRecord]()
        self._problems = Problems()
        self._damaged = False
        self._contents_check: ContentsCheck | None = contents
        self._contents: ShardContents | None = None

    def _open(self, check: ContentsCheck) -> ShardContents | None:
        """Opens the contents."""
        found = check.open(self.found.task.split, self._entry)
        if isinstance(found, Problem):
            self._add(found)
            return None
        return found

    def run(self, stop: threading.Event) -> tuple[ShardFound, Problems]:
        """Reads the shard, and gives up when `stop` is set."""
        if self._contents_check is not None and not stop.is_set():
            self._contents = self._open(self._contents_check)
        try:
            self._read(stop)
        except RecordError as error:
            self._problem("damaged", error.problem, error.record, error.offset)
        except OSError as error:
            self._add(unreadable(self._entry.file, error))
        self._compare_sources()
        self._contents = None  # so that only shards that are being read have theirs in memory
        return self.found, self._problems

    def _problem(self, kind: str, message: str, record: int | None = None, offset: int | None = None) -> None:
        self._add(Problem(kind, self._entry.file, message, record, offset))

    def _add(self, problem: Problem) -> None:
        self.found.num_problems += 1
        self._problems.add(self.found.task.position, problem)

    def _read(self, stop: threading.Event) -> None:
        path, entry, found = self._path, self._entry, self.found
        listed = storage.find(path)
        if listed and listed.size_bytes != entry.num_bytes:
            self._problem("damaged", f"it has {listed.size_bytes} bytes, expected {entry.num_bytes}")
        file_sha256, digest = hashlib.sha256(), RecordsDigest()

        def on_bytes(chunk: bytes) -> None:
            found.num_bytes += len(chunk)
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
            if file.record >= entry.num_examples:
                more = f"it has more than the {entry.num_examples} records of the manifest"
                self._problem("damaged", more, file.record, file.offset)
                return
            digest.add(record)
            result = self._check(record)
            for message in result.problems:
                self._problem("record", message, file.record, file.offset)
            if self._contents is not None and result.values is not None:
                place = file.offset + HEADER_BYTES, len(record)
                for message in self._contents.problems(file.record, *place, result.values):
                    self._add(Problem("contents", self._contents.name, message, file.record))
            if found.num_problems > MAX_SHARD_PROBLEMS:  # a kilobyte of gzip can hold a million broken records
                self._problem("record", "there are more problems; the rest was not read")
                return
            if self._sources is not None and result.key is not None:
                self._waiting.append(SourceRecord(result.key, result.source_sha256, file.record, file.offset))
                if len(self._waiting) == SOURCES_AT_A_TIME:
                    self._compare_sources()
            found.keys += os.urandom(HASH_BYTES) if result.key is None else hash_key(result.key)
            found.labels.update(result.labels)
            found.pixels += result.pixels
            if result.source_size:
                found.source_sizes[result.source_size] += 1
            found.done += 1
        if file.record != entry.num_examples:
            self._problem("damaged", f"it has {file.record} records, expected {entry.num_examples}")
        if file_sha256.hexdigest() != entry.sha256:
            self._problem("damaged", f"its SHA-256 is {file_sha256.hexdigest()}, expected {shown(entry.sha256)}")
        if self._contents is not None and not found.num_problems:
            for message in self._contents.restart_problems():
                self._add(Problem("contents", self._contents.name, message))
        if not self._damaged:
            found.records_sha256 = digest.hexdigest()

    def _on_damage(self, error: RecordError) -> None:
        self._damaged = True
        self._problem("damaged", error.problem, error.record, error.offset)
        self.found.keys += os.urandom(HASH_BYTES)  # keeps the place of the record, and equals no key

    def _compare_sources(self) -> None:
        if self._sources is None or not self._waiting:
            return
        for record, kind, message in self._sources.compare(self._waiting):
            problem = Problem(kind, self._entry.file, message, record.record, record.offset)
            self._problems.add(self.found.task.position, problem)
        self.found.sources += len(self._waiting)
        self._waiting = []
