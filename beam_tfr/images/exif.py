"""EXIF: the one fact that is taken from it, the orientation."""

from __future__ import annotations

import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images.source import DECODER_ERRORS, Pixels

ORIENTATION_TAG = 0x0112


def orientation_of(image: PillowImage.Image) -> int:
    """1 to 8; 1 (upright) where nothing valid is said."""
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except DECODER_ERRORS:  # a broken EXIF block says nothing
        return 1
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undoes an orientation (EXIF 2.32, tag 0x0112) of [h, w, c]."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    flip_rows = orientation in (3, 4, 7, 8)
    flip_columns = orientation in (2, 3, 6, 7)
    if flip_rows or flip_columns:
        pixels = pixels[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1]
    return np.ascontiguousarray(pixels)
