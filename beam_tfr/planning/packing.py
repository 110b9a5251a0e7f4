"""Packs many references into one element, because elements cost an engine more than references."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

PACK_REFS = 1000
PACK_BYTES = 256 << 10  # 256 KiB
_LENGTH = struct.Struct("<I")


def pack(values: Iterable[bytes]) -> bytes:
    """Joins values, each after its length (uint32, little-endian), and compresses them to a quarter or a third."""
    return zlib.compress(b"".join(_LENGTH.pack(len(value)) + value for value in values), 1)


def unpack(packed: bytes) -> Iterator[bytes]:
    """The values that `pack` packed."""
    joined, start = zlib.decompress(packed), 0
    while start < len(joined):
        (length,) = _LENGTH.unpack_from(joined, start)
        start += _LENGTH.size + length
        yield joined[start - length : start]


def pack_some(refs: Iterable[bytes]) -> Iterator[bytes]:
    """Packs encoded references, up to `PACK_REFS` or `PACK_BYTES` at a time."""
    held, size = list[bytes](), 0
    for ref in refs:
        held.append(ref)
        size += len(ref)
        if len(held) == PACK_REFS or size >= PACK_BYTES:
            yield pack(held)
            held, size = [], 0
    if held:
        yield pack(held)
