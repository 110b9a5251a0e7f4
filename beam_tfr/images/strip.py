"""What stands in a file beside its pixels: the parts of PNG, WebP, BMP and GIF, and the same file (or JPEG) without
metadata. Coded pixels are copied, byte for byte."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.images.color import is_srgb
from beam_tfr.images.exif import ORIENTATION_TAG
from beam_tfr.images.formats.jpeg_header import SOS, segments_from
from beam_tfr.schema import RejectError

# Markers of JPEG (ITU-T T.81, table B.1): frames and tables.
_JPEG_DECODING = frozenset(range(0xC0, 0xD0)) | {0xDB, 0xDD}
_APP0, _APP1, _APP2, _APP14 = 0xE0, 0xE1, 0xE2, 0xEE

PNG_BEGIN = 8  # behind the signature
_PNG_KEPT = (b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"sBIT")  # of the ancillary: what colours mean

RIFF_BEGIN = 12
WEBP_ICC, WEBP_ALPHA, WEBP_EXIF, WEBP_XMP, WEBP_ANIMATION = 0x20, 0x10, 0x08, 0x04, 0x02  # flags of VP8X
_WEBP_PICTURE = (b"VP8 ", b"VP8L", b"ALPH")

GIF_CONTROL = b"!\xf9"  # a graphic control extension: delay and transparency


def strip_metadata(data: bytes, image_format: str, *, orientation: int = 1, profile: bytes = b"") -> bytes:
    """The same picture without EXIF, XMP, comments, thumbnails, unknown parts, and whatever follows the picture.

    Args:
        data: a sound file: a JPEG, or what `keep.is_readable` is true of.
        image_format: "jpeg", "png", "webp", "bmp" or "gif".
        orientation: that a JPEG goes on having, in an EXIF block with nothing else.
        profile: the ICC profile of a JPEG or WebP; it stays in the file if it changes colours.

    Raises:
        RejectError: `damaged-image`: its parts do not follow each other as they must.
    """
    with_profile = not is_srgb(profile)
    try:
        if image_format == "jpeg":
            return _strip_jpeg(data, orientation, with_profile)
        if image_format == "webp":
            return _strip_webp(data, with_profile)
        return {"png": _strip_png, "bmp": _strip_bmp, "gif": _strip_gif}[image_format](data)
    except (ValueError, IndexError, struct.error) as error:
        raise RejectError("damaged-image", f"{image_format}: metadata cannot be taken out: {error}") from error


def _strip_jpeg(data: bytes, orientation: int, with_profile: bool) -> bytes:
    head, rest = b"\xff\xd8", []
    segments = list(segments_from(data, len(head)))
    ends = [segment.begin for segment in segments[1:]] + [len(data)]
    for segment, end in zip(segments, ends, strict=True):
        content = data[segment.start : segment.end]
        if segment.marker == _APP0 and content.startswith(b"JFIF\0") and len(content) >= 14:
            head = b"\xff\xd8" + _jpeg_segment(_APP0, content[:12] + b"\0\0")  # without a thumbnail
        elif segment.marker == _APP14 and content.startswith(b"Adobe") and len(content) >= 12:
            rest.append(_jpeg_segment(_APP14, content[:12]))
        elif segment.marker == SOS:
            rest.append(data[segment.begin : end])
        elif segment.marker in _JPEG_DECODING or (
            segment.marker == _APP2 and content.startswith(b"ICC_PROFILE\0") and with_profile
        ):
            rest.append(_jpeg_segment(segment.marker, content))
    if orientation != 1:
        head += _jpeg_segment(_APP1, b"Exif\0\0" + _exif(orientation))
    return b"".join((head, *rest, b"\xff\xd9"))


def _jpeg_segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(content)) + content


def _exif(orientation: int) -> bytes:
    """A TIFF header and one entry: a SHORT (TIFF 6.0, section 2)."""
    return b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, ORIENTATION_TAG, 3, 1, orientation, 0, 0)


def png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks up to IEND: type and content (PNG, third edition, section 5.3).

    Raises:
        ValueError, struct.error: the file ends before IEND, or a checksum is wrong.
    """
    at, kind = PNG_BEGIN, b""
    while kind != b"IEND":
        (length,) = struct.unpack_from(">I", data, at)
        chunk = data[at + 4 : at + 8 + length]
        kind = chunk[:4]
        if struct.unpack_from(">I", data, at + 8 + length)[0] != zlib.crc32(chunk):
            raise ValueError(f"wrong checksum of {kind!r}")
        yield kind, chunk[4:]
        at += 12 + length


