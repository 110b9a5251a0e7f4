"""Decodes with Pillow: AVIF, BMP, GIF, TIFF with up to 8 bits, and animated WebP."""

import io
import logging
import warnings

import numpy as np
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
    _imaging,
)
from PIL import Image as PillowImage

from beam_tfr.images.blocks import row_blocks
from beam_tfr.images.formats.depth import ALPHA_BYTES, split_samples
from beam_tfr.images.orientation import find_orientation
from beam_tfr.images.source import Decoded, Pixels, Source, reject_damage
from beam_tfr.schema.errors import RejectError

# Mode, and whether it has transparency -> bytes per pixel, for images decoded in NumPy memory.
_IN_PLACE = {("L", False): 1, ("RGB", False): 4, ("RGBA", True): 4, ("CMYK", False): 4}
_CONVERTED_BYTES = 8  # per pixel, for all other images
# Mode -> 8-bit mode that it becomes; all other modes become RGB or RGBA.
_CONVERTED = {"1": "L", "L": "L", "LA": "LA", "La": "LA", "CMYK": "CMYK"}

# Imported here, since Pillow would import each plugin with its first image, under the limits of a
# guarded process: there it mistakes a plugin that got no memory for one that is not installed.
_PLUGINS = (AvifImagePlugin, BmpImagePlugin, GifImagePlugin, TiffImagePlugin, WebPImagePlugin)

PillowImage.MAX_IMAGE_PIXELS = None  # --max_pixels is checked before decoding, and causes a reject
AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # the runner already uses several threads
warnings.filterwarnings("ignore", module=r"PIL\..*")  # about odd metadata of single files
logging.getLogger("PIL").setLevel(logging.CRITICAL)


def open_image(data: bytes, pillow_format: str) -> ImageFile.ImageFile:
    """Reads a header with one of Pillow's plugins.

    Raises:
        RejectError: `damaged-image`.
    """
    with reject_damage(pillow_format):
        try:
            return PillowImage.open(io.BytesIO(data), formats=(pillow_format,))
        except UnidentifiedImageError:
            raise RejectError("damaged-image", f"{pillow_format}: the header is broken") from None


def to_source(
    image: ImageFile.ImageFile,
    *,
    frames: int = 1,
    bits: int = 8,
    profile: bytes = b"",
    decoder_bytes: int = 0,
) -> Source:
    """Makes a source from the result of `open_image`.

    Args:
        image: the opened file.
        frames, bits: as in `Source` and `Decoded`.
        profile: ICC profile to use if Pillow does not find one.
        decoder_bytes: memory that the decoder uses per pixel, in addition to the image that it
            makes.
    """
    needed = loading_bytes(image) + decoder_bytes * image.height * image.width
    return Source(
        format=str(image.format).lower(),
        height=image.height,
        width=image.width,
        orientation=find_orientation(image.info.get("exif", b"")),
        frames=frames,
        decode=lambda _: load(image, bits=bits, profile=profile),
        memory=lambda _: needed,
    )


def load(image: ImageFile.ImageFile, *, bits: int = 8, profile: bytes = b"") -> Decoded:
    """Decodes an opened image to its end, and closes it.

    Args:
        image: from `open_image`.
        bits: as in `Decoded`.
        profile: ICC profile to use if Pillow does not find one.

    Raises:
        RejectError: `damaged-image`.
    """
    with image, reject_damage(str(image.format)):
        if (image.mode, image.has_transparency_data) in _IN_PLACE:
            mode = image.mode
            samples = _load_in_place(image)
        else:
            image.load()
            mode = _mode_of_8_bits(image)
            samples = convert_samples(image, mode)
        decoded = Decoded(
            pixels=samples[..., : len(mode)],
            profile=image.info.get("icc_profile") or profile,
            bits=bits,
        )
        if mode.endswith("A"):
            decoded.pixels, decoded.alpha = split_samples(samples)
        return decoded


def loading_bytes(image: ImageFile.ImageFile) -> int:
    """Computes the memory of a Pillow image and its `Decoded`, except the memory of the decoder."""
    is_clear = image.has_transparency_data
    pixel_bytes = _IN_PLACE.get((image.mode, is_clear), _CONVERTED_BYTES) + ALPHA_BYTES * is_clear
    return image.height * image.width * pixel_bytes


def convert_samples(image: PillowImage.Image, mode: str) -> Pixels:
    """Converts a loaded image to samples [h, w, channels] in another mode, block by block."""
    samples = np.empty((image.height, image.width, len(mode)), np.uint8)
    for rows in row_blocks(image.height, 4 * image.width):
        block = image.crop((0, rows.start, image.width, rows.stop)).convert(mode)
        samples[rows] = np.asarray(block).reshape(samples[rows].shape)
    return samples


def _load_in_place(image: ImageFile.ImageFile) -> Pixels:
    """Loads an image into NumPy memory: [h, w, 1 or 4]."""
    mode = image.mode
    channels = _IN_PLACE[mode, image.has_transparency_data]
    samples = np.empty((image.height, image.width, channels), np.uint8)
    memory = _imaging.map_buffer(samples, image.size, "raw", 0, (mode, 0, 1))
    image.im = memory
    image.load()
    if image.im is not memory:
        raise ValueError("the size differs from the header")
    return samples


def _mode_of_8_bits(image: ImageFile.ImageFile) -> str:
    """Returns the 8-bit mode that holds the colors of a loaded image."""
    other = "RGBA" if image.has_transparency_data else "RGB"
    return _CONVERTED.get(image.mode, other)
