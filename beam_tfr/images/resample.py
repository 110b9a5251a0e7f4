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

from beam_tfr.images.source import Pixels, Size

# the largest factor that the filter reduces; beyond, it would take more memory and time than means
FILTERED = 8
LOBES = 3  # pixels of the result that the filter reaches to each side
Span = tuple[float, float]  # start and length of a window, in pixels of a source

cv2.setNumThreads(1)  # the runner's threads are the parallelism


# Each thread's resizer, whose buffers it uses again: that saves 5 % of the time.
_local = threading.local()


def resize_window(
    pixels: Pixels, size: Size, *, rows: Span | None = None, columns: Span | None = None
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
    pixels = _with_fourth_channel(pixels)
    height, width = pixels.shape[:2]
    down = _plan_side(size[0], rows or (0, height), height)
    right = _plan_side(size[1], columns or (0, width), width)
    if max(down.box, right.box) > 1:
        pixels = _means(pixels[down.pixels, right.pixels], down.box, right.box)
        top = down.start
        left = right.start
    else:
        top = down.pixels.start + down.start
        left = right.pixels.start + right.start
    if (down.length, right.length) == size and top % 1 == left % 1 == 0:
        window = np.s_[int(top) : int(top) + size[0], int(left) : int(left) + size[1], :channels]
        return pixels[window]
    if pixels.shape[2] == 3:
        source = _recode(pixels, 4, cv2.COLOR_RGB2RGBA)
    else:
        source = np.ascontiguousarray(pixels)
    resized = np.empty((*size, source.shape[2]), np.uint8)
    _resize(source, resized, (left, top, right.length, down.length))
    if channels == 3:
        return _recode(resized, 3, cv2.COLOR_RGBA2RGB)
    return resized


def _resize(source: Pixels, result: Pixels, box: tuple[float, float, float, float]) -> None:
    """Resizes a box (left, top, width, height) of a source to all of a result."""
    # Of the extra `convert`.
    from cykooz_resizer import CropBox, FilterType, ResizeAlg, ResizeOptions, Resizer

    if not hasattr(_local, "resizer"):
        _local.resizer = Resizer()
    algorithm = ResizeAlg.convolution(FilterType.lanczos3)
    options = ResizeOptions(algorithm, use_alpha=False, crop_box=CropBox(*box))
    _local.resizer.resize_pil(_to_pillow(source), _to_pillow(result), options)


def _with_fourth_channel(pixels: Pixels) -> Pixels:
    """The four channels (RGBX) of which pixels are the first three, as decoded.

    Pixels that are no such view are returned as they are.
    """
    base = pixels.base
    if not isinstance(base, np.ndarray) or base.shape[2:] != (4,) or not base.flags.c_contiguous:
        return pixels
    is_first_three = base[..., :3].__array_interface__ == pixels.__array_interface__
    return base if is_first_three else pixels


def _recode(pixels: Pixels, channels: int, code: int) -> Pixels:
    """Converts pixels to another number of channels, with a code of `cv2.cvtColor`."""
    result = np.empty((*pixels.shape[:2], channels), np.uint8)
    cv2.cvtColor(pixels, code, dst=result)
    return result


def _to_pillow(pixels: Pixels) -> PillowImage.Image:
    """A Pillow image in the memory of contiguous pixels; a copy would hold the GIL."""
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


def _plan_side(new_side: int, window: Span, side: int) -> _Side:
    """Plans how a window of a side becomes a new side."""
    start, length = window
    box = max(1, math.ceil(length / new_side / FILTERED))
    reach = math.ceil(LOBES * max(1, length / new_side / box))  # in means
    first = math.floor(start)
    first -= min(reach, first // box) * box
    last = math.ceil(start + length) + reach * box
    last = min(side, last)
    first_mean = (start - first) / box
    means = -(-(last - first) // box)
    length_in_means = min(length / box, means - first_mean)  # rounding must not lead outside
    return _Side(slice(first, last), box, first_mean, length_in_means)


def _means(pixels: Pixels, down: int, right: int) -> Pixels:
    """Means of boxes of down x right pixels.

    The last boxes overlap others where a side is no multiple.
    """
    is_linear = max(down, right) == 2  # the same mean, in less time
    interpolation = cv2.INTER_LINEAR if is_linear else cv2.INTER_AREA
    height, width, channels = pixels.shape
    means = np.empty((-(-height // down), -(-width // right), channels), np.uint8)
    for rows, rows_of_means in _split_side(height, down):
        for columns, columns_of_means in _split_side(width, right):
            part = means[rows_of_means, columns_of_means]
            size = part.shape[1::-1]
            shrunk = cv2.resize(pixels[rows, columns], size, interpolation=interpolation)
            part[:] = shrunk.reshape(part.shape)
    return means


def _split_side(side: int, box: int) -> list[tuple[slice, slice]]:
    """Slices of the pixels of a side, and of the boxes that they fill."""
    number = side // box
    parts = [(slice(0, number * box), slice(0, number))]
    if side % box:
        parts.append((slice(side - box, side), slice(number, number + 1)))
    return parts
