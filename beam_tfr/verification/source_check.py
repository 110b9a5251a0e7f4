"""Compares the records of a dataset with their sources: files, or the rows of tables."""

import contextlib
import functools
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.base import restore_options
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inputs import reading
from beam_tfr.inputs.listing import list_files
from beam_tfr.inputs.patterns import (
    ARCHIVE,
    common_root,
    compile_exclusion,
    mark_folders,
    order_patterns,
)
from beam_tfr.records.repeats import HASH_BYTES, hash_key
from beam_tfr.schema.dataset import REJECTS_FILE, sha256_hex
from beam_tfr.schema.errors import DataError, RejectError, UsageError
from beam_tfr.verification.report import MAX_LINE_BYTES, Problem, Problems, shown

SOURCES_AT_A_TIME = 256  # of a shard, read by several threads
_LAST = 1 << 62  # position of the problem of a new source, after all shards
_MAX_BYTES = 1 << 62  # of an image: any, as --max_file_bytes may have changed since


class SourceCheck(contextlib.AbstractContextManager["SourceCheck"]):
    """The sources of a dataset, found by the keys of its records.

    Takes no memory per file, apart from the hashes of keys that `verify` keeps; about 0.5 kB for
    each image in an archive, and for each row of a table.

    Args:
        manifest: manifest of the dataset.
        sources: the patterns or tables that the dataset was made from; with tables, also the folder
            of `image_root`.
        exclude: patterns of files to skip.

    Attributes:
        sources: the same, in which each folder ends in /.

    Raises:
        UsageError: the records were not made from files, or a pattern or table is wrong or matches
            nothing.
        DataError: an archive or a table is damaged.
    """

    def __init__(
        self, manifest: Manifest, sources: Sequence[str], exclude: Sequence[str] = ()
    ) -> None:
        if not manifest.names.sha256:
            raise UsageError(
                "the records are rows of a table, which have no source files", option="sources"
            )
        self._manifest = manifest
        self._is_table = "layout" not in manifest.options
        if not all(sources):
            raise UsageError(
                "is empty; give the `input=` that the dataset was made from",
                option="sources",
                value="",
            )
        self.sources = mark_folders(
            [storage.check_path(source, option="sources") for source in sources]
        )
        self._places = dict[str, storage.Entry]()  # path -> row of a table, or image in an archive
        read_embedded: Callable[..., bytes] = reading.read_embedded
        if self._is_table:
            self._root, self._places, read_embedded = _open_tables(manifest, self.sources, exclude)
        else:
            self._root = common_root(self.sources)
            beside = [companion.glob for companion in manifest.names.companions if companion.path]
            self._exclude = compile_exclusion([*exclude, *beside], self._root)
            if any(map(ARCHIVE.search, self.sources)):
                self._places = {entry.path: entry for entry in self._listed() if entry.place}
            else:
                next(self._listed(), None)  # raises an error if nothing matches
        self._copies = tempfile.TemporaryDirectory(
            prefix="beam_tfr-"
        )  # of the images of Parquet files
        self._read_place = functools.partial(read_embedded, copies=self._copies.name)
        self._pool = ThreadPoolExecutor(storage.READ_AHEAD, "beam_tfr-sources")

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._copies.cleanup()

    def start(self, values: Mapping[str, Sequence[Any]], place: Problem) -> Future[Problem | None]:
        """Reads the source of a record with these features, in another thread; what is wrong with
        it, at a place."""
        names = self._manifest.names
        return self._pool.submit(
            self._compare, values[names.key][0], values[names.sha256][0], place
        )

    def _compare(self, name: bytes, sha256: bytes, place: Problem) -> Problem | None:
        key = name.decode("utf-8", "surrogateescape")
        try:
            path = self._root + key
            found = self._places.get(path)
            if found and found.place:
                digest = sha256_hex(self._read_place(found, _MAX_BYTES))
            elif found or not self._is_table:
                digest = storage.sha256(path)
            else:
                raise FileNotFoundError(path)
            if digest.encode() == sha256:
                return None
            kind = "source-changed"
            what = "has changed"
        except FileNotFoundError:
            kind = "source-gone"
            what = "is gone"
        except OSError as error:
            kind = "source-unreadable"
            what = f"cannot be read: {error.strerror or error}"
        except RejectError as error:
            kind = "source-unreadable"
            what = f"cannot be read: {error.detail}"
        return place._replace(kind=kind, message=f"its source {shown(key)} {what}")

    def find_new(self, keys: bytes) -> Problems:
        """The files or rows that are neither a record nor a reject, sorted.

        Args:
            keys: concatenated `hash_key` of all records.
        """
        hashes = keys + self._rejected()
        known = {hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)}
        problems = Problems()
        for path in self._places if self._is_table else (entry.path for entry in self._listed()):
            if (
                hash_key(path.removeprefix(self._root).encode("utf-8", "surrogateescape"))
                not in known
            ):
                problems.add(
                    _LAST,
                    Problem("source-new", shown(path), "is neither a record nor a reject"),
                    path,
                )
        return problems

    def _listed(self) -> Iterator[storage.Entry]:
        return list_files(order_patterns(self.sources), exclude=self._exclude, option="sources")

    def _rejected(self) -> bytes:
        """The keys in rejects.jsonl, by `hash_key`, up to a damaged line, which is reported
        elsewhere."""
        keys = bytearray()
        wrong = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
        path = storage.join(self._manifest.folder, REJECTS_FILE)
        with contextlib.suppress(*wrong), storage.open_binary(path) as file:
            for line in iter(lambda: file.readline(MAX_LINE_BYTES), b""):
                keys += hash_key(json.loads(line)["key"].encode("utf-8", "surrogateescape"))
        return bytes(keys)


_Opened = tuple[str, dict[str, storage.Entry], Callable[..., bytes]]


def _open_tables(manifest: Manifest, sources: Sequence[str], exclude: Sequence[str]) -> _Opened:
    """Opens the tables of a dataset, with the roles that their columns had.

    Returns:
        The folder that keys are relative to, the path and file of each row, and what reads one that
        has a place.
    """
    from beam_tfr.tables import (
        datasets,
        opening,
    )  # which need more than the package without extras has

    folders = [source for source in sources if source.endswith("/")]
    if len(folders) > 1 or folders == [*sources]:
        problem = "the dataset was made from tables: give these, and the folder of `image_root=` if there was one"
        raise UsageError(problem, option="sources", value=" ".join(sources))
    try:
        given = {
            "table": sorted({*sources} - {*folders}),
            "image_root": "".join(folders),
            "exclude": tuple(exclude),
        }
        opened = opening.open_tables(opening.find_content(restore_options(manifest, given, {})))
        refs = (ref for path in opened.files for ref in opened.read(path))
        rows = (storage.Entry(opened.root + ref.key, *ref[1:3], place=ref.place) for ref in refs)
        return opened.root, {entry.path: entry for entry in rows}, datasets.read_embedded
    except (UsageError, DataError) as error:
        text = re.sub("`(?:table|image_root)=", "`sources=", str(error))
        damaged = "a table of `sources=` is damaged, so nothing was compared: " * isinstance(
            error, DataError
        )
        error.args = (damaged + text,)
        raise
