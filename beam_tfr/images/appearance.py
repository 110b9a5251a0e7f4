"""Describes the picture in a stored image: its brightness, contrast and perceptual hash."""

import functools
import math
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.blocks import row_blocks
from beam_tfr.images.source import Pixels
from beam_tfr.schema.items import Appearance

_WAVES = 16  # in each direction; 16 x 16 signs are 32 bytes
COMPARED_SIDE = 48  # an image whose shorter side is at least this has the same hash as larger ones
# With these two, every sum below is an integer that float32 holds exactly: 1000 * 255 * 64 < 2**24.
_MOST_SIDE = 1000
_SCALE = 64
_HALVED = 128  # shorter sides have too few samples for each wave to be halved


class ChannelSums(NamedTuple):
    """The sum and the sum of squares of each channel of some pixels."""

    sums: tuple[int, ...]
    squares: tuple[int, ...]


def describe_pixels(pixels: Pixels, channel_sums: ChannelSums) -> Appearance:
    """Describes a picture, given the sums of its channels.

    Args:
        pixels: uint8 [height, width, channels], without margins: with margins, all small pictures
            in the middle of large images would look the same.
        channel_sums: the sums of these pixels, from `sum_channels`.
    """
    mean = sum(channel_sums.sums) / pixels.size
    mean_square = sum(channel_sums.squares) / pixels.size
    variance = max(0.0, mean_square - mean * mean)
    return Appearance(mean, math.sqrt(variance), perceptual_hash(pixels))


def sum_channels(pixels: Pixels) -> ChannelSums:
    """Sums each channel of uint8 [height, width, channels]."""
    # In float64, sums of integers are exact up to 2^53: 10^11 pixels.
    channels = pixels.shape[2]
    sums = np.zeros(4)  # as `cv2.sumElems` returns them
    squares = np.zeros(4)
    for rows in row_blocks(*pixels.shape[:2]):
        block = pixels[rows]
        sums += cv2.sumElems(block)
        squares += cv2.sumElems(np.square(block, dtype=np.uint16))
    return ChannelSums(_to_integers(sums[:channels]), _to_integers(squares[:channels]))


def _to_integers(values: NDArray[np.float64]) -> tuple[int, ...]:
    return tuple(values.astype(np.int64).tolist())


def perceptual_hash(pixels: Pixels) -> bytes:
    """Computes a hash of 256 bits, as 32 bytes, which is nearly the same for similar images.

    The bits are the signs of the coefficients (1 to 16) x (1 to 16) of the cosine transform of the
    gray image (see Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions",
    2010), row by row from the lowest vertical frequency. In the hash of a mirrored image, the bits
    of the odd horizontal frequencies (bits 0, 2, 4, … of each row) are inverted. All arithmetic is
    exact, so every processor computes the same bits.

    Images with fewer than 16 pixels in one direction do not have that many frequencies: some bits
    would repeat others, and different images would have the same hash. The hash of such an image is
    all zeros, like that of a flat image.

    Args:
        pixels: uint8 [height, width, 1 or 3].
    """
    if min(pixels.shape[:2]) < _WAVES:
        return bytes(_WAVES * _WAVES // 8)
    step = -(-max(pixels.shape[:2]) // _MOST_SIDE)
    thinned = np.ascontiguousarray(pixels[::step, ::step])
    gray: NDArray[Any] = thinned[..., 0]
    if thinned.shape[2] == 3:
        gray = cv2.cvtColor(thinned, cv2.COLOR_RGB2GRAY)
    if min(gray.shape) >= _HALVED:  # means of 2 x 2 pixels, in whole numbers
        height = gray.shape[0] // 2
        width = gray.shape[1] // 2
        even = gray[: 2 * height, : 2 * width]
        gray = cv2.resize(even, (width, height), interpolation=cv2.INTER_AREA)
    rows = _waves(gray.shape[0]) @ gray.astype(np.float32)
    coefficients = rows.astype(np.float64) @ _waves(gray.shape[1]).T
    return np.packbits(coefficients > 0).tobytes()


@functools.lru_cache(maxsize=64)
def _waves(size: int) -> NDArray[np.float32]:
    """Computes the cosines of the lowest frequencies at `size` samples: float32 [16, size].

    The values are whole numbers from -64 to 64.
    """
    frequencies = np.arange(1, _WAVES + 1)
    phases = (2 * np.arange(size) + 1) * (math.pi / (2 * size))
    cosines = np.cos(np.outer(frequencies, phases))
    waves: NDArray[np.float32] = np.rint(_SCALE * cosines).astype(np.float32)
    return waves
