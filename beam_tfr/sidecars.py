"""Sidecars of finished shards, for the manifest and for a run that resumes.

`OUT/.beam_tfr/SHARD.json` holds one JSON line with the `ShardInfo`, the shard's reject lines, and one line with the
SHA-256 of all lines before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from beam_tfr import storage
from beam_tfr.schema import RunError, Shard, ShardInfo, sha256_hex
from beam_tfr.storage import work_path


def _path(output: str, shard_name: str) -> str:
    return work_path(output, f"{shard_name}.json")


def write(output: str, info: ShardInfo, reject_lines: Sequence[str]) -> None:
    """Writes the sidecar of a shard whose file is committed."""
    body = "\n".join([info.to_json(), *reject_lines]) + "\n"
    data = body.encode() + sha256_hex(body.encode()).encode() + b"\n"
    storage.write_bytes(_path(output, info.shard.name), data, scratch=work_path(output, ""))


def read(output: str, shard_name: str) -> tuple[ShardInfo, list[bytes]] | None:
    """The `ShardInfo` and reject lines of a shard; None without a sound sidecar."""
    try:
        data = storage.read_bytes(_path(output, shard_name))
    except FileNotFoundError:
        return None
    body, _, checksum = data.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    if sha256_hex(body).encode() != checksum:
        return None
    first, *lines = body.splitlines(keepends=True)
    return ShardInfo.from_json(first), lines


def read_rejects(output: str, shard_name: str) -> Iterator[bytes]:
    """The reject lines of a finished shard.

    Raises:
        RunError: the sidecar is missing or damaged.
    """
    sidecar = read(output, shard_name)
    if sidecar is None:
        path = _path(output, shard_name)
        raise RunError(f"the sidecar of shard {shard_name} is missing or damaged: {path}. Another program changed it")
    yield from sidecar[1]


def read_finished(output: str, shard: Shard, *, accept_unreadable: bool = False) -> ShardInfo | None:
    """The `ShardInfo` of a shard that an earlier run of the same plan finished, or None.

    Reads the whole shard to compare its SHA-256.

    Args:
        output: folder of the dataset.
        shard: its place in the plan.
        accept_unreadable: whether a shard counts in which an earlier run accepted files that could not be read.
    """
    sidecar = read(output, shard.name)
    if sidecar is None or sidecar[0].shard != shard:
        return None
    info = sidecar[0]
    if "unreadable" in info.rejected and not accept_unreadable:
        return None
    if not info.file:
        return info
    digest = hashlib.sha256()
    try:
        with storage.open_binary(storage.join(output, info.file)) as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return None
    return info if digest.hexdigest() == info.sha256 else None


def find(output: str) -> set[str]:
    """Names of the shards that have a sidecar, without reading any."""
    return {name.removesuffix(".json") for name in storage.list_folder(work_path(output, "")) if name.endswith(".json")}
