"""WebP (RFC 9649): Pillow reads it, whose decoder takes memory for the whole canvas when it opens a file."""

from __future__ import annotations

from beam_tfr.images.formats import general
from beam_tfr.images.source import Source
from beam_tfr.schema import RejectError


def open_webp(data: bytes) -> Source:
    """
    Raises:
        RejectError: `damaged-image`.
    """
    if data[12:16] == b"VP8X" and len(data) >= 30:  # only this header holds more than 16,384 pixels a side
        width, height = (int.from_bytes(data[place : place + 3], "little") + 1 for place in (24, 27))
        if width * height >= 1 << 32:
            raise RejectError("damaged-image", f"WEBP: a canvas of {width} x {height} pixels, more than WebP allows")
        if width * height > general.MOST_PIXELS:
            return general.too_large("webp", height, width)
    return general.open_any(data, "WEBP", animated=True)
