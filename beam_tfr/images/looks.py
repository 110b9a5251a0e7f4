"""What a stored image looks like, in a few numbers: its brightness, its contrast, and a perceptual
hash."""

import functools
import math
from collections.abc import Iterable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.formats.depth import blocks
from beam_tfr.images.source import Pixels
from beam_tfr.schema.items import Looks

_WAVES = 16  # in each direction; 16 x 16 signs are 32 bytes
# with it, every sum below is a whole number that float32 holds exactly: 1000 * 255 * 64 < 2**24
_MOST_SIDE = 1000
_SCALE = 64
_HALVED = 128  # smaller sides have few samples for each wave


def describe_pixels(pixels: Pixels, sums: Sequence[int], squares: Sequence[int]) -> Looks:
    """Describes pixels: uint8 [height, width, channels], whose `sum_channels` are known."""
    mean = sum(sums) / pixels.size
    square = sum(squares) / pixels.size
    return Looks(mean, math.sqrt(max(0.0, square - mean * mean)), perceptual_hash(pixels))


def sum_channels(pixels: Pixels) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sum, and the sum of squares, of each channel of uint8 [height, width, channels]."""
    # In float64 sums of integers are exact up to 2^53: 10^11 pixels.
    count = pixels.shape[2]
    parts = [pixels[rows] for rows in blocks(*pixels.shape[:2])]
    sums = _totals(cv2.sumElems(part) for part in parts)[:count]
    return sums, _totals(cv2.sumElems(np.square(part, dtype=np.uint16)) for part in parts)[:count]


def _totals(sums: Iterable[Sequence[float]]) -> tuple[int, ...]:
    return tuple(int(sum(parts)) for parts in zip(*sums, strict=True))


def perceptual_hash(pixels: Pixels) -> bytes:
    """A hash of 256 bits that similar images nearly share: 32 bytes.

    The bits are the signs of the coefficients (1 to 16) x (1 to 16) of the cosine transform of the
    gray image (see Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions",
    2010), by rows from the lowest vertical frequency. The mirrored image has the odd horizontal
    frequencies, bits 0, 2, 4, … of each row, inverted. All arithmetic is exact, so each processor
    gets the same bits.

    Args:
        pixels: uint8 [height, width, 1 or 3].
    """
    step = -(-max(pixels.shape[:2]) // _MOST_SIDE)
    part = np.ascontiguousarray(pixels[::step, ::step])
    gray = part[..., 0] if part.shape[2] == 1 else cv2.cvtColor(part, cv2.COLOR_RGB2GRAY)
    if min(gray.shape) >= _HALVED:  # means of 2 x 2 pixels, in whole numbers
        height = gray.shape[0] // 2
        width = gray.shape[1] // 2
        gray = cv2.resize(
            gray[: 2 * height, : 2 * width], (width, height), interpolation=cv2.INTER_AREA
        )
    rows = _waves(gray.shape[0]) @ gray.astype(np.float32)
    coefficients = rows.astype(np.float64) @ _waves(gray.shape[1]).T
    return np.packbits(coefficients > 0).tobytes()


@functools.lru_cache(maxsize=64)
def _waves(size: int) -> NDArray[np.float32]:
    """The cosines of the lowest frequencies over `size` samples, as whole numbers to 64: float32
    [16, size]."""
    samples = (2 * np.arange(size) + 1) * (math.pi / (2 * size))
    waves: NDArray[np.float32] = np.rint(
        _SCALE * np.cos(np.outer(np.arange(1, _WAVES + 1), samples))
    ).astype("f4")
    return waves
