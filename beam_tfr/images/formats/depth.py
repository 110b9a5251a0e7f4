"""Samples of more than 8 bits, and blocks of rows, so that a large image is never held twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.source import Pixels

BLOCK = 1 << 20  # samples that are worked on at once


def blocks(height: int, row_samples: int) -> list[slice]:
    """All rows of an image, some at a time."""
    step = max(1, BLOCK // max(1, row_samples))
    return [slice(top, min(top + step, height)) for top in range(0, height, step)]


def to_8_bit(samples: NDArray[Any], top: float) -> Pixels:
    """Scales 0 to `top` to 0 to 255, rounded; what is outside is clipped, NaN is 0.

    Args:
        samples: integers or floats of any shape.
        top: what white is.
    """
    exact = np.float32 if samples.dtype.itemsize <= 2 else np.float64
    with np.errstate(invalid="ignore", over="ignore"):  # of NaN and infinity
        scaled = samples.astype(exact) * exact(255 / top)
    pixels: Pixels = (np.clip(np.nan_to_num(scaled, nan=0.0), 0, 255) + exact(0.5)).astype(np.uint8)
    return pixels


def white_of(dtype: np.dtype[Any], largest: float = 0.0) -> float:
    """What white is: for integers the largest number of their depth; for floats 1, or else 255, or else 65535, the
    first that is not below the largest finite sample.
    """
    if dtype.kind != "f":
        return float(np.iinfo(dtype).max)
    return next((top for top in (1.0, 255.0) if largest <= top), 65535.0)


def largest_of(samples: NDArray[Any]) -> float:
    """Among finite floats; 0 where there is none."""
    return float(samples.max(where=np.isfinite(samples), initial=0)) if samples.dtype.kind == "f" else 0.0


def decoded_parts(samples: NDArray[Any]) -> tuple[Pixels, Pixels | None]:
    """Samples [h, w] or [h, w, 1 to 4] in memory: grey, grey and alpha, RGB, RGB and alpha.

    Returns:
        Colours uint8 [h, w, 1 or 3]; alpha uint8 [h, w], None where everything is opaque.
    """
    samples = samples.reshape(*samples.shape[:2], -1)
    height, width, count = samples.shape
    colours = count - 1 + count % 2
    pixels = np.empty((height, width, colours), np.uint8)
    alpha = np.empty((height, width), np.uint8) if count > colours else None
    white = white_of(
        samples.dtype, max((largest_of(samples[rows]) for rows in blocks(height, width * count)), default=0)
    )
    for rows in blocks(height, width * count):
        part = samples[rows] if samples.dtype == np.uint8 else to_8_bit(samples[rows], white)
        pixels[rows] = part[..., :colours]
        if alpha is not None:
            alpha[rows] = part[..., -1]
    return pixels, opaque_is_none(alpha)


def opaque_is_none(alpha: Pixels | None) -> Pixels | None:
    return None if alpha is None or alpha.min(initial=255) == 255 else alpha
