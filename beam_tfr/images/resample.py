"""Resampling with a Lanczos filter, with the same pixels on every processor.

    pixels ──means of boxes, for large factors──▶ ──Lanczos, a = 3──▶ resized

The filter is that of Pillow's LANCZOS: where a side shrinks, it is as much wider (Turkowski,
"Filters for common resampling tasks", 1990). `benchmarks/resize.py` compares the two.
"""

import math
import threading
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images.source import Pixels

# the largest factor that the filter reduces; beyond, it would take more memory and time than means
FILTERED = 8
LOBES = 3  # pixels of the result that the filter reaches to each side
Span = tuple[float, float]  # start and length of a window, in pixels of a source

cv2.setNumThreads(1)  # the runner's threads are the parallelism


_local = (
    threading.local()
)  # each thread's resizer, whose buffers it uses again: that saves 5 % of the time


def resize_window(
    pixels: Pixels, size: tuple[int, int], *, rows: Span | None = None, columns: Span | None = None
) -> Pixels:
    """Resizes a window of uint8 [h, w, c] to [*size, c], as Pillow's LANCZOS does.

    Args:
        pixels: of 1, 3 or 4 channels, with any strides; never written to, but a view is returned if
            nothing changes. Three channels are resized without a copy if they are a view of four.
        size: height and width of the result.
        rows, columns: start and length of the window, which may begin and end within a pixel; None
            for all.
    """
    channels = pixels.shape[2]
    pixels = _as_decoded(pixels)
    down = _side(size[0], rows or (0, pixels.shape[0]), pixels.shape[0])
    right = _side(size[1], columns or (0, pixels.shape[1]), pixels.shape[1])
    top = down.pixels.start
    left = right.pixels.start
    if max(down.box, right.box) > 1:
        pixels = _means(pixels[down.pixels, right.pixels], down.box, right.box)
        top = 0
        left = 0
    x = left + right.start
    y = top + down.start
    if (down.length, right.length) == size and x % 1 == y % 1 == 0:
        return pixels[int(y) : int(y) + size[0], int(x) : int(x) + size[1], :channels]
    if pixels.shape[2] == 3:
        source = _recoded(pixels, 4, cv2.COLOR_RGB2RGBA)
    else:
        source = np.ascontiguousarray(pixels)
    resized = np.empty((*size, source.shape[2]), np.uint8)
    _resize(source, resized, (x, y, right.length, down.length))
    return _recoded(resized, 3, cv2.COLOR_RGBA2RGB) if channels == 3 else resized


def _resize(source: Pixels, result: Pixels, box: tuple[float, float, float, float]) -> None:
    from cykooz_resizer import (
        CropBox,
        FilterType,
        ResizeAlg,
        ResizeOptions,
        Resizer,
    )  # of the extra `convert`

    if not hasattr(_local, "resizer"):
        _local.resizer = Resizer()
    options = ResizeOptions(
        ResizeAlg.convolution(FilterType.lanczos3), use_alpha=False, crop_box=CropBox(*box)
    )
    _local.resizer.resize_pil(_mapped(source), _mapped(result), options)


def _as_decoded(pixels: Pixels) -> Pixels:
    """Returns the four channels of which pixels are the first three, RGBX as decoded; other pixels
    as they are."""
    base = pixels.base
    if not isinstance(base, np.ndarray) or base.shape[2:] != (4,) or not base.flags.c_contiguous:
        return pixels
    return base if base[..., :3].__array_interface__ == pixels.__array_interface__ else pixels


def _recoded(pixels: Pixels, channels: int, code: int) -> Pixels:
    result = np.empty((*pixels.shape[:2], channels), np.uint8)
    cv2.cvtColor(pixels, code, dst=result)
    return result


def _mapped(pixels: Pixels) -> PillowImage.Image:
    """Returns a Pillow image that shares the memory of contiguous pixels; a copy would hold the
    GIL."""
    mode = "L" if pixels.shape[2] == 1 else "CMYK"  # no channel of CMYK is taken for transparency
    return PillowImage.frombuffer(mode, pixels.shape[1::-1], pixels, "raw", mode, 0, 1)


class _Side(NamedTuple):
    """How height or width is resized.

    Attributes:
        pixels: those that the window touches, and those beside it that the filter reaches.
        box: number of pixels that become one mean.
        start, length: of the window, in means, from the first of `pixels`.
    """

    pixels: slice
    box: int
    start: float
    length: float


def _side(size: int, window: Span, side: int) -> _Side:
    start, length = window
    first = math.floor(start)
    box = max(1, math.ceil(length / size / FILTERED))
    last = math.ceil(start + length)
    reach = math.ceil(LOBES * max(1, length / size / box))  # in means
    first -= min(reach, first // box) * box
    last = min(side, last + reach * box)
    begin = (start - first) / box
    means = -(-(last - first) // box)
    return _Side(
        slice(first, last), box, begin, min(length / box, means - begin)
    )  # rounding must not lead outside


def _means(pixels: Pixels, down: int, right: int) -> Pixels:
    """Means of boxes of down x right pixels; the last boxes overlap others where a side is no
    multiple."""
    interpolation = (
        cv2.INTER_LINEAR if max(down, right) == 2 else cv2.INTER_AREA
    )  # the same mean, in less time
    height, width, channels = pixels.shape
    means = np.empty((-(-height // down), -(-width // right), channels), np.uint8)
    for rows, rows_of_means in _parts(height, down):
        for columns, columns_of_means in _parts(width, right):
            part = means[rows_of_means, columns_of_means]
            shrunk = cv2.resize(
                pixels[rows, columns], part.shape[1::-1], interpolation=interpolation
            )
            part[:] = shrunk.reshape(part.shape)
    return means


def _parts(side: int, box: int) -> list[tuple[slice, slice]]:
    """Slices of the pixels of a side, and of the boxes that they fill."""
    number = side // box
    parts = [(slice(0, number * box), slice(0, number))]
    if side % box:
        parts.append((slice(side - box, side), slice(number, number + 1)))
    return parts
