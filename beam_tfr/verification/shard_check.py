"""Checks one shard: its file, its records, and every image in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from beam_tfr import storage
from beam_tfr.records.repeats import HASH_BYTES
from beam_tfr.records.tfrecords import HEADER_BYTES, RecordError, RecordFile, longest_in
from beam_tfr.schema import RecordsDigest
from beam_tfr.verification.contents_check import ContentsCheck, ShardContents
from beam_tfr.verification.found import ShardFound, Task
from beam_tfr.verification.problems import Problem, shown, unreadable
from beam_tfr.verification.record_check import RecordCheck
from beam_tfr.verification.source_check import SOURCES_AT_A_TIME, SourceCheck, SourceRecord

MAX_SHARD_PROBLEMS = 1000  # a shard with more is not read to its end


class ShardCheck:
    """Reads and checks one shard, once.

    Args:
        folder: folder of the dataset.
        task: the shard.
        records: the check of its records.
        contents: the check of its contents.
        sources: the sources to compare the records with, if any.

    Attributes:
        found: the result so far.
    """

    def __init__(
        self,
        folder: str,
        task: Task,
        records: RecordCheck,
        contents: ContentsCheck,
        sources: SourceCheck | None = None,
    ) -> None:
        self.found, self._entry, self._path = ShardFound(task), task.entry, storage.join(folder, task.entry.file)
        self._records, self._contents = records, contents
        self._sources, self._waiting = sources, list[SourceRecord]()

    def run(self, stopped: Callable[[], bool] = lambda: False) -> ShardFound:
        """Reads the shard, and gives up when it is stopped."""
        if stopped():
            return self.found
        try:
            self._read(self._open_contents(), stopped)
        except RecordError as error:
            self._problem("damaged", error.problem, error.record, error.offset)
        except OSError as error:
            self.found.add(unreadable(self._entry.file, error))
        self._compare_sources()
        return self.found

    def _open_contents(self) -> ShardContents | None:
        opened = self._contents.open(self.found.task)
        if isinstance(opened, Problem):
            self.found.add(opened)
            return None
        return opened

    def _problem(self, kind: str, message: str, record: int | None = None, offset: int | None = None) -> None:
        self.found.add(Problem(kind, self._entry.file, message, record, offset))

    def _read(self, contents: ShardContents | None, stopped: Callable[[], bool]) -> None:
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
            max_record_bytes=longest_in(entry.num_bytes),
            on_bytes=on_bytes,
            on_damage=self._on_damage,
        )
        for record in file:
            if stopped():
                return
            if file.record >= entry.num_examples:
                more = f"it has more than the {entry.num_examples} records of the manifest"
                self._problem("damaged", more, file.record, file.offset)
                return
            digest.add(record)
            problems, values = self._records(record, found)
            for message in problems:
                self._problem("record", message, file.record, file.offset)
            if values is None:
                found.keys += os.urandom(HASH_BYTES)  # equals no key
            elif contents is not None:
                for message in contents.problems(file.record, file.offset + HEADER_BYTES, len(record), values):
                    found.add(Problem("contents", contents.name, message, file.record))
            if found.num_problems > MAX_SHARD_PROBLEMS:  # a kilobyte of gzip can hold a million broken records
                self._problem("record", "there are more problems; the rest was not read")
                return
            if values is not None and self._sources is not None:
                self._waiting.append(self._sources.record(values, file.record, file.offset))
                if len(self._waiting) == SOURCES_AT_A_TIME:
                    self._compare_sources()
            found.done += 1
        if file.record != entry.num_examples:
            self._problem("damaged", f"it has {file.record} records, expected {entry.num_examples}")
        if file_sha256.hexdigest() != entry.sha256:
            self._problem("damaged", f"its SHA-256 is {file_sha256.hexdigest()}, expected {shown(entry.sha256)}")
        if contents is not None and not found.num_problems:
            for message in contents.restart_problems():
                found.add(Problem("contents", contents.name, message))
        if found.done == file.record:
            found.records_sha256 = digest.hexdigest()

    def _on_damage(self, error: RecordError) -> None:
        self._problem("damaged", error.problem, error.record, error.offset)
        self.found.keys += os.urandom(HASH_BYTES)  # keeps the place of the record

    def _compare_sources(self) -> None:
        if self._sources is not None:
            for problem in self._sources.compare(self._entry.file, self._waiting):
                self.found.add(problem)
            self.found.sources += len(self._waiting)
            self._waiting = []
