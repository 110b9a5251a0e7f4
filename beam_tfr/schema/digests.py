"""Digests, and the bytes they are computed from."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class RecordsDigest:
    """SHA-256 of uncompressed records, each after its length (8 bytes, little-endian)."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    def add(self, record: bytes) -> None:
        self._sha256.update(len(record).to_bytes(8, "little"))
        self._sha256.update(record)

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()


def canonical_json(value: Any) -> bytes:
    """The canonical JSON text of a value: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
