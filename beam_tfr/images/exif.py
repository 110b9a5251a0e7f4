"""EXIF: the one fact that is taken from it, the orientation. XMP says nothing here, as in browsers."""

from __future__ import annotations

import struct

import numpy as np
from PIL import Image as PillowImage
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from beam_tfr.images.source import DECODER_ERRORS, Pixels

ORIENTATION_TAG = 0x0112
_PNG = b"\x89PNG\r\n\x1a\n"
_FORMATS = {1: "B", 3: "H", 4: "I"}  # of TIFF's unsigned whole numbers


def orientation_in(block: bytes) -> int:
    """The orientation that an EXIF block says.

    Args:
        block: a TIFF header and its directories (EXIF 2.32, 4.5), with or without "Exif" before them; or nothing.

    Returns:
        1 to 8; 1 (upright) where nothing valid is said. Only the first directory is read, so that no block takes long.
    """
    block = block.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(block[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", block, 4)
        (count,) = struct.unpack_from(order + "H", block, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, values = struct.unpack_from(order + "HHI", block, entry)
            if tag == ORIENTATION_TAG:
                if kind not in _FORMATS or values != 1:
                    return 1
                return _valid(*struct.unpack_from(order + _FORMATS[kind], block, entry + 8))
    except struct.error:  # ends within its directory
        return 1
    return 1


def orientation_of(image: PillowImage.Image) -> int:
    """1 to 8; 1 (upright) where nothing valid is said.

    Args:
        image: opened, not loaded: nothing is decoded here. In a PNG all of the file is looked through.
    """
    if isinstance(image, TiffImageFile):
        try:
            return _valid(image.tag_v2.get(ORIENTATION_TAG))
        except DECODER_ERRORS:  # a broken directory says nothing
            return 1
    block = image.info.get("exif")
    if block is None and isinstance(image, PngImageFile):
        block = _raw_profile(image.info.get("Raw profile type exif")) or _exif_chunk(image)
    return orientation_in(block) if isinstance(block, bytes) else 1


def mirrored(orientation: int) -> tuple[bool, bool]:
    """Whether rows and columns of the upright image begin where those of the stored one end."""
    return orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7)


def upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undoes an orientation (EXIF 2.32, tag 0x0112) of [h, w, c]."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    flip_rows, flip_columns = mirrored(orientation)
    if flip_rows or flip_columns:
        pixels = pixels[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1]
    return np.ascontiguousarray(pixels)


def _valid(orientation: object) -> int:
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def _raw_profile(text: object) -> bytes | None:
    """The bytes of ImageMagick's text chunk: a line break, a name, a length and hexadecimal digits, a line each."""
    if not isinstance(text, str):
        return None
    try:
        return bytes.fromhex("".join(text.split("\n")[3:]))
    except ValueError:
        return None


def _exif_chunk(png: PngImageFile) -> bytes | None:
    """The eXIf chunk of a PNG behind its pixels (PNG, third edition, 11.3.4.5), of which Pillow tells late."""
    file = png.fp
    if file is None:
        return None
    here = file.tell()
    try:
        file.seek(0)
        data = file.read()
    finally:
        file.seek(here)
    position = len(_PNG) if b"eXIf" in data else len(data)
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        if kind == b"eXIf":
            return data[position + 8 : position + 8 + length]
        position += 12 + length
    return None
