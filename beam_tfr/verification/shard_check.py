"""Checks one shard: its file, its records, and its contents."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.lookup import RecordLookup, features_in, read_contents
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.records.contents import ContentsColumn, contents_columns, contents_row, need_pyarrow
from beam_tfr.records.repeats import HASH_BYTES
from beam_tfr.records.tfrecords import HEADER_BYTES, RecordError, RecordFile, max_record_bytes_in
from beam_tfr.schema.dataset import SUMS_FILE, RecordsDigest
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.naming import contents_name, shard_number
from beam_tfr.verification.record_check import RecordCheck
from beam_tfr.verification.report import Problem, ShardFound, Task, shown, unreadable
from beam_tfr.verification.source_check import SOURCES_AT_A_TIME, SourceCheck

MAX_SHARD_PROBLEMS = 1000  # a shard with more is not read to its end
_ROWS = 1024  # compared at a time
_SUM = re.compile(rb"([0-9a-f]{64})  ((?:\.\./)?[^/\n]+)\n")


def read_sums(folder: str) -> dict[str, str]:
    """The SHA-256 of each file that SHA256SUMS names, by its path from the folder `contents`; none
    if it is damaged.

    Raises:
        OSError: it cannot be read.
    """
    lines = storage.read_bytes(storage.join(folder, SUMS_FILE))
    is_whole = not _SUM.sub(b"", lines)
    return {
        match[2].decode(errors="replace"): match[1].decode()
        for match in _SUM.finditer(lines)
        if is_whole
    }


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
        self._columns = contents_columns(features_in(dataset), dataset.names)

    def open(self, found: ShardFound) -> ShardContents | None:
        """The contents of a shard; None if there is nothing to compare, or for a problem, which is
        added."""
        entry = found.task.entry
        name = contents_name(found.task.entry.file)
        expected = self._sums.get(name.rpartition("/")[2])
        try:
            sha256 = storage.sha256(storage.join(self._dataset.folder, name))
            if sha256 != expected and self._sums:  # without them, that is the problem
                in_sums = (
                    f"{SUMS_FILE} has {expected}" if expected else f"{SUMS_FILE} does not have it"
                )
                found.add(Problem("damaged", name, f"its SHA-256 is {sha256}, and {in_sums}"))
                return None
            table = read_contents(
                self._dataset, entry.file, entry.num_examples, max_record_bytes_in(entry.num_bytes)
            )
        except OSError as error:
            found.add(unreadable(name, error))
            return None
        except DataError as error:
            found.add(
                Problem("damaged", name, str(error).partition(" is damaged: ")[2] or str(error))
            )
            return None
        return ShardContents(self._dataset, found.task, table, self._columns)


class ShardContents:
    """The contents of one shard, compared in the order of the records."""

    def __init__(
        self, dataset: Manifest, task: Task, table: Any, columns: Mapping[str, ContentsColumn]
    ) -> None:
        entry = task.entry
        total = task.entry.num_examples
        part = ShardPart(storage.join(dataset.folder, entry.file), total, 0, total, entry.num_bytes)
        self.name = contents_name(entry.file)
        self._table = table
        self._columns = columns
        self._lookup = RecordLookup(dataset, [part])
        self._same = {"split": task.split, "shard": shard_number(entry.file)}
        self._rows = enumerate(
            row for batch in table.to_batches(_ROWS) for row in batch.to_pylist()
        )

    def problems(
        self, number: int, offset: int, length: int, values: Mapping[str, Sequence[Any]]
    ) -> Iterator[str]:
        """Yields how a row differs from its record.

        Args:
            number: of the record, greater than in the call before.
            offset: of its data in the bytes of the records.
            length: of its data.
            values: its features.
        """
        row = next(row for index, row in self._rows if index == number)  # damaged records have none
        expected = {
            **contents_row(values, self._columns),
            **self._same,
            "offset": offset,
            "length": length,
        }
        for column, value in expected.items():
            if row[column] != value and repr(row[column]) != repr(value):  # NaN equals nothing
                yield f"{column} is {shown(row[column])}, but the record has {shown(value)}"

    def restart_problems(self) -> Iterator[str]:
        """Yields what is wrong with the restart points of a compressed shard, by reading a record
        after each."""
        points = self._table.column("restart").to_pylist()
        rows = [
            row
            for row, point in enumerate(points)
            if point is not None and (not row or points[row - 1] != point)
        ]
        try:
            self._lookup.read_records(rows)
        except DataError as error:
            yield f"its restart points do not fit the shard: {error}"


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
        self.found = ShardFound(task)
        self._entry = task.entry
        self._path = storage.join(folder, task.entry.file)
        self._records = records
        self._contents = contents
        self._sources = sources
        self._compared = list[Future[Problem | None]]()

    def run(self, stopped: Callable[[], bool] = lambda: False) -> ShardFound:
        """Reads the shard, and gives up when it is stopped."""
        try:
            self._read(self._contents.open(self.found), stopped)
        except RecordError as error:
            self._problem("damaged", error.problem, error.record, error.offset)
        except OSError as error:
            self.found.add(unreadable(self._entry.file, error))
        self._add_compared()
        return self.found

    def _problem(
        self, kind: str, message: str, record: int | None = None, offset: int | None = None
    ) -> None:
        self.found.add(Problem(kind, self._entry.file, message, record, offset))

    def _read(self, contents: ShardContents | None, stopped: Callable[[], bool]) -> None:
        path = self._path
        entry = self._entry
        found = self.found
        listed = storage.find(path)
        if listed and listed.size_bytes != entry.num_bytes:
            self._problem(
                "damaged", f"it has {listed.size_bytes} bytes, expected {entry.num_bytes}"
            )
        file_sha256 = hashlib.sha256()
        digest = RecordsDigest()

        def on_bytes(chunk: bytes) -> None:
            found.num_bytes += len(chunk)
            file_sha256.update(chunk)

        file = RecordFile(
            path,
            compression="gzip" if path.endswith(".gz") else "none",
            max_record_bytes=max_record_bytes_in(entry.num_bytes),
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
                for message in contents.problems(
                    file.record, file.offset + HEADER_BYTES, len(record), values
                ):
                    found.add(Problem("contents", contents.name, message, file.record))
            if (
                found.num_problems > MAX_SHARD_PROBLEMS
            ):  # a kilobyte of gzip can hold a million broken records
                self._problem("record", "there are more problems; the rest was not read")
                return
            if values is not None and self._sources is not None:
                place = Problem("", entry.file, "", file.record, file.offset)
                self._compared.append(self._sources.start(values, place))
                if len(self._compared) == SOURCES_AT_A_TIME:
                    self._add_compared()
            found.done += 1
        if file.record != entry.num_examples:
            self._problem("damaged", f"it has {file.record} records, expected {entry.num_examples}")
        if file_sha256.hexdigest() != entry.sha256:
            self._problem(
                "damaged",
                f"its SHA-256 is {file_sha256.hexdigest()}, expected {shown(entry.sha256)}",
            )
        if contents is not None and not found.num_problems:
            for message in contents.restart_problems():
                found.add(Problem("contents", contents.name, message))
        if found.done == file.record:
            found.records_sha256 = digest.hexdigest()

    def _on_damage(self, error: RecordError) -> None:
        self._problem("damaged", error.problem, error.record, error.offset)
        self.found.keys += os.urandom(HASH_BYTES)  # keeps the place of the record

    def _add_compared(self) -> None:
        for future in self._compared:
            problem = future.result()
            if problem:
                self.found.add(problem)
        self.found.sources += len(self._compared)
        self._compared = []