def _strip_png(data: bytes) -> bytes:
    parts = [data[:PNG_BEGIN]]
    for kind, content in png_chunks(data):
        if kind[:1].isupper() or kind in _PNG_KEPT:
            checksum = zlib.crc32(content, zlib.crc32(kind))
            parts += (struct.pack(">I", len(content)), kind, content, struct.pack(">I", checksum))
    return b"".join(parts)


def riff_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a WebP: type, and all bytes with type, length and padding (RFC 9649, section 2.3).

    Raises:
        ValueError, struct.error: the file ends within one.
    """
    at, end = RIFF_BEGIN, 8 + struct.unpack_from("<I", data, 4)[0]
    if end > len(data):
        raise ValueError("cut off")
    while at < end:
        kind, length = struct.unpack_from("<4sI", data, at)
        begin, at = at, at + 8 + length + length % 2
        if at > end:
            raise ValueError(f"{kind!r} is cut off")
        yield kind, data[begin:at]


def _strip_webp(data: bytes, with_profile: bool) -> bytes:
    body = b"WEBP"
    for kind, chunk in riff_chunks(data):
        if kind == b"VP8X":
            gone = WEBP_EXIF | WEBP_XMP | (0 if with_profile else WEBP_ICC)
            body += chunk[:8] + bytes((chunk[8] & ~gone,)) + chunk[9:]
        elif kind in _WEBP_PICTURE or (kind == b"ICCP" and with_profile):
            body += chunk  # with its padding: of a damaged picture libwebp reads that too
    return b"RIFF" + struct.pack("<I", len(body)) + body


class Bitmap(NamedTuple):
    """The parts of a BMP.

    Attributes:
        head: file header, bitmap header and palette.
        header_bytes: of the bitmap header.
        bits: of a pixel.
        compression: 0 for none.
        color_space: of a V4 or V5 header, 4 bytes; else empty.
        begin, end: where the pixels stand in the file.
    """

    head: bytes
    header_bytes: int
    bits: int
    compression: int
    color_space: bytes
    begin: int
    end: int


def read_bitmap(data: bytes) -> Bitmap:
    """Parses the headers of a BMP (BITMAPINFOHEADER and its successors).

    Raises:
        ValueError, struct.error: another header, or pixels are missing.
    """
    begin, header_bytes, width, height, _, bits, compression = struct.unpack_from("<IIiiHHI", data, 10)
    if header_bytes < 40:
        raise ValueError(f"a header of {header_bytes} bytes")
    colors = struct.unpack_from("<I", data, 46)[0] or 1 << bits if bits <= 8 else 0
    head = data[: 14 + header_bytes + 4 * colors]
    end = begin + (width * bits + 31) // 32 * 4 * abs(height)
    if not len(head) <= begin < end <= len(data):
        raise ValueError("cut off")
    return Bitmap(head, header_bytes, bits, compression, head[70:74] if header_bytes >= 108 else b"", begin, end)


def _strip_bmp(data: bytes) -> bytes:
    bitmap = read_bitmap(data)
    if bitmap.compression:
        raise ValueError("compressed")
    head, pixels = bytearray(bitmap.head), data[bitmap.begin : bitmap.end]
    struct.pack_into("<III", head, 2, len(head) + len(pixels), 0, len(head))
    if bitmap.bits > 8:
        struct.pack_into("<II", head, 46, 0, 0)  # the colours of a palette that it need not have
    return bytes(head) + pixels


def gif_blocks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The blocks up to the trailer (GIF89a, sections 17 to 27): "GIF" with the global table of colours, "," for an
    image, "!" and a label for an extension; with all their bytes.

    Raises:
        ValueError, IndexError: the file ends before the trailer.
    """
    at = 13 + gif_table_bytes(data[10])
    yield b"GIF", data[:at]
    while (kind := data[at : at + 1]) != b";":
        begin = at
        if kind == b",":
            at += 10 + gif_table_bytes(data[at + 9]) + 1  # the size of a code
        elif kind == b"!":
            kind, at = data[at : at + 2], at + 2
        else:
            raise ValueError(f"a block that begins with {kind!r}")
        while data[at]:
            at += 1 + data[at]
        at += 1
        yield kind, data[begin:at]


def gif_table_bytes(flags: int) -> int:
    """Of the table of colours that follows these flags; 0 without one."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _strip_gif(data: bytes) -> bytes:
    return b"".join(block for kind, block in gif_blocks(data) if kind in (b"GIF", b",", GIF_CONTROL)) + b";"
