"""Walks through the chunks of PNG (third edition, 5.3), and removes those that hold no pixels.

Decoders inflate every compressed text, up to 8 MB for each chunk of 8 kB, although nobody reads it.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema.errors import RejectError

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_END = b"\0\0\0\0IEND\xae\x42\x60\x82"
PIXEL_KINDS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT")  # what decoding needs
INFLATED_TEXTS = (b"zTXt", b"iTXt")
MAX_INFLATED_TEXTS = 16  # of each kind; ImageMagick writes four: EXIF, IPTC, XMP and a profile
MAX_CHUNKS = 100_000  # 8,192 of PNG's usual 8 KiB chunks of pixels fill 64 MiB
_FREE_BYTES = 4 << 10  # besides the pixels: a usual profile; inflates to at most 4 MiB


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


def keep_pixels(data: bytes) -> bytes:
    """Returns a PNG without the chunks that decoding does not need.

    Returns the same object if these chunks are small, as in most files.
    """
    if len(data) <= _FREE_BYTES:
        return data
    kept: list[bytes | memoryview] = [PNG_SIGNATURE]
    with contextlib.suppress(RejectError):  # decoding reports missing pixels
        for chunk in png_chunks(data):
            if chunk.kind in PIXEL_KINDS:
                kept.append(chunk.whole)
    kept.append(PNG_END)
    if len(data) - sum(map(len, kept)) <= _FREE_BYTES:
        return data
    return b"".join(kept)


def text_problem(data: bytes) -> str:
    """Describes why a PNG could take too much memory to decode; empty if it could not.

    Searches all bytes, as TensorFlow does in `reader.headers`.
    """
    if max(map(data.count, INFLATED_TEXTS)) <= MAX_INFLATED_TEXTS:
        return ""
    return f"has more than {MAX_INFLATED_TEXTS} zTXt or iTXt chunks, which inflate when decoded"
