"""Checks one shard: its file, its records, and every image in them."""

from __future__ import annotations

import collections
import hashlib
import os
import threading
from collections.abc import Callable

from beam_tfr import storage
from beam_tfr.manifest import Manifest, ShardEntry
from beam_tfr.records import RecordError, RecordFile, longest_in
from beam_tfr.schema import RecordsDigest
from beam_tfr.verification.problems import Problem, shown, unreadable
from beam_tfr.verification.record_check import RecordCheck

MAX_SHARD_PROBLEMS = 1000  # a shard with more is not read to its end


class ShardCheck:
    """Reads one shard once.

    Attributes:
        done: records read so far.
        num_bytes: bytes of the file read so far.
        keys: 16 bytes for each record.
        labels: class id -> records.
        pixels: stored pixels.
        source_sizes: see `schema.ShardInfo`.
        records_sha256: see `schema.ShardInfo`; empty until the shard was read to its end and every checksum was right.
    """

    def __init__(
        self,
        manifest: Manifest,
        split: str,
        entry: ShardEntry,
        check: RecordCheck,
        max_record_bytes: int | None,
        tell: Callable[[Problem], object],
    ) -> None:
        self.split, self.entry = split, entry
        self.done = self.num_bytes = self.pixels = 0
        self.keys = bytearray()
        self.labels: collections.Counter[int] = collections.Counter()
        self.source_sizes: collections.Counter[int] = collections.Counter()
        self.records_sha256 = ""
        self._folder = manifest.folder
        self._check, self._tell = check, tell
        self._max_record_bytes = longest_in(entry.num_bytes) if max_record_bytes is None else max_record_bytes
        self._problems = 0
        self._damaged = False

    def run(self, stop: threading.Event) -> None:
        """Reads the shard, and gives up when `stop` is set."""
        try:
            self._read(storage.join(self._folder, self.entry.file), stop)
        except RecordError as error:
            self._problem(error.problem, error.record, error.offset)
        except OSError as error:
            self._problem(unreadable(error))

    def _problem(self, message: str, record: int | None = None, offset: int | None = None) -> None:
        self._problems += 1
        self._tell(Problem(self.entry.file, message, record, offset))

    def _read(self, path: str, stop: threading.Event) -> None:
        found = storage.find(path)
        if found and found.size_bytes != self.entry.num_bytes:
            self._problem(f"it has {found.size_bytes} bytes, expected {self.entry.num_bytes}")
        file_sha256, digest = hashlib.sha256(), RecordsDigest()

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
            digest.add(record)
            checked = self._check(record)
            for message in checked.problems:
                self._problem(message, file.record, file.offset)
            if self._problems > MAX_SHARD_PROBLEMS:  # a kilobyte of gzip can hold a million broken records
                self._problem("it has more problems; the rest was not read")
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
            self.records_sha256 = digest.hexdigest()

    def _on_damage(self, error: RecordError) -> None:
        self._damaged = True
        self._problem(error.problem, error.record, error.offset)
        self.keys += os.urandom(16)  # keeps the place of the record, and equals no key
