"""Checks a manifest, and the files beside the shards: labels.txt, rejects.jsonl, and files that do not belong there."""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

from beam_tfr import manifest as manifests
from beam_tfr import storage
from beam_tfr.manifest import Manifest
from beam_tfr.naming import SUFFIXES, file_name, parse_file_name, shard_name
from beam_tfr.schema import (
    ADJUSTMENTS,
    LABELS_FILE,
    MANIFEST_FILE,
    NO_SPLIT,
    REJECT_REASONS,
    REJECTS_FILE,
    Reject,
    canonical_json,
    sha256_hex,
)
from beam_tfr.schema.features import IMAGE_ENCODINGS, features_of
from beam_tfr.verify.problems import Problem, Tell, shown, unreadable

_MAX_LINE_BYTES = 1 << 20  # 1 MiB, of rejects.jsonl


def manifest_problems(manifest: Manifest) -> Iterator[str]:
    """Yields the contradictions within a manifest whose types are right."""
    fields, counts, splits, statistics = manifest.fields, manifest.counts, manifest.splits.values(), manifest.statistics
    names = list(manifest.class_names)
    written, rejected = sum(split.num_examples for split in splits), sum(split.rejected for split in splits)
    if len(set(names)) != len(names):
        yield "labels.names has a class twice"
    yield from _differs("labels.digest", fields["labels"].get("digest"), sha256_hex(manifests.labels_text(names)))
    yield from _differs("options_digest", fields.get("options_digest"), sha256_hex(canonical_json(manifest.options)))
    known = features_of(manifest.options, labelled=manifest.names.label in manifest.features)
    for name in sorted(manifest.features.keys() - known.keys()):
        yield f"features has {shown(name)}, known are {', '.join(known)}"
    for reason in sorted(counts["rejected"].keys() - REJECT_REASONS.keys()):
        yield f"counts.rejected has the reason {shown(reason)}, known are {', '.join(REJECT_REASONS)}"
    for name, number in counts["adjusted"].items():
        if name not in ADJUSTMENTS:
            yield f"counts.adjusted has {shown(name)}, known are {', '.join(ADJUSTMENTS)}"
        if not 1 <= number <= written:
            yield f"counts.adjusted: {shown(name)} is {number}, expected 1 to {written}, the records"
    yield from _differs("counts.matched", counts["matched"], sum(split.matched for split in splits))
    yield from _differs("counts.written", counts["written"], written)
    yield from _differs("the sum of counts.rejected", sum(counts["rejected"].values()), rejected)
    yield from _differs("rejects.count", fields["rejects"].get("count"), rejected)
    for name in manifest.splits:
        yield from _split_problems(manifest, name)
    images = written if manifest.image_options.encoding in IMAGE_ENCODINGS else 0
    yield from _differs("the sum of statistics.source_sizes", sum(statistics["source_sizes"].values()), images)
    channels = 0 if not images else 1 if manifest.image_options.color == "gray" else 3
    for name in ("channel_mean", "channel_std"):
        values = statistics[name]
        if not all(0 <= value <= 255 for value in values) or len(values) != channels:
            yield f"statistics.{name} is {shown(values)}, expected {channels} numbers from 0 to 255"


def _differs(what: str, found: Any, expected: Any) -> Iterator[str]:
    if found != expected or type(found) is not type(expected):  # True == 1
        yield f"{what} is {shown(found)}, expected {shown(expected)}"


def _split_problems(manifest: Manifest, name: str) -> Iterator[str]:
    split, what = manifest.splits[name], f"split {shown(name)}:"
    yield from _differs(f"{what} matched", split.matched, split.num_examples + split.rejected)
    yield from _differs(f"{what} num_bytes", split.num_bytes, sum(shard.num_bytes for shard in split.shards))
    suffix = SUFFIXES[manifest.compression]
    for index, shard in enumerate(split.shards):
        expected = file_name(manifest.name, shard_name(name, index, len(split.shards)), suffix)
        yield from _differs(f"{what} shard {index}", shard.file, expected)
    if name == NO_SPLIT:
        yield from _differs(f"{what} the number of shards", len(split.shards), 0)
        return
    if split.class_counts.keys() != set(manifest.class_names):
        yield f"{what} class_counts has other classes than labels.names"
    if manifest.class_names and "label_column" not in manifest.options:  # each image has exactly one
        yield from _differs(f"{what} the sum of class_counts", sum(split.class_counts.values()), split.num_examples)


