"""Finds the sources of a dataset by the keys of its records.

Sources are files, images in archives, or table rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from beam_tfr import storage
from beam_tfr.dataset.base import restore_options
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inputs import reading
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.patterns import (
    ARCHIVE,
    common_root,
    compile_exclusion,
    compile_exclusions,
    describe_misplaced,
    describe_unused,
    mark_folders,
    order_patterns,
)
from beam_tfr.inputs.skipped import UsedExclusions
from beam_tfr.schema.errors import DataError, NotInstalledError, UsageError
from beam_tfr.schema.number_ranges import expand_ranges

_MAX_BYTES = 1 << 30  # 1 GiB per image; records are smaller


def most_bytes(manifest: Manifest) -> int:
    """Returns the largest size that an image in a dataset can have: larger images were rejected."""
    most = manifest.options.get("max_file_bytes")
    return most if type(most) is int and 0 < most < _MAX_BYTES else _MAX_BYTES


class Sources(Protocol):
    """Where the images of a dataset came from.

    Attributes:
        root: the folder that keys are relative to, with a trailing slash.
        patterns: the sources as specified, with / at the end of each folder.
    """

    root: str
    patterns: list[str]

    def find(self, key: str) -> storage.Entry:
        """Finds the source of a key; a source inside another file has a place.

        Raises:
            FileNotFoundError: it is known, without looking for a file, that there is no source.
        """

    def paths(self) -> Iterator[str]:
        """Yields the paths of all sources."""

    def read_place(self, source: storage.Entry, copies: str) -> bytes:
        """Reads a source that has a place.

        Args:
            source: the source.
            copies: folder for copies of the images in Parquet files.
        """

    def describe_exclusions(self) -> Iterator[str]:
        """Yields messages about unmatched patterns in `exclude`; call this after `paths`."""


class _FileSources(Sources):
    """Files that match patterns, and the images in archives."""

    def __init__(self, manifest: Manifest, patterns: Sequence[str], exclude: Sequence[str]) -> None:
        self.root = common_root(patterns)
        self.patterns = [*patterns]
        self._most_bytes = most_bytes(manifest)
        beside = [
            companion.glob for companion in manifest.feature_kinds.companions if companion.path
        ]
        self._ordered = order_patterns(patterns)
        self._exclude = compile_exclusion([*exclude, *beside], self.root)
        self._exclusions = exclude
        self._used = UsedExclusions(compile_exclusions(exclude, self.root))
        self._keep_damaged = manifest.has_unusable_files
        self._archived = dict[str, storage.Entry]()
        if any(map(ARCHIVE.search, patterns)):
            self._archived = {entry.path: entry for entry in self._list() if entry.place}
        else:
            next(self._list(), None)  # raises an error if nothing matches

    def _list(self) -> Iterator[storage.Entry]:
        return match_files(
            self._ordered,
            exclude=self._exclude,
            option="sources",
            skipped=self._used,
            keep_damaged=self._keep_damaged,
        )

    def find(self, key: str) -> storage.Entry:
        path = self.root + key
        if path in self._archived:
            return self._archived[path]
        if not _is_below_root(key):
            raise FileNotFoundError(key)
        return storage.Entry(path, 0, 0)

    def paths(self) -> Iterator[str]:
        return (entry.path for entry in self._list())

    def read_place(self, source: storage.Entry, copies: str) -> bytes:
        return reading.read_embedded(source, self._most_bytes, copies)

    def describe_exclusions(self) -> Iterator[str]:
        yield from describe_misplaced(self._exclusions, self.root)
        yield from describe_unused(self._exclusions, self._used.used_exclusions, self.root)


class _TableSources(Sources):
    """The rows of tables whose columns have the same roles as when the dataset was made."""

    def __init__(self, manifest: Manifest, sources: Sequence[str], exclude: Sequence[str]) -> None:
        try:
            from beam_tfr.tables import datasets, finding, opening
        except ImportError as error:
            raise NotInstalledError(
                f"`sources=` with tables needs {error.name}: pip install 'beam_tfr[convert]'"
            ) from None
        self.patterns = [*sources]
        self._most_bytes = most_bytes(manifest)
        folders = [source for source in sources if source.endswith("/")]
        if len(folders) > 1 or len(folders) == len(sources):
            raise UsageError(
                "the dataset was made from tables: specify these, and the folder passed as "
                "`image_root=`, if any",
                option="sources",
                value=" ".join(sources),
            )
        table_options = {
            "table": sorted({*sources}.difference(folders)),
            "image_root": "".join(folders),
            "exclude": tuple(exclude),
        }
        self._datasets = datasets
        self._rows = dict[str, storage.Entry]()
        try:
            tables = opening.open_tables(
                finding.find_content(restore_options(manifest, table_options, {}))
            )
            self.root = tables.root
            for file in tables.files:
                for ref in tables.read(file):
                    path = tables.root + ref.key
                    self._rows[path] = storage.Entry(
                        path, ref.size_bytes, ref.generation, place=ref.place
                    )
        except UsageError as error:
            error.args = (_name_option(error),)
            raise
        except DataError as error:
            problem = _name_option(error)
            error.args = (f"a table of `sources=` is damaged, so nothing was compared: {problem}",)
            raise

    def find(self, key: str) -> storage.Entry:
        path = self.root + key
        if path not in self._rows:
            raise FileNotFoundError(key)
        return self._rows[path]

    def paths(self) -> Iterator[str]:
        return iter(self._rows)

    def read_place(self, source: storage.Entry, copies: str) -> bytes:
        return self._datasets.read_embedded(source, self._most_bytes, copies)

    def describe_exclusions(self) -> Iterator[str]:
        return iter(())  # `exclude` cannot be used with tables


def _is_below_root(key: str) -> bool:
    """Whether a key can be the path of a file below a folder, and cannot lead elsewhere.

    The dataset may come from a stranger, who must not choose which files on this machine are read.
    """
    try:
        name = key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return b"\0" not in name and ".." not in key.split("/")


def _name_option(error: Exception) -> str:
    """Rewords an error about tables so that it mentions the option of `verify`."""
    return re.sub("`(?:table|image_root)=", "`sources=", str(error))


def open_sources(
    manifest: Manifest, sources: Sequence[str], exclude: Sequence[str] = ()
) -> Sources:
    """Opens the sources of a dataset.

    Uses about 0.5 kB of memory for each image in an archive, and for each row of a table.

    Args:
        manifest: manifest of the dataset.
        sources: the patterns or tables that the dataset was made from; with tables, also the folder
            that was passed as `image_root`.
        exclude: patterns of files to skip.

    Raises:
        UsageError: the records were not made from files, or a pattern or table is wrong or matches
            nothing.
        DataError: an archive or a table is damaged.
        NotInstalledError: tables need a library that is missing.
    """
    if not manifest.names.sha256:
        raise UsageError("the records are table rows, which have no source files", option="sources")
    if not all(sources):
        raise UsageError(
            "is empty; specify the `input=` that the dataset was made from",
            option="sources",
            value="",
        )
    paths = [storage.check_path(source, option="sources") for source in sources]
    patterns = mark_folders(expand_ranges(paths, option="sources"))
    if "layout" in manifest.options:
        return _FileSources(manifest, patterns, exclude)
    return _TableSources(manifest, patterns, exclude)
