"""Geometry: which part of a source is used, its new size, and its place in the result."""

from typing import NamedTuple

import numpy as np

from beam_tfr.images.resample import resize_window
from beam_tfr.images.source import Pixels
from beam_tfr.options import ImageOptions
from beam_tfr.schema.items import Geometry


class Placement(NamedTuple):
    """How a source is resized.

    Attributes:
        top, left: pixels cut off at each of two opposite sides of the source.
        rows, columns: of the source that are used.
        height, width: that these become.
        canvas: (height, width) of the result, with the picture in its middle; larger only with
            --resize pad.
    """

    top: int
    left: int
    rows: int
    columns: int
    height: int
    width: int
    canvas: tuple[int, int]


def compute_layout(
    height: int, width: int, orientation: int, options: ImageOptions
) -> tuple[Placement, Placement, Geometry]:
    """Computes the placement for the source as the record shows it, and for it as stored, and what
    maps its points.

    Args:
        height, width: of the source as stored.
        orientation: of the source; the record shows it upright unless the options ignore
            orientations.
        options: `image_size`, `resize`, `upscale` and `ignore_orientation` count.
    """
    turned = not options.ignore_orientation
    quarter = turned and orientation >= 5
    shown = (width, height) if quarter else (height, width)
    placed = compute_placement(*shown, options.image_size, options.resize, upscale=options.upscale)
    top, left = _margins(placed.canvas, placed.height, placed.width)
    window = (placed.left, placed.top, placed.left + placed.columns, placed.top + placed.rows)
    content = (left, top, left + placed.width, top + placed.height)
    size = options.image_size[::-1] if quarter else options.image_size
    stored = compute_placement(height, width, size, options.resize, upscale=options.upscale)
    return placed, stored, Geometry(height, width, orientation, turned, window, content)


def compute_cut_ppm(placement: Placement, height: int, width: int) -> int:
    """Millionths of the area of a source that are cut off."""
    return 1_000_000 - 1_000_000 * placement.rows * placement.columns // (height * width)


def compute_placement(
    height: int, width: int, image_size: tuple[int, int], resize: str, *, upscale: bool = False
) -> Placement:
    """Computes the placement for a source.

    Args:
        height, width: of the upright source.
        image_size, resize, upscale: as in `ImageOptions`.
    """
    rows, columns = image_size
    if resize == "stretch":
        return Placement(0, 0, height, width, rows, columns, image_size)
    if resize == "none":
        return Placement(0, 0, height, width, height, width, (height, width))
    if resize == "shortest":
        short = min(height, width)
        size = (max(1, round(height * rows / short)), max(1, round(width * rows / short)))
        return Placement(0, 0, height, width, *size, size)
    if resize == "crop":
        used_rows = _like(min(height, width * rows / columns), height)
        used_columns = _like(min(width, height * columns / rows), width)
        top = (height - used_rows) // 2
        left = (width - used_columns) // 2
        return Placement(top, left, used_rows, used_columns, rows, columns, image_size)
    scale = min(rows / height, columns / width)
    if scale >= 1 and not upscale:
        fitted = (height, width)
    elif resize == "fit":
        fitted = (
            min(rows, max(1, round(height * scale))),
            min(columns, max(1, round(width * scale))),
        )
    else:
        fitted = (
            min(rows, _like(height * scale, rows)),
            min(columns, _like(width * scale, columns)),
        )
    return Placement(0, 0, height, width, *fitted, image_size if resize == "pad" else fitted)


def _like(side: float, whole: int) -> int:
    """The integer nearest to `side` that differs from `whole` by an even number, so that both have
    the same center."""
    return max(whole - 2 * round((whole - side) / 2), 2 - whole % 2)


def resize(pixels: Pixels, placement: Placement, *, eighths: int = 8) -> Pixels:
    """Resizes the part of uint8 [h, w, c] that a placement uses; see `resample.resize_window`.

    Args:
        pixels: of a source, as stored.
        placement: of that source.
        eighths: as in `Decoded`. Where a side is no multiple of the factor, the last row or column
            covers less of the source than the others, and the part may start within a pixel.
    """
    top, left, rows, columns = (pixel * eighths / 8 for pixel in placement[:4])
    return resize_window(
        pixels, (placement.height, placement.width), rows=(top, rows), columns=(left, columns)
    )


def pad(pixels: Pixels, canvas: tuple[int, int], background: tuple[int, ...]) -> Pixels:
    """Centers [h, w, c] in [*canvas, c]; `background` has c values."""
    height, width, channels = pixels.shape
    if canvas == (height, width):
        return pixels
    padded = np.empty((*canvas, channels), np.uint8)
    padded[:] = background
    top, left = _margins(canvas, height, width)
    padded[top : top + height, left : left + width] = pixels
    return padded


def _margins(canvas: tuple[int, int], height: int, width: int) -> tuple[int, int]:
    """Pixels above and to the left of a picture in the middle of a canvas."""
    return (canvas[0] - height) // 2, (canvas[1] - width) // 2
