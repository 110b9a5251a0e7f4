"""Computes which part of a source is used, its new size, and its place in the result."""

from typing import NamedTuple

import numpy as np

from beam_tfr.images.resample import count_between, resize_window
from beam_tfr.images.source import Pixels, Size
from beam_tfr.options import ImageOptions
from beam_tfr.schema.items import Geometry


class Placement(NamedTuple):
    """How a source is resized.

    Attributes:
        top, left: number of pixels cut off at the top and left of the source; as many, or one more,
            are cut off at the opposite side.
        rows, columns: size of the part of the source that is used.
        height, width: size to which this part is resized.
        canvas: (height, width) of the result, with the picture in its middle; larger only with
            --resize pad.
    """

    top: int
    left: int
    rows: int
    columns: int
    height: int
    width: int
    canvas: Size

    def transpose(self) -> "Placement":
        """Swaps the two directions."""
        return Placement(
            self.left,
            self.top,
            self.columns,
            self.rows,
            self.width,
            self.height,
            self.canvas[::-1],
        )


class ImageLayout(NamedTuple):
    """How a source becomes a record.

    Attributes:
        shown: the placement of the source as the record shows it.
        stored: the placement of the source as stored.
        geometry: maps points of the source to the record.
    """

    shown: Placement
    stored: Placement
    geometry: Geometry


def compute_layout(height: int, width: int, orientation: int, options: ImageOptions) -> ImageLayout:
    """Computes how a source becomes a record.

    Args:
        height, width: size of the source as stored.
        orientation: orientation of the source; the record shows it upright unless the options
            ignore orientations.
        options: only `image_size`, `resize`, `upscale` and `ignore_orientation` matter.
    """
    is_turned = not options.ignore_orientation
    swaps_sides = is_turned and orientation >= 5
    shown_size = (width, height) if swaps_sides else (height, width)
    shown = compute_placement(
        *shown_size, options.image_size, options.resize, upscale=options.upscale
    )
    stored = shown.transpose() if swaps_sides else shown
    top, left = _margins(shown.canvas, shown.height, shown.width)
    window = (shown.left, shown.top, shown.left + shown.columns, shown.top + shown.rows)
    content = (left, top, left + shown.width, top + shown.height)
    geometry = Geometry(height, width, orientation, is_turned, window, content)
    return ImageLayout(shown, stored, geometry)


def compute_cut_ppm(placement: Placement, height: int, width: int) -> int:
    """Computes how many millionths of a source's area are cut off."""
    return 1_000_000 - 1_000_000 * placement.rows * placement.columns // (height * width)


def compute_placement(
    height: int, width: int, image_size: Size, resize: str, *, upscale: bool = False
) -> Placement:
    """Computes the placement for a source.

    Args:
        height, width: size of the upright source.
        image_size, resize, upscale: as in `ImageOptions`.
    """
    match resize:
        case "crop":
            return _crop(height, width, image_size)
        case "pad":
            size = _pad_size(height, width, image_size, upscale=upscale)
            return Placement(0, 0, height, width, *size, image_size)
        case "fit":
            size = _fit_size(height, width, image_size, upscale=upscale)
        case "shortest":
            size = _shortest_size(height, width, image_size[0])
        case "stretch":
            size = image_size
        case _:
            size = (height, width)
    return Placement(0, 0, height, width, *size, size)


def keep_size(height: int, width: int) -> Placement:
    """Returns the placement of a source whose size does not change."""
    return Placement(0, 0, height, width, height, width, (height, width))


def _crop(height: int, width: int, image_size: Size) -> Placement:
    """Crops the source in the direction in which it is longer than the result."""
    rows, columns = image_size
    used_rows = _keep_center(min(height, width * rows / columns), height)
    used_columns = _keep_center(min(width, height * columns / rows), width)
    top = (height - used_rows) // 2
    left = (width - used_columns) // 2
    return Placement(top, left, used_rows, used_columns, rows, columns, image_size)


def _pad_size(height: int, width: int, image_size: Size, *, upscale: bool) -> Size:
    """Computes the size at which a source fits into the result and can be centered in it."""
    rows, columns = image_size
    scale = min(rows / height, columns / width)
    if scale >= 1 and not upscale:
        return height, width
    fitted_height = _keep_center(height * scale, rows)
    fitted_width = _keep_center(width * scale, columns)
    return min(rows, fitted_height), min(columns, fitted_width)


def _fit_size(height: int, width: int, image_size: Size, *, upscale: bool) -> Size:
    """Computes the size that fits into the largest allowed size."""
    rows, columns = image_size
    scale = min(rows / height, columns / width)
    if not upscale:
        scale = min(scale, 1)
    fitted_height = max(1, round(height * scale))
    fitted_width = max(1, round(width * scale))
    return min(rows, fitted_height), min(columns, fitted_width)


def _shortest_size(height: int, width: int, short_side: int) -> Size:
    """Computes the size that has the given shorter side."""
    shorter = min(height, width)
    new_height = max(1, round(height * short_side / shorter))
    new_width = max(1, round(width * short_side / shorter))
    return new_height, new_width


def _keep_center(side: float, whole: int) -> int:
    """Returns the integer nearest to `side` that differs from `whole` by an even number.

    Both sides then have the same center.
    """
    difference = 2 * round((whole - side) / 2)
    return max(whole - difference, 2 - whole % 2)


def count_pixels_between(placement: Placement, height: int, width: int) -> int:
    """Counts the pixels of a source once its height, but not its width, has been resized."""
    size = (placement.height, placement.width)
    rows = (placement.top, placement.rows)
    columns = (placement.left, placement.columns)
    return count_between(size, rows, columns, (height, width))


def resize(
    pixels: Pixels, placement: Placement, *, eighths: int = 8, may_overwrite: bool = False
) -> Pixels:
    """Resizes the part of uint8 [h, w, c] that a placement uses.

    See `resample.resize_window`.

    Args:
        pixels: pixels of a source, as stored.
        placement: the placement of that source.
        eighths: as in `Decoded`. If a side is not a multiple of the factor, the last row or
            column covers less of the source than the others, and the part may start within a pixel.
        may_overwrite: as in `resize_window`.
    """
    top, left, rows, columns = (pixel * eighths / 8 for pixel in placement[:4])
    size = (placement.height, placement.width)
    return resize_window(
        pixels, size, rows=(top, rows), columns=(left, columns), may_overwrite=may_overwrite
    )


def pad(pixels: Pixels, canvas: Size, background: tuple[int, ...]) -> Pixels:
    """Centers [h, w, c] in [*canvas, c]; `background` has c values."""
    height, width, channels = pixels.shape
    if canvas == (height, width):
        return pixels
    padded = np.empty((*canvas, channels), np.uint8)
    padded[:] = background
    top, left = _margins(canvas, height, width)
    padded[top : top + height, left : left + width] = pixels
    return padded


def _margins(canvas: Size, height: int, width: int) -> tuple[int, int]:
    """Computes the margins above and to the left of a picture in the middle of a canvas."""
    return (canvas[0] - height) // 2, (canvas[1] - width) // 2
