"""Checks a manifest, the files beside it, and files that do not belong in the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset import manifest as manifests
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.metadata import is_own_card
from beam_tfr.schema import dataset as names
from beam_tfr.schema.naming import CONTENTS_SUFFIX, SUFFIXES, contents_name, file_name, shard_name
from beam_tfr.verification.report import Problem, shown, unreadable
from beam_tfr.verification.shard_check import read_sums


def check_files(manifest: Manifest) -> Iterator[Problem]:
    """Yields the problems of all files but the shards, in the order of the files."""
    for message in manifest_problems(manifest):
        yield Problem("manifest", names.MANIFEST_FILE, message)
    checks = {
        names.MANIFEST_FILE: _text_problems,
        names.LABELS_FILE: _labels_problems,
        names.REJECTS_FILE: _rejects_problems,
        names.SUMS_FILE: _sums_problems,
        ".": _folder_problems,
    }
    for file, check in checks.items():
        try:
            yield from check(manifest)
        except OSError as error:
            yield unreadable(file, error)


def manifest_problems(manifest: Manifest) -> Iterator[str]:
    """Yields the contradictions in what the `dataset_digest`, which is compared with the records, does not cover."""
    fields, splits = manifest.fields, manifest.splits
    pairs: list[tuple[str, Any, Any]] = [
        ("options_digest", fields["options_digest"], names.json_digest(manifest.options)),
        ("rejects.count", fields["rejects"]["count"], sum(split.rejected for split in splits.values())),
    ]
    suffix = SUFFIXES[manifest.compression]
    for name, split in splits.items():
        what = f"split {shown(name)}:"
        pairs.append((f"{what} num_bytes", split.num_bytes, sum(shard.num_bytes for shard in split.shards)))
        for index, shard in enumerate(split.shards):
            expected = file_name(manifest.name, shard_name(name, index, len(split.shards)), suffix)
            pairs.append((f"{what} shard {index}", shard.file, expected))
    for what, found, expected in pairs:
        if found != expected:
            yield f"{what} is {shown(found)}, expected {shown(expected)}"


def _text_problems(manifest: Manifest) -> Iterator[Problem]:
    # The manifest's own digest covers the values, not how they are written.
    if _read(manifest, names.MANIFEST_FILE) != manifests.to_bytes(manifest.fields):
        yield Problem("damaged", names.MANIFEST_FILE, "it is not as convert writes it: the file was edited")


def _labels_problems(manifest: Manifest) -> Iterator[Problem]:
    expected = manifests.labels_text(manifest.class_names)
    if manifest.names.label in manifest.features and _read(manifest, names.LABELS_FILE) != expected:
        yield Problem("damaged", names.LABELS_FILE, "its lines are not the classes of the manifest")


def _rejects_problems(manifest: Manifest) -> Iterator[Problem]:
    found, promised = storage.sha256(storage.join(manifest.folder, names.REJECTS_FILE)), manifest.fields["rejects"]
    if found != promised["sha256"]:
        yield Problem("damaged", names.REJECTS_FILE, f"its SHA-256 is {found}, expected {shown(promised['sha256'])}")


def _read(manifest: Manifest, file: str) -> bytes:
    return storage.read_bytes(storage.join(manifest.folder, file), max_bytes=manifests.MAX_MANIFEST_BYTES)


def _sums_problems(manifest: Manifest) -> Iterator[Problem]:
    found = read_sums(manifest.folder)
    shards = (shard.file for split in manifest.splits.values() for shard in split.shards)
    beside = {name: f"../{name}" for name in names.METADATA_FILES}
    if found.keys() - beside.values() != {contents_name(file).rpartition("/")[2] for file in shards}:
        yield Problem("damaged", names.SUMS_FILE, "it does not name the contents of each shard, and nothing else")
    for name in [name for name, path in beside.items() if path in found]:  # an earlier version names none
        try:
            data = _read(manifest, name)
        except OSError as error:
            yield unreadable(name, error)
            continue
        if names.sha256_hex(data) != found[beside[name]] and (name != names.CARD_FILE or is_own_card(data)):
            yield Problem("damaged", name, "it is not as convert writes it: the file was edited")


def _folder_problems(manifest: Manifest) -> Iterator[Problem]:
    """Yields strangers that other readers take for shards, and own files that are links out of the folder."""
    folder = manifest.folder
    shards = [shard.file for split in manifest.splits.values() for shard in split.shards]
    beside = {names.HISTORY_FILE, names.REMOVED_FILE, names.CONTENTS_FOLDER, names.SOURCES_FOLDER}
    own = {names.MANIFEST_FILE, names.LABELS_FILE, names.REJECTS_FILE, *beside, *shards}
    begins = tuple(f"{manifest.name}-{split}-" for split in manifest.splits)
    stranger = "is not in the manifest, but readers of patterns take it for a part of the dataset: move it away"
    for name in sorted({*(storage.list_folder(folder) if storage.is_gcs(folder) else os.listdir(folder))} - own):
        if ".tfrecord" in name or name.startswith(begins):
            yield Problem("foreign", name, stranger)
    own |= {names.SUMS_FILE, *map(contents_name, shards)}
    for name in storage.list_folder(storage.join(folder, names.CONTENTS_FOLDER)):
        if (inside := f"{names.CONTENTS_FOLDER}/{name}") not in own and name.endswith(CONTENTS_SUFFIX):
            yield Problem("foreign", inside, stranger)
    for name, target in storage.links_out(folder).items():
        if name in own:
            yield Problem("foreign", name, f"is a link that leads out of the folder, to {shown(target)}")
