"""Scales samples of any depth to 8 bits, block by block, so that a large image is never held
twice."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.source import Pixels

BLOCK = 1 << 20  # samples processed at once
# byte that a pixel takes for its transparency; colors are laid over the background in their own
# memory
ALPHA_BYTES = 1


def blocks(height: int, row_samples: int) -> list[slice]:
    """Slices of rows that cover an image, each of at most `BLOCK` samples if one row has no
    more."""
    step = max(1, BLOCK // max(1, row_samples))
    return [slice(top, min(top + step, height)) for top in range(0, height, step)]


def to_8_bit(samples: NDArray[Any], top: float) -> Pixels:
    """Scales 0 to `top` to 0 to 255, rounded; values outside are clipped, NaN becomes 0.

    Args:
        samples: integers or floats of any shape.
        top: the value of white.
    """
    exact: Any = np.float32 if samples.dtype.itemsize <= 2 else np.float64
    with np.errstate(invalid="ignore", over="ignore"):  # of NaN and infinity
        scaled = samples.astype(exact) * exact(255 / top)
    pixels: Pixels = (np.clip(np.nan_to_num(scaled, nan=0.0), 0, 255) + exact(0.5)).astype(np.uint8)
    return pixels


def find_white(samples: NDArray[Any]) -> float:
    """The value of white.

    For integers it is the largest of their depth; for floats the first of 1, 255 and 65535 that is
    not below the largest finite sample.
    """
    if samples.dtype.kind != "f":
        return float(np.iinfo(samples.dtype).max)
    rows = blocks(samples.shape[0], samples[0].size)
    largest = max(
        float(samples[part].max(where=np.isfinite(samples[part]), initial=0)) for part in rows
    )
    return next((white for white in (1.0, 255.0) if largest <= white), 65535.0)


def split_samples(
    samples: NDArray[Any], white: float | None = None
) -> tuple[Pixels, Pixels | None]:
    """Splits samples [h, w] or [h, w, 1 to 4]: gray, gray and alpha, three colors, three colors and
    alpha.

    Args:
        samples: integers or floats. Colors may take their memory, from its beginning on.
        white: the value of white; None for that of `find_white`.

    Returns:
        Colors uint8 [h, w, 1 or 3]; alpha uint8 [h, w], None where everything is opaque.
    """
    samples = samples.reshape(*samples.shape[:2], -1)
    height, width, count = samples.shape
    white = find_white(samples) if white is None else white
    as_stored = samples.dtype == np.uint8 and white == 255
    colors = count - 1 + count % 2
    if as_stored and colors == count:
        return samples, None
    in_place = samples.flags.c_contiguous and samples.flags.writeable
    if in_place:
        room = samples.reshape(-1).view(np.uint8)
    else:
        room = np.empty(height * width * colors, np.uint8)
    pixels = room[: height * width * colors].reshape(height, width, colors)
    alpha = np.empty((height, width), np.uint8) if count > colors else None
    for rows in blocks(height, width * count):
        part = samples[rows].copy() if as_stored else to_8_bit(samples[rows], white)
        pixels[rows] = part[..., :colors]
        if alpha is not None:
            alpha[rows] = part[..., -1]
    return pixels, drop_if_opaque(alpha)


def drop_if_opaque(alpha: Pixels | None) -> Pixels | None:
    """An alpha channel, or None if everything is opaque."""
    return None if alpha is None or alpha.min(initial=255) == 255 else alpha
