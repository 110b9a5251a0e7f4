"""AVIF, BMP and WebP, read by Pillow, and functions shared by all openers that use Pillow."""

import io
import logging
import re
import struct
import warnings

import numpy as np
from PIL import AvifImagePlugin, ImageFile, UnidentifiedImageError, _imaging, features
from PIL import Image as PillowImage

from beam_tfr.images.containers import chunks
from beam_tfr.images.formats import by_opencv
from beam_tfr.images.formats.depth import ALPHA_BYTES, blocks, decoded_parts, opaque_is_none, to_8_bit
from beam_tfr.images.orientation import orientation_of
from beam_tfr.images.source import Decoded, Source, damage_in
from beam_tfr.schema.errors import RejectError

_IN_PLACE = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4}  # mode -> channels, of images that are decoded in memory of NumPy
# Mode -> the one that an image is split in; else RGB or RGBA.
_SPLIT = {"1": "L", "L": "L", "I;16": "L", "LA": "LA", "La": "LA", "CMYK": "CMYK"}
_RUN_LENGTHS = (1, 2)  # compressions of BMP: BI_RLE8, BI_RLE4
_AVIF_BYTES = 8  # a pixel, besides the image
_WEBP_PIXELS = (b"VP8 ", b"VP8L", b"ALPH", b"ANMF")
_WEBP_ALPHA, _WEBP_PROFILE = 0x10, 0x20  # flags of VP8X
_WEBP_ANIMATION = 20  # bytes a pixel: two canvases, a frame, a copy, an image

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
    bits = (12 if flags & 0x20 else 10) if flags & 0x40 else 8
    return open_any(data, "AVIF", animated=True, bits=bits, pixel_bytes=_AVIF_BYTES)


def open_bmp(data: bytes) -> Source:
    """Opens a BMP. OpenCV decodes run-length codes, which Pillow unpacks without a bound.

    Raises:
        RejectError: `damaged-image`.
    """
    compression, profile = 0, b""
    try:
        (header_bytes,) = struct.unpack_from("<I", data, 14)
        if header_bytes >= 40:  # of Windows: BITMAPINFOHEADER to BITMAPV5HEADER
            (compression,) = struct.unpack_from("<I", data, 30)
        if header_bytes >= 124 and data[70:74] == b"DEBM":  # PROFILE_EMBEDDED
            place, size = struct.unpack_from("<II", data, 126)
            profile = data[14 + place : 14 + place + size]
    except struct.error:
        raise RejectError("damaged-image", "BMP: ends within its header") from None
    source = open_any(data, "BMP", profile=profile)
    if compression in _RUN_LENGTHS:
        source.decode = lambda _: by_opencv.to_decoded(
            by_opencv.decode(data, "BMP", source.height, source.width), profile=profile
        )
        source.memory = lambda _: 3 * source.height * source.width
    return source


def open_webp(data: bytes) -> Source:
    """Opens a WebP (RFC 9649). OpenCV decodes still images; Pillow, for animations, takes five times the memory.

    Raises:
        RejectError: `damaged-image`.
    """
    contents: dict[bytes, bytes] = {}
    frames = 0
    for chunk in chunks.webp_chunks(data):
        contents.setdefault(chunk.kind, bytes(chunk.content[: 30 if chunk.kind in _WEBP_PIXELS else None]))
        frames += chunk.kind == b"ANMF"
    lossless, canvas = contents.get(b"VP8L", b""), contents.get(b"VP8X", b"")
    flags = canvas[0] if canvas else 0
    if len(canvas) >= 10:
        width, height = (int.from_bytes(canvas[place : place + 3], "little") + 1 for place in (4, 7))
    elif len(lossless) >= 5:
        sides = int.from_bytes(lossless[1:5], "little")
        width, height, flags = (sides & 0x3FFF) + 1, (sides >> 14 & 0x3FFF) + 1, sides >> 28 & 1 and _WEBP_ALPHA
    else:
        lossy = contents.get(b"VP8 ", b"")
        width, height = (int.from_bytes(lossy[place : place + 2], "little") & 0x3FFF for place in (6, 8))
    if not height or not width or width * height >= 1 << 32:
        raise RejectError("damaged-image", f"WEBP: {width} x {height} pixels")
    profile = contents.get(b"ICCP", b"") if flags & _WEBP_PROFILE else b""

    def decode(_: tuple[int, int] | None) -> Decoded:
        if frames:
            return load(open_image(data, "WEBP"), 8)
        return by_opencv.to_decoded(by_opencv.decode(data, "WEBP", height, width), profile=profile)

    pixel_bytes = _WEBP_ANIMATION if frames else 7 if lossless else 3
    if flags & _WEBP_ALPHA:
        pixel_bytes += 6 + ALPHA_BYTES  # a plane and its decoder, as of lossless pixels
    return Source(
        format="webp",
        height=height,
        width=width,
        orientation=orientation_of(contents.get(b"EXIF", b""), contents.get(b"XMP ", b"")),
        frames=min(2, max(1, frames)),
        decode=decode,
        memory=lambda _: pixel_bytes * height * width,
    )


