"""The fast way for JPEGs: libjpeg-turbo by simplejpeg."""

from __future__ import annotations

import io

import simplejpeg
from PIL import Image as PillowImage

from beam_tfr.images.exif import orientation_of
from beam_tfr.images.source import DECODER_ERRORS, Decoded, Source, detail
from beam_tfr.schema import RejectError


def open_jpeg(data: bytes) -> Source | None:
    """The source of a three-component or grey JPEG; None for what Pillow must look at (CMYK, broken)."""
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    if colorspace not in ("YCbCr", "RGB", "Gray"):
        return None

    def decode(least: tuple[int, int] | None) -> Decoded:
        # A decoder that scales down itself, to at least twice the size wanted, is fast and hardly less exact. Its
        # factors are eighths, and those from a half up take longer than no scaling.
        rows, columns = least or (0, 0)
        try:
            pixels = simplejpeg.decode_jpeg(
                data,
                "GRAY" if colorspace == "Gray" else "RGB",
                min_height=rows,
                min_width=columns,
                min_factor=2 if least else 1,
                strict=True,
            )
        except ValueError as error:
            raise RejectError("damaged-image", f"JPEG: {detail(error)}") from error
        eighths = 8
        if pixels.shape[:2] != (height, width):
            eighths = next(n for n in range(1, 8) if (-(-height * n // 8), -(-width * n // 8)) == pixels.shape[:2])
        return Decoded(pixels=pixels, eighths=eighths)

    return Source(format="jpeg", height=height, width=width, orientation=_orientation(data), decode=decode)


def _orientation(data: bytes) -> int:
    if b"Exif\0\0" not in data:
        return 1
    try:
        with PillowImage.open(io.BytesIO(data), formats=("JPEG",)) as image:
            return orientation_of(image)
    except DECODER_ERRORS:  # a header that only the fast way understands
        return 1
