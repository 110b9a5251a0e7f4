"""BuildExamples: an image becomes a serialized tf.train.Example, with protobuf alone.

The messages are those of TensorFlow's example.proto and feature.proto (package `tensorflow`), built in a descriptor
pool of their own: the default pool belongs to TensorFlow, where a second definition of the same names would collide.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from beam_tfr.schema import (
    CHANNELS,
    COLORSPACE,
    ENCODED,
    FILENAME,
    FORMAT,
    HEIGHT,
    LABEL,
    RAW,
    SHA256,
    SOURCE_FORMAT,
    SOURCE_HEIGHT,
    SOURCE_WIDTH,
    TEXT,
    WIDTH,
    Image,
    ImageRef,
)

_Field = descriptor_pb2.FieldDescriptorProto


@functools.cache
def example_class() -> Any:
    """The message class of tf.train.Example, wire-compatible with TensorFlow's."""
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


def build_example(ref: ImageRef, image: Image) -> bytes:
    """The serialized tf.train.Example of one image, the same bytes for the same arguments.

    Feature names and dtypes: `schema.FEATURES`, and `schema.LABEL_FEATURES` when the reference has a label id.
    """
    example = example_class()()
    feature = example.features.feature
    feature[RAW if image.format == "raw" else ENCODED].bytes_list.value.append(image.encoded)
    feature[FORMAT].bytes_list.value.append(image.format.encode())
    feature[HEIGHT].int64_list.value.append(image.height)
    feature[WIDTH].int64_list.value.append(image.width)
    feature[CHANNELS].int64_list.value.append(image.channels)
    feature[COLORSPACE].bytes_list.value.append(image.colorspace.encode())
    feature[FILENAME].bytes_list.value.append(ref.key.encode("utf-8", "surrogateescape"))
    feature[SHA256].bytes_list.value.append(image.source_sha256.encode())
    feature[SOURCE_HEIGHT].int64_list.value.append(image.source_height)
    feature[SOURCE_WIDTH].int64_list.value.append(image.source_width)
    feature[SOURCE_FORMAT].bytes_list.value.append(image.source_format.encode())
    if ref.label_id >= 0:
        feature[LABEL].int64_list.value.append(ref.label_id)
        feature[TEXT].bytes_list.value.append(ref.label.encode())
    return example.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def parse_example(serialized: bytes) -> dict[str, list[Any]]:
    """Feature name -> its values (bytes, float or int), of any serialized tf.train.Example.

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
