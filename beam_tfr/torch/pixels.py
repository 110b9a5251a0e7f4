"""Decodes an image without TensorFlow, to the same pixels as `beam_tfr.reader`."""

from __future__ import annotations

import contextlib
import io
from typing import cast

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image as PillowImage

Pixels = NDArray[np.uint8]


def decode_image(data: bytes, form: str, channels: int) -> Pixels:
    """Decodes an image, or its first frame, to uint8 [height, width, channels]; EXIF orientation is ignored.

    Args:
        form: one of `manifest.KEPT_FORMATS`.
        channels: 1 or 3.

    Raises:
        ValueError: the image does not decode.
    """
    if form == "jpeg":
        # libjpeg-turbo with its own defaults. Not strict, as convert allows JPEGs with harmless oddities.
        with contextlib.suppress(ValueError):  # for samplings unknown to TurboJPEG, which Pillow reads
            if simplejpeg.decode_jpeg_header(data, strict=False)[2] not in ("CMYK", "YCCK"):
                return cast(Pixels, simplejpeg.decode_jpeg(data, "GRAY" if channels == 1 else "RGB", strict=False))
    elif form in ("png", "webp"):  # twice as fast as Pillow
        kind = cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), kind | cv2.IMREAD_IGNORE_ORIENTATION)
        if pixels is None:
            raise ValueError(f"the image is not a {form} that decodes")
        return cast(Pixels, pixels[:, :, None] if channels == 1 else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
    try:
        with PillowImage.open(io.BytesIO(data), formats=(form,)) as image:
            if image.mode == "CMYK" and channels == 3:
                return _from_cmyk(np.asarray(image), adobe="adobe" in image.info)
            return np.array(image.convert("L" if channels == 1 else "RGB")).reshape(image.height, image.width, channels)
    except Exception as error:
        raise ValueError(f"the image is not a {form} that decodes: {type(error).__name__}: {error}") from error


def _from_cmyk(pixels: Pixels, *, adobe: bool) -> Pixels:
    """RGB from CMYK as tf.io.decode_jpeg does it (tensorflow/core/lib/jpeg/jpeg_mem.cc): each color times black.

    Args:
        pixels: uint8 [height, width, 4] from Pillow, which inverts all CMYK as if it were Adobe's.
        adobe: whether it is.
    """
    light = (255 - pixels if adobe else pixels).astype(np.uint16)
    return (light[:, :, :3] * light[:, :, 3:] // 255).astype(np.uint8)
