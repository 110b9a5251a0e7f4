"""Compares the records of a dataset with their source files."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inputs.archives import read_member
from beam_tfr.inputs.listing import list_all
from beam_tfr.inputs.patterns import ARCHIVE, common_root, exclusion, name_folders, order_patterns
from beam_tfr.records.repeats import HASH_BYTES, hash_key
from beam_tfr.schema.dataset import REJECTS_FILE, sha256_hex
from beam_tfr.schema.errors import RejectError, UsageError
from beam_tfr.verification.report import MAX_LINE_BYTES, Problem, Problems, shown

SOURCES_AT_A_TIME = 256  # of a shard, read by several threads
_LAST = 1 << 62  # position of the problem of a new source, after all shards


class SourceCheck(contextlib.AbstractContextManager["SourceCheck"]):
    """The source files of a dataset, found by the keys of its records.

    Takes no memory per file, apart from the hashes of keys that `verify` keeps.

    Args:
        manifest: manifest of the dataset.
        patterns: those that the dataset was made from.
        exclude: patterns of files to skip.

    Attributes:
        patterns: the same, of which each is a pattern of files.

    Raises:
        UsageError: the records were not made from files, or a pattern is wrong or matches nothing.
    """

    def __init__(self, manifest: Manifest, patterns: Sequence[str], exclude: Sequence[str] = ()) -> None:
        if not manifest.names.sha256:
            raise UsageError("the records are rows of a table, which have no source files", option="sources")
        self._manifest = manifest
        if not all(patterns):
            raise UsageError("is empty; give the `input=` that the dataset was made from", option="sources", value="")
        self.patterns = name_folders([storage.check_path(pattern, option="sources") for pattern in patterns])
        self._root = common_root(self.patterns)
        beside = [companion.glob for companion in manifest.names.companions if companion.path]
        self._exclude = exclusion([*exclude, *beside], self._root)
        self._members = dict[str, storage.Entry]()  # path -> image in an archive
        if any(map(ARCHIVE.search, self.patterns)):
            self._members = {entry.path: entry for entry in self._listed() if entry.place}
        else:
            next(self._listed(), None)  # raises an error if nothing matches
        self._pool = ThreadPoolExecutor(storage.READ_AHEAD, "beam_tfr-sources")

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start(self, values: Mapping[str, Sequence[Any]], place: Problem) -> Future[Problem | None]:
        """Reads the source of a record with these features, in another thread; what is wrong with it, at a place."""
        names = self._manifest.names
        return self._pool.submit(self._compare, values[names.key][0], values[names.sha256][0], place)

    def _compare(self, name: bytes, sha256: bytes, place: Problem) -> Problem | None:
        key = name.decode("utf-8", "surrogateescape")
        try:
            path = self._root + key
            member = self._members.get(path)
            digest = sha256_hex(read_member(member, member.size_bytes)) if member else storage.sha256(path)
            if digest.encode() == sha256:
                return None
            kind, what = "source-changed", "has changed"
        except FileNotFoundError:
            kind, what = "source-gone", "is gone"
        except OSError as error:
            kind, what = "source-unreadable", f"cannot be read: {error.strerror or error}"
        except RejectError as error:
            kind, what = "source-unreadable", f"cannot be read: {error.detail}"
        return place._replace(kind=kind, message=f"its source {shown(key)} {what}")

    def find_new(self, keys: bytes) -> Problems:
        """The files that are neither a record nor a reject, sorted.

        Args:
            keys: concatenated `hash_key` of all records.
        """
        hashes = keys + self._rejected()
        known = {hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)}
        problems = Problems()
        for entry in self._listed():
            path = entry.path
            if hash_key(path.removeprefix(self._root).encode("utf-8", "surrogateescape")) not in known:
                problems.add(_LAST, Problem("source-new", shown(path), "is neither a record nor a reject"), path)
        return problems

    def _listed(self) -> Iterator[storage.Entry]:
        return list_all(order_patterns(self.patterns), exclude=self._exclude, option="sources")

    def _rejected(self) -> bytes:
        """The keys in rejects.jsonl, by `hash_key`, up to a damaged line, which is reported elsewhere."""
        keys = bytearray()
        wrong = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
        path = storage.join(self._manifest.folder, REJECTS_FILE)
        with contextlib.suppress(*wrong), storage.open_binary(path) as file:
            for line in iter(lambda: file.readline(MAX_LINE_BYTES), b""):
                keys += hash_key(json.loads(line)["key"].encode("utf-8", "surrogateescape"))
        return bytes(keys)
