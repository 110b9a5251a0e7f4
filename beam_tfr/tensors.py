"""Serializes TensorProtos (tensorflow/core/framework/tensor.proto) as `tf.io.serialize_tensor` does."""

from __future__ import annotations

from collections.abc import Sequence

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


def serialize_tensor(dtype: str, shape: Sequence[int], content: bytes | Sequence[bytes]) -> bytes:
    """Serializes a tensor.

    Args:
        dtype: a key of `DTYPES`.
        shape: of the tensor.
        content: values in C order, little-endian; a list for strings.
    """
    dims = b"".join(_field(2, _field(1, side) if side else b"") for side in shape)
    head = _field(1, DTYPES[dtype]) + _field(2, dims)
    if isinstance(content, bytes):
        return head + (_field(4, content) if content else b"")
    return head + b"".join(_field(8, text) for text in content)


def _field(number: int, value: int | bytes) -> bytes:
    """Encodes a protobuf field: a varint, or bytes with their length."""
    if isinstance(value, int):
        return bytes([number << 3]) + _varint(value)
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
