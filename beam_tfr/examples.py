"""BuildExamples: serializes images, arrays, files and rows as tf.train.Example."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from beam_tfr.schema import Image, ImageRef, Record, features, sha256_hex
from beam_tfr.schema.features import IMAGE_ENCODINGS, Names, names_of
from beam_tfr.tensors import message_class

example_class = functools.partial(message_class, "Example")


def build_record(encoding: str, value: Any, ref: ImageRef) -> Record:
    """Builds the record of an `Image`, or, with one of `schema.OTHER_ENCODINGS`, of bytes, an `Array` or a row."""
    if encoding in IMAGE_ENCODINGS:
        return Record(build_example(ref, value), value)
    values: Values = {}  # of a row, all of whose columns are in the reference
    sha256 = ""
    if encoding == "bytes":
        values, sha256 = {features.FILE_BYTES: ("bytes", [value])}, sha256_hex(value)
    elif encoding == "array":
        sha256 = value.source_sha256
        values = {
            features.ARRAY_RAW: ("bytes", [value.tensor]),
            features.ARRAY_SHAPE: ("int64", value.shape),
            features.ARRAY_DTYPE: ("bytes", [value.dtype.encode()]),
        }
    return Record(_build(ref, values, names_of(encoding), sha256))


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
        columns: a serialized Example with features to add.
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
    return {name: _values_of(feature) for name, feature in example.features.feature.items()}


def parse_sequence_example(serialized: bytes) -> dict[str, list[Any]]:
    """Parses a tf.train.Example or SequenceExample likewise; a feature list is a list of values for each step.

    Raises:
        ValueError: the bytes are neither.
    """
    try:
        example = message_class("SequenceExample").FromString(serialized)  # an Example has the context only
    except DecodeError as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    found = {name: _values_of(feature) for name, feature in example.context.feature.items()}
    for name, steps in example.feature_lists.feature_list.items():
        found[name] = [_values_of(feature) for feature in steps.feature]
    return found


def _values_of(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []
