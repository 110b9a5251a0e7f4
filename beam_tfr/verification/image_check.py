"""Checks that the image of a record matches the record and the options."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.dataset.manifest import KEPT_FORMATS
from beam_tfr.features.png_chunks import text_problem
from beam_tfr.images import formats, keep, limits
from beam_tfr.images.geometry import compute_placement
from beam_tfr.images.source import SMALLEST, Source
from beam_tfr.options.image import ImageOptions
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.feature_names import (
    CHANNELS,
    COLORSPACE,
    ENCODED,
    FORMAT,
    HEIGHT,
    RAW,
    SOURCE_FORMAT,
    SOURCE_HEIGHT,
    SOURCE_WIDTH,
    WIDTH,
)
from beam_tfr.schema.untrusted import quote
from beam_tfr.verification.payload_check import tensor_problems

_SOURCE_FORMATS = [form.encode() for form in formats.FORMATS]
_KEPT_FORMATS = [form.encode() for form in KEPT_FORMATS]


def option_problems(record: Mapping[str, Any], options: ImageOptions) -> Iterator[str]:
    """Yields messages about values of the image and its source that the options do not allow."""
    colorspace = b"Gray" if record[CHANNELS] == 1 else b"RGB"
    expected: dict[str, Sequence[Any]] = {
        CHANNELS: _expected_channels(options),
        COLORSPACE: [colorspace],
        FORMAT: _expected_formats(record, options),
        SOURCE_FORMAT: _SOURCE_FORMATS,
    }
    height = record[SOURCE_HEIGHT]
    width = record[SOURCE_WIDTH]
    if min(height, width) < 1:
        yield f"the source is {height}x{width} according to the record, expected at least 1x1"
    else:
        placement = compute_placement(
            height, width, options.image_size, options.resize, upscale=options.upscale
        )
        height, width = placement.canvas
        expected |= {HEIGHT: [height], WIDTH: [width]}
    yield from _differences(record, expected, "options")


def _expected_channels(options: ImageOptions) -> list[int]:
    """Returns the numbers of channels that an image may have."""
    if options.color == "gray":
        return [1]
    if "keep" in (options.color, options.encoding):
        return [1, 3]
    return [3]


def _expected_formats(record: Mapping[str, Any], options: ImageOptions) -> list[bytes]:
    """Returns the formats that an image may have."""
    if options.encoding != "keep":
        return [options.encoding.encode()]
    allowed = {record[SOURCE_FORMAT], b"jpeg", b"png"}
    return [form for form in _KEPT_FORMATS if form in allowed]


def _differences(
    record: Mapping[str, Any], expected: Mapping[str, Iterable[Any]], by: str
) -> Iterator[str]:
    for name, values in expected.items():
        if record[name] not in values:
            choices = " or ".join(map(quote, values))
            yield f"{name} is {quote(record[name])}, expected {choices} according to the {by}"


def image_problems(
    record: Mapping[str, Any], options: ImageOptions, limited: ImageOptions
) -> Iterator[str]:
    """Yields what is wrong with the encoded image of a record.

    Args:
        record: `ENCODED` or `RAW`, `FORMAT` (bytes), `HEIGHT`, `WIDTH`, `CHANNELS` (int).
        options: options of the dataset.
        limited: limits for decoding; images that exceed these limits are problems too.
    """
    if options.encoding == "raw":
        shape = [record[HEIGHT], record[WIDTH], record[CHANNELS]]
        yield from tensor_problems(RAW, record[RAW], "uint8", shape)
        return
    data = record[ENCODED]
    name = _identify(data)
    if name not in KEPT_FORMATS:
        begin = data[:8].hex(" ") or "nothing"
        choices = ", ".join(KEPT_FORMATS)
        yield f"{ENCODED} begins with {begin}, expected an image ({choices})"
        return
    try:
        source = formats.FORMATS[name].open(data)
        limits.check_header(source, limited)
        num_bytes = source.memory(SMALLEST)
        with limits.BUDGET.hold(num_bytes, limited.max_decode_bytes):
            problems = list(_pixel_problems(record, source, options))
        yield from problems
        if name == "png" and (problem := text_problem(data)):
            yield f"the image {problem}"
            return
        if problems or options.encoding != "keep":
            return
        if not keep.is_readable(data, source):
            yield "the image is of a kind that TensorFlow rejects or misreads"
    except RejectError as error:
        yield f"the image cannot be decoded to its end: {quote(error.detail)}"


def _identify(data: bytes) -> str:
    """Returns the format of an image, or an empty string if the bytes are not an image."""
    try:
        return formats.identify(data)
    except RejectError:
        return ""


def _pixel_problems(
    record: Mapping[str, Any], source: Source, options: ImageOptions
) -> Iterator[str]:
    decoded = source.decode(SMALLEST)
    _, _, channels = decoded.pixels.shape
    form = source.format.encode()
    actual: dict[str, Iterable[Any]] = {
        FORMAT: [form],
        HEIGHT: [source.height],
        WIDTH: [source.width],
        CHANNELS: [channels],
    }
    yield from _differences(record, actual, "image")
    if decoded.alpha is not None:
        yield "the image has transparent pixels"
    if decoded.bits > 8:
        yield f"the image has {decoded.bits} bits per sample"
    if source.frames > 1 and source.format != "jpeg":  # pictures after a JPEG are never read
        yield f"the image has {source.frames} frames"
    if source.orientation != 1 and not options.ignore_orientation:
        yield f"the image has EXIF orientation {source.orientation}"
