"""Distinguishes PNG photos from PNG masks by their headers and sizes."""

import struct

from beam_tfr import storage
from beam_tfr.layouts.unnamed_masks import FileKind

_HEADER = struct.Struct(">8s8x2I2B")  # signature, width, height, bits, color type
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB = (2, 6)  # color types: without and with transparency
# Bytes per pixel of a PNG: photos take 1 to 3, areas of few colors less than 0.5.
_LEAST_BYTES = 0.75
_MOST_AREA_BYTES = 0.1  # per pixel of a mask; drawings such as digits take more
_FRAME_BYTES = 100  # of a PNG in addition to its pixels


def find_kind(root: str, path: str) -> FileKind:
    """Returns the kind of content of a PNG; reads only its header.

    Args:
        root: the folder that the path is relative to.
        path: path of the file, which need not exist.
    """
    try:
        entry = storage.find(root + path)
        if entry is None:
            return FileKind.UNKNOWN
        header = storage.read_part(root + path, 0, _HEADER.size)
    except OSError:
        return FileKind.UNKNOWN
    if len(header) < _HEADER.size:
        return FileKind.UNKNOWN
    signature, width, height, _, color_type = _HEADER.unpack(header)
    pixels = int(width * height)
    if signature != _SIGNATURE or not pixels:
        return FileKind.UNKNOWN
    if entry.size_bytes > _LEAST_BYTES * pixels:
        return FileKind.PHOTO if color_type in _RGB else FileKind.DETAILED
    if color_type in _RGB:
        return FileKind.COLORED
    has_areas = entry.size_bytes - _FRAME_BYTES < _MOST_AREA_BYTES * pixels
    return FileKind.AREAS if has_areas else FileKind.UNKNOWN
