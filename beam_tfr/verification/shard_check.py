"""Checks one shard: its file, its records, and its contents."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.lookup import RecordLookup, read_shard_contents
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.split_notes import NO_HASH, encode_label
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.records.contents import ContentsColumn, contents_row, need_pyarrow
from beam_tfr.records.repeats import HASH_BYTES
from beam_tfr.records.tfrecords import HEADER_BYTES, RecordError, RecordFile, max_record_bytes_in
from beam_tfr.schema.dataset import CONTENTS_FOLDER, SUMS_FILE, RecordsDigest
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.naming import contents_name
from beam_tfr.schema.untrusted import quote
from beam_tfr.verification.record_check import RecordCheck, Values
from beam_tfr.verification.report import Problem, ProblemKind, TaskResult, VerifyTask
from beam_tfr.verification.source_check import SOURCES_AT_A_TIME, SourceCheck

MAX_SHARD_PROBLEMS = 1000  # a shard with more is not read to its end
_MOST_SUMS_BYTES = 64 << 20  # 64 MiB: half a million files
_ROWS = 1024  # rows of contents to convert to Python objects together
_SUM = re.compile(rb"([0-9a-f]{64})  ((?:%b/)?[^/\n]+)\n" % CONTENTS_FOLDER.encode())


def read_sums(folder: str) -> dict[str, str]:
    """Reads from `SUMS_FILE` the SHA-256 of each file that it lists; returns {} if it is damaged.

    Raises:
        OSError: `SUMS_FILE` cannot be read.
    """
    data = storage.read_bytes(storage.join(folder, SUMS_FILE), max_bytes=_MOST_SUMS_BYTES)
    if len(data) > _MOST_SUMS_BYTES or _SUM.sub(b"", data):
        return {}
    return {name.decode(errors="replace"): sha256.decode() for sha256, name in _SUM.findall(data)}


class ContentsCheck:
    """Checks the contents of the shards of a dataset.

    Args:
        dataset: manifest of the dataset.

    Raises:
        NotInstalledError: pyarrow is missing.
    """

    def __init__(self, dataset: Manifest) -> None:
        need_pyarrow()
        self._dataset = dataset
        self._sums = dict[str, str]()
        with contextlib.suppress(OSError):  # reported by `check_files`
            self._sums = read_sums(dataset.folder)
        self._columns = dataset.contents_columns

    def open(self, result: TaskResult) -> ShardContents | None:
        """Opens the contents of a shard.

        Returns None if the contents have a problem, which is added to the result.
        """
        name = contents_name(result.task.entry.file)
        try:
            self._check_sum(name)
            table = self._read(result.task)
        except OSError as error:
            result.add(Problem.of_unreadable(name, error))
            return None
        except DataError as error:
            message = str(error)
            damage = message.partition(" is damaged: ")[2]
            result.add(Problem(ProblemKind.DAMAGED, name, damage or message))
            return None
        return ShardContents(self._dataset, result.task, table, self._columns)

    def _check_sum(self, name: str) -> None:
        """Compares contents with `SUMS_FILE`.

        If `SUMS_FILE` is missing or damaged, which is reported elsewhere, nothing is compared.

        Raises:
            DataError: the checksums differ.
            OSError: the contents cannot be read.
        """
        sha256 = storage.sha256(storage.join(self._dataset.folder, name))
        stated = self._sums.get(name)
        if not self._sums or stated == sha256:
            return
        if stated is None:
            raise DataError(f"its SHA-256 is {sha256}, but {SUMS_FILE} lacks the file")
        raise DataError(f"its SHA-256 is {sha256}, but {SUMS_FILE} has {stated}")

    def _read(self, task: VerifyTask) -> Any:
        return read_shard_contents(self._dataset, task.entry)


class ShardContents:
    """The contents of one shard, which are compared in the order of the records.

    Attributes:
        name: name of the file with the contents, in the dataset's folder.
    """

    def __init__(
        self, dataset: Manifest, task: VerifyTask, table: Any, columns: Mapping[str, ContentsColumn]
    ) -> None:
        part = ShardPart.whole(dataset.folder, task.entry)
        self.name = contents_name(task.entry.file)
        self._table = table
        self._columns = columns
        self._lookup = RecordLookup(dataset, [part])
        self._rows = enumerate(self._read_rows())

    def _read_rows(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches(_ROWS):
            yield from batch.to_pylist()

    def compare(
        self, number: int, offset: int, length: int, values: Mapping[str, Sequence[Any]]
    ) -> Iterator[str]:
        """Yields how a row differs from its record.

        Args:
            number: number of the record, greater than in the previous call.
            offset: offset of the record's data in the bytes of the records.
            length: length of the record's data.
            values: features of the record.
        """
        row = next(row for index, row in self._rows if index == number)  # damaged records have none
        place = {"offset": offset, "length": length}
        expected = contents_row(values, self._columns) | place
        for column, value in expected.items():
            stated = row[column]
            if stated != value and repr(stated) != repr(value):  # NaN equals nothing
                yield f"{column} is {quote(stated)}, but the record has {quote(value)}"

    def check_restart_points(self) -> Iterator[str]:
        """Yields what is wrong with the restart points of a compressed shard.

        Reads a record after each restart point.
        """
        restarts = self._table.column("restart").to_pylist()
        first_rows = list[int]()
        for restart, rows in itertools.groupby(range(len(restarts)), restarts.__getitem__):
            if restart is not None:
                first_rows.append(next(rows))
        try:
            self._lookup.read_records(first_rows)
        except DataError as error:
            yield f"its restart points do not match the shard: {error}"


class ShardCheck:
    """Reads and checks one shard, once.

    Args:
        folder: folder of the dataset.
        task: the shard.
        records: the check for the records of the shard.
        contents: the check for the contents of the shard.
        sources: the sources to compare the records with, if any.

    Attributes:
        result: the result so far.
    """

    def __init__(
        self,
        folder: str,
        task: VerifyTask,
        records: RecordCheck,
        contents: ContentsCheck,
        sources: SourceCheck | None = None,
    ) -> None:
        self.result = TaskResult(task)
        self._entry = task.entry
        self._path = storage.join(folder, task.entry.file)
        self._check_record = records
        self._contents_check = contents
        self._sources = sources
        self._comparisons = list[Future[Problem | None]]()
        self._file_sha256 = hashlib.sha256()
        self._records_digest = RecordsDigest()

    def run(self, stopped: Callable[[], bool] = lambda: False) -> TaskResult:
        """Reads the shard; gives up when stopped."""
        contents = self._contents_check.open(self.result)
        try:
            self._check_size()
            self._read(contents, stopped)
        except RecordError as error:
            self._add_damage(error)
        except OSError as error:
            self.result.add(Problem.of_unreadable(self._entry.file, error))
        self._finish_comparisons()
        return self.result

    def _add(
        self, kind: ProblemKind, message: str, record: int | None = None, offset: int | None = None
    ) -> None:
        self.result.add(Problem(kind, self._entry.file, message, record, offset))

    def _add_damage(self, error: RecordError) -> None:
        self._add(ProblemKind.DAMAGED, error.problem, error.record, error.offset)

    def _add_unreadable_key(self) -> None:
        """Adds a placeholder for the key and source of a damaged record.

        The placeholder differs from all other keys, and has no source.
        """
        self.result.key_hashes += os.urandom(HASH_BYTES)
        if self._check_record.has_sources:
            self.result.source_hashes += NO_HASH
            self.result.source_labels += encode_label(())

    def _check_size(self) -> None:
        file = storage.find(self._path)
        if file and file.size_bytes != self._entry.num_bytes:
            sizes = f"it has {file.size_bytes} bytes, expected {self._entry.num_bytes}"
            self._add(ProblemKind.DAMAGED, sizes)

    def _read(self, contents: ShardContents | None, stopped: Callable[[], bool]) -> None:
        """Reads and checks all records, and then the totals, which are known only at the end.

        Raises:
            RecordError: the rest of the file cannot be read, or has more records than the manifest
                states.
            OSError: the file cannot be read.
        """
        file = RecordFile(
            self._path,
            compression="gzip" if self._path.endswith(".gz") else "none",
            max_record_bytes=max_record_bytes_in(self._entry.num_bytes),
            on_bytes=self._on_bytes,
            on_damage=self._on_damage,
        )
        for record in file:
            if stopped():
                return
            self._check_number(file)
            self.result.record_bytes += len(record)
            self._check(record, file, contents)
            if self.result.num_problems > MAX_SHARD_PROBLEMS:
                # A kilobyte of gzip can hold a million broken records.
                self._add(ProblemKind.RECORD, "there are more problems; the rest was not read")
                return
            self.result.num_records += 1
        self._check_sums(file)
        if contents is not None and not self.result.num_problems:
            for message in contents.check_restart_points():
                self.result.add(Problem(ProblemKind.CONTENTS, contents.name, message))

    def _on_bytes(self, chunk: bytes) -> None:
        self.result.num_bytes += len(chunk)
        self._file_sha256.update(chunk)

    def _on_damage(self, error: RecordError) -> None:
        self._add_damage(error)
        self._add_unreadable_key()

    def _check_number(self, file: RecordFile) -> None:
        most = self._entry.num_examples
        if file.record >= most:
            message = f"it has more than the {most} records in the manifest"
            raise RecordError(self._path, file.record, file.offset, message)

    def _check(self, record: bytes, file: RecordFile, contents: ShardContents | None) -> None:
        """Checks a record, and compares it with its row in the contents and with its source."""
        self._records_digest.add(record)
        messages, values = self._check_record(record, self.result)
        for message in messages:
            self._add(ProblemKind.RECORD, message, file.record, file.offset)
        if values is None:
            self._add_unreadable_key()
            return
        if contents is not None:
            offset = file.offset + HEADER_BYTES
            for message in contents.compare(file.record, offset, len(record), values):
                self.result.add(Problem(ProblemKind.CONTENTS, contents.name, message, file.record))
        if self._sources is not None:
            self._compare_source(self._sources, values, file)

    def _check_sums(self, file: RecordFile) -> None:
        """Compares the number of records and the SHA-256 of the file with the manifest.

        If no record was skipped, adds the digest of the records to the result.
        """
        if file.record != self._entry.num_examples:
            message = f"it has {file.record} records, expected {self._entry.num_examples}"
            self._add(ProblemKind.DAMAGED, message)
        sha256 = self._file_sha256.hexdigest()
        if sha256 != self._entry.sha256:
            message = f"its SHA-256 is {sha256}, expected {quote(self._entry.sha256)}"
            self._add(ProblemKind.DAMAGED, message)
        if self.result.num_records == file.record:
            self.result.records_sha256 = self._records_digest.hexdigest()

    def _compare_source(self, sources: SourceCheck, values: Values, file: RecordFile) -> None:
        """Starts comparing a record with its source; waits if too many comparisons are running."""
        self._comparisons.append(sources.start(values, self._entry.file, file.record, file.offset))
        if len(self._comparisons) == SOURCES_AT_A_TIME:
            self._finish_comparisons()

    def _finish_comparisons(self) -> None:
        for comparison in self._comparisons:
            problem = comparison.result()
            if problem:
                self.result.add(problem)
        self.result.num_sources += len(self._comparisons)
        self._comparisons.clear()
