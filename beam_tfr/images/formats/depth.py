"""Scales samples of any depth to 8 bits, block by block, so that no large image is held twice."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.blocks import reuse_memory, row_blocks
from beam_tfr.images.source import Pixels

# Bytes per pixel for transparency; colors are blended with the background in their own memory.
ALPHA_BYTES = 1


def to_8_bit(samples: NDArray[Any], white: float) -> Pixels:
    """Scales 0 to `white` to 0 to 255, rounded; values outside are clipped, and NaN becomes 0.

    Args:
        samples: integers or floats of any shape.
        white: the value of white.

    Returns:
        New uint8 of the same shape.
    """
    if _is_8_bit(samples, white):
        return samples.copy()
    exact: Any = np.float32 if samples.dtype.itemsize <= 2 else np.float64
    with np.errstate(invalid="ignore", over="ignore"):  # for NaN and infinity
        scaled = samples.astype(exact) * exact(255 / white)
    clipped = np.clip(np.nan_to_num(scaled, nan=0.0), 0, 255)
    return np.asarray(clipped + exact(0.5)).astype(np.uint8)


def find_white(samples: NDArray[Any]) -> float:
    """Finds the value of white.

    For integers, this is the largest value of their type; for floats, the smallest of 1, 255 and
    65535 that no finite sample exceeds.
    """
    if samples.dtype.kind != "f":
        return float(np.iinfo(samples.dtype).max)
    blocks = row_blocks(samples.shape[0], samples[0].size)
    largest = max(_largest_finite(samples[rows]) for rows in blocks)
    for white in (1.0, 255.0):
        if largest <= white:
            return white
    return 65535.0


def split_samples(
    samples: NDArray[Any], white: float | None = None
) -> tuple[Pixels, Pixels | None]:
    """Splits samples into colors and transparency, in 8 bits.

    Args:
        samples: integers or floats [h, w] or [h, w, 1 to 4]: gray, gray and alpha, three colors,
            three colors and alpha. The resulting colors may overwrite the samples, from the
            beginning of their memory.
        white: the value of white; None for the result of `find_white`.

    Returns:
        Colors uint8 [h, w, 1 or 3]; alpha uint8 [h, w], or None if everything is opaque.
    """
    samples = samples.reshape(*samples.shape[:2], -1)
    height, width, count = samples.shape
    if white is None:
        white = find_white(samples)
    colors = count - 1 + count % 2
    if colors == count and _is_8_bit(samples, white):
        return samples, None
    pixels = reuse_memory((height, width, colors), samples)
    alpha = np.empty((height, width, count - colors), np.uint8)
    for rows in row_blocks(height, width * count):
        block = to_8_bit(samples[rows], white)
        pixels[rows] = block[..., :colors]
        alpha[rows] = block[..., colors:]
    if is_opaque(alpha):
        return pixels, None
    return pixels, alpha[..., 0]


def is_opaque(alpha: Pixels) -> bool:
    """Whether an alpha channel is opaque everywhere."""
    return bool(alpha.min(initial=255) == 255)


def _is_8_bit(samples: NDArray[Any], white: float) -> bool:
    return samples.dtype == np.uint8 and white == 255


def _largest_finite(samples: NDArray[Any]) -> float:
    """Returns the largest finite sample, at least 0."""
    return float(samples.max(where=np.isfinite(samples), initial=0))
