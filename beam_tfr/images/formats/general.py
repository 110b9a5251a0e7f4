"""The general way: every format that Pillow reads, first frame."""

from __future__ import annotations

import io
import itertools
import logging
import warnings
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import AvifImagePlugin, ImageFile, UnidentifiedImageError
from PIL import Image as PillowImage

from beam_tfr.images.formats.depth import blocks, opaque_is_none, to_8_bit
from beam_tfr.images.orientation import orientation_of
from beam_tfr.images.source import DECODER_ERRORS, Decoded, Pixels, Source, detail
from beam_tfr.schema import RejectError

PillowImage.MAX_IMAGE_PIXELS = None  # --max_pixels holds, before decoding, as a reject
AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # the runner's threads are the parallelism
MOST_PIXELS = 1 << 30  # that --max_pixels can allow
warnings.filterwarnings("ignore", module=r"PIL\..*")  # odd metadata of single files
logging.getLogger("PIL").setLevel(logging.CRITICAL)


def open_any(data: bytes, pillow_format: str, *, animated: bool = False, bits: int = 8) -> Source:
    """Reads the header.

    Args:
        data: a whole file.
        pillow_format: the only one of Pillow's plugins that may look at it.
        animated: Pillow knows how many frames there are, by the header.
        bits: of a sample.

    Raises:
        RejectError: `damaged-image`.
    """
    image = open_image(data, pillow_format)

    def decode(_: tuple[int, int] | None) -> Decoded:
        with image:
            try:
                image.load()
                return split(image, bits)
            except DECODER_ERRORS as error:
                raise RejectError("damaged-image", f"{pillow_format}: {detail(error)}") from error

    return Source(
        format=pillow_format.lower(),
        height=image.height,
        width=image.width,
        orientation=orientation_of(image.info.get("exif") or b""),
        frames=min(2, getattr(image, "n_frames", 1)) if animated else 1,
        decode=decode,
    )


def open_image(data: bytes, pillow_format: str) -> ImageFile.ImageFile:
    """
    Raises:
        RejectError: `damaged-image`: Pillow cannot read the header.
    """
    try:
        return PillowImage.open(io.BytesIO(data), formats=(pillow_format,))
    except UnidentifiedImageError:
        raise RejectError("damaged-image", f"{pillow_format}: the header is broken") from None
    except DECODER_ERRORS as error:
        raise RejectError("damaged-image", f"{pillow_format}: {detail(error)}") from error


def add_profile(source: Source, profile: bytes) -> None:
    """Gives a source the ICC profile that Pillow did not find."""
    decode = source.decode

    def decode_with_profile(least: tuple[int, int] | None) -> Decoded:
        decoded = decode(least)
        decoded.profile = decoded.profile or profile
        return decoded

    source.decode = decode_with_profile


def too_large(name: str, height: int, width: int) -> Source:
    """A source of more pixels than any --max_pixels allows, which is not opened further."""

    def decode(_: tuple[int, int] | None) -> NoReturn:
        raise RejectError("too-many-pixels", f"{width} x {height} pixels")

    return Source(format=name, height=height, width=width, decode=decode)


def split(image: PillowImage.Image, bits: int = 8) -> Decoded:
    """Colours and transparency of a loaded image; what is transparent is not premultiplied."""
    width, height = image.size
    channels = {"1": 1, "L": 1, "LA": 1, "La": 1, "I;16": 1, "CMYK": 4}.get(image.mode, 3)
    pixels = np.empty((height, width, channels), np.uint8)
    alpha = np.empty((height, width), np.uint8) if image.has_transparency_data else None
    for rows, columns in itertools.product(blocks(height, 4 * width), blocks(width, 1)):  # Pillow fails at long rows
        colours, opacity = _parts(image.crop((columns.start, rows.start, columns.stop, rows.stop)))
        pixels[rows, columns] = colours.reshape(*colours.shape[:2], channels)
        if alpha is not None and opacity is not None:
            alpha[rows, columns] = opacity
    return Decoded(
        pixels=pixels,
        alpha=opaque_is_none(alpha),
        profile=image.info.get("icc_profile") or b"",
        bits=bits,
        adjusted=("depth-scaled",) if bits > 8 else (),
    )


def _parts(image: PillowImage.Image) -> tuple[Pixels, Pixels | None]:
    mode, clear = image.mode, image.info.get("transparency")
    if mode == "RGB" and clear is not None:
        pixels = np.asarray(image)
        return pixels, _opaque_where((pixels != np.asarray(clear)).any(-1))
    if mode in ("1", "L", "I;16"):
        samples = np.asarray(image.convert("L") if mode == "1" else image)
        opacity = None if clear is None else _opaque_where(samples != clear)
        return (to_8_bit(samples, 65535) if mode == "I;16" else samples), opacity
    if mode in ("LA", "La"):
        grey = np.asarray(image.convert("LA"))
        return grey[..., 0], grey[..., 1]
    if image.has_transparency_data:
        colour = np.asarray(image.convert("RGBA"))
        return colour[..., :3], colour[..., 3]
    return np.asarray(image if mode == "CMYK" else image.convert("RGB")), None


def _opaque_where(opaque: NDArray[np.bool_]) -> Pixels:
    alpha: Pixels = np.where(opaque, np.uint8(255), np.uint8(0))
    return alpha
