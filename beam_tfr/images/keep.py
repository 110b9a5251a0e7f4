"""--encoding keep: whose bytes may stay as they are. What every trainer must show right is measured by TensorFlow."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images import strip
from beam_tfr.images.color import is_srgb
from beam_tfr.images.encode import MAX_SIDES
from beam_tfr.images.formats.jpeg_header import EOI, segments_from
from beam_tfr.images.source import DECODER_ERRORS, Decoded, Source
from beam_tfr.images.strip import strip_metadata
from beam_tfr.options import ImageOptions

MAX_SAMPLES = 1 << 29  # TensorFlow's decoders refuse so many pixels x 3
_JPEG_BEGIN = 2  # behind SOI
_JPEG_MARKERS = frozenset(
    # Frames of baseline, extended and progressive JPEGs, with Huffman codes; tables, scans, metadata.
    (0x01, 0xC0, 0xC1, 0xC2, 0xC4, *range(0xD0, 0xD8), EOI, 0xDA, 0xDB, 0xDC, 0xDD, *range(0xE0, 0xF0), 0xFE)
)
_PNG_ORDER = re.compile(rb"IHDR\.*(PLTE\.*)?(IDAT)+\.*IEND")  # a dot is an ancillary chunk
_PNG_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by colour type; 3 has a palette
_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
_PNG_ANIMATED = (b"acTL", b"fcTL", b"fdAT")
_VP8L_ALPHA = 0x10  # in the last byte of its header
_BMP_PROFILES = (b"DEBM", b"KNIL")  # colour spaces: a profile in the file, or in one that it names
_STEP = 1 << 20  # bytes


class Kept(NamedTuple):
    """A file that is stored as it is.

    Attributes:
        encoded: its bytes, without metadata if the options ask for that.
        shape: height, width and channels of what a decoder makes of it, not turned.
        plain: any trainer sees the right picture.
    """

    encoded: bytes
    shape: tuple[int, int, int]
    plain: bool


def keep(data: bytes, source: Source, decoded: Decoded, options: ImageOptions) -> Kept | None:
    """What is stored of a file that decoded soundly and keeps its size; None if it must be encoded again.

    Raises:
        RejectError: `damaged-image`: metadata cannot be taken out, with --strip_metadata.
    """
    plain = is_plain(source, decoded, options) and is_readable(data, source)
    if not plain and not (options.keep_all and source.format == "jpeg"):
        return None
    if options.strip_metadata:
        orientation = 1 if options.ignore_orientation else source.orientation
        data = strip_metadata(data, source.format, orientation=orientation, profile=decoded.profile)
    return Kept(data, (*decoded.pixels.shape[:2], _channels(source, decoded)), plain)


def is_plain(source: Source, decoded: Decoded, options: ImageOptions) -> bool:
    """Whether a decoder that knows nothing of orientation, profiles and transparency sees the right picture."""
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
    """Whether TensorFlow decodes a sound file, to the pixels that it has here: what stricter or simpler decoders refuse
    or misread is found by a look into its bytes.

    Args:
        data: the file.
        source: of it, in one of the formats that are kept.
    """
    if 3 * source.height * source.width >= MAX_SAMPLES:
        return False
    try:
        return _READABLE[source.format](data, source)
    except DECODER_ERRORS:  # parts that do not follow each other as they must
        return False


def _channels(source: Source, decoded: Decoded) -> int:
    """A GIF has a table of colours, also if all of them are grey."""
    return 3 if source.format == "gif" else decoded.pixels.shape[2]


def _is_readable_jpeg(data: bytes, _: Source) -> bool:
    """libjpeg refuses markers that it does not know, TensorFlow a file that has no end."""
    markers = {segment.marker for segment in segments_from(data, _JPEG_BEGIN)}
    return markers <= _JPEG_MARKERS and EOI in markers


def _is_readable_png(data: bytes, source: Source) -> bool:
    """libpng refuses what it does not know, wrong checksums, and pixels without an end."""
    chunks = list(strip.png_chunks(data))
    kinds = b"".join(b"." if kind[:1].islower() and kind.isalpha() else kind for kind, _ in chunks)
    palette = b"".join(content for kind, content in chunks if kind == b"PLTE")
    return (
        _PNG_ORDER.fullmatch(kinds) is not None
        and data[24] <= 8
        and data[26:29] in (b"\0\0\0", b"\0\0\1")  # ways to compress, to filter and to interlace
        and max(source.height, source.width) <= MAX_SIDES["png"]
        and len(palette) % 3 == 0
        and (len(palette) > 0 or data[25] != 3)
        and not any(kind in _PNG_ANIMATED for kind, _ in chunks)
        and _inflates([content for kind, content in chunks if kind == b"IDAT"], _png_bytes(data, source))
    )


def _png_bytes(data: bytes, source: Source) -> int:
    """Of all rows, each with the byte of its filter, before compression (section 7.2)."""
    depth, color, interlaced = data[24], data[25], data[28]
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    sides = (
        (-(-(source.height - top) // down), -(-(source.width - left) // right)) for top, left, down, right in passes
    )
    return sum(rows * (1 + -(-columns * depth * _PNG_SAMPLES[color] // 8)) for rows, columns in sides if columns > 0)


def _inflates(parts: list[bytes], size: int) -> bool:
    """Whether a zlib stream comes to its end, and to its checksum, with so many bytes."""
    inflater = zlib.decompressobj()
    for part in parts:
        while part and size >= 0 and not inflater.eof:
            size -= len(inflater.decompress(part, _STEP))
            part = inflater.unconsumed_tail
    return size >= 0 and size == len(inflater.flush()) and inflater.eof


def _is_readable_webp(data: bytes, _: Source) -> bool:
    """TensorFlow refuses transparency and animation, also where a file only has the means for it."""
    pictures = 0
    for kind, chunk in strip.riff_chunks(data):
        if (
            kind in (b"ALPH", b"ANIM", b"ANMF")
            or (kind == b"VP8X" and chunk[8] & (strip.WEBP_ALPHA | strip.WEBP_ANIMATION))
            or (kind == b"VP8L" and chunk[12] & _VP8L_ALPHA)
        ):
            return False
        pictures += kind in (b"VP8 ", b"VP8L")
    return pictures == 1


def _is_readable_bmp(data: bytes, _: Source) -> bool:
    """TensorFlow takes indices for grey, and nothing behind the pixels."""
    bitmap = strip.read_bitmap(data)
    palette = bitmap.head[14 + bitmap.header_bytes :]
    grays = bytes(range(len(palette) // 4))
    return (
        bitmap.compression == 0
        and bitmap.end == len(data)
        and bitmap.color_space not in _BMP_PROFILES
        and (bitmap.bits in (24, 32) or (bitmap.bits == 8 and all(palette[part::4] == grays for part in range(3))))
    )


def _is_readable_gif(data: bytes, _: Source) -> bool:
    """TensorFlow shows the whole canvas, and refuses a colour that is not in the table, and codes of 1 or 0 bits."""
    images = [block for kind, block in strip.gif_blocks(data) if kind == b","]
    if len(images) != 1 or struct.unpack_from("<4H", images[0], 1) != (0, 0, *struct.unpack_from("<2H", data, 6)):
        return False
    own = strip.gif_table_bytes(images[0][9])
    colors, bits = (own or strip.gif_table_bytes(data[10])) // 3, images[0][10 + own]
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
