"""Sidecars of finished shards, for the manifest and for resuming.

`OUT/.beam_tfr/SHARD.json` holds one JSON line with the `ShardInfo`, one with the generation of its file (on a disk its
modification time) and the fingerprints of its references, the shard's reject lines, and one line with the SHA-256 of
all lines before it.

When the input has changed since, `SHARD.changed` replaces the sidecar of a shard that must be rewritten. It notes what
changed, for the user.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.schema import RunError, Shard, ShardInfo, sha256_hex
from beam_tfr.storage import work_path

NOTE_SUFFIX = ".changed"
MOST_KEYS = 3  # in a note
_FINGERPRINT_BYTES = 8


class Sidecar(NamedTuple):
    """The content of a sidecar."""

    info: ShardInfo
    fingerprints: bytes
    reject_lines: list[bytes]
    generation: int


class Changes(NamedTuple):
    """What changed in the input of shards that were finished: a note, or the sum of several.

    Attributes:
        shards: number of shards to rewrite.
        images: number that have changed, or are new in their shard: others move there when files are added or removed.
        keys: some of their keys.
    """

    shards: int = 0
    images: int = 0
    keys: Sequence[str] = ()

    def __str__(self) -> str:
        """A message for the user; empty if nothing changed."""
        if not self.shards:
            return ""
        told = f"the input has changed since an earlier run: {self.shards:,} of its finished shards are rewritten"
        named = f"; images changed or new in them: {self.images:,}, such as {', '.join(self.keys)}"
        return f"{told}{named if self.images else ''}"


def fingerprint(ref: bytes) -> bytes:
    """A short hash of an encoded reference: key, size, generation, labels, columns."""
    return hashlib.blake2b(ref, digest_size=_FINGERPRINT_BYTES).digest()


def _path(output: str, shard_name: str) -> str:
    return work_path(output, f"{shard_name}.json")


def write(
    output: str, info: ShardInfo, reject_lines: Sequence[str], *, fingerprints: bytes = b"", generation: int = 0
) -> None:
    """Writes the sidecar of a shard whose file is committed, with this generation."""
    of_file = f"{generation} {base64.b64encode(fingerprints).decode()}"
    body = "\n".join([info.to_json(), of_file, *reject_lines]) + "\n"
    data = body.encode() + sha256_hex(body.encode()).encode() + b"\n"
    storage.write_bytes(_path(output, info.shard.name), data, scratch=work_path(output, ""))


def read(output: str, shard_name: str) -> Sidecar | None:
    """The sidecar of a shard; None if it is missing or damaged."""
    try:
        data = storage.read_bytes(_path(output, shard_name))
    except FileNotFoundError:
        return None
    body, _, checksum = data.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    if sha256_hex(body).encode() != checksum:
        return None
    info, of_file, *lines = body.splitlines(keepends=True)
    generation, _, fingerprints = of_file.rpartition(b" ")
    return Sidecar(ShardInfo.from_json(info), base64.b64decode(fingerprints), lines, int(generation or 0))


def read_rejects(output: str, shard_name: str) -> Iterator[bytes]:
    """The reject lines of a finished shard.

    Raises:
        RunError: the sidecar is missing or damaged.
    """
    sidecar = read(output, shard_name)
    if sidecar is None:
        path = _path(output, shard_name)
        raise RunError(f"the sidecar of shard {shard_name} is missing or damaged: {path}. Another program changed it")
    yield from sidecar.reject_lines


def read_finished(
    output: str,
    shard: Shard,
    refs: Sequence[bytes] = (),
    *,
    accept_unreadable: bool = False,
    check_finished: bool = False,
) -> ShardInfo | None:
    """The `ShardInfo` of a shard that an earlier run finished with the same references and recipe, or None.

    A file with the size and generation of its commit is unchanged: a generation on gs:// identifies its bytes, and a
    modification time on a disk changes with them, unless it is reset or the disk decays. A file of the same size with
    another generation, such as a copy, is read completely to compare its SHA-256. If the references have changed,
    records that for `take_changes`.

    Args:
        output: folder of the dataset.
        shard: its place in the plan.
        refs: the encoded references of the shard, in order.
        accept_unreadable: whether to keep a shard in which an earlier run accepted unreadable files.
        check_finished: whether to read every file completely.
    """
    sidecar = read(output, shard.name)
    if sidecar is None or (sidecar.info.shard.name, sidecar.info.shard.recipe) != (shard.name, shard.recipe):
        return None
    now = [*map(fingerprint, refs)]
    if (sidecar.info.shard.total, sidecar.fingerprints) != (shard.total, b"".join(now)):
        found, size = sidecar.fingerprints, _FINGERPRINT_BYTES
        before = {found[i : i + size] for i in range(0, len(found), size)}
        drop(output, shard.name, [ref for ref, of in zip(refs, now, strict=True) if of not in before])
        return None
    info = dataclasses.replace(sidecar.info, shard=shard)
    if "unreadable" in info.rejected and not accept_unreadable:
        return None
    if not info.file:
        return info
    path, digest = storage.join(output, info.file), hashlib.sha256()
    try:
        there = storage.find(path)
        if there is None or there.size_bytes != info.num_bytes:
            return None
        if there.generation == sidecar.generation and not check_finished:
            return info
        with storage.open_binary(path) as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return None
    return info if digest.hexdigest() == info.sha256 else None


def find(output: str) -> set[str]:
    """Names of the shards that have a sidecar, without reading any."""
    return {name.removesuffix(".json") for name in storage.list_folder(work_path(output, "")) if name.endswith(".json")}


def drop(output: str, shard_name: str, refs: Sequence[bytes] = ()) -> None:
    """Replaces a sidecar by a note of the encoded references that are new in its shard, or changed."""
    keys = [ref.partition(b"\0")[0].decode("utf-8", "surrogateescape") for ref in refs[:MOST_KEYS]]
    path = work_path(output, f"{shard_name}{NOTE_SUFFIX}")
    storage.write_bytes(path, json.dumps(Changes(1, len(refs), keys)).encode(), scratch=work_path(output, ""))
    storage.delete(_path(output, shard_name))


def take_changes(output: str) -> Changes:
    """The sum of all notes, which are removed."""
    folder = work_path(output, "")
    notes = [work_path(output, name) for name in storage.list_folder(folder) if name.endswith(NOTE_SUFFIX)]
    found = [Changes(*json.loads(storage.read_bytes(path))) for path in notes]
    for path in notes:
        storage.delete(path)
    keys = [key for note in found for key in note.keys]
    return Changes(len(found), sum(note.images for note in found), keys[:MOST_KEYS])
