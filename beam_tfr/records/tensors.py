"""TensorFlow's messages without TensorFlow: Examples, and TensorProto as written by `tf.io.serialize_tensor`.

They use a separate descriptor pool, because a second definition of the same names in the default pool would collide
with TensorFlow's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

Values = dict[str, tuple[str, Sequence[Any]]]  # of a record: feature -> (dtype, values)
MAX_RANK = 64  # of a tensor that is parsed
STRING = "string"
# Name -> number in tensorflow/core/framework/types.proto; names are NumPy's, except for strings.
DTYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    STRING: 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}


# The fields that are used, of TensorFlow's feature.proto, example.proto, tensor_shape.proto and tensor.proto.
_PROTO = """
name: "beam_tfr/tensorflow.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 oneof_index: 0 type: TYPE_MESSAGE type_name: ".tensorflow.BytesList" }
  field { name: "float_list" number: 2 oneof_index: 0 type: TYPE_MESSAGE type_name: ".tensorflow.FloatList" }
  field { name: "int64_list" number: 3 oneof_index: 0 type: TYPE_MESSAGE type_name: ".tensorflow.Int64List" }
}
message_type {
  name: "Features"
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".tensorflow.Feature" }
  }
  field {
    name: "feature" number: 1 label: LABEL_REPEATED
    type: TYPE_MESSAGE type_name: ".tensorflow.Features.FeatureEntry"
  }
}
message_type {
  name: "Example" field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".tensorflow.Features" }
}
message_type { name: "Dim" field { name: "size" number: 1 type: TYPE_INT64 } }
message_type {
  name: "TensorShapeProto"
  field { name: "dim" number: 2 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".tensorflow.Dim" }
}
message_type {
  name: "TensorProto"
  field { name: "dtype" number: 1 type: TYPE_INT32 }
  field { name: "tensor_shape" number: 2 type: TYPE_MESSAGE type_name: ".tensorflow.TensorShapeProto" }
  field { name: "tensor_content" number: 4 type: TYPE_BYTES }
  field { name: "string_val" number: 8 label: LABEL_REPEATED type: TYPE_BYTES }
}
"""


def _make_classes() -> dict[str, Any]:
    """Makes the classes of all messages, nested ones too.

    All are kept: protobuf refers weakly to the class of a nested message, so the garbage collector of one thread could
    take it away while another thread gets it, and the process would crash.
    """
    pool, file = descriptor_pool.DescriptorPool(), text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto())
    pool.Add(file)
    messages = [*pool.FindFileByName(file.name).message_types_by_name.values()]
    for message in messages:
        messages += message.nested_types
    return {message.full_name: message_factory.GetMessageClass(message) for message in messages}


_CLASSES = _make_classes()


def message_class(name: str) -> Any:
    """The message class that is wire-compatible with TensorFlow's of this name."""
    return _CLASSES[f"tensorflow.{name}"]


def serialize_tensor(dtype: str, shape: Sequence[int], content: bytes | Sequence[bytes]) -> bytes:
    """Serializes a tensor.

    Args:
        dtype: a key of `DTYPES`.
        shape: shape of the tensor.
        content: values in C order, little-endian; a list for strings.
    """
    values = {"tensor_content": content} if isinstance(content, bytes) else {"string_val": content}
    dims = [{"size": side} for side in shape]
    tensor = message_class("TensorProto")(dtype=DTYPES[dtype], tensor_shape={"dim": dims}, **values)
    return tensor.SerializeToString()  # type: ignore[no-any-return]


def parse_tensor(data: bytes) -> tuple[str, list[int], bytes | list[bytes]] | None:
    """The dtype, shape and content of a serialized tensor, as `serialize_tensor` takes them; None of anything else."""
    try:
        tensor = message_class("TensorProto").FromString(data)
    except DecodeError:
        return None
    dtype = next((name for name, number in DTYPES.items() if number == tensor.dtype), "")
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if not dtype or len(shape) > MAX_RANK or min(shape, default=0) < 0:
        return None
    content = list(tensor.string_val) if dtype == STRING else tensor.tensor_content
    unit = 1 if dtype == STRING else np.dtype(dtype).itemsize
    return (dtype, shape, content) if len(content) == math.prod(shape) * unit else None
