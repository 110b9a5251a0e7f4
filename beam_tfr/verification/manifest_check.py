"""Checks a manifest, the files beside it, and files that do not belong in the folder."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, labels_text, manifest_bytes
from beam_tfr.dataset.metadata import is_own_card
from beam_tfr.schema import dataset as names
from beam_tfr.schema.naming import CONTENTS_SUFFIX, SUFFIXES, contents_name, file_name, shard_name
from beam_tfr.verification.report import Problem, shown, unreadable
from beam_tfr.verification.shard_check import read_sums


def check_files(manifest: Manifest) -> Iterator[Problem]:
    """Yields the problems of all files but the shards, in the order of the files."""
    for message in manifest_problems(manifest):
        yield Problem("manifest", names.MANIFEST_FILE, message)
    expected = {
        names.MANIFEST_FILE: names.sha256_hex(manifest_bytes(manifest.fields)),
        names.LABELS_FILE: names.sha256_hex(labels_text(manifest.class_names)),
        names.REJECTS_FILE: manifest.fields["rejects"]["sha256"],
    }
    if manifest.names.label not in manifest.features:
        del expected[names.LABELS_FILE]
    yield from _differing(manifest, expected)
    try:
        sums = read_sums(manifest.folder)
        beside = {
            name: sums.pop(f"../{name}") for name in names.METADATA_FILES if f"../{name}" in sums
        }
        shards = (shard.file for split in manifest.splits.values() for shard in split.shards)
        if sums.keys() != {contents_name(file).rpartition("/")[2] for file in shards}:
            yield Problem(
                "damaged",
                names.SUMS_FILE,
                "it does not name the contents of each shard, and nothing else",
            )
        yield from _differing(manifest, beside)  # none of an earlier version
    except OSError as error:
        yield unreadable(names.SUMS_FILE, error)
    try:
        yield from _strangers(manifest)
    except OSError as error:
        yield unreadable(".", error)


def manifest_problems(manifest: Manifest) -> Iterator[str]:
    """Yields the contradictions in what the `dataset_digest`, which is compared with the records,
    does not cover."""
    fields = manifest.fields
    splits = manifest.splits
    pairs: list[tuple[str, Any, Any]] = [
        ("options_digest", fields["options_digest"], names.json_digest(manifest.options)),
        (
            "rejects.count",
            fields["rejects"]["count"],
            sum(split.rejected for split in splits.values()),
        ),
    ]
    suffix = SUFFIXES[manifest.compression]
    for name, split in splits.items():
        what = f"split {shown(name)}:"
        pairs.append(
            (f"{what} num_bytes", split.num_bytes, sum(shard.num_bytes for shard in split.shards))
        )
        for index, shard in enumerate(split.shards):
            expected = file_name(manifest.name, shard_name(name, index, len(split.shards)), suffix)
            pairs.append((f"{what} shard {index}", shard.file, expected))
    for what, actual, expected in pairs:
        if actual != expected:
            yield f"{what} is {shown(actual)}, expected {shown(expected)}"


def _differing(manifest: Manifest, expected: Mapping[str, str]) -> Iterator[Problem]:
    """Yields the problems of files that have another SHA-256 than expected, but of a README.md that
    is somebody's."""
    for file, sha256 in expected.items():
        path = storage.join(manifest.folder, file)
        try:
            actual = storage.sha256(path)
            if actual != sha256 and (
                file != names.CARD_FILE or is_own_card(storage.read_bytes(path))
            ):
                yield Problem("damaged", file, f"its SHA-256 is {actual}, expected {shown(sha256)}")
        except OSError as error:
            yield unreadable(file, error)


def _strangers(manifest: Manifest) -> Iterator[Problem]:
    """Yields the files of others that readers take for shards."""
    folder = manifest.folder
    shards = [shard.file for split in manifest.splits.values() for shard in split.shards]
    begins = tuple(f"{manifest.name}-{split}-" for split in manifest.splits)
    stranger = "is not in the manifest, but readers of patterns take it for a part of the dataset: move it away"
    for name in sorted(
        {*(storage.list_folder(folder) if storage.is_gcs(folder) else os.listdir(folder))}
        - {*shards}
    ):
        if ".tfrecord" in name or name.startswith(begins):
            yield Problem("foreign", name, stranger)
    contents = {*map(contents_name, shards)}
    for name in storage.list_folder(storage.join(folder, names.CONTENTS_FOLDER)):
        if (inside := f"{names.CONTENTS_FOLDER}/{name}") not in contents and name.endswith(
            CONTENTS_SUFFIX
        ):
            yield Problem("foreign", inside, stranger)