def check_manifest(manifest: Manifest, tell: Tell) -> None:
    """Checks the values of the manifest and the text of its file."""
    for message in manifest_problems(manifest):
        tell(Problem(MANIFEST_FILE, message))
    # Its own digest covers the values, not how they are written.
    expected = manifests.to_bytes(manifest.fields)
    data = storage.read_bytes(storage.join(manifest.folder, MANIFEST_FILE), max_bytes=len(expected))
    if data != expected:
        line = _first_difference(data, expected)
        tell(Problem(MANIFEST_FILE, f"line {line} is not as convert writes it: the file was edited"))


def check_labels(manifest: Manifest, tell: Tell) -> None:
    """Checks labels.txt."""
    if manifest.names.label not in manifest.features:
        return
    expected = manifests.labels_text(manifest.class_names)
    try:
        data = storage.read_bytes(storage.join(manifest.folder, LABELS_FILE), max_bytes=len(expected))
    except OSError as error:
        tell(Problem(LABELS_FILE, unreadable(error)))
        return
    if data != expected:
        line = _first_difference(data, expected)
        tell(Problem(LABELS_FILE, f"line {line} is not the class that the manifest has there"))


def _first_difference(data: bytes, expected: bytes) -> int:
    """Number of the first line that differs, from 1."""
    pairs = itertools.zip_longest(data.split(b"\n"), expected.split(b"\n"))
    return next(number for number, (found, wanted) in enumerate(pairs, start=1) if found != wanted)


def check_rejects(manifest: Manifest, tell: Tell) -> None:
    """Checks rejects.jsonl."""
    digest = hashlib.sha256()
    reasons: collections.Counter[str] = collections.Counter()
    try:
        with storage.open_binary(storage.join(manifest.folder, REJECTS_FILE)) as file:
            offset = 0
            for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b"")):
                digest.update(line)
                try:
                    reasons[_reject_reason(line)] += 1
                except (ValueError, RecursionError) as error:
                    tell(Problem(REJECTS_FILE, f"is not a reject: {shown(str(error))}", number, offset))
                offset += len(line)
    except OSError as error:
        tell(Problem(REJECTS_FILE, unreadable(error)))
        return
    promised = manifest.fields["rejects"].get("sha256")
    if digest.hexdigest() != promised:
        tell(Problem(REJECTS_FILE, f"its SHA-256 is {digest.hexdigest()}, expected {shown(promised)}"))
    if reasons != collections.Counter(manifest.counts["rejected"]):
        found, expected = shown(dict(reasons)), shown(manifest.counts["rejected"])
        tell(Problem(REJECTS_FILE, f"it has {found}, expected {expected} rejects"))


def _reject_reason(line: bytes) -> str:
    fields = json.loads(line)
    if not line.endswith(b"\n"):
        raise ValueError("the line is cut off")
    if not isinstance(fields, dict) or fields.keys() != set(Reject._fields):
        raise ValueError(f"expected an object with {', '.join(Reject._fields)}")
    if not all(isinstance(value, str) for value in fields.values()) or fields["reason"] not in REJECT_REASONS:
        raise ValueError(f"the reason is {shown(fields['reason'])}, known are {', '.join(REJECT_REASONS)}")
    return str(fields["reason"])


def check_extra(manifest: Manifest, tell: Tell) -> None:
    """Looks for files with the name of a shard that the manifest does not have."""
    promised = {shard.file for split in manifest.splits.values() for shard in split.shards}
    try:
        files = storage.list_folder(manifest.folder)
    except OSError as error:
        tell(Problem(".", f"the folder cannot be listed: {error.strerror or error}"))
        return
    for file in files:
        name = parse_file_name(file)
        if name and name.dataset == manifest.name and file not in promised:
            tell(Problem(file, "has the name of a shard, but is not in the manifest"))
