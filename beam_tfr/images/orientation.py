"""Finds the orientation in EXIF or XMP, and undoes it."""

import contextlib
import re

import numpy as np

from beam_tfr.images.containers import tiff
from beam_tfr.images.source import Pixels
from beam_tfr.schema.errors import RejectError

TAG = 0x0112  # in TIFF and EXIF
_XMP = re.compile(rb"""tiff:Orientation\s{0,9}(?:=\s{0,9}["']|>\s{0,9})([1-8])\s{0,9}["'<]""")
# Orientations that flip the rows, after the swap of sides from 5 on.
MIRRORED_DOWN = (3, 4, 7, 8)
MIRRORED_RIGHT = (2, 3, 6, 7)


def find_orientation(exif: bytes, xmp: bytes = b"") -> int:
    """Finds the orientation of an image, 1 to 8; 1 (upright) if no valid value is found.

    Args:
        exif: a TIFF header and its directories (EXIF 2.32, 4.5), with or without "Exif" before the
            header, or empty bytes.
        xmp: an XMP packet, or empty bytes. Its `tiff:Orientation` counts if EXIF has no valid
            value.
    """
    orientation = _find_in_exif(exif)
    if orientation is not None:
        return orientation
    match = _XMP.search(xmp)  # as text: an XML parser would follow its entities
    return int(match[1]) if match else 1


def _find_in_exif(exif: bytes) -> int | None:
    """Finds the orientation in an EXIF block; returns None if there is no valid orientation.

    Reads only the first directory, so that no block takes long to read.
    """
    with contextlib.suppress(RejectError):  # a broken or missing block says nothing
        directory = next(tiff.directories(exif.removeprefix(b"Exif\0\0")))
        for entry in directory:
            if entry.tag == TAG:
                values = directory.read_integers(entry)
                is_valid = len(values) == 1 and 1 <= values[0] <= 8
                return values[0] if is_valid else None
    return None


def turn_upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undoes an orientation (EXIF 2.32, tag 0x0112) of [h, w, c]."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    down = -1 if orientation in MIRRORED_DOWN else 1
    right = -1 if orientation in MIRRORED_RIGHT else 1
    return np.ascontiguousarray(pixels[::down, ::right])
