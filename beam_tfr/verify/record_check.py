"""What a record must be: an Example with the manifest's features, and an image in it that decodes to the end."""

from __future__ import annotations

import hashlib
import io
import math
import re
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import simplejpeg
from PIL import Image

from beam_tfr.examples import parse_example
from beam_tfr.manifest import Manifest
from beam_tfr.schema import (
    CHANNELS,
    ENCODED,
    FEATURES,
    FILENAME,
    FORMAT,
    HEIGHT,
    LABEL,
    LABEL_FEATURES,
    SHA256,
    TEXT,
    WIDTH,
)
from beam_tfr.verify.problems import shown

_SHA256_HEX = re.compile(rb"[0-9a-f]{64}")
_DTYPES: dict[str, type] = {"bytes": bytes, "int64": int, "float": float}
_LARGE_PIXELS = 1 << 22
_one_large_image = threading.Lock()


class Checked(NamedTuple):
    """What a record was found to be.

    Attributes:
        problems: for a person, each what was found and what was expected; empty for a sound record.
        key_hash: 16 bytes that stand for the key; empty where there is no key.
        label: class id, -1 where there is no valid one.
        pixels: stored pixels, by the record's own height and width.
    """

    problems: list[str]
    key_hash: bytes = b""
    label: int = -1
    pixels: int = 0


class RecordCheck:
    """Checks records against a manifest that has the right types.

    Args:
        manifest: of the dataset.
        max_pixels: larger images are not decoded, which is a problem too.
    """

    def __init__(self, manifest: Manifest, *, max_pixels: int) -> None:
        self._types = {
            name: (_DTYPES[feature["dtype"]], math.prod(feature["shape"]))
            for name, feature in manifest.features.items()
        }
        self._class_names = [name.encode("utf-8", "surrogatepass") for name in manifest.class_names]
        self._max_pixels = max_pixels
        options = manifest.options
        self._size = options.get("image_size") if options.get("resize") == "stretch" else None

    def __call__(self, record: bytes) -> Checked:
        try:
            features = parse_example(record)
        except ValueError as error:
            return Checked([str(error)])
        problems = list(self._feature_problems(features))
        if problems:
            return Checked(problems)
        value = {name: values[0] for name, values in features.items() if name in FEATURES or name in LABEL_FEATURES}
        label = -1
        if LABEL in value:
            label = value[LABEL]
            if not 0 <= label < len(self._class_names):
                problems.append(f"{LABEL} is {label}, expected 0 to {len(self._class_names) - 1}")
                label = -1
            elif value[TEXT] != self._class_names[label]:
                expected = shown(self._class_names[label])
                problems.append(f"{TEXT} is {shown(value[TEXT])}, but class {label} is {expected} by the manifest")
        if not _SHA256_HEX.fullmatch(value[SHA256]):
            problems.append(f"{SHA256} is {shown(value[SHA256])}, expected 64 hex digits")
        size = [value[HEIGHT], value[WIDTH]]
        if self._size is not None and size != self._size:
            problems.append(
                f"the image is {_size(size)} by its record, expected {_size(self._size)} as option image_size"
            )
        else:
            problems.extend(image_problems(value, max_pixels=self._max_pixels))
        key_hash = hashlib.blake2b(value[FILENAME], digest_size=16).digest()
        return Checked(problems, key_hash, label, size[0] * size[1])

    def _feature_problems(self, features: dict[str, list[Any]]) -> Iterator[str]:
        if features.keys() != self._types.keys():
            for name in sorted(self._types.keys() - features.keys()):
                yield f"feature {shown(name)} is missing"
            for name in sorted(features.keys() - self._types.keys())[:10]:
                yield f"feature {shown(name)} is not in the manifest"
            return
        for name, (kind, count) in self._types.items():
            values = features[name]
            if len(values) != count or (values and type(values[0]) is not kind):
                found = f"{len(values)} of {type(values[0]).__name__}" if values else "empty"
                yield f"feature {shown(name)} is {found}, expected {count} of {kind.__name__}"


def _size(size: Any) -> str:
    return "x".join(map(str, size)) if isinstance(size, list) and len(size) == 2 else shown(size)


class _Codec(NamedTuple):
    """How files of a format begin, (height, width, channels) of their header, and a full decode."""

    magic: bytes
    header: Callable[[bytes], tuple[int, int, int]]
    decode: Callable[[bytes], object]


def _jpeg_header(data: bytes) -> tuple[int, int, int]:
    height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
    return height, width, {"Gray": 1, "CMYK": 4, "YCCK": 4}.get(colorspace, 3)


def _decode_jpeg(data: bytes) -> None:
    # At an eighth of the size all coefficients are still read, in less time and memory: of 20,000 damaged JPEGs it
    # refuses and passes the same as a full decode.
    simplejpeg.decode_jpeg(data, "RGB", min_height=1, min_width=1, min_factor=8, strict=True)


def _png_header(data: bytes) -> tuple[int, int, int]:
    width, height, _, color_type = struct.unpack_from(">IIBB", data, 16)  # of the IHDR chunk, which comes first
    return height, width, {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color_type]


def _decode_png(data: bytes) -> None:
    with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
        image.load()


_CODECS = {
    "jpeg": _Codec(b"\xff\xd8\xff", _jpeg_header, _decode_jpeg),
    "png": _Codec(b"\x89PNG\r\n\x1a\n", _png_header, _decode_png),
}
# What the decoders raise at hostile bytes; Pillow's plugins have no error class of their own.
_DECODE_ERRORS = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, OverflowError, MemoryError),
    *(struct.error, zlib.error),
)


def image_problems(features: Mapping[str, Any], *, max_pixels: int) -> Iterator[str]:
    """Whatever is wrong with the encoded image of a record, by its content and by what the record says of it.

    Args:
        features: `ENCODED`, `FORMAT` (bytes), `HEIGHT`, `WIDTH`, `CHANNELS` (int).
        max_pixels: larger images are not decoded, which is a problem too.
    """
    data = features[ENCODED]
    name = next((name for name, codec in _CODECS.items() if data.startswith(codec.magic)), None)
    if name is None:
        beginning = data[:8].hex(" ") or "nothing"
        yield f"{ENCODED} begins with {beginning}, expected an image ({', '.join(_CODECS)})"
        return
    if features[FORMAT] != name.encode():
        yield f"{FORMAT} is {shown(features[FORMAT])}, but the image is a {name}"
    codec = _CODECS[name]
    try:
        found = codec.header(data)
        for feature, size in zip((HEIGHT, WIDTH, CHANNELS), found, strict=True):
            if features[feature] != size:
                yield f"{feature} is {features[feature]}, but the image has {size}"
        if found[0] * found[1] > max_pixels:
            yield f"the image has {found[0]}x{found[1]} pixels, more than the {max_pixels} that are decoded"
        elif found[0] * found[1] > _LARGE_PIXELS:
            with _one_large_image:  # so that hostile images in several threads cost the memory of one
                codec.decode(data)
        else:
            codec.decode(data)
    except _DECODE_ERRORS as error:
        yield f"the image does not decode to the end: {type(error).__name__}: {shown(str(error))}"
