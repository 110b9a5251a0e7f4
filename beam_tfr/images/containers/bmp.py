"""BMP headers: file header, bitmap header (BITMAPCOREHEADER to BITMAPV5HEADER) and palette."""

from __future__ import annotations

import struct
from typing import NamedTuple

from beam_tfr.schema import RejectError

RUN_LENGTHS = (1, 2)  # values of `Bitmap.compression`: BI_RLE8, BI_RLE4


class Bitmap(NamedTuple):
    """The fields of the headers of a BMP.

    Attributes:
        head: file header, bitmap header and palette.
        header_bytes: of the bitmap header.
        bits: bits per pixel.
        compression: 0 for none.
        color_space: of a V4 or V5 header, 4 bytes; else empty.
        profile: ICC profile in the file; empty without one.
        begin, end: where the pixels are, if they are not compressed; the file may end before.
    """

    head: bytes
    header_bytes: int
    bits: int
    compression: int
    color_space: bytes
    profile: bytes
    begin: int
    end: int

    def is_whole(self, data: bytes) -> bool:
        """True if the file holds all pixels, uncompressed, after the headers."""
        return self.header_bytes >= 40 and len(self.head) <= self.begin < self.end <= len(data)


def read(data: bytes) -> Bitmap:
    """Reads the headers of a BMP.

    Raises:
        RejectError: `damaged-image`: the file ends within them.
    """
    try:
        begin, header_bytes = struct.unpack_from("<II", data, 10)
        compression = colors = 0
        if header_bytes == 12:
            width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        else:
            width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
            (colors,) = struct.unpack_from("<I", data, 46)
        profile = b""
        if header_bytes >= 124 and data[70:74] == b"DEBM":  # PROFILE_EMBEDDED
            place, size = struct.unpack_from("<II", data, 126)
            profile = data[14 + place : 14 + place + size]
    except struct.error:
        raise RejectError("damaged-image", "BMP: ends within its header") from None
    palette = 4 * (colors or 1 << bits) if bits <= 8 else 0
    return Bitmap(
        head=data[: 14 + header_bytes + palette],
        header_bytes=header_bytes,
        bits=bits,
        compression=compression,
        color_space=data[70:74] if header_bytes >= 108 else b"",
        profile=profile,
        begin=begin,
        end=begin + (width * bits + 31) // 32 * 4 * abs(height),
    )
