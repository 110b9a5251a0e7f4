"""Resampling with a Lanczos filter, with the same pixels on every processor.

    pixels ──means of boxes, for large factors──▶ ──Lanczos, a = 3──▶ resized

The filter is that of Pillow's LANCZOS: where a side shrinks, it is as much wider (Turkowski, "Filters for common
resampling tasks", 1990). `benchmarks/resize.py` compares the two.
"""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

import cv2
import numpy as np
from cykooz_resizer import CropBox, FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer

from beam_tfr.images.source import Pixels

FILTERED = 8  # the largest factor that the filter reduces; beyond, it would take more memory and time than means
LANCZOS = ResizeAlg.convolution(FilterType.lanczos3)
PIXEL_TYPES = (PixelType.U8, PixelType.U8x2, PixelType.U8x3, PixelType.U8x4)  # by the number of channels

cv2.setNumThreads(1)  # the runner's threads are the parallelism


class _Local(threading.local):
    """Each thread's resizer, whose buffers it uses again: that saves 5 % of the time."""

    def __init__(self) -> None:
        self.resizer = Resizer()


_local = _Local()


def stretch(
    pixels: Pixels,
    size: tuple[int, int],
    *,
    rows: tuple[float, float] | None = None,
    columns: tuple[float, float] | None = None,
) -> Pixels:
    """Resizes a window of uint8 [h, w, c] to [*size, c], as Pillow's LANCZOS does.

    Args:
        pixels: of up to 4 channels, with any strides; never written to, but returned if nothing changes.
        size: height and width of the result.
        rows, columns: start and length of the window, which may begin and end within a pixel; None for all.
    """
    down = _side(size[0], rows or (0, pixels.shape[0]))
    right = _side(size[1], columns or (0, pixels.shape[1]))
    pixels = _means(pixels[down.pixels, right.pixels], down.box, right.box)
    height, width, channels = pixels.shape
    window = (right.start, down.start, right.length, down.length)
    if (height, width) == size and window == (0, 0, width, height):
        return pixels
    kind = PIXEL_TYPES[channels - 1]
    resized = ImageData(size[1], size[0], kind)
    options = ResizeOptions(LANCZOS, use_alpha=False, crop_box=CropBox(*window))
    _local.resizer.resize(ImageData(width, height, kind, pixels.tobytes()), resized, options)
    return np.frombuffer(resized.get_buffer(), np.uint8).reshape(*size, channels)


class _Side(NamedTuple):
    """How height or width is resized.

    Attributes:
        pixels: those that the window touches.
        box: number of pixels that become one mean.
        start, length: of the window, in means.
    """

    pixels: slice
    box: int
    start: float
    length: float


def _side(wanted: int, window: tuple[float, float]) -> _Side:
    start, length = window
    first = math.floor(start)
    box = max(1, math.ceil(length / wanted / FILTERED))
    last = math.ceil(start + length)
    begin = (start - first) / box
    means = -(-(last - first) // box)
    return _Side(slice(first, last), box, begin, min(length / box, means - begin))  # rounding must not lead outside


def _means(pixels: Pixels, down: int, right: int) -> Pixels:
    """Means of boxes of down x right pixels; the last boxes overlap others where a side is no multiple."""
    if down == right == 1:
        return pixels
    interpolation = cv2.INTER_LINEAR if max(down, right) == 2 else cv2.INTER_AREA  # the same mean, in less time
    height, width, channels = pixels.shape
    means = np.empty((-(-height // down), -(-width // right), channels), np.uint8)
    for rows, rows_of_means in _parts(height, down):
        for columns, columns_of_means in _parts(width, right):
            part = means[rows_of_means, columns_of_means]
            part[:] = cv2.resize(pixels[rows, columns], part.shape[1::-1], interpolation=interpolation).reshape(
                part.shape
            )
    return means


def _parts(side: int, box: int) -> list[tuple[slice, slice]]:
    """Slices of the pixels of a side, and of the boxes that they fill."""
    whole = side // box
    parts = [(slice(0, whole * box), slice(0, whole))]
    if side % box:
        parts.append((slice(side - box, side), slice(whole, whole + 1)))
    return parts
