"""Finds the images of a dataset that are to be taken down, and their traces."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.base import PlannedShard, planned_shards
from beam_tfr.dataset.conditions import rows_that_fit
from beam_tfr.dataset.lookup import read_contents
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.dataset.taken_down import Removed, read_removed
from beam_tfr.output.known import read_sources, require_sources
from beam_tfr.schema.dataset import (
    REJECTS_FILE,
    SOURCES_FOLDER,
    WORK_FOLDER,
    sha256_hex,
)
from beam_tfr.schema.encoded_ref import key_of, to_bytes, to_text
from beam_tfr.schema.errors import UsageError

_HASH = re.compile("[0-9a-fA-F]{64}")
_SHA256 = "source_sha256"  # column of the contents


class ImageSelection(NamedTuple):
    """What to remove, or to look for.

    Attributes:
        keys: keys of images.
        sources: SHA-256 of source files, in hex.
        where: conditions, of which all must be met; None for none.
    """

    keys: Collection[str] = ()
    sources: Collection[str] = ()
    where: Mapping[str, str] | None = None


def select_images(
    keys: Collection[str], sha256: Collection[str], where: Mapping[str, str]
) -> ImageSelection:
    """Selects images of a dataset.

    Raises:
        UsageError: nothing is given, or a hash is none.
    """
    if not (keys or sha256 or where):
        raise UsageError("nothing is selected: give `keys=`, `sha256=` or `where=`")
    for text in sha256:
        if not _HASH.fullmatch(text):
            raise UsageError("is no SHA-256 of 64 hex digits", option="sha256", value=text)
    return ImageSelection(keys, sha256, where)


class FoundImages(NamedTuple):
    """The images of a dataset that a selection means.

    Attributes:
        hashes: of these images, and of the selection.
        number: of these images.
        missing: keys and hashes of the selection that the dataset does not have.
        some_key: of any image in the dataset.
    """

    hashes: Removed
    number: int
    missing: list[str]
    some_key: str


def find_images(
    dataset: Manifest, selection: ImageSelection, progress: Callable[[Progress], object]
) -> FoundImages:
    """Finds images of a dataset by its contents and sidecars.

    Also finds those of the same bytes under other keys. What was removed before is not missing.

    Raises:
        DataError: contents or sidecars are missing.
        UsageError: there is no such column.
    """
    keys = {to_bytes(key) for key in selection.keys}
    sources = {sha256.lower() for sha256 in selection.sources}
    found_keys, found_sources = _search_shards(dataset, keys, sources, selection.where, progress)
    if found_sources - sources:  # perhaps there are others with the same bytes
        found_keys, found_sources = _search_shards(
            dataset, found_keys, found_sources, None, progress
        )
    before = read_removed(dataset.folder)
    missing = list[str]()
    for key in sorted(keys - found_keys):
        if sha256_hex(key) not in before.keys:
            missing.append(to_text(key))
    missing += sorted(sources - found_sources - before.sources)
    removed_keys = frozenset(map(sha256_hex, found_keys | keys))
    return FoundImages(
        hashes=Removed(removed_keys, frozenset(found_sources | sources)),
        number=len(found_keys),
        missing=missing,
        some_key=_find_some_key(dataset),
    )


def _find_some_key(dataset: Manifest) -> str:
    for shard in planned_shards(dataset):
        for image in require_sources(dataset.folder, shard):
            return to_text(key_of(image.ref))
    return ""


def _search_shards(
    dataset: Manifest,
    keys: Collection[bytes],
    sources: Collection[str],
    where: Mapping[str, str] | None,
    progress: Callable[[Progress], object],
) -> tuple[set[bytes], set[str]]:
    """The keys of the images that fit, and the SHA-256 of their sources.

    The SHA-256 is only known of images with records, not of rejects.
    """
    found_keys = set[bytes]()
    found_sources = set[str]()
    shards = planned_shards(dataset)
    for number, shard in enumerate(shards, start=1):
        images = require_sources(dataset.folder, shard)
        cells = _read_cells(dataset, shard.entry, where) if shard.entry else []
        for image in images:
            record = _NO_CELLS if image.reject else cells[image.number - shard.first]
            key = key_of(image.ref)
            if record.fits or key in keys or record.sha256 in sources:
                found_keys.add(key)
                found_sources.add(record.sha256)
        progress(Progress("searching", number, len(shards), number, len(shards)))
    return found_keys, found_sources - {""}


def find_traces(dataset: Manifest, selection: ImageSelection) -> Iterator[str]:
    """Yields where a dataset still holds images.

    That may be in contents, sidecars, rejects.jsonl or the work folder.

    It relies on contents that list all records, which `verify` checks.

    Args:
        dataset: the dataset.
        selection: keys and hashes of the images.

    Raises:
        DataError: contents are missing or damaged.
        OSError: a file cannot be read.
    """
    keys = {*selection.keys}
    hashes = {sha256.lower() for sha256 in selection.sources}
    for shard in planned_shards(dataset):
        yield from _find_in_sidecar(dataset, shard, keys)
        if shard.entry:
            yield from _find_in_contents(dataset, shard.entry, keys, hashes)
    yield from _find_in_rejects(dataset, keys)
    for name in storage.list_folder(storage.work_path(dataset.folder, "")):
        yield f"{WORK_FOLDER}/{name}: of a run that has not ended"


def _find_in_sidecar(
    dataset: Manifest, shard: PlannedShard, keys: Collection[str]
) -> Iterator[str]:
    for image in read_sources(dataset.folder, shard) or ():
        key = to_text(key_of(image.ref))
        if key in keys:
            yield f"{SOURCES_FOLDER}/{shard.name}.json: {key}"


def _find_in_contents(
    dataset: Manifest, entry: ShardEntry, keys: Collection[str], hashes: Collection[str]
) -> Iterator[str]:
    for cells in _read_cells(dataset, entry, None):
        if cells.key in keys or cells.sha256 in hashes:
            yield f"{entry.file}: {cells.key}"


def _find_in_rejects(dataset: Manifest, keys: Collection[str]) -> Iterator[str]:
    with storage.open_binary(storage.join(dataset.folder, REJECTS_FILE)) as file:
        for line in file:
            key = json.loads(line)["key"]
            if key in keys:
                yield f"{REJECTS_FILE}: {key}"


class _Cells(NamedTuple):
    """What the contents say of a record.

    Attributes:
        key: of its image.
        sha256: of its source; empty without one.
        fits: whether it meets the conditions, if there are any.
    """

    key: str
    sha256: str
    fits: bool


_NO_CELLS = _Cells("", "", fits=False)  # of a reject


def _read_cells(
    dataset: Manifest, entry: ShardEntry, where: Mapping[str, str] | None
) -> list[_Cells]:
    """What the contents say of each record of a shard."""
    table = read_contents(dataset, entry.file, entry.num_examples, entry.num_bytes)
    keys = table.column("key").to_pylist()
    hashes: list[bytes | None] = [None] * len(keys)
    if _SHA256 in table.column_names:
        hashes = table.column(_SHA256).to_pylist()
    fitting = set[int]()
    if where:
        fitting.update(rows_that_fit(dataset, table, where))
    cells = list[_Cells]()
    for number, (key, sha256) in enumerate(zip(keys, hashes, strict=True)):
        text = sha256.hex() if sha256 else ""
        cells.append(_Cells(key, text, fits=number in fitting))
    return cells
