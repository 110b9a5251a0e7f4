"""--encoding keep: decides which files are stored unchanged, by whether TensorFlow decodes them correctly."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images.color import is_srgb
from beam_tfr.images.containers import bmp, chunks, gif, jpeg
from beam_tfr.images.source import Decoded, Source, damage_in
from beam_tfr.images.strip import strip_metadata
from beam_tfr.options import ImageOptions
from beam_tfr.schema import RejectError

MAX_SAMPLES = 1 << 29  # TensorFlow's decoders refuse so many pixels x 3
_JPEG_MARKERS = frozenset(
    # Frames of baseline, extended and progressive JPEGs, with Huffman codes; tables, scans, metadata.
    (0x01, 0xC0, 0xC1, 0xC2, 0xC4, *range(0xD0, 0xD8), jpeg.EOI, jpeg.SOS, 0xDB, 0xDC, 0xDD, *range(0xE0, 0xF0), 0xFE)
)
_PNG_ORDER = re.compile(rb"IHDR\.*(PLTE\.*)?(IDAT)+\.*IEND")  # a dot is an ancillary chunk
_PNG_ANIMATED = (b"acTL", b"fcTL", b"fdAT")
_VP8X_REFUSED = 0x10 | 0x02  # flags: transparency, animation
_VP8L_ALPHA = 0x10  # in the last byte of its header
_BMP_PROFILES = (b"DEBM", b"KNIL")  # color spaces: a profile in the file, or in one that it names


class Kept(NamedTuple):
    """A file that is stored unchanged.

    Attributes:
        encoded: its bytes, without metadata if the options say so.
        shape: height, width and channels when decoded, not turned.
    """

    encoded: bytes
    shape: tuple[int, int, int]


def keep(data: bytes, source: Source, decoded: Decoded, options: ImageOptions) -> Kept | None:
    """Keeps an undamaged file of the right size; returns None if it must be re-encoded.

    Raises:
        RejectError: `damaged-image`: --strip_metadata cannot remove its metadata.
    """
    if not (is_plain(source, decoded, options) and is_readable(data, source)):
        return None
    if options.strip_metadata:
        data = strip_metadata(data, source.format, profile=decoded.profile)
    return Kept(data, (*decoded.pixels.shape[:2], _channels(source, decoded)))


def is_plain(source: Source, decoded: Decoded, options: ImageOptions) -> bool:
    """True if a decoder that ignores orientation, profiles and transparency gets the right pixels."""
    return (
        source.format in _READABLE
        and (source.orientation == 1 or options.ignore_orientation)
        and (source.frames == 1 or source.format == "jpeg")  # further pictures behind a JPEG are not seen
        and decoded.alpha is None
        and decoded.bits <= 8
        and decoded.pixels.shape[2] != 4
        and (options.icc == "ignore" or is_srgb(decoded.profile))
        and (options.color != "gray" or _channels(source, decoded) == 1)
    )


def is_readable(data: bytes, source: Source) -> bool:
    """True if TensorFlow decodes a file to the same pixels as here.

    Args:
        data: a file that decoded without damage.
        source: the same file, of a format that is kept.
    """
    if 3 * source.height * source.width >= MAX_SAMPLES:
        return False
    try:
        with damage_in(source.format):
            return _READABLE[source.format](data, source)
    except RejectError:  # not made of the parts of its format
        return False


def _channels(source: Source, decoded: Decoded) -> int:
    """Channels as training code decodes them: a GIF has three, even if all of its colors are gray."""
    return 3 if source.format == "gif" else decoded.pixels.shape[2]


def _is_readable_jpeg(data: bytes, _: Source) -> bool:
    """True if it has only markers that libjpeg knows, and the end marker, which TensorFlow needs."""
    return all(segment.marker in _JPEG_MARKERS for segment in jpeg.segments(data))


def _is_readable_png(data: bytes, _: Source) -> bool:
    """True if libpng knows all its chunks and their checksums are right. Decoding has checked the pixels."""
    parts = list(chunks.png_chunks(data))
    kinds = b"".join(b"." if part.kind[:1].islower() and part.kind.isalpha() else part.kind for part in parts)
    palette = b"".join(part.content for part in parts if part.kind == b"PLTE")
    return (
        all(zlib.crc32(part.whole[4:-4]) == int.from_bytes(part.whole[-4:], "big") for part in parts)
        and _PNG_ORDER.fullmatch(kinds) is not None
        and data[24] <= 8
        and data[26:29] in (b"\0\0\0", b"\0\0\1")  # ways to compress, to filter and to interlace
        and len(palette) % 3 == 0
        and (len(palette) > 0 or data[25] != 3)
        and not any(part.kind in _PNG_ANIMATED for part in parts)
    )


def _is_readable_webp(data: bytes, _: Source) -> bool:
    """True if it allows neither transparency nor animation, both of which TensorFlow refuses."""
    pictures = 0
    for chunk in chunks.webp_chunks(data):
        kind, content = chunk.kind, chunk.content
        if (
            kind in (b"ALPH", b"ANIM", b"ANMF")
            or (kind == b"VP8X" and content[0] & _VP8X_REFUSED)
            or (kind == b"VP8L" and content[4] & _VP8L_ALPHA)
        ):
            return False
        pictures += kind in (b"VP8 ", b"VP8L")
    return pictures == 1


def _is_readable_bmp(data: bytes, _: Source) -> bool:
    """True if a palette is gray, because TensorFlow reads indices as gray levels, and nothing follows the pixels."""
    bitmap = bmp.read(data)
    palette = bitmap.head[14 + bitmap.header_bytes :]
    grays = bytes(range(len(palette) // 4))
    return (
        bitmap.compression == 0
        and bitmap.is_whole(data)
        and bitmap.end == len(data)
        and bitmap.color_space not in _BMP_PROFILES
        and (bitmap.bits in (24, 32) or (bitmap.bits == 8 and all(palette[part::4] == grays for part in range(3))))
    )


def _is_readable_gif(data: bytes, _: Source) -> bool:
    """True if its only frame fills the canvas, its codes have 2 to 8 bits, and its colors are in the table.

    TensorFlow shows the canvas, and refuses other codes.
    """
    images = [block.whole for block in gif.blocks(data) if block.kind == gif.IMAGE]
    if len(images) != 1 or struct.unpack_from("<4H", images[0], 1) != (0, 0, *struct.unpack_from("<2H", data, 6)):
        return False
    own = gif.table_bytes(images[0][9])
    colors, bits = (own or gif.table_bytes(data[10])) // 3, images[0][10 + own]
    if not 2 <= bits <= 8:
        return False
    if 1 << bits <= colors:
        return True
    with PillowImage.open(io.BytesIO(data), formats=("GIF",)) as image:
        return int(np.asarray(image).max()) < colors


_READABLE: dict[str, Callable[[bytes, Source], bool]] = {
    "jpeg": _is_readable_jpeg,
    "png": _is_readable_png,
    "webp": _is_readable_webp,
    "bmp": _is_readable_bmp,
    "gif": _is_readable_gif,
}
