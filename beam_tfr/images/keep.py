"""--encoding keep: decides which files are stored unchanged, by whether TensorFlow decodes them
correctly."""

import contextlib
import re
import zlib

from beam_tfr.images.color import is_srgb
from beam_tfr.images.containers import chunks, jpeg
from beam_tfr.images.source import Decoded, Source
from beam_tfr.options import ImageOptions

MAX_SAMPLES = 1 << 29  # TensorFlow's decoders refuse so many pixels x 3
_JPEG_MARKERS = frozenset(
    # Frames of baseline, extended and progressive JPEGs, with Huffman codes; tables, scans,
    # metadata.
    (
        0x01,
        0xC0,
        0xC1,
        0xC2,
        0xC4,
        *range(0xD0, 0xD8),
        jpeg.EOI,
        jpeg.SOS,
        0xDB,
        0xDC,
        0xDD,
        *range(0xE0, 0xF0),
        0xFE,
    )
)
_PNG_ORDER = re.compile(rb"IHDR\.*(PLTE\.*)?(IDAT)+\.*IEND")  # a dot is an ancillary chunk
_PNG_ANIMATED = (b"acTL", b"fcTL", b"fdAT")
_VP8X_REFUSED = 0x10 | 0x02  # flags: transparency, animation
_VP8L_ALPHA = 0x10  # in the last byte of its header


def is_plain(source: Source, decoded: Decoded, options: ImageOptions) -> bool:
    """True if a decoder that ignores orientation, profiles and transparency gets the right
    pixels."""
    return (
        source.format in READABLE
        and (source.orientation == 1 or options.ignore_orientation)
        and (
            source.frames == 1 or source.format == "jpeg"
        )  # further pictures after a JPEG are not seen
        and decoded.alpha is None
        and decoded.bits <= 8
        and decoded.pixels.shape[2] != 4
        and (options.icc == "ignore" or is_srgb(decoded.profile))
        and (options.color != "gray" or decoded.pixels.shape[2] == 1)
    )


def is_readable(data: bytes, source: Source) -> bool:
    """True if TensorFlow decodes a file to the same pixels as here.

    Args:
        data: a file that decoded without damage.
        source: the same file, of a format that is kept.
    """
    if 3 * source.height * source.width >= MAX_SAMPLES:
        return False
    with contextlib.suppress(Exception):  # not made of the parts of its format
        return READABLE[source.format](data)
    return False


def _is_readable_jpeg(data: bytes) -> bool:
    """True if it has only markers that libjpeg knows, and the end marker, which TensorFlow
    needs."""
    return all(segment.marker in _JPEG_MARKERS for segment in jpeg.segments(data))


def _is_readable_png(data: bytes) -> bool:
    """True if libpng knows all its chunks and their checksums are right. Decoding has checked the
    pixels."""
    parts = list(chunks.png_chunks(data))
    kinds = b"".join(
        b"." if part.kind[:1].islower() and part.kind.isalpha() else part.kind for part in parts
    )
    palette = b"".join(part.content for part in parts if part.kind == b"PLTE")
    return (
        all(
            zlib.crc32(part.whole[4:-4]) == int.from_bytes(part.whole[-4:], "big") for part in parts
        )
        and _PNG_ORDER.fullmatch(kinds) is not None
        and data[26:29] in (b"\0\0\0", b"\0\0\1")  # ways to compress, to filter and to interlace
        and len(palette) % 3 == 0
        and (len(palette) > 0 or data[25] != 3)
        and not any(part.kind in _PNG_ANIMATED for part in parts)
    )


def _is_readable_webp(data: bytes) -> bool:
    """True if it allows neither transparency nor animation, both of which TensorFlow refuses."""
    pictures = 0
    for chunk in chunks.webp_chunks(data):
        kind = chunk.kind
        content = chunk.content
        if (
            kind in (b"ALPH", b"ANIM", b"ANMF")
            or (kind == b"VP8X" and content[0] & _VP8X_REFUSED)
            or (kind == b"VP8L" and content[4] & _VP8L_ALPHA)
        ):
            return False
        pictures += kind in (b"VP8 ", b"VP8L")
    return pictures == 1


READABLE = {"jpeg": _is_readable_jpeg, "png": _is_readable_png, "webp": _is_readable_webp}
