"""Pixels to the bytes of a record."""

from __future__ import annotations

import io

import numpy as np
import simplejpeg
from PIL import Image as PillowImage

from beam_tfr.images.source import Pixels

PNG_LEVEL = 6
MAX_SIDES = {"jpeg": 65_500, "webp": 16_383}  # pixels; others hold more than --max_pixels lets through


def encode(pixels: Pixels, encoding: str, *, quality: int = 90, chroma: str = "420") -> bytes:
    """
    Args:
        pixels: uint8 [h, w, 1 or 3].
        encoding: "jpeg", "png", "webp" or "raw".
        quality: of JPEG and WebP, 1 to 100.
        chroma: of JPEG, "420" or "444".

    Raises:
        ValueError: encoding is not known.
    """
    if encoding == "jpeg":
        gray = pixels.shape[2] == 1
        return bytes(
            simplejpeg.encode_jpeg(
                np.ascontiguousarray(pixels), quality, "GRAY" if gray else "RGB", "Gray" if gray else chroma
            )
        )
    if encoding == "raw":
        return _tensor_proto(pixels)
    if encoding not in ("png", "webp"):
        raise ValueError(f"unknown encoding {encoding!r}")
    buffer = io.BytesIO()
    image = PillowImage.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    if encoding == "png":
        image.save(buffer, "PNG", compress_level=PNG_LEVEL)
    else:
        image.save(buffer, "WEBP", quality=quality)
    return buffer.getvalue()


def _tensor_proto(pixels: Pixels) -> bytes:
    """A serialized TensorProto, as tf.io.serialize_tensor makes it (tensorflow/core/framework/tensor.proto)."""
    dims = b"".join(_field(2, _field(1, side)) for side in pixels.shape)
    return _field(1, 4) + _field(2, dims) + _field(4, pixels.tobytes())  # 4: DT_UINT8


def _field(number: int, value: int | bytes) -> bytes:
    """A protobuf field: a varint, or bytes with their length."""
    if isinstance(value, int):
        return bytes([number << 3]) + _varint(value)
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
