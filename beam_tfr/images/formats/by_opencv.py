"""Pixels that OpenCV decodes: PNG, PNM, run-length BMP, and TIFF of more than 8 bits."""

import os
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.formats.depth import blocks, split_samples
from beam_tfr.images.source import Decoded
from beam_tfr.schema.errors import RejectError

MAX_SIDE = 1_000_000  # of libpng; OpenCV allows 1,048,576

_LARGE = 1 << 23  # pixels: `imdecode` returns a copy, `imread` does not

cv2.utils.logging.setLogLevel(
    cv2.utils.logging.LOG_LEVEL_SILENT
)  # damaged files become rejects, not messages


def decode_samples(
    data: bytes, name: str, height: int, width: int, *, print_warnings: bool = False
) -> NDArray[Any]:
    """Decodes a file to its samples [h, w, channels], as they are stored, but in the order B, G, R
    and alpha.

    Args:
        data: a whole file.
        name: of its format.
        height, width: those in its header.
        print_warnings: prints the warnings of libraries, in a guarded process, which turns them
            into rejects.

    Raises:
        RejectError: `damaged-image`; `unsupported-image`: a side is longer than `MAX_SIDE`.
    """
    if max(height, width) > MAX_SIDE:
        raise RejectError(
            "unsupported-image", f"{name} of {width} x {height} pixels, at most {MAX_SIDE} a side"
        )
    if print_warnings:
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_WARNING)
    try:
        in_file = height * width > _LARGE and hasattr(os, "memfd_create")
        if in_file:
            samples = _read_large(data)
        else:
            samples = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise RejectError(
            "damaged-image", f"{name}: {' '.join(error.err.split())[:200]}"
        ) from error
    finally:
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    if samples is None or samples.shape[:2] != (height, width):
        raise RejectError("damaged-image", f"{name}: the pixels are damaged, or end too early")
    return samples if samples.ndim == 3 else samples[..., None]


def _read_large(data: bytes) -> NDArray[Any] | None:
    """Decodes a file without a second copy of its pixels, from a memory file (Linux only)."""
    with open(os.memfd_create("image"), "wb", buffering=0) as file:
        file.write(data)
        return cv2.imread(f"/proc/self/fd/{file.fileno()}", None, cv2.IMREAD_UNCHANGED)


def to_decoded(
    samples: NDArray[Any], *, bits: int = 8, profile: bytes = b"", white: float | None = None
) -> Decoded:
    """Colors and transparency of what `decode_samples` returns, in 8 bits and its memory; `white` as in
    `split_samples`."""
    pixels, alpha = split_samples(samples, white)
    if pixels.shape[2] == 3:
        for rows in blocks(*pixels.shape[:2]):
            pixels[rows] = cv2.cvtColor(pixels[rows], cv2.COLOR_BGR2RGB)
    return Decoded(pixels=pixels, alpha=alpha, profile=profile, bits=bits)
