"""Checks the image in a record: intact to its last byte, and as the record describes it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfr.images import formats, keep
from beam_tfr.images.source import Source
from beam_tfr.manifest import KEPT_FORMATS
from beam_tfr.options import ImageOptions
from beam_tfr.schema import RejectError
from beam_tfr.schema.features import CHANNELS, ENCODED, FORMAT, HEIGHT, RAW, WIDTH
from beam_tfr.verify.problems import shown
from beam_tfr.verify.tensor_check import tensor_problems

_LARGE_PIXELS = 1 << 22
_one_large_image = threading.Lock()  # so that large images in several threads take the memory of one
_SMALLEST = (1, 1)  # decodes JPEG to an eighth of its size: all bytes are read, in less time and memory


def image_problems(record: Mapping[str, Any], options: ImageOptions, *, max_pixels: int) -> Iterator[str]:
    """Yields what is wrong with the encoded image of a record.

    Args:
        record: `ENCODED` or `RAW`, `FORMAT` (bytes), `HEIGHT`, `WIDTH`, `CHANNELS` (int).
        options: of the dataset.
        max_pixels: larger images are not decoded, which is also a problem.
    """
    if options.encoding == "raw":
        yield from tensor_problems(RAW, record[RAW], "uint8", [record[HEIGHT], record[WIDTH], record[CHANNELS]])
        return
    data = record[ENCODED]
    try:
        name = formats.identify(data)
    except RejectError:
        name = ""
    if name not in KEPT_FORMATS:
        yield f"{ENCODED} begins with {data[:8].hex(' ') or 'nothing'}, expected an image ({', '.join(KEPT_FORMATS)})"
        return
    if record[FORMAT] != name.encode():
        yield f"{FORMAT} is {shown(record[FORMAT])}, but the image is a {name}"
    try:
        source = formats.FORMATS[name].open(data)
        for feature, side in ((HEIGHT, source.height), (WIDTH, source.width)):
            if record[feature] != side:
                yield f"{feature} is {record[feature]}, but the image has {side}"
        if problem := _too_much(source, options, max_pixels):
            yield problem
            return
        large = source.height * source.width > _LARGE_PIXELS
        with _one_large_image if large else contextlib.nullcontext():
            problems = list(_pixel_problems(record, source, options))
        yield from problems
        must_be_readable = options.encoding == "keep" and not (options.keep_all and name == "jpeg")
        if must_be_readable and not problems and not keep.is_readable(data, source):
            yield "the image is of a kind that TensorFlow refuses or misreads"
    except RejectError as error:
        yield f"the image does not decode to the end: {shown(error.detail)}"


def _too_much(source: Source, options: ImageOptions, max_pixels: int) -> str:
    """The reason why an image is not decoded, or empty."""
    height, width = source.height, source.width
    if height * width > max_pixels:
        return f"the image has {height}x{width} pixels, more than the {max_pixels} that are decoded"
    if source.scans > 1 and source.scans * height * width > options.max_scan_pixels:
        return (
            f"the image has {source.scans} scans of {height}x{width} pixels, more than the {options.max_scan_pixels} "
            "that are decoded"
        )
    return ""


def _pixel_problems(record: Mapping[str, Any], source: Source, options: ImageOptions) -> Iterator[str]:
    decoded = source.decode(_SMALLEST)
    found = (
        3 if source.format == "gif" else decoded.pixels.shape[2]
    )  # a GIF has a color table even if all its colors are gray
    if record[CHANNELS] != found:
        yield f"{CHANNELS} is {record[CHANNELS]}, but the image has {found}"
    if decoded.alpha is not None:
        yield "the image has transparent pixels"
    if decoded.bits > 8:
        yield f"the image has {decoded.bits} bits a sample"
    if source.frames > 1 and source.format != "jpeg":  # pictures that follow a JPEG are never read
        yield f"the image has {source.frames} frames"
    may_be_turned = options.ignore_orientation or (options.keep_all and source.format == "jpeg")
    if source.orientation != 1 and not may_be_turned:
        yield f"the image has the EXIF orientation {source.orientation}, expected 1 (upright)"
