"""Pixels that OpenCV decodes: PNG, PNM, run-length BMP, and TIFF of more than 8 bits."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.formats.depth import decoded_parts
from beam_tfr.images.source import Decoded
from beam_tfr.schema import RejectError

MAX_SIDE = 1_000_000  # of libpng; OpenCV allows 1,048,576

cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # damaged files become rejects, not messages


def decode(data: bytes, name: str, height: int, width: int) -> NDArray[Any]:
    """Decodes a file to its samples [h, w, channels], as they are stored, but in the order B, G, R and alpha.

    Args:
        data: a whole file.
        name: of its format.
        height, width: that its header says.

    Raises:
        RejectError: `damaged-image`; `unsupported-image`: a side is longer than `MAX_SIDE`.
    """
    if max(height, width) > MAX_SIDE:
        raise RejectError("unsupported-image", f"{name} of {width} x {height} pixels, at most {MAX_SIDE} a side")
    try:
        samples: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise RejectError("damaged-image", f"{name}: {' '.join(error.err.split())[:200]}") from error
    if samples is None or samples.shape[:2] != (height, width):
        raise RejectError("damaged-image", f"{name}: the pixels are damaged, or end too early")
    return samples if samples.ndim == 3 else samples[..., None]


def to_decoded(samples: NDArray[Any], *, bits: int = 8, profile: bytes = b"", white: float | None = None) -> Decoded:
    """Colors and transparency of what `decode` returns, in 8 bits; `white` as in `decoded_parts`."""
    pixels, alpha = decoded_parts(samples, white)
    if pixels.shape[2] == 3:
        pixels = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)
    return Decoded(pixels=pixels, alpha=alpha, profile=profile, bits=bits)
