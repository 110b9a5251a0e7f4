"""Decodes pixels with OpenCV: PNG, PNM, WebP, run-length BMP, and TIFF with more than 8 bits."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.blocks import row_blocks
from beam_tfr.images.formats.depth import split_samples
from beam_tfr.images.source import Decoded
from beam_tfr.schema.errors import RejectError

MAX_SIDE = 1_000_000  # libpng's limit; OpenCV allows 1,048,576

_HAS_MEMORY_FILES = hasattr(os, "memfd_create")  # Linux
_LARGE = 1 << 23  # pixels: `imdecode` returns a copy, `imread` does not

# Damaged files become rejects, not messages.
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


@contextlib.contextmanager
def print_warnings() -> Iterator[None]:
    """Allows libraries to print their warnings, which a guarded process turns into rejects."""
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_WARNING)
    try:
        yield
    finally:
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def decode_samples(
    parts: Sequence[bytes | memoryview], format_name: str, height: int, width: int
) -> NDArray[Any]:
    """Decodes a file to its samples [h, w, channels], in the order B, G, R and alpha.

    Args:
        parts: a whole file, in one or more parts.
        format_name: name of the format, for messages.
        height, width: size that the header states.

    Raises:
        RejectError: `damaged-image`; `unsupported-image`: a side is longer than `MAX_SIDE`.
    """
    if max(height, width) > MAX_SIDE:
        raise RejectError(
            "unsupported-image",
            f"{format_name} of {width} x {height} pixels; at most {MAX_SIDE} per side are allowed",
        )
    is_large = height * width > _LARGE
    try:
        if is_large and _HAS_MEMORY_FILES:
            samples = _read_memory_file(parts)
        else:
            file = np.frombuffer(b"".join(parts), np.uint8)
            samples = cv2.imdecode(file, cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        message = " ".join(error.err.split())
        raise RejectError("damaged-image", f"{format_name}: {message[:200]}") from error
    if samples is None or samples.shape[:2] != (height, width):
        raise RejectError(
            "damaged-image", f"{format_name}: the pixels are damaged, or end too early"
        )
    return samples.reshape(height, width, -1)


def _read_memory_file(parts: Sequence[bytes | memoryview]) -> NDArray[Any] | None:
    """Decodes a file through a file in memory, which avoids a second copy of the pixels."""
    with open(os.memfd_create("image"), "wb") as file:
        file.writelines(parts)
        file.flush()
        return cv2.imread(f"/proc/self/fd/{file.fileno()}", None, cv2.IMREAD_UNCHANGED)


def to_decoded(
    samples: NDArray[Any], *, bits: int = 8, profile: bytes = b"", white: float | None = None
) -> Decoded:
    """Splits samples from `decode_samples` into colors and transparency, and converts both.

    The result has 8 bits, and uses the memory of the samples.

    Args:
        samples: from `decode_samples`.
        bits, profile: as in `Decoded`.
        white: as in `split_samples`.
    """
    pixels, alpha = split_samples(samples, white)
    if pixels.shape[2] == 3:
        for rows in row_blocks(*pixels.shape[:2]):
            pixels[rows] = cv2.cvtColor(pixels[rows], cv2.COLOR_BGR2RGB)
    return Decoded(pixels=pixels, alpha=alpha, profile=profile, bits=bits)
