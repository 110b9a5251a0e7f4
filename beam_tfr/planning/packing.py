"""Many references in one element, since an element costs an engine more than a reference."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

PACK_REFS = 1000
PACK_BYTES = 256 << 10  # 256 KiB
_LENGTH = struct.Struct("<I")


def join(values: Iterable[bytes]) -> bytes:
    """Joins values, each preceded by its length (uint32, little-endian)."""
    return b"".join(_LENGTH.pack(len(value)) + value for value in values)


def split(joined: bytes) -> Iterator[bytes]:
    """Splits what `join` joined."""
    start = 0
    while start < len(joined):
        (length,) = _LENGTH.unpack_from(joined, start)
        start += _LENGTH.size + length
        yield joined[start - length : start]


def pack(refs: Iterable[bytes]) -> Iterator[bytes]:
    """Joins encoded references, up to `PACK_REFS` or `PACK_BYTES` at a time."""
    held, size = list[bytes](), 0
    for ref in refs:
        held.append(ref)
        size += len(ref)
        if len(held) == PACK_REFS or size >= PACK_BYTES:
            yield join(held)
            held, size = [], 0
    if held:
        yield join(held)
