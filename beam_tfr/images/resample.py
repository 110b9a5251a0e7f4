"""Resamples with a Lanczos filter, to the same pixels on every processor.

    pixels ──means of boxes, for large factors──▶ ──Lanczos, a = 3──▶ resized

The filter is that of Pillow's LANCZOS: where a side shrinks, the filter is wider by the same factor
(Turkowski, "Filters for common resampling tasks", 1990). `benchmarks/resize.py` compares the two.

The resizer accepts one or four channels, and filters the height before the width. Large images are
therefore filtered in strips, of columns for the height and of rows for the width, which gives the
same pixels. If an image does not have four channels, only one strip of it is copied at a time.
"""

import math
import threading
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images.blocks import reuse_memory, row_blocks
from beam_tfr.images.source import Pixels, Size

# The largest factor for the filter; beyond it, the filter would need more memory and time than
# means do.
FILTERED = 8
LOBES = 3  # pixels of the result that the filter reaches on each side
# The most bytes of an image, its result and the intermediate image, in four channels, to filter the
# image as a whole. The resizer of a thread keeps the memory of the intermediate image.
WHOLE_BYTES = 64 << 20
STRIP_BYTES = 32 << 20  # bytes of a strip and its result, for larger images
# The resizer computes the filter again for each strip, which takes 0.2 s for a million pixels.
_LEAST_LINES = 8
Span = tuple[float, float]  # start and length of a window, in pixels of a source
Box = tuple[float, float, float, float]  # left, top, width and height of a window

cv2.setNumThreads(1)  # the runner already uses several threads


# Each thread's resizer, which reuses its buffers: that saves 5% of the time.
_local = threading.local()


def resize_window(
    pixels: Pixels,
    size: Size,
    *,
    rows: Span | None = None,
    columns: Span | None = None,
    may_overwrite: bool = False,
) -> Pixels:
    """Resizes a window of uint8 [h, w, c] to [*size, c], as Pillow's LANCZOS does.

    Args:
        pixels: pixels with 1, 3 or 4 channels, with any strides. Three channels are resized without
            a copy if they are a view of four channels.
        size: height and width of the result.
        rows, columns: start and length of the window, which may begin and end within a pixel; None
            for all.
        may_overwrite: whether a large image may be resized in the memory of its pixels. Otherwise,
            the pixels are never written to, but the result is a view of them if nothing changes.
    """
    channels = pixels.shape[2]
    pixels = _with_fourth_channel(pixels)
    height, width = pixels.shape[:2]
    down = _plan_side(size[0], rows or (0, height), height)
    right = _plan_side(size[1], columns or (0, width), width)
    if max(down.box, right.box) > 1:
        pixels = _means(pixels[down.reach, right.reach], down.box, right.box)
        down = down.in_means()
        right = right.in_means()
        may_overwrite = True
    if down.is_kept and right.is_kept:
        window = pixels[down.window, right.window, :channels]
        return _pack(window, pixels) if may_overwrite else window
    between = size[0] * (right.reach.stop - right.reach.start)
    num_pixels = math.prod(pixels.shape[:2]) + between + math.prod(size)
    if 4 * num_pixels > WHOLE_BYTES:
        may_overwrite = may_overwrite and pixels.flags.writeable
        return _resize_by_strips(pixels, down, right, channels, may_overwrite=may_overwrite)
    if pixels.shape[2] == 3:
        source = _recode(pixels, 4, cv2.COLOR_RGB2RGBA)
    else:
        source = np.ascontiguousarray(pixels)
    resized = np.empty((*size, source.shape[2]), np.uint8)
    _resize(source, resized, (right.start, down.start, right.length, down.length))
    if channels == 3:
        return _recode(resized, 3, cv2.COLOR_RGBA2RGB)
    return resized


def count_between(size: Size, rows: Span, columns: Span, source: Size) -> int:
    """Counts the pixels of an image with the height of the result and the width of the source.

    Args:
        size, rows, columns: as in `resize_window`.
        source: height and width of the source.
    """
    down = _plan_side(size[0], rows, source[0])
    right = _plan_side(size[1], columns, source[1])
    if down.is_kept or right.is_kept:
        return math.prod(size)
    means: int = right.in_means().reach.stop
    return size[0] * means


