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
from beam_tfr.images.formats.depth import ALPHA_BYTES, blocks, split_samples
from beam_tfr.images.orientation import find_orientation
from beam_tfr.images.source import Decoded, Pixels, Source, reject_damage
from beam_tfr.schema.errors import RejectError

# Mode -> bytes a pixel, of images that are decoded in memory of NumPy.
_IN_PLACE = {"L": 1, "RGB": 4, "RGBA": 4, "CMYK": 4}
# Mode -> another with 8 bits; all others become RGB or RGBA.
_CONVERTED = {"1": "L", "L": "L", "LA": "LA", "La": "LA", "CMYK": "CMYK"}
_V5_HEADER = b"\x7c\0\0\0"  # size of the header of a BMP that may have a profile
_RUN_LENGTHS = (1, 2)  # compressions of BMP: BI_RLE8, BI_RLE4
_AVIF_BYTES = 8  # a pixel, besides the image
_WEBP_PIXELS = (b"VP8 ", b"VP8L", b"ALPH", b"ANMF")
_WEBP_ALPHA = 0x10
_WEBP_PROFILE = 0x20  # flags of VP8X
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
    depth = re.search(
        rb"av1C..(.)", data[:65536], re.DOTALL
    )  # AV1 codec configuration: high_bitdepth, twelve_bit
    flags = depth[1][0] if depth else 0
    bits = (12 if flags & 0x20 else 10) if flags & 0x40 else 8
    image = open_image(data, "AVIF")
    return source_of(
        image, frames=min(2, getattr(image, "n_frames", 1)), bits=bits, pixel_bytes=_AVIF_BYTES
    )


def open_bmp(data: bytes) -> Source:
    """Opens a BMP. OpenCV decodes run-length codes, which Pillow unpacks without a bound.

    Raises:
        RejectError: `damaged-image`.
    """
    image = open_image(data, "BMP")
    profile = b""
    if data[14:18] == _V5_HEADER and data[70:74] == b"DEBM":  # PROFILE_EMBEDDED
        place, size = struct.unpack_from("<II", data, 126)
        profile = data[14 + place : 14 + place + size]
    source = source_of(image, profile=profile)
    if image.info["compression"] in _RUN_LENGTHS:
        source.decode = lambda _: by_opencv.to_decoded(
            by_opencv.decode_samples(data, "BMP", source.height, source.width), profile=profile
        )
        source.memory = lambda _: 3 * source.height * source.width
    return source


def open_webp(data: bytes) -> Source:
    """Opens a WebP (RFC 9649). OpenCV decodes still images; Pillow, for animations, takes five
    times the memory.

    Raises:
        RejectError: `damaged-image`.
    """
    contents: dict[bytes, bytes] = {}
    frames = 0
    for chunk in chunks.webp_chunks(data):
        contents.setdefault(
            chunk.kind, bytes(chunk.content[: 30 if chunk.kind in _WEBP_PIXELS else None])
        )
        frames += chunk.kind == b"ANMF"
    lossless = contents.get(b"VP8L", b"")
    canvas = contents.get(b"VP8X", b"")
    flags = canvas[0] if canvas else 0
    if len(canvas) >= 10:
        width, height = (
            int.from_bytes(canvas[place : place + 3], "little") + 1 for place in (4, 7)
        )
    elif len(lossless) >= 5:
        sides = int.from_bytes(lossless[1:5], "little")
        width = (sides & 0x3FFF) + 1
        height = (sides >> 14 & 0x3FFF) + 1
        flags = sides >> 28 & 1 and _WEBP_ALPHA
    else:
        lossy = contents.get(b"VP8 ", b"")
        width, height = (
            int.from_bytes(lossy[place : place + 2], "little") & 0x3FFF for place in (6, 8)
        )
    if not height or not width or width * height >= 1 << 32:
        raise RejectError("damaged-image", f"WEBP: {width} x {height} pixels")
    profile = contents.get(b"ICCP", b"") if flags & _WEBP_PROFILE else b""

    def decode(_: tuple[int, int] | None) -> Decoded:
        if frames:
            return load(open_image(data, "WEBP"))
        return by_opencv.to_decoded(
            by_opencv.decode_samples(data, "WEBP", height, width), profile=profile
        )

    if frames:
        pixel_bytes = _WEBP_ANIMATION
    else:
        pixel_bytes = 7 if lossless else 3
    if flags & _WEBP_ALPHA:
        pixel_bytes += 6 + ALPHA_BYTES  # a plane and its decoder, as of lossless pixels
    return Source(
        format="webp",
        height=height,
        width=width,
        orientation=find_orientation(contents.get(b"EXIF", b""), contents.get(b"XMP ", b"")),
        frames=min(2, max(1, frames)),
        decode=decode,
        memory=lambda _: pixel_bytes * height * width,
    )


def source_of(
    image: ImageFile.ImageFile,
    *,
    frames: int = 1,
    bits: int = 8,
    profile: bytes = b"",
    pixel_bytes: int = 0,
) -> Source:
    """What `open_image` opened.

    Args:
        image: the opened file.
        frames, bits: as in `Source` and `Decoded`.
        profile: ICC profile that Pillow does not find.
        pixel_bytes: that the decoder takes for a pixel, besides the image that it makes.
    """
    needed = loading_bytes(image) + pixel_bytes * image.height * image.width
    return Source(
        format=str(image.format).lower(),
        height=image.height,
        width=image.width,
        orientation=find_orientation(image.info.get("exif") or b""),
        frames=frames,
        decode=lambda _: load(image, bits, profile),
        memory=lambda _: needed,
    )


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


def load(image: ImageFile.ImageFile, bits: int = 8, profile: bytes = b"") -> Decoded:
    """Decodes an opened image to its end, and closes it.

    Raises:
        RejectError: `damaged-image`.
    """
    with image, reject_damage(str(image.format)):
        mode = image.mode
        if mode in _IN_PLACE and (mode == "RGBA" or not image.has_transparency_data):
            samples = np.empty((image.height, image.width, _IN_PLACE[mode]), np.uint8)
            image.im = memory = _imaging.map_buffer(samples, image.size, "raw", 0, (mode, 0, 1))
            image.load()
            if image.im is not memory:
                raise ValueError("the size is not that of the header")
        else:
            image.load()
            mode = _CONVERTED.get(image.mode, "RGBA" if image.has_transparency_data else "RGB")
            samples = converted(image, mode)
        pixels, alpha = (
            split_samples(samples) if mode.endswith("A") else (samples[..., : len(mode)], None)
        )
        return Decoded(
            pixels=pixels, alpha=alpha, profile=image.info.get("icc_profile") or profile, bits=bits
        )


def loading_bytes(image: ImageFile.ImageFile) -> int:
    """The memory of a Pillow image and its `Decoded`, without that of the decoder."""
    pixel_bytes = _IN_PLACE.get(image.mode, 8) + ALPHA_BYTES * image.has_transparency_data
    return image.height * image.width * pixel_bytes


def converted(image: PillowImage.Image, mode: str) -> Pixels:
    """The samples [h, w, channels] of a loaded image in another mode, which are made block by
    block."""
    samples = np.empty((image.height, image.width, len(mode)), np.uint8)
    for rows in blocks(image.height, 4 * image.width):
        part = image.crop((0, rows.start, image.width, rows.stop)).convert(mode)
        samples[rows] = np.asarray(part).reshape(samples[rows].shape)
    return samples
