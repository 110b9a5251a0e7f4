"""Checks a manifest, labels.txt, rejects.jsonl, and files that do not belong in the folder."""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset import manifest as manifests
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema import (
    CONTENTS_FOLDER,
    HISTORY_FILE,
    LABELS_FILE,
    MANIFEST_FILE,
    NO_SPLIT,
    REJECT_REASONS,
    REJECTS_FILE,
    REMOVED_FILE,
    SOURCES_FOLDER,
    SUMS_FILE,
    Reject,
    canonical_json,
    in_order,
    sha256_hex,
)
from beam_tfr.schema.features import IMAGE_ENCODINGS
from beam_tfr.schema.naming import CONTENTS_SUFFIX, SUFFIXES, contents_name, file_name, shard_name
from beam_tfr.verification.report import MAX_LINE_BYTES, Problem, shown, unreadable
from beam_tfr.verification.shard_check import read_sums


def check_files(manifest: Manifest) -> Iterator[Problem]:
    """Yields the problems of all files but the shards, in the order of the files."""
    for message in manifest_problems(manifest):
        yield Problem("manifest", MANIFEST_FILE, message)
    checks = {MANIFEST_FILE: _text_problems, LABELS_FILE: _labels_problems, REJECTS_FILE: _rejects_problems}
    checks[SUMS_FILE] = _sums_problems
    for file, check in {**checks, ".": _folder_problems}.items():
        try:
            yield from check(manifest)
        except OSError as error:
            yield unreadable(file, error)


def manifest_problems(manifest: Manifest) -> Iterator[str]:
    """Yields the contradictions within a manifest that fits its schema."""
    fields, counts, splits, statistics = manifest.fields, manifest.counts, manifest.splits.values(), manifest.statistics
    written, rejected = sum(split.num_examples for split in splits), sum(split.rejected for split in splits)
    images = written if manifest.image_options.encoding in IMAGE_ENCODINGS else 0
    labels_digest = sha256_hex(manifests.labels_text(manifest.class_names))
    pairs: list[tuple[str, Any, Any]] = [
        ("labels.digest", fields["labels"]["digest"], labels_digest),
        ("options_digest", fields["options_digest"], sha256_hex(canonical_json(manifest.options))),
        ("counts.matched", counts["matched"], sum(split.matched for split in splits)),
        ("counts.written", counts["written"], written),
        ("the sum of counts.rejected", sum(counts["rejected"].values()), rejected),
        ("rejects.count", fields["rejects"]["count"], rejected),
        ("the sum of statistics.source_sizes", sum(statistics["source_sizes"].values()), images),
    ]
    channels = 0 if not images else 1 if manifest.image_options.color == "gray" else 3
    for name in ("channel_mean", "channel_std"):
        pairs.append((f"the number of values of statistics.{name}", len(statistics[name]), channels))
    for name in manifest.splits:
        pairs += _of_split(manifest, name)
    for what, found, expected in pairs:
        if found != expected:
            yield f"{what} is {shown(found)}, expected {shown(expected)}"


