"""WebP (RFC 9649): Pillow reads it, whose decoder takes memory for the whole canvas when it opens a file."""

from __future__ import annotations

from beam_tfr.images.containers import riff
from beam_tfr.images.formats import general
from beam_tfr.images.orientation import orientation_of
from beam_tfr.images.source import Source
from beam_tfr.schema import RejectError


def open_webp(data: bytes) -> Source:
    """Opens a WebP.

    Raises:
        RejectError: `damaged-image`.
    """
    found: dict[bytes, bytes] = {}
    for chunk in riff.chunks(data):
        if chunk.kind in (b"VP8X", b"EXIF", b"XMP "):
            found.setdefault(chunk.kind, bytes(chunk.content))
    canvas = found.get(b"VP8X", b"")  # only this header holds more than 16,384 pixels a side
    if len(canvas) >= 10:
        width, height = (int.from_bytes(canvas[place : place + 3], "little") + 1 for place in (4, 7))
        if width * height >= 1 << 32:
            raise RejectError("damaged-image", f"WEBP: a canvas of {width} x {height} pixels, more than WebP allows")
        if width * height > general.MAX_PIXELS:
            return general.too_large("webp", height, width)
    source = general.open_any(data, "WEBP", animated=True)
    source.orientation = orientation_of(found.get(b"EXIF", b""), found.get(b"XMP ", b""))
    return source
