"""removed.txt: the images that were taken down from a dataset and must not come back, only as
hashes.

A line is `key` or `source` and a SHA-256: of a key, or of a source file. Conversions and updates
into the folder leave such keys out, and reject such files as `taken-down`.
"""

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.base import planned_shards
from beam_tfr.dataset.conditions import rows_that_fit
from beam_tfr.dataset.lookup import read_contents
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.output.known import read_sources, require_sources
from beam_tfr.schema.dataset import (
    REJECTS_FILE,
    REMOVED_FILE,
    SOURCES_FOLDER,
    WORK_FOLDER,
    sha256_hex,
)
from beam_tfr.schema.encoded_ref import key_of, to_bytes
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import ImageRef

_SHA256 = "source_sha256"  # column of the contents


class Removed(NamedTuple):
    """Hashes of what was taken down, in hex: of keys, and of source files."""

    keys: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()

    def to_bytes(self) -> bytes:
        """The content of removed.txt."""
        lines = [f"key {sha256}\n" for sha256 in self.keys] + [
            f"source {sha256}\n" for sha256 in self.sources
        ]
        return "".join(sorted(lines)).encode()


def read_removed(folder: str) -> Removed:
    """What was taken down from the dataset in a folder.

    Raises:
        DataError: the file is damaged.
        OSError: it cannot be read.
    """
    path = storage.join(folder, REMOVED_FILE)
    found: dict[str, set[str]] = {"key": set(), "source": set()}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for number, line in enumerate(
            storage.read_bytes(path).decode("utf-8", "replace").splitlines(), start=1
        ):
            kind, _, sha256 = line.partition(" ")
            if kind not in found or len(sha256) != 64:
                raise DataError(
                    f"{path}: line {number} is damaged; restore the file, or images may come back"
                )
            found[kind].add(sha256)
    return Removed(frozenset(found["key"]), frozenset(found["source"]))


class Selection(NamedTuple):
    """What to remove: keys, SHA-256 of source files in hex, and what meets all `conditions`, if
    there are any."""

    keys: Collection[str] = ()
    sources: Collection[str] = ()
    where: Mapping[str, str] | None = None


def find_images(
    dataset: Manifest, wanted: Selection, progress: Callable[[Progress], object]
) -> tuple[Removed, int, list[str]]:
    """Finds images of a dataset by its contents and sidecars, and those of the same bytes under
    other keys.

    Returns:
        The hashes of what is removed, the number of images in the dataset, and what of `wanted` was
        not found.

    Raises:
        DataError: contents or sidecars are missing.
        UsageError: there is no such column.
    """
    keys = {to_bytes(key) for key in wanted.keys}
    sources = {sha256.lower() for sha256 in wanted.sources}
    found_keys, found = _search(dataset, keys, sources, wanted.where, progress)
    if found - sources:  # perhaps there are others with the same bytes
        found_keys, found = _search(dataset, found_keys, found, None, progress)
    missing = [
        key.decode("utf-8", "backslashreplace") for key in sorted(keys - found_keys)
    ] + sorted(sources - found)
    hashes = Removed(frozenset(map(sha256_hex, found_keys | keys)), frozenset(found | sources))
    return hashes, len(found_keys), missing


def _search(
    dataset: Manifest,
    keys: Collection[bytes],
    sources: Collection[str],
    where: Mapping[str, str] | None,
    progress: Callable[[Progress], object],
) -> tuple[set[bytes], set[str]]:
    """The keys of the images that fit, and the SHA-256 of their sources, as far as they have
    records."""
    found_keys = set[bytes]()
    found_sources = set[str]()
    shards = planned_shards(dataset)
    for number, shard in enumerate(shards):
        images = require_sources(dataset.folder, shard)
        cells = _cells(dataset, shard.entry, where) if shard.entry else []
        for image in images:
            _, sha256, fits = (
                cells[image.number - shard.first] if image.number >= 0 else ("", "", False)
            )
            key = key_of(image.ref)
            if fits or key in keys or sha256 in sources:
                found_keys.add(key)
                found_sources |= {sha256} - {""}
        progress(Progress("searching", number + 1, len(shards), number + 1, len(shards)))
    return found_keys, found_sources


def find_traces(dataset: Manifest, wanted: Selection) -> Iterator[str]:
    """Yields where a dataset still holds images: in contents, sidecars, rejects.jsonl or the work
    folder.

    It relies on contents that list all records, which `verify` checks.

    Raises:
        DataError: contents are missing or damaged.
        OSError: a file cannot be read.
    """
    keys = {*wanted.keys}
    hashes = {sha256.lower() for sha256 in wanted.sources}
    for shard in planned_shards(dataset):
        images = read_sources(dataset.folder, shard) or []
        found = [ImageRef.decode(image.ref).key for image in images]
        yield from (f"{SOURCES_FOLDER}/{shard.name}.json: {key}" for key in found if key in keys)
        if shard.entry:
            rows = _cells(dataset, shard.entry, None)
            yield from (
                f"{shard.entry.file}: {key}"
                for key, sha256, _ in rows
                if key in keys or sha256 in hashes
            )
    with storage.open_binary(storage.join(dataset.folder, REJECTS_FILE)) as file:
        yield from (
            f"{REJECTS_FILE}: {key}" for line in file if (key := json.loads(line)["key"]) in keys
        )
    names = storage.list_folder(storage.work_path(dataset.folder, ""))
    yield from (f"{WORK_FOLDER}/{name}: of a run that has not ended" for name in names)


def _cells(
    dataset: Manifest, entry: ShardEntry, where: Mapping[str, str] | None
) -> list[tuple[str, str, bool]]:
    """Key, SHA-256 of the source (or nothing), and whether it meets the conditions, of each record
    of a shard."""
    table = read_contents(dataset, entry.file, entry.num_examples, entry.num_bytes)
    keys = table.column("key").to_pylist()
    hashes = (
        table.column(_SHA256).to_pylist() if _SHA256 in table.column_names else [None] * len(keys)
    )
    fits = {*rows_that_fit(dataset, table, where)} if where else ()
    rows = enumerate(zip(keys, hashes, strict=True))
    return [(key, sha256.hex() if sha256 else "", number in fits) for number, (key, sha256) in rows]
