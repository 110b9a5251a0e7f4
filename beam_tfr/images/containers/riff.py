"""RIFF chunks of a WebP (RFC 9649, section 2.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema import RejectError

MAX_CHUNKS = 100_000


class Chunk(NamedTuple):
    """One chunk.

    Attributes:
        kind: four characters.
        whole: all its bytes: kind, length, content and padding.
    """

    kind: bytes
    whole: memoryview

    @property
    def content(self) -> memoryview:
        return self.whole[8 : 8 + int.from_bytes(self.whole[4:8], "little")]


def chunks(data: bytes) -> Iterator[Chunk]:
    """Yields the chunks of a WebP.

    Raises:
        RejectError: `damaged-image`: the file ends within a chunk, or has more than `MAX_CHUNKS`.
    """
    view, begin, end = memoryview(data), 12, 8 + int.from_bytes(data[4:8], "little")
    for _ in range(MAX_CHUNKS):
        if begin >= end:
            return
        length = int.from_bytes(view[begin + 4 : begin + 8], "little")
        behind = begin + 8 + length + length % 2
        if behind > min(end, len(data)):
            raise RejectError("damaged-image", "WebP: ends within a chunk")
        yield Chunk(data[begin : begin + 4], view[begin:behind])
        begin = behind
    raise RejectError("damaged-image", f"WebP: more than {MAX_CHUNKS} chunks")
