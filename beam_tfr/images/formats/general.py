"""Formats that Pillow reads as they are: the first frame, and what all openers that use Pillow share."""

from __future__ import annotations

import io
import logging
import warnings
from typing import NoReturn

import numpy as np
from PIL import AvifImagePlugin, ImageFile, UnidentifiedImageError
from PIL import Image as PillowImage

from beam_tfr.images.formats.depth import blocks, opaque_is_none, to_8_bit
from beam_tfr.images.orientation import orientation_of
from beam_tfr.images.source import Decoded, Pixels, Source, damage_in
from beam_tfr.schema import RejectError

MAX_PIXELS = 1 << 30  # the largest --max_pixels

PillowImage.MAX_IMAGE_PIXELS = None  # --max_pixels holds before decoding, as a reject
AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # the runner's threads are the parallelism
warnings.filterwarnings("ignore", module=r"PIL\..*")  # about odd metadata of single files
logging.getLogger("PIL").setLevel(logging.CRITICAL)


def open_any(data: bytes, pillow_format: str, *, animated: bool = False, bits: int = 8) -> Source:
    """Opens a file with Pillow.

    Args:
        data: a whole file.
        pillow_format: the only one of Pillow's plugins that may read it.
        animated: the format has animations, whose frames Pillow counts by the header.
        bits: of a sample.

    Raises:
        RejectError: `damaged-image`.
    """
    image = open_image(data, pillow_format)

    def decode(_: tuple[int, int] | None) -> Decoded:
        return load(image, bits)

    return Source(
        format=pillow_format.lower(),
        height=image.height,
        width=image.width,
        orientation=orientation_of(image.info.get("exif") or b""),
        frames=min(2, getattr(image, "n_frames", 1)) if animated else 1,
        decode=decode,
    )


def open_image(data: bytes, pillow_format: str) -> ImageFile.ImageFile:
    """Reads a header with one of Pillow's plugins.

    Raises:
        RejectError: `damaged-image`.
    """
    with damage_in(pillow_format):
        try:
            return PillowImage.open(io.BytesIO(data), formats=(pillow_format,))
        except UnidentifiedImageError:
            raise RejectError("damaged-image", f"{pillow_format}: the header is broken") from None


def load(image: ImageFile.ImageFile, bits: int = 8) -> Decoded:
    """Decodes an opened image to its end, and closes it.

    Raises:
        RejectError: `damaged-image`.
    """
    with image, damage_in(str(image.format)):
        image.load()
        return split(image, bits)


def add_profile(source: Source, profile: bytes) -> None:
    """Gives a source the ICC profile that Pillow did not find."""
    decode = source.decode

    def decode_with_profile(least: tuple[int, int] | None) -> Decoded:
        decoded = decode(least)
        decoded.profile = decoded.profile or profile
        return decoded

    source.decode = decode_with_profile


def too_large(name: str, height: int, width: int) -> Source:
    """A source of more than `MAX_PIXELS`, which is not opened further."""

    def decode(_: tuple[int, int] | None) -> NoReturn:
        raise RejectError("too-many-pixels", f"{width} x {height} pixels")

    return Source(format=name, height=height, width=width, decode=decode)


def split(image: PillowImage.Image, bits: int = 8) -> Decoded:
    """Splits a loaded image into colors, not premultiplied, and transparency."""
    width, height = image.size
    channels = {"1": 1, "L": 1, "LA": 1, "La": 1, "I;16": 1, "CMYK": 4}.get(image.mode, 3)
    pixels = np.empty((height, width, channels), np.uint8)
    alpha = np.empty((height, width), np.uint8) if image.has_transparency_data else None
    for rows in blocks(height, 4 * width):
        colors, opacity = _parts(image.crop((0, rows.start, width, rows.stop)))
        pixels[rows] = colors.reshape(*colors.shape[:2], channels)
        if alpha is not None and opacity is not None:
            alpha[rows] = opacity
    return Decoded(
        pixels=pixels,
        alpha=opaque_is_none(alpha),
        profile=image.info.get("icc_profile") or b"",
        bits=bits,
    )


def _parts(image: PillowImage.Image) -> tuple[Pixels, Pixels | None]:
    if image.mode == "I;16":
        return to_8_bit(np.asarray(image), 65535), None
    if image.mode in ("LA", "La"):
        gray = np.asarray(image.convert("LA"))
        return gray[..., 0], gray[..., 1]
    if image.has_transparency_data:
        color = np.asarray(image.convert("RGBA"))
        return color[..., :3], color[..., 3]
    if image.mode in ("L", "CMYK"):
        return np.asarray(image), None
    return np.asarray(image.convert("L" if image.mode == "1" else "RGB")), None
