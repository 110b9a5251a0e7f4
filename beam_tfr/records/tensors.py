"""TensorFlow's messages without TensorFlow: Examples, and TensorProto as written by
`tf.io.serialize_tensor`.

They use a separate descriptor pool, because a second definition of the same names in the default
pool would collide with TensorFlow's.
"""

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

Values = dict[str, tuple[str, Sequence[Any]]]  # of a record: feature -> (dtype, values)
MAX_RANK = 64  # of a tensor that is parsed
STRING = "string"
# Name -> number in tensorflow/core/framework/types.proto; names are NumPy's, except for strings.
_FIRST = (
    "float32",
    "float64",
    "int32",
    "uint8",
    "int16",
    "int8",
    STRING,
    "complex64",
    "int64",
    "bool",
)  # from 1 on
DTYPES = {name: number for number, name in enumerate(_FIRST, 1)}
DTYPES |= {"uint16": 17, "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23}


def _make_classes() -> dict[str, Any]:
    """Makes the classes of all messages in tensorflow.proto.txt, nested ones too.

    All are kept: protobuf refers weakly to the class of a nested message, so the garbage collector
    of one thread could take it away while another thread gets it, and the process would crash.
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
    """The dtype, shape and content of a serialized tensor, as `serialize_tensor` takes them; None
    for anything else."""
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
