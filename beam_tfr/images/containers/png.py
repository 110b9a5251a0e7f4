"""PNG chunks (PNG, third edition, section 5.3)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema import RejectError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 100_000  # the usual 8 KiB of pixels a chunk fill 64 MiB with 8,192


class Chunk(NamedTuple):
    """One chunk.

    Attributes:
        kind: four letters; the first is lower case where decoders may ignore the chunk.
        whole: all its bytes: length, kind, content and checksum.
    """

    kind: bytes
    whole: memoryview

    @property
    def content(self) -> memoryview:
        return self.whole[8:-4]

    @property
    def is_sound(self) -> bool:
        """Whether the checksum is right."""
        return zlib.crc32(self.whole[4:-4]) == int.from_bytes(self.whole[-4:], "big")


def chunks(data: bytes) -> Iterator[Chunk]:
    """Yields the chunks of a PNG up to and including IEND.

    Raises:
        RejectError: `damaged-image`: the file ends before IEND, or has more than `MAX_CHUNKS`.
    """
    view, begin = memoryview(data), len(SIGNATURE)
    for _ in range(MAX_CHUNKS):
        end = begin + 12 + int.from_bytes(view[begin : begin + 4], "big")
        if end > len(data):
            raise RejectError("damaged-image", "PNG: ends before its last chunk")
        chunk = Chunk(data[begin + 4 : begin + 8], view[begin:end])
        yield chunk
        if chunk.kind == b"IEND":
            return
        begin = end
    raise RejectError("damaged-image", f"PNG: more than {MAX_CHUNKS} chunks")
