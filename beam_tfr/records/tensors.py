"""Handles Examples, and tensors as `tf.io.serialize_tensor` writes them, without TensorFlow.

The messages use a separate descriptor pool, because a second definition of the same names in the
default pool would collide with TensorFlow's.
"""

import math
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from beam_tfr.records.varints import write_varint

_CONTENT_TAG = b"\x22"  # field 4, delimited: the last one of a tensor without strings
MAX_RANK = 64  # for tensors to parse
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
_NAMES = {number: name for name, number in DTYPES.items()}


class Tensor(NamedTuple):
    """A tensor as `serialize_tensor` expects it.

    Attributes:
        dtype: a key of `DTYPES`.
        shape: shape of the tensor.
        content: values in C order, little-endian; a list for strings.
    """

    dtype: str
    shape: list[int]
    content: bytes | list[bytes]


def _make_classes() -> dict[str, Any]:
    """Makes the classes of all messages in tensorflow.proto.txt, including nested messages.

    All classes are kept alive: protobuf holds only a weak reference to the class of a nested
    message, so the garbage collector in one thread could free the class while another thread is
    getting it, and the process would crash.
    """
    text = pathlib.Path(__file__).with_name("tensorflow.proto.txt").read_text()
    pool = descriptor_pool.DescriptorPool()
    file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    pool.Add(file)
    messages = [*pool.FindFileByName(file.name).message_types_by_name.values()]
    for message in messages:
        messages += message.nested_types
    return {message.full_name: message_factory.GetMessageClass(message) for message in messages}


_CLASSES = _make_classes()


def message_class(name: str) -> Any:
    """Returns the message class that is wire-compatible with TensorFlow's class of this name."""
    return _CLASSES[f"tensorflow.{name}"]


def serialize_tensor(
    dtype: str, shape: Sequence[int], content: bytes | memoryview | Sequence[bytes]
) -> bytes:
    """Serializes a tensor; see `Tensor`.

    Avoids copying large content into a message first.
    """
    dims = [{"size": side} for side in shape]
    tensor = message_class("TensorProto")(dtype=DTYPES[dtype], tensor_shape={"dim": dims})
    if not isinstance(content, (bytes, memoryview)):
        tensor.string_val.extend(content)
        content = b""
    head: bytes = tensor.SerializeToString()
    if not content:
        return head
    size = write_varint(memoryview(content).nbytes)
    return b"".join((head, _CONTENT_TAG, size, content))


def parse_tensor(data: bytes) -> Tensor | None:
    """Parses a serialized tensor; returns None if the bytes are anything else."""
    try:
        message = message_class("TensorProto").FromString(data)
    except DecodeError:
        return None
    dtype = _NAMES.get(message.dtype)
    shape = [dim.size for dim in message.tensor_shape.dim]
    if dtype is None or len(shape) > MAX_RANK or min(shape, default=0) < 0:
        return None
    if dtype == STRING:
        tensor = Tensor(dtype, shape, list(message.string_val))
        expected = math.prod(shape)
    else:
        tensor = Tensor(dtype, shape, message.tensor_content)
        expected = math.prod(shape) * np.dtype(dtype).itemsize
    return tensor if len(tensor.content) == expected else None
