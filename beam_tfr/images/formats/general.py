"""AVIF, BMP, JPEG 2000 and WebP, which Pillow reads, and what all openers that use Pillow share."""

from __future__ import annotations

import io
import logging
import re
import warnings

import numpy as np
from PIL import AvifImagePlugin, ImageFile, UnidentifiedImageError, features
from PIL import Image as PillowImage

from beam_tfr.images.containers import bmp, chunks
from beam_tfr.images.formats import by_opencv
from beam_tfr.images.formats.depth import blocks, opaque_is_none, to_8_bit
from beam_tfr.images.orientation import orientation_of
from beam_tfr.images.source import Decoded, Pixels, Source, damage_in
from beam_tfr.schema import RejectError

MAX_PIXELS = 1 << 30  # the largest --max_pixels
_JPEG2000_PIXELS = 4000  # a byte, at most; the decoder shows missing pixels as gray without an error

PillowImage.MAX_IMAGE_PIXELS = None  # --max_pixels holds before decoding, as a reject
AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # the runner's threads are the parallelism
warnings.filterwarnings("ignore", module=r"PIL\..*")  # about odd metadata of single files
logging.getLogger("PIL").setLevel(logging.CRITICAL)


def open_avif(data: bytes) -> Source:
    """Opens an AVIF.

    Raises:
        RejectError: `damaged-image`; `unsupported-image`: this build of Pillow does not read it.
    """
    if not features.check("avif"):
        raise RejectError("unsupported-image", "AVIF: this build of Pillow does not read it")
    depth = re.search(rb"av1C..(.)", data[:65536], re.DOTALL)  # AV1 codec configuration: high_bitdepth, twelve_bit
    flags = depth[1][0] if depth else 0
    return open_any(data, "AVIF", animated=True, bits=(12 if flags & 0x20 else 10) if flags & 0x40 else 8)


def open_bmp(data: bytes) -> Source:
    """Opens a BMP. OpenCV decodes run-length codes, which Pillow unpacks without a bound.

    Raises:
        RejectError: `damaged-image`.
    """
    bitmap = bmp.read(data)
    source = open_any(data, "BMP", profile=bitmap.profile)
    if bitmap.compression in bmp.RUN_LENGTHS:
        source.decode = lambda _: by_opencv.to_decoded(
            by_opencv.decode(data, "BMP", source.height, source.width), profile=bitmap.profile
        )
    return source


def open_jpeg2000(data: bytes) -> Source:
    """Opens a JPEG 2000 (ISO/IEC 15444-1).

    Raises:
        RejectError: `damaged-image`; `unsupported-image`: of more than 8 bits, but for gray of 12 and 16.
    """
    # SIZ (A.5.1): number of components, and of the first one bits less 1, of which one is the sign
    size = re.search(rb"\xff\x4f\xff\x51.{36}(..)(.)", data[:65536], re.DOTALL)
    components, bits = (int.from_bytes(size[1], "big"), (size[2][0] & 127) + 1) if size else (3, 8)
    if bits != 8 and not (components == 1 and bits in (12, 16)):  # Pillow makes the brightest of them black
        raise RejectError("unsupported-image", f"JPEG 2000: {components} components of {bits} bit")
    color, profile = data.find(b"colr\x02", 0, 65536), b""
    if color >= 4:  # a color specification box with a profile (I.5.3.3)
        profile = data[color + 7 : color - 4 + int.from_bytes(data[color - 4 : color], "big")]
    source = open_any(data, "JPEG2000", bits=bits, profile=profile)
    if _JPEG2000_PIXELS * len(data) < source.height * source.width <= MAX_PIXELS:
        raise RejectError("damaged-image", f"JPEG 2000: {len(data)} bytes for {source.width} x {source.height} pixels")
    return source


def open_webp(data: bytes) -> Source:
    """Opens a WebP (RFC 9649). Its decoder takes memory for the whole canvas when it opens a file.

    Raises:
        RejectError: `damaged-image`.
    """
    found: dict[bytes, bytes] = {}
    for chunk in chunks.webp_chunks(data):
        if chunk.kind in (b"VP8X", b"EXIF", b"XMP "):
            found.setdefault(chunk.kind, bytes(chunk.content))
    canvas = found.get(b"VP8X", b"")  # only this header holds more than 16,384 pixels a side
    if len(canvas) >= 10:
        width, height = (int.from_bytes(canvas[place : place + 3], "little") + 1 for place in (4, 7))
        if width * height >= 1 << 32:
            raise RejectError("damaged-image", f"WEBP: a canvas of {width} x {height} pixels, more than WebP allows")
        if width * height > MAX_PIXELS:
            raise RejectError("too-many-pixels", f"{width} x {height} pixels")
    source = open_any(data, "WEBP", animated=True)
    source.orientation = orientation_of(found.get(b"EXIF", b""), found.get(b"XMP ", b""))
    return source


def open_any(data: bytes, pillow_format: str, *, animated: bool = False, bits: int = 8, profile: bytes = b"") -> Source:
    """Opens a file with Pillow.

    Args:
        data: a whole file.
        pillow_format: the only one of Pillow's plugins that may read it.
        animated: the format has animations, whose frames Pillow counts by the header.
        bits: of a sample.
        profile: ICC profile that Pillow does not find.

    Raises:
        RejectError: `damaged-image`.
    """
    image = open_image(data, pillow_format)
    return Source(
        format=pillow_format.lower(),
        height=image.height,
        width=image.width,
        orientation=orientation_of(image.info.get("exif") or b""),
        frames=min(2, getattr(image, "n_frames", 1)) if animated else 1,
        decode=lambda _: load(image, bits, profile),
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


def load(image: ImageFile.ImageFile, bits: int, profile: bytes = b"") -> Decoded:
    """Decodes an opened image to its end, and closes it.

    Raises:
        RejectError: `damaged-image`.
    """
    with image, damage_in(str(image.format)):
        image.load()
        return split(image, bits, profile)


def split(image: PillowImage.Image, bits: int = 8, profile: bytes = b"") -> Decoded:
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
        profile=image.info.get("icc_profile") or profile,
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
