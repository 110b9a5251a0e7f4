"""PNG (ISO/IEC 15948): Pillow reads it; here is what it leaves out, the low bytes of 16 bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

from beam_tfr.images.formats import general
from beam_tfr.images.formats.depth import blocks, opaque_is_none
from beam_tfr.images.source import DECODER_ERRORS, Decoded, Source, detail
from beam_tfr.schema import RejectError

# Pillow keeps the first of the two bytes of a sample. Read the other way round it is the second, and what has two
# samples of two bytes can be read as four of one.
_SECOND_BYTES = {"RGB;16B": "RGB;16L", "RGBA;16B": "RGBA;16L"}
_GREY_AND_ALPHA = "LA;16B"
_MOST_CHUNKS = 100_000


def open_png(data: bytes) -> Source:
    """
    Raises:
        RejectError: `damaged-image`.
    """
    _check_chunks(data)
    bits = data[24] if len(data) > 24 else 8  # IHDR: width, height, depth
    source = general.open_any(data, "PNG", animated=True)

    def decode(_: tuple[int, int] | None) -> Decoded:
        try:
            return _decode(data, bits)
        except DECODER_ERRORS as error:
            raise RejectError("damaged-image", f"PNG: {detail(error)}") from error

    source.decode = decode
    return source


def _check_chunks(data: bytes) -> None:
    """
    Raises:
        RejectError: `damaged-image`: so many chunks that reading them would take minutes.
    """
    place = 8
    for _ in range(_MOST_CHUNKS):
        if place + 8 > len(data):
            return
        place += int.from_bytes(data[place : place + 4], "big") + 12
    raise RejectError("damaged-image", f"PNG: more than {_MOST_CHUNKS} chunks")


def _decode(data: bytes, bits: int) -> Decoded:
    with general.open_image(data, "PNG") as header:
        rawmode = header.tile[0][3] if header.tile else ""
    if rawmode == _GREY_AND_ALPHA:
        image = general.load_whole(data, "PNG", rawmode="RGBA")
        return _merge(image, image)
    image = general.load_whole(data, "PNG")
    if rawmode in _SECOND_BYTES:
        return _merge(image, general.load_whole(data, "PNG", rawmode=_SECOND_BYTES[rawmode]))
    clear = image.info.get("transparency")
    if image.mode == "L" and clear is not None and bits < 8:
        image.info["transparency"] = clear * 255 // ((1 << bits) - 1)  # Pillow scales the pixels alone
    return general.split(image, bits)


def _merge(first: PillowImage.Image, second: PillowImage.Image) -> Decoded:
    """From both bytes of every sample; two images, or one in which they alternate."""
    width, height = first.size
    clear = first.info.get("transparency")
    colours = 1 if first is second else 3
    pixels = np.empty((height, width, colours), np.uint8)
    alpha = np.empty((height, width), np.uint8) if first.mode == "RGBA" or clear is not None else None
    for rows in blocks(height, 4 * width):
        box = (0, rows.start, width, rows.stop)
        high, low = (np.asarray(image.crop(box)).astype(np.int16) for image in (first, second))
        if first is second:
            high, low = high[..., 0::2], high[..., 1::2]
        samples = _to_8_bit(high, low)
        pixels[rows] = samples[..., :colours]
        if clear is not None and alpha is not None:
            opaque = (high.astype(np.int32) * 256 + low != np.array(clear)).any(-1)
            alpha[rows] = opaque.astype(np.uint8) * np.uint8(255)
        elif alpha is not None:
            alpha[rows] = samples[..., -1]
    profile = first.info.get("icc_profile") or b""
    return Decoded(pixels=pixels, alpha=opaque_is_none(alpha), profile=profile, bits=16, adjusted=("depth-scaled",))


def _to_8_bit(high: NDArray[np.int16], low: NDArray[np.int16]) -> NDArray[np.uint8]:
    """(256 high + low) / 257, which is high + (low - high) / 257, rounded."""
    scaled: NDArray[np.uint8] = (high + (low - high > 128) - (high - low > 128)).astype(np.uint8)
    return scaled
