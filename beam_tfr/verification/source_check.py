"""Compares the records of a dataset with their sources: files or table rows."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.reject_lines import read_rejects
from beam_tfr.dataset.taken_down import Removed, read_removed
from beam_tfr.inputs.parquet import is_in_parquet
from beam_tfr.records.repeats import HASH_BYTES, hash_key
from beam_tfr.schema.dataset import REJECTS_FILE, sha256_hex
from beam_tfr.schema.errors import DataError, RejectError
from beam_tfr.schema.untrusted import quote
from beam_tfr.verification.report import (
    Problem,
    ProblemKind,
    Problems,
    Section,
)
from beam_tfr.verification.sources import most_bytes, open_sources

SOURCES_AT_A_TIME = 256  # sources per shard that several threads read together
_LARGE_BYTES = 4 << 20  # images in archives above 4 MiB are large
_LARGE_AT_ONCE = 2  # large images in memory at the same time


class SourceCheck(contextlib.AbstractContextManager["SourceCheck"]):
    """The sources of a dataset, found by the keys of its records.

    Uses about 0.5 kB of memory for each image in an archive and for each row of a table, but no
    memory for other files, apart from the hashes of keys that `verify` keeps.

    Args:
        manifest: manifest of the dataset.
        sources: the patterns or tables that the dataset was made from; with tables, also the folder
            that was passed as `image_root`.
        exclude: patterns of files to skip.

    Attributes:
        patterns: the sources, with / at the end of each folder.

    Raises:
        UsageError: the records were not made from files, or a pattern or table is wrong or matches
            nothing.
        DataError: an archive or a table is damaged.
        NotInstalledError: tables need a library that is missing.
    """

    def __init__(
        self, manifest: Manifest, sources: Sequence[str], exclude: Sequence[str] = ()
    ) -> None:
        self._sources = open_sources(manifest, sources, exclude)
        self.patterns = self._sources.patterns
        self._manifest = manifest
        self._most_bytes = most_bytes(manifest)
        self._copies = tempfile.TemporaryDirectory(prefix="beam_tfr-")
        self._pool = ThreadPoolExecutor(storage.READ_AHEAD, "beam_tfr-sources")
        self._large = threading.BoundedSemaphore(_LARGE_AT_ONCE)

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._copies.cleanup()

    def start(
        self, values: Mapping[str, Sequence[Any]], file: str, record: int, offset: int
    ) -> Future[Problem | None]:
        """Compares a record with its source, in another thread.

        Args:
            values: the features of the record.
            file, record, offset: where the record is, for a `Problem`.
        """
        names = self._manifest.names
        key = values[names.key][0].decode("utf-8", "surrogateescape")
        sha256 = values[names.sha256][0].decode("utf-8", "replace")

        def compare() -> Problem | None:
            difference = self._compare(key, sha256)
            if difference is None:
                return None
            kind, message = difference
            return Problem(kind, file, f"its source {quote(key)} {message}", record, offset)

        return self._pool.submit(compare)

    def _compare(self, key: str, sha256: str) -> tuple[ProblemKind, str] | None:
        """Returns what is wrong with the source of a key; None if the source has this SHA-256."""
        try:
            if self._read_sha256(key) == sha256:
                return None
        except FileNotFoundError:
            return ProblemKind.SOURCE_GONE, "is gone"
        except OSError as error:
            return ProblemKind.SOURCE_UNREADABLE, f"cannot be read: {error.strerror or error}"
        except RejectError as error:
            return ProblemKind.SOURCE_UNREADABLE, f"cannot be read: {error.detail}"
        return ProblemKind.SOURCE_CHANGED, "has changed"

    def _read_sha256(self, key: str) -> str:
        """Returns the SHA-256 of a source, in hex, or "" if it is larger than any image can be."""
        source = self._sources.find(key)
        if source.place:
            is_large = source.size_bytes > _LARGE_BYTES or is_in_parquet(source.place)
            with self._large if is_large else contextlib.nullcontext():
                return sha256_hex(self._sources.read_place(source, self._copies.name))
        return storage.sha256_of_small(source.path, self._most_bytes)

    def find_new(self, key_hashes: bytes) -> Problems:
        """Returns the sorted problems of files or rows that are neither a record nor a reject.

        Ignores sources that removed.txt keeps out.

        Args:
            key_hashes: concatenated `hash_key` of all records.
        """
        hashes = key_hashes + self._hash_rejected()
        removed = self._read_removed()
        begins = range(0, len(hashes), HASH_BYTES)
        known_hashes = {hashes[begin : begin + HASH_BYTES] for begin in begins}
        problems = Problems()
        for path in self._sources.paths():
            key = path.removeprefix(self._sources.root)
            if _hash_name(key) not in known_hashes and not self._is_removed(key, removed):
                problem = Problem(
                    ProblemKind.SOURCE_NEW, quote(path), "is neither a record nor a reject"
                )
                problems.add(problem, Section.NEW_SOURCES, path)
        return problems

    def describe_exclusions(self) -> Iterator[str]:
        """Yields messages about unmatched patterns in `exclude`; call this after `find_new`."""
        return self._sources.describe_exclusions()

    def _read_removed(self) -> Removed:
        """Reads which images were taken down.

        Returns no hashes if the file is damaged, which is reported elsewhere.
        """
        with contextlib.suppress(OSError, DataError):
            return read_removed(self._manifest.folder)
        return Removed()

    def _is_removed(self, key: str, removed: Removed) -> bool:
        """Whether a source was taken down, according to its key or its bytes."""
        if sha256_hex(key.encode("utf-8", "surrogateescape")) in removed.keys:
            return True
        if not removed.sources:
            return False
        with contextlib.suppress(OSError, RejectError):
            return self._read_sha256(key) in removed.sources
        return False

    def _hash_rejected(self) -> bytes:
        """Hashes the keys in rejects.jsonl with `hash_key`, up to the first damaged line.

        The damage itself is reported elsewhere.
        """
        hashes = bytearray()
        path = storage.join(self._manifest.folder, REJECTS_FILE)
        with contextlib.suppress(OSError, DataError):
            for reject in read_rejects(path):
                hashes += _hash_name(reject.key)
        return bytes(hashes)


def _hash_name(key: str) -> bytes:
    return hash_key(key.encode("utf-8", "surrogateescape"))
