"""JPEG 2000 (ISO/IEC 15444-1): Pillow reads it, some kinds of it wrongly."""

from __future__ import annotations

import re

from beam_tfr.images.formats import general
from beam_tfr.images.source import Source
from beam_tfr.schema import RejectError

_MAX_PIXELS = 4000  # a byte; the decoder shows missing pixels as gray without an error


def open_jpeg2000(data: bytes) -> Source:
    """Opens a JPEG 2000.

    Raises:
        RejectError: `damaged-image`; `unsupported-image`: of more than 8 bits, but for gray of 12 and 16.
    """
    # SIZ (ISO/IEC 15444-1, A.5.1): number of components, and of the first one bits less 1, of which one is the sign
    size = re.search(rb"\xff\x4f\xff\x51.{36}(..)(.)", data[:65536], re.DOTALL)
    components, bits = (int.from_bytes(size[1], "big"), (size[2][0] & 127) + 1) if size else (3, 8)
    if bits != 8 and not (components == 1 and bits in (12, 16)):  # Pillow makes the brightest of them black
        raise RejectError("unsupported-image", f"JPEG 2000: {components} components of {bits} bit")
    source = general.open_any(data, "JPEG2000", bits=bits)
    if _MAX_PIXELS * len(data) < source.height * source.width <= general.MAX_PIXELS:
        raise RejectError("damaged-image", f"JPEG 2000: {len(data)} bytes for {source.width} x {source.height} pixels")
    color = data.find(b"colr\x02", 0, 65536)
    if color >= 4:  # a color specification box with a profile (I.5.3.3)
        general.add_profile(source, data[color + 7 : color - 4 + int.from_bytes(data[color - 4 : color], "big")])
    return source
