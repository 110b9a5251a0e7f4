"""Checks that the image, array or file in a record is intact and matches the record's description."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.dataset.manifest import KEPT_FORMATS
from beam_tfr.images import formats, keep
from beam_tfr.images.source import SMALLEST, Source
from beam_tfr.options.image import StoredOptions
from beam_tfr.records.tensors import DTYPES, MAX_RANK, parse_tensor, serialize_tensor
from beam_tfr.schema import RejectError, sha256_hex
from beam_tfr.schema import features as names
from beam_tfr.verification.problems import shown

_LARGE_PIXELS = 1 << 22
_one_large_image = threading.Lock()  # so that large images in several threads take the memory of one


def image_problems(record: Mapping[str, Any], options: StoredOptions, *, max_pixels: int) -> Iterator[str]:
    """Yields what is wrong with the encoded image of a record.

    Args:
        record: `ENCODED` or `RAW`, `FORMAT` (bytes), `HEIGHT`, `WIDTH`, `CHANNELS` (int).
        options: options of the dataset.
        max_pixels: larger images are not decoded, which is also a problem.
    """
    if options.encoding == "raw":
        shape = [record[names.HEIGHT], record[names.WIDTH], record[names.CHANNELS]]
        yield from tensor_problems(names.RAW, record[names.RAW], "uint8", shape)
        return
    data = record[names.ENCODED]
    try:
        name = formats.identify(data)
    except RejectError:
        name = ""
    if name not in KEPT_FORMATS:
        found = data[:8].hex(" ") or "nothing"
        yield f"{names.ENCODED} begins with {found}, expected an image ({', '.join(KEPT_FORMATS)})"
        return
    if record[names.FORMAT] != name.encode():
        yield f"{names.FORMAT} is {shown(record[names.FORMAT])}, but the image is a {name}"
    try:
        source = formats.FORMATS[name].open(data)
        for feature, side in ((names.HEIGHT, source.height), (names.WIDTH, source.width)):
            if record[feature] != side:
                yield f"{feature} is {record[feature]}, but the image has {side}"
        pixels, size = source.height * source.width, f"{source.height}x{source.width} pixels"
        if pixels > max_pixels:
            yield f"the image has {size}, more than the {max_pixels} that are decoded"
            return
        if source.scans > 1 and source.scans * pixels > options.max_scan_pixels:
            most = options.max_scan_pixels
            yield f"the image has {source.scans} scans of {size}, more than the {most} that are decoded"
            return
        large = pixels > _LARGE_PIXELS
        with _one_large_image if large else contextlib.nullcontext():
            problems = list(_pixel_problems(record, source, options))
        yield from problems
        kept = options.encoding == "keep" and name in keep.READABLE  # earlier releases kept BMP and GIF too
        must_be_readable = kept and not (options.keep_all and name == "jpeg")
        if must_be_readable and not problems and not keep.is_readable(data, source):
            yield "the image is of a kind that TensorFlow refuses or misreads"
    except RejectError as error:
        yield f"the image does not decode to the end: {shown(error.detail)}"


def _pixel_problems(record: Mapping[str, Any], source: Source, options: StoredOptions) -> Iterator[str]:
    decoded = source.decode(SMALLEST)
    found = (
        3 if source.format == "gif" else decoded.pixels.shape[2]
    )  # a GIF has a color table even if all its colors are gray
    if record[names.CHANNELS] != found:
        yield f"{names.CHANNELS} is {record[names.CHANNELS]}, but the image has {found}"
    if decoded.alpha is not None:
        yield "the image has transparent pixels"
    if decoded.bits > 8:
        yield f"the image has {decoded.bits} bits a sample"
    if source.frames > 1 and source.format != "jpeg":  # pictures that follow a JPEG are never read
        yield f"the image has {source.frames} frames"
    may_be_turned = options.ignore_orientation or (options.keep_all and source.format == "jpeg")
    if source.orientation != 1 and not may_be_turned:
        yield f"the image has the EXIF orientation {source.orientation}, expected 1 (upright)"


def file_problems(data: bytes, sha256: bytes) -> Iterator[str]:
    """Yields a problem if the bytes of a file do not have the SHA-256 of their record."""
    if sha256_hex(data).encode() != sha256:
        yield f"{names.FILE_BYTES} has the SHA-256 {sha256_hex(data)}, but {names.FILE_SHA256} is {shown(sha256)}"


def array_problems(record: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields what is wrong with the array of a record."""
    dtype = record[names.ARRAY_DTYPE][0].decode("latin-1")
    if dtype not in DTYPES:
        yield f"{names.ARRAY_DTYPE} is {shown(dtype)}, expected one of {', '.join(DTYPES)}"
    elif len(record[names.ARRAY_SHAPE]) > MAX_RANK:
        yield f"{names.ARRAY_SHAPE} has {len(record[names.ARRAY_SHAPE])} sides, expected at most {MAX_RANK}"
    else:
        yield from tensor_problems(names.ARRAY_RAW, record[names.ARRAY_RAW][0], dtype, record[names.ARRAY_SHAPE])


def tensor_problems(name: str, data: bytes, dtype: str, shape: Sequence[int]) -> Iterator[str]:
    """Yields a problem unless the bytes are what `tf.io.serialize_tensor` makes of a tensor of this dtype and shape."""
    parsed = parse_tensor(data)
    if parsed is None or parsed[:2] != (dtype, [*shape]) or serialize_tensor(*parsed) != data:
        yield f"{name} is not a serialized {dtype} tensor of shape {shown([*shape])}"
