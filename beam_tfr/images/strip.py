"""Copies a file without its metadata. Coded pixels are copied byte for byte."""

from __future__ import annotations

import struct

from beam_tfr.images.color import is_srgb
from beam_tfr.images.containers import chunks, jpeg

# Markers of JPEG (ITU-T T.81, table B.1): frames and tables.
_JPEG_DECODING = frozenset(range(0xC0, 0xD0)) | {0xDB, 0xDD}
_PNG_KEPT = (b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"sBIT")  # of the ancillary: what colors mean
_WEBP_PICTURE = (b"VP8 ", b"VP8L", b"ALPH")
_WEBP_ICC, _WEBP_EXIF, _WEBP_XMP = 0x20, 0x08, 0x04  # flags of VP8X


def strip_metadata(data: bytes, image_format: str, *, profile: bytes = b"") -> bytes:
    """Copies a picture without EXIF, XMP, comments, thumbnails, unknown parts, and anything after the picture.

    Args:
        data: a sound file: a JPEG, or one that `keep.is_readable` accepts.
        image_format: "jpeg", "png" or "webp".
        profile: the ICC profile of a JPEG or WebP; it stays in the file if it changes colors.

    Raises:
        RejectError: `damaged-image`: the file is not made of the parts of its format.
    """
    with_profile = not is_srgb(profile)
    if image_format == "jpeg":
        return _strip_jpeg(data, with_profile)
    if image_format == "webp":
        return _strip_webp(data, with_profile)
    return _strip_png(data)


def _strip_jpeg(data: bytes, with_profile: bool) -> bytes:
    head, rest = b"\xff\xd8", []
    segments = list(jpeg.segments(data))
    ends = [segment.begin for segment in segments[1:]] + [len(data)]
    for segment, end in zip(segments, ends, strict=True):
        content = data[segment.start : segment.end]
        if segment.marker == jpeg.APP0 and content.startswith(b"JFIF\0") and len(content) >= 14:
            head = b"\xff\xd8" + _jpeg_segment(jpeg.APP0, content[:12] + b"\0\0")  # without a thumbnail
        elif segment.marker == jpeg.APP14 and content.startswith(b"Adobe") and len(content) >= 12:
            rest.append(_jpeg_segment(jpeg.APP14, content[:12]))
        elif segment.marker == jpeg.SOS:
            rest.append(data[segment.begin : end])
        elif segment.marker in _JPEG_DECODING or (
            segment.marker == jpeg.APP2 and content.startswith(b"ICC_PROFILE\0") and with_profile
        ):
            rest.append(_jpeg_segment(segment.marker, content))
    return b"".join((head, *rest, b"\xff\xd9"))


def _jpeg_segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(content)) + content


def _strip_png(data: bytes) -> bytes:
    kept = (chunk.whole for chunk in chunks.png_chunks(data) if chunk.kind[:1].isupper() or chunk.kind in _PNG_KEPT)
    return b"".join((chunks.PNG_SIGNATURE, *kept))


def _strip_webp(data: bytes, with_profile: bool) -> bytes:
    body = b"WEBP"
    for chunk in chunks.webp_chunks(data):
        if chunk.kind == b"VP8X":
            gone = _WEBP_EXIF | _WEBP_XMP | (0 if with_profile else _WEBP_ICC)
            body += b"".join((chunk.whole[:8], bytes((chunk.whole[8] & ~gone,)), chunk.whole[9:]))
        elif chunk.kind in _WEBP_PICTURE or (chunk.kind == b"ICCP" and with_profile):
            body += chunk.whole  # with its padding: of a damaged picture libwebp reads that too
    return b"RIFF" + struct.pack("<I", len(body)) + body
