"""Describes the values of a feature in one line, and finds the image in a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.images import formats
from beam_tfr.inspection.records import Values, features_of_name, text_of
from beam_tfr.records.tensors import STRING, parse_tensor
from beam_tfr.schema import RejectError
from beam_tfr.schema.features import ARRAY_RAW, RAW

MAX_VALUES = 8  # shown of a list
MAX_TEXT = 80  # characters shown of a text
_TENSORS = (RAW, ARRAY_RAW)
_KINDS = {bytes: "bytes", int: "int64", float: "float"}


def kind_of(values: Sequence[Any]) -> str:
    """ "bytes", "int64" or "float"; empty for no values."""
    return _KINDS[type(values[0])] if values else ""


def describe(name: str, values: Sequence[Any]) -> str:
    """The values of a feature in one printable line: "png image, height 20, width 30, 99 bytes", "'hat'", "1, 2"."""
    shown = ", ".join(_describe_value(name, value) for value in values[:MAX_VALUES])
    return f"{shown}, … {len(values):,} values" if len(values) > MAX_VALUES else shown or "no values"


def _describe_value(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if not isinstance(value, bytes):
        return str(value)
    size = f"{len(value):,} bytes"
    if name in _TENSORS and (array := tensor_of(value)) is not None:
        return f"{array.dtype.name} tensor {[*array.shape]}, {size}"
    if image := image_format(value):
        return f"{image[0]} image, height {image[1]}, width {image[2]}, {size}"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{size}: {value[:8].hex(' ')}{' …' if len(value) > 8 else ''}"
    return repr(text[:MAX_TEXT]) + (f" … {size}" if len(text) > MAX_TEXT else "")


def image_format(data: bytes) -> tuple[str, int, int] | None:
    """Format, height and width in pixels, from the header of an image; None if it is not an image."""
    try:
        name = formats.identify(data)
        source = formats.FORMATS[name].open(data)
    except RejectError:
        return None
    return name, source.height, source.width


def tensor_of(data: bytes) -> NDArray[Any] | None:
    """The array of a serialized tensor of numbers; None of anything else."""
    parsed = parse_tensor(data)
    if parsed is None or parsed[0] == STRING or len(parsed[1]) > 32:  # NumPy 1 has no more dimensions
        return None
    dtype, shape, content = parsed
    array: NDArray[Any] = np.frombuffer(content, dtype).reshape(shape)  # type: ignore[arg-type]
    return array


def pixels_of(name: str, data: bytes) -> NDArray[np.uint8] | None:
    """The pixels of a feature with --encoding raw: uint8 [height, width, 1 or 3]; None of anything else."""
    array = tensor_of(data) if name == RAW else None
    if array is not None and array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3):
        return array
    return None


def image_of(values: Values) -> tuple[str, bytes] | None:
    """The first feature that holds an image or a tensor of pixels, and its bytes."""
    for name, found in values.items():
        data = found[0] if len(found) == 1 else None
        if isinstance(data, bytes) and (image_format(data) if name != RAW else pixels_of(name, data) is not None):
            return name, data
    return None


def label_of(values: Values) -> str:
    """The class of a record as text, or its labels as numbers; empty if it names none."""
    names = sorted(features_of_name(values, "label"), key=lambda name: not name.endswith("text"))
    return next((", ".join(map(text_of, values[name])) for name in names if values[name]), "")
