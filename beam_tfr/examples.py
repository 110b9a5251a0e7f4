"""BuildExamples: serializes images, arrays, files and rows as tf.train.Example."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from beam_tfr.schema import Array, Image, ImageRef, Record, features, sha256_hex
from beam_tfr.schema.features import Names, names_of
from beam_tfr.tensors import message_class

example_class = functools.partial(message_class, "Example")


def build_record(encoding: str, value: Any, ref: ImageRef) -> Record:
    """Builds the record of an `Image`, or, with one of `schema.OTHER_ENCODINGS`, of bytes, an `Array` or a row."""
    if build := _OTHERS.get(encoding):
        return Record(build(ref, value))
    return Record(build_example(ref, value), value)


def build_example(ref: ImageRef, image: Image) -> bytes:
    """Serializes the tf.train.Example of one image; equal arguments give equal bytes.

    Feature names and dtypes: `schema.features.FEATURES`, `LABEL_FEATURES` when the reference has label ids, and the
    columns of the reference.
    """
    values: Values = {
        features.RAW if image.format == "raw" else features.ENCODED: ("bytes", [image.encoded]),
        features.FORMAT: ("bytes", [image.format.encode()]),
        features.HEIGHT: ("int64", [image.height]),
        features.WIDTH: ("int64", [image.width]),
        features.CHANNELS: ("int64", [image.channels]),
        features.COLORSPACE: ("bytes", [image.colorspace.encode()]),
        features.SOURCE_HEIGHT: ("int64", [image.source_height]),
        features.SOURCE_WIDTH: ("int64", [image.source_width]),
        features.SOURCE_FORMAT: ("bytes", [image.source_format.encode()]),
    }
    if image.damaged is not None:
        values[features.SOURCE_DAMAGED] = ("int64", [int(image.damaged)])
    return _build(ref, values, names_of("jpeg"), image.source_sha256)


def build_file(ref: ImageRef, data: bytes) -> bytes:
    """Serializes the tf.train.Example of any file."""
    return _build(ref, {features.FILE_BYTES: ("bytes", [data])}, names_of("bytes"), sha256_hex(data))


def build_array(ref: ImageRef, array: Array) -> bytes:
    """Serializes the tf.train.Example of an array."""
    values: Values = {
        features.ARRAY_RAW: ("bytes", [array.tensor]),
        features.ARRAY_SHAPE: ("int64", array.shape),
        features.ARRAY_DTYPE: ("bytes", [array.dtype.encode()]),
    }
    return _build(ref, values, names_of("array"), array.source_sha256)


_OTHERS: dict[str, Callable[[ImageRef, Any], bytes]] = {
    "bytes": build_file,
    "array": build_array,
    "row": lambda ref, _: _build(ref, {}, names_of("row")),  # all its columns are in the reference
}
Values = dict[str, tuple[str, Sequence[Any]]]  # name -> (dtype, values)


def _build(ref: ImageRef, values: Values, names: Names, sha256: str = "") -> bytes:
    values[names.key] = ("bytes", [ref.key.encode("utf-8", "surrogateescape")])
    if names.sha256:
        values[names.sha256] = ("bytes", [sha256.encode()])
    if ref.label_ids is not None:
        values[names.label] = ("int64", ref.label_ids)
        values[names.text] = ("bytes", [label.encode() for label in ref.labels])
    return serialize(values, ref.columns or b"")


def serialize(values: Mapping[str, tuple[str, Sequence[Any]]], columns: bytes = b"") -> bytes:
    """Serializes a tf.train.Example; equal values in any order give equal bytes.

    Args:
        values: feature name -> (dtype, values); an empty list keeps its dtype.
        columns: a serialized Example whose features are added.
    """
    example = example_class().FromString(columns)
    feature = example.features.feature
    for name, (dtype, of) in values.items():
        target = getattr(feature[name], f"{dtype}_list")
        target.SetInParent()
        target.value.extend(of)
    return example.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def parse_example(serialized: bytes) -> dict[str, list[Any]]:
    """Parses any serialized tf.train.Example to feature name -> values (bytes, float or int).

    Raises:
        ValueError: the bytes are not an Example.
    """
    try:
        example = example_class().FromString(serialized)
    except DecodeError as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    found = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        found[name] = list(getattr(feature, kind).value) if kind else []
    return found
