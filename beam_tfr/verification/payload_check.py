"""Checks the file or array of a record that does not hold an image."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.records.tensors import parse_tensor, serialize_tensor
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.feature_names import (
    ARRAY_DTYPE,
    ARRAY_RAW,
    ARRAY_SHAPE,
    FILE_BYTES,
    FILE_SHA256,
)
from beam_tfr.schema.untrusted import quote


def file_problems(values: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields a problem if the bytes of a file do not have the SHA-256 in their record."""
    (data,) = values[FILE_BYTES]
    (sha256,) = values[FILE_SHA256]
    actual = sha256_hex(data)
    if actual.encode() != sha256:
        yield f"{FILE_BYTES} has the SHA-256 {actual}, but {FILE_SHA256} is {quote(sha256)}"


def array_problems(values: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields a problem unless the array of a record has the stated dtype and shape."""
    (data,) = values[ARRAY_RAW]
    (dtype,) = values[ARRAY_DTYPE]
    yield from tensor_problems(ARRAY_RAW, data, dtype.decode("latin-1"), values[ARRAY_SHAPE])


def tensor_problems(name: str, data: bytes, dtype: str, shape: Sequence[int]) -> Iterator[str]:
    """Yields a problem unless the bytes are a serialized tensor with this dtype and shape.

    They must be the bytes that `tf.io.serialize_tensor` writes.
    """
    if not _is_tensor(data, dtype, [*shape]):
        yield f"{name} is not a serialized {quote(dtype)} tensor of shape {quote([*shape])}"


def _is_tensor(data: bytes, dtype: str, shape: list[int]) -> bool:
    tensor = parse_tensor(data)
    if tensor is None or (tensor.dtype, tensor.shape) != (dtype, shape):
        return False
    return serialize_tensor(*tensor) == data
