"""Checks a manifest and the files next to it; finds files that do not belong in the folder."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, labels_text, manifest_bytes
from beam_tfr.dataset.metadata.card import MAX_CARD_BYTES, is_own_card
from beam_tfr.schema import dataset
from beam_tfr.schema.naming import CONTENTS_SUFFIX, SUFFIXES, contents_name, file_name, shard_name
from beam_tfr.schema.untrusted import quote
from beam_tfr.verification.report import Problem, ProblemKind, list_tasks
from beam_tfr.verification.shard_check import read_sums


def check_files(manifest: Manifest) -> Iterator[Problem]:
    """Yields the problems of all files except the shards, in the order of the files."""
    for message in find_contradictions(manifest):
        yield Problem(ProblemKind.MANIFEST, dataset.MANIFEST_FILE, message)
    yield from _find_differing(manifest, _hash_expected(manifest))
    try:
        yield from _check_sums_file(manifest)
    except OSError as error:
        yield Problem.of_unreadable(dataset.SUMS_FILE, error)
    try:
        yield from _find_foreign(manifest)
    except OSError as error:
        yield Problem.of_unreadable(".", error)


def find_contradictions(manifest: Manifest) -> Iterator[str]:
    """Yields contradictions in fields that the `dataset_digest` does not cover.

    Fields that the digest covers are compared with the records elsewhere.
    """
    for field, actual, expected in _derive_fields(manifest):
        if actual != expected:
            yield f"{field} is {quote(actual)}, expected {quote(expected)}"


def _derive_fields(manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """Yields fields of the manifest that follow from other fields: name, value, required value."""
    fields = manifest.fields
    splits = manifest.splits
    yield "options_digest", fields["options_digest"], dataset.json_digest(manifest.options)
    rejected = sum(split.rejected for split in splits.values())
    yield "rejects.count", fields["rejects"]["count"], rejected
    suffix = SUFFIXES[manifest.compression]
    for name, split in splits.items():
        num_bytes = sum(shard.num_bytes for shard in split.shards)
        yield f"split {quote(name)}: num_bytes", split.num_bytes, num_bytes
        for index, shard in enumerate(split.shards):
            file = file_name(manifest.name, shard_name(name, index, len(split.shards)), suffix)
            yield f"split {quote(name)}: shard {index}", shard.file, file


def _hash_expected(manifest: Manifest) -> dict[str, str]:
    """Returns file -> SHA-256 for the files whose content follows from the manifest."""
    expected = {dataset.MANIFEST_FILE: dataset.sha256_hex(manifest_bytes(manifest.fields))}
    if manifest.names.label in manifest.features:
        labels = labels_text(manifest.class_names)
        expected[dataset.LABELS_FILE] = dataset.sha256_hex(labels)
    expected[dataset.REJECTS_FILE] = manifest.fields["rejects"]["sha256"]
    return expected


def _find_differing(manifest: Manifest, expected: Mapping[str, str]) -> Iterator[Problem]:
    """Yields the problems of files with an unexpected SHA-256."""
    for file, sha256 in expected.items():
        path = storage.join(manifest.folder, file)
        try:
            actual = storage.sha256(path)
            if actual != sha256 and not _is_card_of_user(path, file):
                message = f"its SHA-256 is {actual}, expected {quote(sha256)}"
                yield Problem(ProblemKind.DAMAGED, file, message)
        except OSError as error:
            yield Problem.of_unreadable(file, error)


def _is_card_of_user(path: str, file: str) -> bool:
    """Whether a file is a README.md that the user wrote."""
    if file != dataset.CARD_FILE:
        return False
    return not is_own_card(storage.read_bytes(path, max_bytes=MAX_CARD_BYTES))


def _check_sums_file(manifest: Manifest) -> Iterator[Problem]:
    """Yields the problems of `SUMS_FILE`, and of the files for other programs that it lists.

    Raises:
        OSError: `SUMS_FILE` cannot be read.
    """
    sums = read_sums(manifest.folder)
    metadata = dict[str, str]()
    for file in dataset.METADATA_FILES:
        sha256 = sums.pop(file, None)
        if sha256 is not None:
            metadata[file] = sha256
    if sums.keys() != {*_list_contents(manifest)}:
        message = "it must name the contents of each shard, and nothing else"
        yield Problem(ProblemKind.DAMAGED, dataset.SUMS_FILE, message)
    yield from _find_differing(manifest, metadata)


def _list_contents(manifest: Manifest) -> list[str]:
    """Returns the paths of the contents, relative to the folder of the dataset."""
    return [contents_name(task.entry.file) for task in list_tasks(manifest)]


def _find_foreign(manifest: Manifest) -> Iterator[Problem]:
    """Yields files that readers would mistake for shards or contents, because their names match.

    Raises:
        OSError: a folder cannot be listed.
    """
    prefixes = tuple(f"{manifest.name}-{split}-" for split in manifest.splits)
    shards = {task.entry.file for task in list_tasks(manifest)}
    for name in _list_names(manifest.folder):
        is_like_shard = ".tfrecord" in name or name.startswith(prefixes)
        if is_like_shard and name not in shards:
            yield _foreign(name)
    contents = set(_list_contents(manifest))
    for name in storage.list_folder(storage.join(manifest.folder, dataset.CONTENTS_FOLDER)):
        path = f"{dataset.CONTENTS_FOLDER}/{name}"
        if name.endswith(CONTENTS_SUFFIX) and path not in contents:
            yield _foreign(path)


def _list_names(folder: str) -> list[str]:
    """Returns the sorted names in a folder; on disk, including those of folders and links."""
    if storage.is_gcs(folder):
        return storage.list_folder(folder)
    return sorted(os.listdir(folder))


def _foreign(file: str) -> Problem:
    return Problem(
        ProblemKind.FOREIGN,
        file,
        "is not in the manifest, but readers that use patterns take it for part of the dataset: "
        "move it out of the folder",
    )
