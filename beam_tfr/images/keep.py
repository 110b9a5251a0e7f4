"""Selects the files that --encoding keep stores unchanged: TensorFlow decodes them correctly."""

import contextlib
import re
import zlib

from beam_tfr.features.png_chunks import Chunk, png_chunks, text_problem
from beam_tfr.images.color import is_srgb
from beam_tfr.images.containers import chunks, jpeg
from beam_tfr.images.source import Decoded, Source
from beam_tfr.options import ImageOptions

MAX_SAMPLES = 1 << 29  # pixels x 3; TensorFlow's decoders reject this many
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
# The kinds of chunks in a PNG that is not animated; ancillary ones begin with a lowercase letter.
_PNG_ANCILLARY = rb"(?:(?!acTL|fcTL|fdAT)[a-z][A-Za-z]{3})*"
_PNG_PALETTE = rb"(?:PLTE" + _PNG_ANCILLARY + rb")?"
_PNG_ORDER = re.compile(
    rb"IHDR" + _PNG_ANCILLARY + _PNG_PALETTE + rb"(?:IDAT)+" + _PNG_ANCILLARY + rb"IEND"
)
_VP8X_REFUSED = 0x10 | 0x02  # flags: transparency, animation
_VP8L_ALPHA = 0x10  # in the last byte of its header
# --color -> numbers of channels that a file may have to be kept.
_CHANNELS = {"rgb": (1, 3), "keep": (1, 3), "gray": (1,)}


def is_kept(data: bytes, source: Source, decoded: Decoded, options: ImageOptions) -> bool:
    """Whether training code that decodes the bytes of a file gets the right pixels.

    Args:
        data: the file.
        source: the same file, opened.
        decoded: the pixels of the file, at any scale.
        options: options of the image.
    """
    return is_plain(source, decoded, options) and is_readable(data, source)


def is_plain(source: Source, decoded: Decoded, options: ImageOptions) -> bool:
    """Whether decoders that ignore orientation, profiles and transparency get the right pixels."""
    if source.format not in READABLE or source.frames > 1:
        return False
    if source.orientation > 1 and not options.ignore_orientation:
        return False
    if decoded.alpha is not None or decoded.bits > 8:
        return False
    if decoded.pixels.shape[2] not in _CHANNELS[options.color]:
        return False
    return options.icc == "ignore" or is_srgb(decoded.profile)


def is_readable(data: bytes, source: Source) -> bool:
    """Whether TensorFlow decodes a file to the same pixels as this package does.

    Args:
        data: a file that was decoded without damage.
        source: the same file, opened, in a format that can be kept.
    """
    if 3 * source.height * source.width >= MAX_SAMPLES:
        return False
    with contextlib.suppress(Exception):  # the file does not consist of the parts of its format
        return READABLE[source.format](data)
    return False


def _is_readable_jpeg(data: bytes) -> bool:
    """Whether a JPEG has the end marker that TensorFlow needs, and no marker unknown to libjpeg."""
    return all(segment.marker in _JPEG_MARKERS for segment in jpeg.segments(data))


def _is_readable_png(data: bytes) -> bool:
    """Whether libpng supports all chunks of a file, and their checksums are correct.

    Files with so many texts that they take gigabytes to read do not count as readable either.

    Decoding has already checked the header, the pixels, and the palette if the pixels need it.
    """
    if text_problem(data):
        return False
    parts = list(png_chunks(data))
    kinds = b"".join(part.kind for part in parts)
    if _PNG_ORDER.fullmatch(kinds) is None:
        return False
    palette_bytes = sum(len(part.content) for part in parts if part.kind == b"PLTE")
    return palette_bytes % 3 == 0 and all(_has_right_checksum(part) for part in parts)


def _has_right_checksum(part: Chunk) -> bool:
    """Whether the checksum of a PNG chunk, which covers its kind and content, is correct."""
    checksum = int.from_bytes(part.whole[-4:], "big")
    return zlib.crc32(part.whole[4:-4]) == checksum


def _is_readable_webp(data: bytes) -> bool:
    """Whether a file has neither transparency nor animation; TensorFlow rejects both."""
    pictures = 0
    for chunk in chunks.webp_chunks(data):
        match chunk.kind:
            case b"ALPH" | b"ANIM" | b"ANMF":
                return False
            case b"VP8X" if chunk.content[0] & _VP8X_REFUSED:
                return False
            case b"VP8L" if chunk.content[4] & _VP8L_ALPHA:
                return False
            case b"VP8 " | b"VP8L":
                pictures += 1
    return pictures == 1


READABLE = {"jpeg": _is_readable_jpeg, "png": _is_readable_png, "webp": _is_readable_webp}