def open_any(
    data: bytes,
    pillow_format: str,
    *,
    animated: bool = False,
    bits: int = 8,
    profile: bytes = b"",
    pixel_bytes: int = 0,
) -> Source:
    """Opens a file with Pillow.

    Args:
        data: a whole file.
        pillow_format: the only one of Pillow's plugins that may read it.
        animated: the format has animations, whose frames Pillow counts by the header.
        bits: bits per sample.
        profile: ICC profile that Pillow does not find.
        pixel_bytes: that the decoder takes for a pixel, besides the image that it makes.

    Raises:
        RejectError: `damaged-image`.
    """
    image = open_image(data, pillow_format)
    needed = loading_bytes(image) + pixel_bytes * image.height * image.width
    return Source(
        format=pillow_format.lower(),
        height=image.height,
        width=image.width,
        orientation=orientation_of(image.info.get("exif") or b""),
        frames=min(2, getattr(image, "n_frames", 1)) if animated else 1,
        decode=lambda _: load(image, bits, profile),
        memory=lambda _: needed,
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
        channels = _IN_PLACE.get(image.mode)
        if channels is None or (image.has_transparency_data and image.mode != "RGBA"):
            image.load()
            return split(image, bits, profile)
        samples = np.empty((image.height, image.width, 1 if channels == 1 else 4), np.uint8)
        image.im = memory = _imaging.map_buffer(samples, image.size, "raw", 0, (image.mode, 0, 1))
        image.load()
        if image.im is not memory:
            raise ValueError("the size is not that of the header")
        pixels, alpha = decoded_parts(samples) if image.mode == "RGBA" else (samples[..., :channels], None)
        return Decoded(pixels=pixels, alpha=alpha, profile=image.info.get("icc_profile") or profile, bits=bits)


def loading_bytes(image: ImageFile.ImageFile) -> int:
    """The memory of a Pillow image and its `Decoded`, without that of the decoder."""
    pixel_bytes = {1: 1, 3: 4, 4: 4}[_IN_PLACE[image.mode]] if image.mode in _IN_PLACE else 8
    return image.height * image.width * (pixel_bytes + ALPHA_BYTES * image.has_transparency_data)


def split(image: PillowImage.Image, bits: int = 8, profile: bytes = b"") -> Decoded:
    """Splits a loaded image into colors, not premultiplied, and transparency."""
    width, height = image.size
    mode = _SPLIT.get(image.mode, "RGBA" if image.has_transparency_data else "RGB")
    colors = mode.removesuffix("A")
    pixels = np.empty((height, width, len(colors)), np.uint8)
    alpha = None if mode == colors else np.empty((height, width), np.uint8)
    for rows in blocks(height, 4 * width):
        part = image.crop((0, rows.start, width, rows.stop))
        samples = to_8_bit(np.asarray(part), 65535) if part.mode == "I;16" else np.asarray(part.convert(mode))
        samples = samples.reshape(part.height, width, -1)
        pixels[rows] = samples[..., : len(colors)]
        if alpha is not None:
            alpha[rows] = samples[..., -1]
    profile = image.info.get("icc_profile") or profile
    return Decoded(pixels=pixels, alpha=opaque_is_none(alpha), profile=profile, bits=bits)
