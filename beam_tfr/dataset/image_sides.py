"""Determines the number of pixels of an image from its header.

A dataset may come from a stranger, and an image of a few bytes may take gigabytes to decode.
"""

import io

import simplejpeg
from PIL import Image as PillowImage

PNG_BEGIN = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
PNG_SIDES = slice(16, 24)  # width and height, 4 bytes each
_WEBP_KIND = slice(12, 16)  # of the first chunk, which has the sides


def count_pixels(data: bytes, form: str) -> int:
    """Returns the number of pixels from an image's header, or 0 if the decoder checks the number.

    Args:
        data: the bytes of the image.
        form: one of `manifest.KEPT_FORMATS`.

    Raises:
        ValueError: the image is in another format, even if OpenCV could decode that format.
    """
    if form == "jpeg":
        return _count_jpeg(data)
    if form == "png":
        return _count_png(data)
    if form == "webp":
        return _count_webp(data)
    return 0


def _count_jpeg(data: bytes) -> int:
    try:
        height, width, *_ = simplejpeg.decode_jpeg_header(data, strict=False)
        return int(height * width)
    except (ValueError, KeyError):  # KeyError: chroma has a sampling without a name, such as 4:4:1
        return _count_by_pillow(data)


def _count_by_pillow(data: bytes) -> int:
    try:
        with PillowImage.open(io.BytesIO(data), formats=["JPEG"]) as image:
            return image.width * image.height
    except Exception as error:  # Pillow raises many
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"the image cannot be decoded as jpeg: {problem}") from error


def _count_png(data: bytes) -> int:
    if not data.startswith(PNG_BEGIN):
        raise ValueError("the image cannot be decoded as png")
    sides = data[PNG_SIDES]
    return int.from_bytes(sides[:4]) * int.from_bytes(sides[4:])


def _count_webp(data: bytes) -> int:
    """Returns the number of pixels of a WebP (RFC 9649), from the sides in the first chunk."""
    is_riff = data.startswith(b"RIFF") and data[8:12] == b"WEBP"
    match data[_WEBP_KIND] if is_riff else b"":
        case b"VP8X":
            width = int.from_bytes(data[24:27], "little") + 1
            height = int.from_bytes(data[27:30], "little") + 1
        case b"VP8L":
            sides = int.from_bytes(data[21:25], "little")
            width = (sides & 0x3FFF) + 1
            height = (sides >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width = int.from_bytes(data[26:28], "little") & 0x3FFF
            height = int.from_bytes(data[28:30], "little") & 0x3FFF
        case _:
            raise ValueError("the image cannot be decoded as webp")
    return width * height
