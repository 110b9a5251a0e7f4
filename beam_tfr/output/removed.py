"""Finds the images to take down from a dataset, and traces of them."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.base import PlannedShard, planned_shards
from beam_tfr.dataset.conditions import rows_that_fit
from beam_tfr.dataset.lookup import RecordLookup, read_shard_contents
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.dataset.reject_lines import read_rejects
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.dataset.taken_down import Removed, read_removed
from beam_tfr.inputs.key_lists import find_hash
from beam_tfr.output.copy_details import list_kept
from beam_tfr.output.known import read_sources, require_sources
from beam_tfr.output.removed_copies import find_copies_that_stay, find_dropped_copies
from beam_tfr.schema.dataset import (
    FIRST_FOLDER,
    REJECTS_FILE,
    SOURCES_FOLDER,
    WORK_FOLDER,
    sha256_hex,
)
from beam_tfr.schema.encoded_ref import key_of, to_bytes, to_text
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.items import Reject
from beam_tfr.schema.untrusted import quote

_HASH = re.compile("[0-9a-fA-F]{64}")
_LINE_BREAK = re.compile(r"\n|\r\Z")
_SHA256 = "source_sha256"  # column of the contents


class ImageSelection(NamedTuple):
    """A selection of images to remove or to look for.

    Attributes:
        keys: keys of images.
        sources: SHA-256 of source files, in hex.
        where: conditions, all of which must be met; None if there are no conditions.
        keys_are_lines: whether the keys are lines of a file, where a key with a line break would
            look like several keys.
    """

    keys: Collection[str] = ()
    sources: Collection[str] = ()
    where: Mapping[str, str] | None = None
    keys_are_lines: bool = False

    def check_line_breaks(self, key: str) -> None:
        """Checks that a key with a line break is not listed as several lines.

        Raises:
            UsageError: all lines of such a key are in the list.
        """
        if not self.keys_are_lines or not _LINE_BREAK.search(key):
            return
        lines = {line.removesuffix("\r") for line in key.split("\n")} - {""}
        if lines and lines <= {*self.keys}:
            raise UsageError(
                f"the key {quote(key)} in the dataset contains a line break, and each of its "
                "lines is in the list: list the keys as JSON Lines, as in rejects.jsonl, or list "
                "the SHA-256 of files instead"
            )


def select_images(
    keys: Collection[str], sha256: Collection[str], where: Mapping[str, str]
) -> ImageSelection:
    """Selects images of a dataset.

    Raises:
        UsageError: nothing is selected, or a hash is invalid.
    """
    if not (keys or sha256 or where):
        raise UsageError("nothing is selected: use `keys=`, `sha256=` or `where=`")
    for text in sha256:
        if not _HASH.fullmatch(text):
            raise UsageError("is not a SHA-256 of 64 hex digits", option="sha256", value=text)
    return ImageSelection(keys, sha256, where)


class FoundImages(NamedTuple):
    """The images of a dataset that a selection matches.

    Attributes:
        hashes: SHA-256 of the sources of these images, and the hashes in the selection.
        number: number of these images.
        missing: keys and hashes in the selection that are not in the dataset.
        some_key: key of any image in the dataset.
        dropped_copies: keys of matched images that were dropped earlier, as copies of other
            matched images.
        copies_that_stay: keys of copies of these images that the selection does not match.
    """

    hashes: Removed
    number: int
    missing: list[str]
    some_key: str
    dropped_copies: list[str]
    copies_that_stay: list[str]


def find_images(
    dataset: Manifest, selection: ImageSelection, progress: Callable[[Progress], object]
) -> FoundImages:
    """Finds images of a dataset, using its contents and sidecars.

    Also finds images with the same bytes under other keys, and copies that were dropped in favor of
    one of the images. Images that were removed earlier do not count as missing.

    Raises:
        DataError: contents or sidecars are missing.
        UsageError: a condition names a column that does not exist.
    """
    keys = {to_bytes(key) for key in selection.keys}
    sources = {sha256.lower() for sha256 in selection.sources}
    found_keys, found_sources = _search_shards(dataset, keys, sources, selection, progress)
    if found_sources - sources:  # other images may have the same bytes
        found_keys, found_sources = _search_shards(
            dataset, found_keys, found_sources, ImageSelection(), progress
        )
    dropped_copies = find_dropped_copies(dataset, found_keys) - found_keys
    found_keys |= dropped_copies
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
        dropped_copies=[*map(to_text, sorted(dropped_copies))],
        copies_that_stay=[*map(to_text, find_copies_that_stay(dataset, found_keys))],
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
    selection: ImageSelection,
    progress: Callable[[Progress], object],
) -> tuple[set[bytes], set[str]]:
    """Finds the keys of the images that match, and the SHA-256 of their sources.

    The SHA-256 is known only for images with records, not for rejects.

    Args:
        keys, sources: keys and hashes that match.
        selection: the selection, with conditions and perhaps keys.
    """
    found_keys = set[bytes]()
    found_sources = set[str]()
    shards = planned_shards(dataset)
    for number, shard in enumerate(shards, start=1):
        images = require_sources(dataset.folder, shard)
        cells = _read_cells(dataset, shard.entry, selection.where) if shard.entry else []
        for image in images:
            record = _NO_CELLS if image.reject else cells[image.number - shard.first]
            key = key_of(image.ref)
            selection.check_line_breaks(to_text(key))
            if record.fits or key in keys or record.sha256 in sources:
                found_keys.add(key)
                found_sources.add(record.sha256)
        progress(Progress("searching", number, len(shards), number, len(shards)))
    return found_keys, found_sources - {""}


def find_traces(dataset: Manifest, selection: ImageSelection) -> Iterator[str]:
    """Yields the places where a dataset still holds images: contents, sidecars, rejects.jsonl.

    Assumes that the contents list all records, which `verify` checks.

    Args:
        dataset: the dataset.
        selection: keys and hashes of the images.

    Raises:
        UsageError: a key with a line break is listed as several lines.
        DataError: contents are missing or damaged.
        OSError: a file cannot be read.
    """
    selection = selection._replace(
        keys=frozenset(selection.keys),
        sources={sha256.lower() for sha256 in selection.sources},
    )
    for shard in planned_shards(dataset):
        yield from _find_in_sidecar(dataset, shard, selection)
        if shard.entry:
            yield from _find_in_contents(dataset, shard.entry, selection)
    yield from _find_in_rejects(dataset, selection)
    for name in storage.list_folder(storage.work_path(dataset.folder, "")):
        yield f"{WORK_FOLDER}/{name}: from an unfinished run"
    if storage.is_folder(storage.work_path(dataset.folder, FIRST_FOLDER)):
        yield f"{WORK_FOLDER}/{FIRST_FOLDER}: from an unfinished run"


class NeverRemoved(NamedTuple):
    """Keys and hashes that should be absent from a dataset, but were never taken down from it.

    Attributes:
        keys: keys whose absence proves nothing, because they may be misspelled.
        others: hashes, whose files are found under any key, and keys of rows, which no command
            takes down.
    """

    keys: list[str]
    others: list[str]


def list_never_removed(dataset: Manifest, lines: Iterable[str]) -> NeverRemoved:
    """Lists the keys and hashes that were never taken down, by key or by the hash of the file.

    Args:
        dataset: the dataset.
        lines: keys, and lines that begin with a hash.

    Raises:
        DataError: removed.txt is damaged.
    """
    removed = read_removed(dataset.folder)
    known_hashes = removed.keys | removed.sources
    has_rows = dataset.options["encoding"] == "row"
    never_removed = NeverRemoved([], [])
    for line in lines:
        own_hashes = {sha256_hex(to_bytes(line)), find_hash(line).lower()}
        if not known_hashes.isdisjoint(own_hashes):
            continue
        if has_rows or find_hash(line):
            never_removed.others.append(line)
        else:
            never_removed.keys.append(line)
    return never_removed


def _find_in_sidecar(
    dataset: Manifest, shard: PlannedShard, selection: ImageSelection
) -> Iterator[str]:
    for image in read_sources(dataset.folder, shard) or ():
        key = to_text(key_of(image.ref))
        selection.check_line_breaks(key)
        file = f"{SOURCES_FOLDER}/{shard.name}.json"
        if key in selection.keys:
            yield f"{file}: {key}"
        if image.reject:
            yield from _find_in_detail(file, image.reject, selection)


def _find_in_contents(
    dataset: Manifest, entry: ShardEntry, selection: ImageSelection
) -> Iterator[str]:
    lookup = RecordLookup(dataset, [ShardPart.whole(dataset.folder, entry)])
    for number, cells in enumerate(_read_cells(dataset, entry, None)):
        key = lookup.whole_key(number, cells.key)
        selection.check_line_breaks(key)
        if key in selection.keys or cells.sha256 in selection.sources:
            yield f"{entry.file}: {key}"


def _find_in_rejects(dataset: Manifest, selection: ImageSelection) -> Iterator[str]:
    try:
        for reject in read_rejects(storage.join(dataset.folder, REJECTS_FILE)):
            selection.check_line_breaks(reject.key)
            if reject.key in selection.keys:
                yield f"{REJECTS_FILE}: {reject.key}"
            yield from _find_in_detail(REJECTS_FILE, reject, selection)
    except DataError:
        yield f"{REJECTS_FILE}: damaged, so it is unknown which images it lists"


def _find_in_detail(file: str, reject: Reject, selection: ImageSelection) -> Iterator[str]:
    """Yields a sentence if a reject's detail says that it is a copy of a selected image."""
    for key in list_kept(reject):
        if key in selection.keys:
            yield f"{file}: {key}, which {reject.key} is a copy of"


class _Cells(NamedTuple):
    """The cells of a record in the contents.

    Attributes:
        key: key of the image; see `RecordLookup.whole_key`.
        sha256: SHA-256 of the source; an empty string if there is no source.
        fits: whether the record meets the conditions, if there are any.
    """

    key: str | None
    sha256: str
    fits: bool


_NO_CELLS = _Cells("", "", fits=False)  # for a reject


def _read_cells(
    dataset: Manifest, entry: ShardEntry, where: Mapping[str, str] | None
) -> list[_Cells]:
    """Reads the cells of each record of a shard from the contents."""
    table = read_shard_contents(dataset, entry)
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