def _of_split(manifest: Manifest, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields pairs that must be equal in a split: name, value in the manifest, value computed from the others."""
    split, what = manifest.splits[name], f"split {shown(name)}:"
    yield f"{what} matched", split.matched, split.num_examples + split.rejected
    yield f"{what} num_bytes", split.num_bytes, sum(shard.num_bytes for shard in split.shards)
    suffix = SUFFIXES[manifest.compression]
    for index, shard in enumerate(split.shards):
        expected = file_name(manifest.name, shard_name(name, index, len(split.shards)), suffix)
        yield f"{what} shard {index}", shard.file, expected
    if name == NO_SPLIT:
        yield f"{what} the number of shards", len(split.shards), 0
        return
    yield f"{what} the classes of class_counts", sorted(split.class_counts), sorted(manifest.class_names)
    if manifest.class_names and "label_column" not in manifest.options:  # each image has exactly one
        yield f"{what} the sum of class_counts", sum(split.class_counts.values()), split.num_examples


def _text_problems(manifest: Manifest) -> Iterator[Problem]:
    # The manifest's own digest covers the values, not how they are written.
    expected = manifests.to_bytes(manifest.fields)
    yield from _differing_line(manifest, MANIFEST_FILE, expected, "as convert writes it: the file was edited")


def _labels_problems(manifest: Manifest) -> Iterator[Problem]:
    if manifest.names.label in manifest.features:
        expected = manifests.labels_text(manifest.class_names)
        yield from _differing_line(manifest, LABELS_FILE, expected, "the class that the manifest has there")


def _differing_line(manifest: Manifest, file: str, expected: bytes, what: str) -> Iterator[Problem]:
    data = storage.read_bytes(storage.join(manifest.folder, file), max_bytes=len(expected))
    pairs = itertools.zip_longest(data.split(b"\n"), expected.split(b"\n"))
    for number, (found, wanted) in enumerate(pairs, start=1):
        if found != wanted:
            yield Problem("damaged", file, f"line {number} is not {what}")
            return


def _rejects_problems(manifest: Manifest) -> Iterator[Problem]:
    digest = hashlib.sha256()
    reasons: collections.Counter[str] = collections.Counter()
    offset = 0
    with storage.open_binary(storage.join(manifest.folder, REJECTS_FILE)) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b"")):
            digest.update(line)
            try:
                reasons[_reject_reason(line)] += 1
            except (ValueError, RecursionError) as error:
                yield Problem("damaged", REJECTS_FILE, f"is not a reject: {shown(str(error))}", number, offset)
            offset += len(line)
    promised = manifest.fields["rejects"]["sha256"]
    if digest.hexdigest() != promised:
        yield Problem("damaged", REJECTS_FILE, f"its SHA-256 is {digest.hexdigest()}, expected {shown(promised)}")
    if reasons != collections.Counter(manifest.counts["rejected"]):
        found, expected = shown(dict(reasons)), shown(manifest.counts["rejected"])
        yield Problem("damaged", REJECTS_FILE, f"it has {found}, expected {expected} rejects")


def _reject_reason(line: bytes) -> str:
    fields = json.loads(line)
    if not line.endswith(b"\n"):
        raise ValueError("the line is truncated")
    if not isinstance(fields, dict) or fields.keys() != set(Reject._fields):
        raise ValueError(f"expected an object with {', '.join(Reject._fields)}")
    if not all(isinstance(value, str) for value in fields.values()) or fields["reason"] not in REJECT_REASONS:
        raise ValueError(f"the reason is {shown(fields['reason'])}, known are {', '.join(REJECT_REASONS)}")
    return str(fields["reason"])


def _sums_problems(manifest: Manifest) -> Iterator[Problem]:
    found = read_sums(manifest.folder)
    shards = (shard.file for split in manifest.splits.values() for shard in split.shards)
    if found.keys() != {contents_name(file).rpartition("/")[2] for file in shards}:
        yield Problem("damaged", SUMS_FILE, "it does not name the contents of each shard, and nothing else")


def _folder_problems(manifest: Manifest) -> Iterator[Problem]:
    """Yields strangers that other readers take for shards, and own files that are links out of the folder."""
    folder, suffix = manifest.folder, SUFFIXES[manifest.compression]
    shards = [shard.file for split in manifest.splits.values() for shard in split.shards]
    beside = {HISTORY_FILE, REMOVED_FILE, CONTENTS_FOLDER, SOURCES_FOLDER}
    own = {MANIFEST_FILE, LABELS_FILE, REJECTS_FILE, *beside, *shards}
    begins = tuple(f"{manifest.name}-{split}-" for split in manifest.splits)
    patterns = f"patterns such as {manifest.name}-{[*in_order(manifest.splits), 'train'][0]}-* and *{suffix} match"
    for name in sorted({*(storage.list_folder(folder) if storage.is_gcs(folder) else os.listdir(folder))} - own):
        if ".tfrecord" in name or name.startswith(begins):
            message = f"is not in the manifest, but {patterns} it, and other readers read it too"
            yield Problem("foreign", name, f"{message}: move it out of the folder")
    own |= {SUMS_FILE, *map(contents_name, shards)}
    for name in storage.list_folder(storage.join(folder, CONTENTS_FOLDER)):
        if (inside := f"{CONTENTS_FOLDER}/{name}") not in own and name.endswith(CONTENTS_SUFFIX):
            pattern = f"{CONTENTS_FOLDER}/*{CONTENTS_SUFFIX}"
            message = f"is not in the manifest, but {pattern} matches it: move it out of the folder"
            yield Problem("foreign", inside, message)
    for name, target in storage.links_out(folder).items():
        if name in own:
            yield Problem("foreign", name, f"is a link that leads out of the folder, to {shown(target)}")
