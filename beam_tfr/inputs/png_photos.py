"""Tells PNGs of photos from PNGs of masks, by their header and their size."""

import struct

from beam_tfr import storage

_HEADER = struct.Struct(">8s8x2I2B")  # signature, width, height, bits, color type
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB = (2, 6)  # color types: without and with transparency
# For each pixel of a PNG: photos take 1 to 3, and areas of few colors less than 0.5.
_LEAST_BYTES = 0.75


def is_rgb_photo(root: str, path: str) -> bool:
    """Whether a file is a PNG with too many colors for a mask; reads only its header.

    Args:
        root: the folder that the path is below.
        path: path of the file, which may not exist.
    """
    try:
        entry = storage.find(root + path)
        if entry is None:
            return False
        header = storage.read_part(root + path, 0, _HEADER.size)
    except OSError:
        return False
    if len(header) < _HEADER.size:
        return False
    signature, width, height, _, color_type = _HEADER.unpack(header)
    if signature != _SIGNATURE or color_type not in _RGB:
        return False
    pixels = int(width * height)
    return entry.size_bytes > _LEAST_BYTES * pixels > 0