def _resize(source: Pixels, result: Pixels, box: Box) -> None:
    """Resizes a box of a source so that it fills a result."""
    # Pillow comes with the extra `convert`.
    from cykooz_resizer import CropBox, FilterType, ResizeAlg, ResizeOptions, Resizer

    if not hasattr(_local, "resizer"):
        _local.resizer = Resizer()
    algorithm = ResizeAlg.convolution(FilterType.lanczos3)
    options = ResizeOptions(algorithm, use_alpha=False, crop_box=CropBox(*box))
    _local.resizer.resize_pil(_to_pillow(source), _to_pillow(result), options)


def _with_fourth_channel(pixels: Pixels) -> Pixels:
    """Returns the four decoded channels (RGBX) if the pixels are a view of the first three.

    Other pixels are returned unchanged.
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
    """Makes a Pillow image that uses the memory of contiguous pixels; a copy would hold the GIL."""
    mode = "L" if pixels.shape[2] == 1 else "CMYK"  # no channel of CMYK is treated as transparency
    return PillowImage.frombuffer(mode, pixels.shape[1::-1], pixels, "raw", mode, 0, 1)


class _Side(NamedTuple):
    """How the height or the width is resized.

    Attributes:
        new_side: number of pixels of the result.
        start, length: the window, in pixels.
        reach: the pixels that the window touches, and those next to the window that the filter
            reaches.
        box: number of pixels that are averaged into one before filtering.
    """

    new_side: int
    start: float
    length: float
    reach: slice
    box: int = 1

    @property
    def is_kept(self) -> bool:
        """Whether the window consists of exactly the pixels of the result."""
        return self.length == self.new_side and self.start % 1 == 0

    @property
    def window(self) -> slice:
        """The pixels of the window, if `is_kept`."""
        return slice(int(self.start), int(self.start) + self.new_side)

    def in_means(self) -> "_Side":
        """Returns how the means of `reach` are resized."""
        means = -(-(self.reach.stop - self.reach.start) // self.box)
        start = (self.start - self.reach.start) / self.box
        length = min(self.length / self.box, means - start)  # rounding must not lead outside
        return _Side(self.new_side, start, length, slice(0, means))


def _plan_side(new_side: int, window: Span, side: int) -> _Side:
    """Plans how to resize a window along one side to `new_side` pixels."""
    start, length = window
    box = max(1, math.ceil(length / new_side / FILTERED))
    reach = math.ceil(LOBES * max(1, length / new_side / box))  # in means
    first = math.floor(start)
    first -= min(reach, first // box) * box
    last = math.ceil(start + length) + reach * box
    last = min(side, last)
    if box == 1:
        length = min(length, last - start)  # rounding must not lead outside
    return _Side(new_side, start, length, slice(first, last), box)


def _pack(window: Pixels, pixels: Pixels) -> Pixels:
    """Copies a window of pixels to contiguous memory, if possible to the memory of the pixels."""
    if window.flags.c_contiguous:
        return window
    packed = reuse_memory(window.shape, pixels)
    for rows in row_blocks(window.shape[0], window[0].size):
        packed[rows] = window[rows]
    return packed


def _resize_by_strips(
    pixels: Pixels, down: _Side, right: _Side, channels: int, *, may_overwrite: bool
) -> Pixels:
    """Filters the height, and then the width, in the memory of the pixels or of the result."""
    height, width, _ = pixels.shape
    columns = right.reach
    size = (down.new_side, right.new_side, channels)
    memory: Pixels | None = pixels if may_overwrite else None  # memory of the result
    if down.is_kept:
        between = pixels[down.window, columns]
    elif may_overwrite and down.new_side <= height:
        between = pixels[: down.new_side, columns]
    else:
        num_columns = columns.stop - columns.start
        memory = np.empty((down.new_side, max(num_columns, right.new_side), channels), np.uint8)
        between = reuse_memory((down.new_side, num_columns, channels), memory)
    if not down.is_kept:
        _resize_height(pixels, down, columns, between)
    if right.is_kept:
        first = right.window.start - columns.start
        window = between[:, first : first + right.new_side, :channels]
        return window if memory is None else _pack(window, memory)
    if memory is None or (memory is pixels and right.new_side * channels > pixels.strides[0]):
        result = np.empty(size, np.uint8)
    else:
        result = reuse_memory(size, memory)
    _resize_width(between, right, width, result)
    return result


def _resize_height(pixels: Pixels, side: _Side, columns: slice, result: Pixels) -> None:
    """Filters some columns, strip by strip.

    The result may overwrite the first rows of these columns.
    """
    height = pixels.shape[0]
    for part in _split_strips(columns, pixels, height + side.new_side):
        width = part.stop - part.start
        strip = _Strip((height, width), np.s_[side.reach, :], (side.new_side, width))
        box = (0, side.start, width, side.length)
        first = part.start - columns.start
        _copy_pixels(strip.filter(pixels[side.reach, part], box), result[:, first : first + width])


def _resize_width(pixels: Pixels, side: _Side, width: int, result: Pixels) -> None:
    """Filters all rows, strip by strip.

    The result may begin where the pixels begin, or earlier if its rows are not longer than those of
    the pixels: no row is overwritten before it is read.

    Args:
        pixels: the pixels that the filter reaches.
        side: how the width is resized.
        width: width of all pixels.
        result: pixels with the new width.
    """
    parts = _split_strips(slice(0, len(pixels)), pixels, width + side.new_side)
    if result.strides[0] > pixels.strides[0]:
        parts.reverse()
    for part in parts:
        rows = part.stop - part.start
        strip = _Strip((rows, width), np.s_[:, side.reach], (rows, side.new_side))
        box = (side.start, 0, side.length, rows)
        _copy_pixels(strip.filter(pixels[part], box), result[part])


class _Strip(NamedTuple):
    """How a strip of an image is filtered.

    Attributes:
        size: height and width of the strip; the filter is computed for the whole strip.
        reach: the part of the strip that the filter reaches.
        new_size: height and width of the result.
    """

    size: Size
    reach: tuple[slice, slice]
    new_size: Size

    def filter(self, pixels: Pixels, box: Box) -> Pixels:
        """Filters the pixels of `reach`, in one or four channels."""
        channels = _filtered_channels(pixels)
        source = np.empty((*self.size, channels), np.uint8)
        _copy_pixels(pixels, source[self.reach])
        resized = np.empty((*self.new_size, channels), np.uint8)
        _resize(source, resized, box)
        return resized


def _filtered_channels(pixels: Pixels) -> int:
    """Returns the number of channels in which the resizer needs pixels."""
    return 1 if pixels.shape[2] == 1 else 4


def _split_strips(span: slice, pixels: Pixels, line_pixels: int) -> list[slice]:
    """Splits rows or columns into strips of `STRIP_BYTES` bytes or `_LEAST_LINES` lines."""
    line_bytes = _filtered_channels(pixels) * line_pixels
    lines = max(_LEAST_LINES, STRIP_BYTES // line_bytes)
    starts = range(span.start, span.stop, lines)
    return [slice(start, min(start + lines, span.stop)) for start in starts]


def _copy_pixels(source: Pixels, target: Pixels) -> None:
    """Copies pixels; adds or drops a fourth channel to match the target."""
    if source.shape[2] == target.shape[2]:
        target[:] = source
    elif source.shape[2] == 3:
        cv2.cvtColor(source, cv2.COLOR_RGB2RGBA, dst=target)
    else:
        cv2.cvtColor(source, cv2.COLOR_RGBA2RGB, dst=target)


def _means(pixels: Pixels, down: int, right: int) -> Pixels:
    """Computes the means of boxes of down x right pixels.

    The last boxes overlap others if a side is not a multiple of the box's side.
    """
    is_linear = max(down, right) == 2  # the same mean, in less time
    interpolation = cv2.INTER_LINEAR if is_linear else cv2.INTER_AREA
    height, width, channels = pixels.shape
    means = np.empty((-(-height // down), -(-width // right), channels), np.uint8)
    for rows, rows_of_means in _split_side(height, down):
        for columns, columns_of_means in _split_side(width, right):
            part = means[rows_of_means, columns_of_means]
            cv2.resize(
                pixels[rows, columns], part.shape[1::-1], dst=part, interpolation=interpolation
            )
    return means


def _split_side(side: int, box: int) -> list[tuple[slice, slice]]:
    """Lists slices of the pixels along a side, each with the slice of its means."""
    number = side // box
    parts = [(slice(0, number * box), slice(0, number))]
    if side % box:
        parts.append((slice(side - box, side), slice(number, number + 1)))
    return parts
