"""Boxes of an ISO base media file (ISO/IEC 14496-12), as in AVIF, HEIC, JPEG 2000 and JPEG XL."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema import RejectError

MAX_BOXES = 100_000


class Box(NamedTuple):
    """One box: `begin` is where it begins, its content is `data[start:end]`; the file may end before."""

    kind: bytes
    begin: int
    start: int
    end: int


def boxes(data: bytes) -> Iterator[Box]:
    """Yields the boxes of the outermost level.

    Raises:
        RejectError: `damaged-image`: the file ends within the header of a box, or has more than `MAX_BOXES`.
    """
    begin = 0
    for _ in range(MAX_BOXES):
        if begin >= len(data):
            return
        try:
            length, kind = struct.unpack_from(">I4s", data, begin)
            start = begin + 8
            if length == 1:
                (length,) = struct.unpack_from(">Q", data, start)
                start += 8
        except struct.error:
            raise RejectError("damaged-image", "ends within the header of a box") from None
        end = begin + length if length else len(data)
        if end < start:
            raise RejectError("damaged-image", f"a box of {length} bytes")
        yield Box(kind, begin, start, end)
        begin = end
    raise RejectError("damaged-image", f"more than {MAX_BOXES} boxes")
