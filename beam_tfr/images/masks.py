"""Brings masks, and other images beside images, to the places of their images; never
interpolates."""

import io
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

from beam_tfr.images.encode import PNG_LEVEL
from beam_tfr.images.limits import BUDGET
from beam_tfr.images.mapping import source_size
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.features import MASK_KEY
from beam_tfr.schema.items import Geometry, Image

_MOST_BYTES = 8  # a pixel, to decode it
# Without filters, which are for photos: half the time, and 6 % smaller.
_ENCODING = (
    cv2.IMWRITE_PNG_COMPRESSION,
    PNG_LEVEL,
    cv2.IMWRITE_PNG_FILTER,
    cv2.IMWRITE_PNG_FILTER_NONE,
)
_DTYPES = {
    "1": np.uint8,
    "L": np.uint8,
    "P": np.uint8,
    "I": np.uint16,
    "I;16": np.uint16,
}  # by Pillow's mode


def convert_mask(
    data: bytes, image: Image, options: ImageOptions, *, outside: int = 0, name: str = MASK_KEY
) -> bytes:
    """Places a mask, or another companion, as its image is placed: each pixel takes the value under
    its center.

    Args:
        data: a PNG of 1 to 16 bits, gray, or a mask with a palette, of the size of the upright
            source; or of the source as stored, if its orientation is ignored.
        image: the converted image.
        options: those of the image; `max_decode_bytes` counts.
        outside: the value where the record shows no pixel of the source.
        name: what errors call it.

    Returns:
        A gray PNG of the size of the record, with 16 bits if the mask has so many, else 8. Values
        stay as they are, as 255 for "ignore" does; those of a palette are its indices.

    Raises:
        RejectError: `bad-value`: it is no such PNG, or has another size.
    """
    geometry = image.geometry
    with BUDGET.hold(_MOST_BYTES * geometry.height * geometry.width, options.max_decode_bytes):
        placed = place_values(_decoded(data, geometry, name), image, outside=outside)
    return cv2.imencode(".png", placed, _ENCODING)[1].tobytes()


def place_values(values: NDArray[Any], image: Image, *, outside: int = 0) -> NDArray[Any]:
    """The pixels of a mask in the record: see `convert_mask`.

    Args:
        values: uint8 or uint16, of the size of the source.
        image, outside: as there.
    """
    geometry = image.geometry
    left, top, right, bottom = geometry.content
    columns = _centers(*geometry.window[::2], right - left)
    rows = _centers(*geometry.window[1::2], bottom - top)
    placed = np.full((image.height, image.width), outside, values.dtype)
    placed[top:bottom, left:right] = values[np.ix_(rows, columns)]
    return placed


def _decoded(data: bytes, geometry: Geometry, name: str) -> NDArray[Any]:
    size = source_size(geometry, upright=geometry.turned)
    try:
        with PillowImage.open(io.BytesIO(data), formats=("PNG",)) as opened:
            if opened.size != size:
                turned = opened.size == source_size(geometry, upright=False)
                exif = ": it ignores EXIF orientation" * turned
                raise ValueError(f"has {opened.size} pixels, the image {size}{exif}")
            if opened.mode not in _DTYPES or (opened.mode == "P" and name != MASK_KEY):
                raise ValueError(f"has pixels of mode {opened.mode}; it must have one gray channel")
            return np.asarray(opened).astype(_DTYPES[opened.mode], copy=False)
    except Exception as error:  # Pillow raises many
        raise RejectError(
            "bad-value", f"its {name}, a PNG, {str(error).partition(' <')[0]}"
        ) from error


def _centers(start: int, end: int, size: int) -> NDArray[np.int64]:
    """The pixels from `start` to `end` that the centers of `size` pixels lie in."""
    return start + (2 * np.arange(size) + 1) * (end - start) // (2 * size)
