"""ResizeImages: one pure function from the bytes of a file to a converted image.

    from beam_tfr.images import convert_image
    image = convert_image(open("photo.jpg", "rb").read(), image_size=(224, 224))

The content decides what an image is, never its name. Ordinary JPEGs take the fast way (libjpeg-turbo), everything else
Pillow's. Resizing is OpenCV's INTER_AREA, antialiased, and gives the same pixels on every processor.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import struct
import warnings
import zlib

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import UnidentifiedImageError

from beam_tfr.schema import Image, RejectError

MAX_PIXELS = 100_000_000  # of a source image, from its header
ORIENTATION_TAG = 0x0112  # EXIF
PNG_LEVEL = 6

# What Pillow's decoders raise on damaged files; MemoryError comes from absurd sizes in chunks.
_DECODER_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
)

cv2.setNumThreads(1)  # the runner's threads are the parallelism
PillowImage.MAX_IMAGE_PIXELS = None  # ours holds, before decoding, as a reject
warnings.filterwarnings("ignore", module=r"PIL\..*")  # odd metadata of single files

Pixels = NDArray[np.uint8]


def codec_versions() -> dict[str, str]:
    """Library -> version: whatever can change a byte of a record."""
    libraries = ("simplejpeg", "opencv-python-headless", "pillow", "numpy")
    return {name: importlib.metadata.version(name) for name in libraries} | {"zlib": zlib.ZLIB_RUNTIME_VERSION}


def convert_image(
    data: bytes,
    *,
    image_size: tuple[int, int] = (224, 224),
    resize: str = "stretch",
    encoding: str = "jpeg",
    quality: int = 90,
) -> Image:
    """Decodes, orients, converts to RGB, resizes and encodes one image.

    Args:
        data: a whole file.
        image_size: height and width of the result in pixels.
        resize: "stretch" brings any shape to this size.
        encoding: "jpeg" (4:2:0) or "png".
        quality: of JPEG, 1 to 100.

    Returns:
        The encoded image, uint8 [height, width, 3] when decoded, with the sums of its pixels for statistics.

    Raises:
        RejectError: `not-an-image`, `damaged-image` or `too-many-pixels`.
        ValueError: resize or encoding is not known.
    """
    pixels, source_height, source_width = _decode(data, image_size)
    if resize != "stretch":
        raise ValueError(f"unknown resize {resize!r}")
    pixels = stretch(pixels, image_size)
    height, width, channels = pixels.shape
    # In float64 sums of integers are exact up to 2^53: 10^11 pixels.
    sums = cv2.reduce(pixels, 0, cv2.REDUCE_SUM, dtype=cv2.CV_64F).sum((0, 1))
    squares = cv2.reduce(pixels, 0, cv2.REDUCE_SUM2, dtype=cv2.CV_64F).sum((0, 1))
    return Image(
        encoded=_encode(pixels, encoding, quality),
        format=encoding,
        height=height,
        width=width,
        channels=channels,
        colorspace="RGB",
        source_height=source_height,
        source_width=source_width,
        source_sha256=hashlib.sha256(data).hexdigest(),
        channel_sums=tuple(int(s) for s in sums),
        channel_squares=tuple(int(s) for s in squares),
    )


def stretch(pixels: Pixels, image_size: tuple[int, int]) -> Pixels:
    """Brings uint8 [h, w, 3] to [height, width, 3]; antialiased where it shrinks, bilinear where it grows."""
    height, width = image_size
    # AREA only averages when both sides shrink; so shrink first, then enlarge what must grow.
    small = (min(height, pixels.shape[0]), min(width, pixels.shape[1]))
    if small != pixels.shape[:2]:
        pixels = _resize(pixels, small, cv2.INTER_AREA)
    if (height, width) != pixels.shape[:2]:
        pixels = _resize(pixels, (height, width), cv2.INTER_LINEAR)
    return pixels


def _resize(pixels: Pixels, size: tuple[int, int], interpolation: int) -> Pixels:
    return cv2.resize(pixels, (size[1], size[0]), interpolation=interpolation)  # type: ignore[return-value]


def _decode(data: bytes, image_size: tuple[int, int]) -> tuple[Pixels, int, int]:
    """Upright RGB uint8 [h, w, 3], and the height and width of the source; perhaps already scaled down by the decoder,
    to at least twice the size wanted.
    """
    if data.startswith(b"\xff\xd8\xff"):
        fast = _decode_jpeg(data, image_size)
        if fast is not None:
            return fast
    return _decode_any(data)


def _decode_jpeg(data: bytes, image_size: tuple[int, int]) -> tuple[Pixels, int, int] | None:
    """The fast way for three-component and grey JPEGs; None for what Pillow must look at (CMYK, broken)."""
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    if colorspace not in ("YCbCr", "RGB", "Gray"):
        return None
    _check_pixels(height, width)
    orientation = _exif_orientation(data)
    if orientation >= 5:  # turned by a quarter: the sides change places
        image_size = image_size[::-1]
    try:
        pixels = simplejpeg.decode_jpeg(
            data, "RGB", min_height=image_size[0], min_width=image_size[1], min_factor=2, strict=True
        )
    except ValueError:
        return None
    pixels = _upright(pixels, orientation)
    return (pixels, width, height) if orientation >= 5 else (pixels, height, width)


def _exif_orientation(data: bytes) -> int:
    if b"Exif\0\0" not in data[: 1 << 16]:
        return 1
    with PillowImage.open(io.BytesIO(data)) as image:
        return _orientation(image)


def _orientation(image: PillowImage.Image) -> int:
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except _DECODER_ERRORS:  # a broken EXIF block says nothing
        return 1
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undoes an EXIF orientation (1 to 8; EXIF 2.32, tag 0x0112)."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    flip_rows = orientation in (3, 4, 7, 8)
    flip_columns = orientation in (2, 3, 6, 7)
    if flip_rows or flip_columns:
        pixels = pixels[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1]
    return np.ascontiguousarray(pixels)


def _check_pixels(height: int, width: int) -> None:
    if height * width > MAX_PIXELS:
        raise RejectError("too-many-pixels", f"{width} x {height} pixels, at most {MAX_PIXELS} are decoded")


def _decode_any(data: bytes) -> tuple[Pixels, int, int]:
    """Everything that Pillow reads: the first frame, over white where it is transparent."""
    try:
        image = PillowImage.open(io.BytesIO(data))
    except UnidentifiedImageError:
        raise RejectError("not-an-image", f"begins with {data[:16]!r}") from None
    except _DECODER_ERRORS as error:
        raise RejectError("damaged-image", _detail(error)) from error
    with image:
        _check_pixels(image.height, image.width)
        try:
            image.load()
            rgb = _to_rgb(image)
        except _DECODER_ERRORS as error:
            raise RejectError("damaged-image", f"{image.format}: {_detail(error)}") from error
        pixels = _upright(np.asarray(rgb), _orientation(image))
    return pixels, pixels.shape[0], pixels.shape[1]


def _to_rgb(image: PillowImage.Image) -> PillowImage.Image:
    if image.mode.startswith(("I", "F")):  # 16 bit and more: scaled, not clipped
        deep = np.asarray(image, dtype=np.float64)
        top = 65535.0 if deep.max(initial=0) > 255 else 255.0
        image = PillowImage.fromarray(np.clip(deep * (255.0 / top) + 0.5, 0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = PillowImage.new("RGBA", image.size, (255, 255, 255, 255))
        image = PillowImage.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _detail(error: Exception) -> str:
    return f"{error}"[:200] or type(error).__name__


def _encode(pixels: Pixels, encoding: str, quality: int) -> bytes:
    if encoding == "jpeg":
        return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality, "RGB", "420"))
    if encoding == "png":
        buffer = io.BytesIO()
        PillowImage.fromarray(pixels).save(buffer, "PNG", compress_level=PNG_LEVEL)
        return buffer.getvalue()
    raise ValueError(f"unknown encoding {encoding!r}")
