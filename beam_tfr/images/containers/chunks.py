"""Walks through the chunks of PNG (third edition, 5.3) and WebP (RFC 9649, 2.3)."""

from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema.errors import RejectError

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 100_000  # 8,192 of PNG's usual 8 KiB chunks of pixels fill 64 MiB


class Chunk(NamedTuple):
    """One chunk.

    Attributes:
        kind: four characters; in a PNG, the first character is lowercase if decoders may ignore the
            chunk.
        whole: all bytes of the chunk: length, kind, content, and checksum or padding.
        content: only the content.
    """

    kind: bytes
    whole: memoryview
    content: memoryview


def png_chunks(data: bytes) -> Iterator[Chunk]:
    """Yields the chunks of a PNG up to and including IEND.

    Raises:
        RejectError: `damaged-image`: the file ends before IEND, or has more than `MAX_CHUNKS`
            chunks.
    """
    view = memoryview(data)
    begin = len(PNG_SIGNATURE)
    for _ in range(MAX_CHUNKS):
        length = int.from_bytes(view[begin : begin + 4], "big")
        end = begin + 12 + length
        if end > len(data):
            raise RejectError("damaged-image", "PNG: ends before its last chunk")
        kind = data[begin + 4 : begin + 8]
        yield Chunk(kind, view[begin:end], view[begin + 8 : end - 4])
        if kind == b"IEND":
            return
        begin = end
    raise RejectError("damaged-image", f"PNG: more than {MAX_CHUNKS} chunks")


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
