"""Walks through the chunks of WebP (RFC 9649, 2.3); `features.png_chunks` does so for PNG."""

from collections.abc import Iterator

from beam_tfr.features.png_chunks import MAX_CHUNKS, Chunk
from beam_tfr.schema.errors import RejectError


def webp_chunks(data: bytes) -> Iterator[Chunk]:
    """Yields the chunks of a WebP.

    Raises:
        RejectError: `damaged-image`: the file ends within a chunk, or has more than `MAX_CHUNKS`
            chunks.
    """
    view = memoryview(data)
    begin = 12
    end = 8 + int.from_bytes(data[4:8], "little")
    for _ in range(MAX_CHUNKS):
        if begin >= end:
            return
        start = begin + 8
        length = int.from_bytes(view[begin + 4 : start], "little")
        following = start + length + length % 2
        if following > min(end, len(data)):
            raise RejectError("damaged-image", "WebP: ends within a chunk")
        kind = data[begin : begin + 4]
        yield Chunk(kind, view[begin:following], view[start : start + length])
        begin = following
    raise RejectError("damaged-image", f"WebP: more than {MAX_CHUNKS} chunks")
