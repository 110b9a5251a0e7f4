"""BuildExamples: serializes images, arrays, files and rows as tf.train.Example, with protobuf alone.

The messages of TensorFlow's example.proto and feature.proto are built in a descriptor pool of their own, because a
second definition of the same names in the default pool would collide with TensorFlow's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from beam_tfr.schema import Array, Image, ImageRef, Record, sha256_hex
from beam_tfr.schema.features import (
    ARRAY_DTYPE,
    ARRAY_RAW,
    ARRAY_SHAPE,
    CHANNELS,
    COLORSPACE,
    ENCODED,
    FILE_BYTES,
    FORMAT,
    HEIGHT,
    RAW,
    SOURCE_FORMAT,
    SOURCE_HEIGHT,
    SOURCE_WIDTH,
    WIDTH,
    Names,
    names_of,
)

_Field = descriptor_pb2.FieldDescriptorProto


@functools.cache
def example_class() -> Any:
    """Returns a message class that is wire-compatible with tf.train.Example."""
    file = descriptor_pb2.FileDescriptorProto(name="beam_tfr/example.proto", package="tensorflow", syntax="proto3")

    def message(name: str) -> Any:
        return file.message_type.add(name=name)

    def field(parent: Any, name: str, number: int, kind: int, *, repeated: bool = False, type_name: str = "") -> Any:
        label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        added = parent.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            added.type_name = f".tensorflow.{type_name}"
        return added

    field(message("BytesList"), "value", 1, _Field.TYPE_BYTES, repeated=True)
    field(message("FloatList"), "value", 1, _Field.TYPE_FLOAT, repeated=True).options.packed = True
    field(message("Int64List"), "value", 1, _Field.TYPE_INT64, repeated=True).options.packed = True
    feature = message("Feature")
    feature.oneof_decl.add(name="kind")
    for number, kind in enumerate(("Bytes", "Float", "Int64"), start=1):
        one = field(feature, f"{kind.lower()}_list", number, _Field.TYPE_MESSAGE, type_name=f"{kind}List")
        one.oneof_index = 0
    features = message("Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, _Field.TYPE_STRING)
    field(entry, "value", 2, _Field.TYPE_MESSAGE, type_name="Feature")
    field(features, "feature", 1, _Field.TYPE_MESSAGE, repeated=True, type_name="Features.FeatureEntry")
    field(message("Example"), "features", 1, _Field.TYPE_MESSAGE, type_name="Features")

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


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
        RAW if image.format == "raw" else ENCODED: ("bytes", [image.encoded]),
        FORMAT: ("bytes", [image.format.encode()]),
        HEIGHT: ("int64", [image.height]),
        WIDTH: ("int64", [image.width]),
        CHANNELS: ("int64", [image.channels]),
        COLORSPACE: ("bytes", [image.colorspace.encode()]),
        SOURCE_HEIGHT: ("int64", [image.source_height]),
        SOURCE_WIDTH: ("int64", [image.source_width]),
        SOURCE_FORMAT: ("bytes", [image.source_format.encode()]),
    }
    return _build(ref, values, names_of("jpeg"), image.source_sha256)


def build_file(ref: ImageRef, data: bytes) -> bytes:
    """Serializes the tf.train.Example of any file."""
    return _build(ref, {FILE_BYTES: ("bytes", [data])}, names_of("bytes"), sha256_hex(data))


def build_array(ref: ImageRef, array: Array) -> bytes:
    """Serializes the tf.train.Example of an array."""
    values: Values = {
        ARRAY_RAW: ("bytes", [array.tensor]),
        ARRAY_SHAPE: ("int64", array.shape),
        ARRAY_DTYPE: ("bytes", [array.dtype.encode()]),
    }
    return _build(ref, values, names_of("array"), array.source_sha256)


def build_row(ref: ImageRef, _: None = None) -> bytes:
    """Serializes the tf.train.Example of a table row, whose columns are all in the reference."""
    return _build(ref, {}, names_of("row"))


_OTHERS: dict[str, Callable[[ImageRef, Any], bytes]] = {"bytes": build_file, "array": build_array, "row": build_row}
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
        target = getattr(feature[name], _LISTS[dtype])
        target.SetInParent()
        target.value.extend(of)
    return example.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


_LISTS = {"bytes": "bytes_list", "int64": "int64_list", "float": "float_list"}


def parse_example(serialized: bytes) -> dict[str, list[Any]]:
    """Parses any serialized tf.train.Example to feature name -> values (bytes, float or int).

    Raises:
        ValueError: the bytes are not an Example.
    """
    try:
        example = example_class().FromString(serialized)
    except DecodeError as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    features = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        features[name] = list(getattr(feature, kind).value) if kind else []
    return features
