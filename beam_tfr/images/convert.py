"""Converts one image, from the bytes of a file to the bytes of a record.

    bytes ──formats──▶ Source ──limits──▶ decode ──▶ Decoded, as stored
        ──geometry──▶ resized ──orientation──▶ upright ──color──▶ sRGB or gray ──encode──▶ Image

The format is determined by the content, never by the name. Colors are converted after resizing,
when there are fewer pixels, but transparent images before, because they are blended with the
background.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import math
from typing import Any

import google_crc32c
import numpy as np

from beam_tfr.images import (
    color,
    encode,
    formats,
    geometry,
    guard,
    hard_limits,
    keep,
    limits,
    resample,
)
from beam_tfr.images import orientation as orientations
from beam_tfr.images.formats.depth import blocks
from beam_tfr.images.looks import describe_pixels, sum_channels
from beam_tfr.images.mapping import source_size
from beam_tfr.images.source import SMALLEST, Decoded, Pixels, Source
from beam_tfr.options import ImageOptions
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Image

MAX_STRETCH = 1.2  # a larger change of aspect is visible
MAX_CUT = 500_000  # millionths of an image that a crop may cut off before it is counted
# The last one is of the extra `formats`.
_LIBRARIES = (
    "simplejpeg",
    "cykooz-resizer",
    "opencv-python-headless",
    "pillow",
    "numpy",
    "pillow-heif",
)
_COLORSPACES = {1: "Gray", 3: "RGB", 4: "CMYK"}


@functools.cache
def codec_versions() -> dict[str, str]:
    """Versions of the libraries that can change a byte of an image; "none" of those that are not
    installed."""
    versions = dict.fromkeys(_LIBRARIES, "none")
    for name in versions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def convert_image(
    data: bytes,
    options: ImageOptions | None = None,
    *,
    name: str = "",
    statistics: bool = True,
    **changes: Any,
) -> Image:
    """Converts one image: decodes, rotates, resizes, converts colors, encodes.

    Args:
        data: the content of a file of any format in `formats.FORMATS`.
        options: options; None for the defaults.
        name: name of the file; an extension of another format is noted in the result.
        statistics: False leaves out the sums of pixels. A JPEG that is kept is then only checked,
            in half the time.
        **changes: fields of `ImageOptions` that override `options`, such as `image_size=(224,
            224)`.

    Returns:
        The encoded image, which decodes to uint8 [height, width, channels], and the sums of its
        pixels for statistics.

    Raises:
        RejectError: the image cannot be used; its `reason` is one of
            `schema.dataset.REJECT_REASONS`.
        UsageError: the value of an option is wrong.
        TypeError: `data` is not bytes, or there is no such option.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"data must be the bytes of a file, not {type(data).__name__}")
    if changes or options is None:
        options = dataclasses.replace(options, **changes) if options else ImageOptions(**changes)
    if options.encoding not in IMAGE_ENCODINGS:
        options.refuse(
            "encoding",
            f"is for other files than images; must be one of: {', '.join(IMAGE_ENCODINGS)}",
        )
    if len(data) > options.max_file_bytes:
        raise RejectError(
            "file-too-large",
            f"{len(data)} bytes, more than --max_file_bytes {options.max_file_bytes}",
        )
    name_of_format = formats.identify(data)
    form = formats.FORMATS[name_of_format]
    if form.needs_guard and not hard_limits.is_guarded_process():
        return guard.convert_guarded(data, options, name=name, statistics=statistics)
    try:
        source = (
            _open_limited(data, name_of_format, options) if form.needs_guard else form.open(data)
        )
        return _convert(data, name, source, options, statistics=statistics)
    except RejectError as error:
        if options.damaged == "reject" or (error.reason, name_of_format) != (
            "damaged-image",
            "jpeg",
        ):
            raise
    source = formats.jpeg.open_jpeg(data, damaged=True)
    return _convert(data, name, source, options, statistics=statistics, may_keep=False)


def _open_limited(data: bytes, name: str, options: ImageOptions) -> Source:
    """Opens a file with hard limits, which hold for decoding it too."""
    limited = hard_limits.enforce(
        name, len(data), options.max_decode_bytes
    )  # as a decorator, which applies them anew
    source = limited(formats.FORMATS[name].open)(data)
    source.decode = limited(source.decode)
    return source


def _convert(
    data: bytes,
    name: str,
    source: Source,
    options: ImageOptions,
    *,
    statistics: bool,
    may_keep: bool = True,
) -> Image:
    limits.check_header(source, options)
    placement, stored, _ = geometry.compute_layout(
        source.height, source.width, source.orientation, options
    )
    limits.check_result(placement.canvas, options)
    unscaled = geometry.compute_placement(source.height, source.width, options.image_size, "none")
    may_keep = may_keep and options.encoding == "keep" and stored == unscaled
    only_check = may_keep and not statistics
    least = SMALLEST if only_check else _least(source, stored)
    needed = source.memory(least)
    limits.check_memory(source, needed, options)
    if not only_check:
        needed += _resizing_bytes(source, placement)
    with limits.BUDGET.hold(needed, options.max_decode_bytes):
        decoded = source.decode(least)
        kept = (
            may_keep and keep.is_plain(source, decoded, options) and keep.is_readable(data, source)
        )
        if kept or not only_check or decoded.eighths == 8:
            return _finished(data, name, source, decoded, options, kept=kept, statistics=statistics)
    return _convert(data, name, source, options, statistics=False, may_keep=False)


def _least(source: Source, stored: geometry.Placement) -> tuple[int, int]:
    """The (height, width) that the decoder may scale down to: twice the size at which all of the
    source is stored."""
    height = -(-2 * stored.height * source.height // stored.rows)
    width = -(-2 * stored.width * source.width // stored.columns)
    return height, width


def _resizing_bytes(source: Source, placement: geometry.Placement) -> int:
    """The most memory that resizing and its result take, where four bytes a pixel are filtered."""
    filtered = math.prod(
        resample.FILTERED * (side + 2 * resample.LOBES) for side in placement.canvas
    )
    return 4 * (min(source.height * source.width, filtered) + math.prod(placement.canvas))


def _finished(
    data: bytes,
    name: str,
    source: Source,
    decoded: Decoded,
    options: ImageOptions,
    *,
    kept: bool,
    statistics: bool,
) -> Image:
    """Encodes a decoded image, unless it is kept, and describes the result."""
    placement, stored, located = geometry.compute_layout(
        source.height, source.width, source.orientation, options
    )
    source_width, source_height = source_size(located, upright=located.turned)
    sums = tuple[int, ...]()
    squares = tuple[int, ...]()
    pixels = decoded.pixels
    notes = set[str]()
    if statistics or not kept:
        pixels, notes = _rendered(source, decoded, placement, stored, options)
    looked = sum_channels(pixels)
    if statistics:  # in a dataset in color, gray counts for all three channels
        sums, squares = (
            totals * 3 if len(totals) == 1 and options.color != "gray" else totals
            for totals in looked
        )
    if kept:
        encoded = data
        encoding = source.format
        notes = set()
        height = source.height
        width = source.width
        channels = decoded.pixels.shape[2]
    else:
        (height, width, channels) = pixels.shape
        encoding = options.encoding
        if encoding == "keep":
            encoding = "png" if formats.FORMATS[source.format].lossless else "jpeg"
            notes.add("re-encoded")
        if geometry.compute_cut_ppm(placement, source.height, source.width) > MAX_CUT:
            notes.add("cropped")
        encoded = encode.encode(pixels, encoding, quality=options.quality, chroma=options.chroma)
    notes.update(decoded.adjusted)
    if name and formats.is_wrong_extension(name, source.format):
        notes.add("wrong-extension")
    if decoded.bits > 8:
        notes.add("depth-scaled")
    if source.frames > 1:
        notes.add("first-frame")
    if options.icc == "ignore":
        notes.discard("profile-ignored")
    return Image(
        encoded=encoded,
        format=encoding,
        height=height,
        width=width,
        channels=channels,
        colorspace=_COLORSPACES[channels],
        source_height=source_height,
        source_width=source_width,
        source_format=source.format,
        source_sha256=hashlib.sha256(data).hexdigest(),
        channel_sums=sums,
        channel_squares=squares,
        adjusted=tuple(sorted(notes)),
        damaged=formats.jpeg.KEPT_DAMAGED in notes if options.damaged == "keep" else None,
        source_bytes=len(data),
        source_crc32c=google_crc32c.value(data),
        looks=describe_pixels(pixels, *looked),
        geometry=located,
    )


def _rendered(
    source: Source,
    decoded: Decoded,
    placement: geometry.Placement,
    stored: geometry.Placement,
    options: ImageOptions,
) -> tuple[Pixels, set[str]]:
    """Resizes, turns and converts colors; also returns the members of `schema.dataset.ADJUSTMENTS`
    that apply."""
    orientation = 1 if options.ignore_orientation else source.orientation
    pixels = decoded.pixels
    notes = {"rotated"} if orientation > 1 else set()
    if decoded.alpha is not None:
        pixels, color_notes = _composited(pixels, decoded.alpha, decoded.profile, options)
        notes |= {"alpha-composited", *color_notes}
    pixels = geometry.resize(pixels, stored, eighths=decoded.eighths)
    pixels = orientations.turn_upright(pixels, orientation)
    if decoded.alpha is None:
        pixels, color_notes = color.to_srgb(
            pixels, decoded.profile, convert=options.icc == "convert"
        )
        notes.update(color_notes)
    pixels = color.to_channels(pixels, options.color)
    pixels = geometry.pad(
        pixels, placement.canvas, color.convert_background(options.background, pixels.shape[2])
    )
    down = stored.rows / stored.height
    right = stored.columns / stored.width
    if options.resize == "stretch" and max(down / right, right / down) > MAX_STRETCH:
        notes.add("aspect-changed")
    if down < 1 or right < 1:
        notes.add("enlarged")
    return pixels, notes


def _composited(
    pixels: Pixels, alpha: Pixels, profile: bytes, options: ImageOptions
) -> tuple[Pixels, tuple[str, ...]]:
    """Converts colors to sRGB, as the background is, and lays them over it; returns pixels, and
    notes of `to_srgb`.

    The result takes the memory of `pixels`, unless it has another number of channels.
    """
    result = pixels
    notes = tuple[str, ...]()
    for rows in blocks(*pixels.shape[:2]):
        part, notes = color.to_srgb(pixels[rows], profile, convert=options.icc == "convert")
        part = color.composite(part, alpha[rows], options.background)
        if part.shape[2] != result.shape[2]:
            result = np.empty((*alpha.shape, part.shape[2]), np.uint8)
        result[rows] = part
    return result, notes
