"""What a serialized tensor, an array or a file in a record must be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_tfr.schema import sha256_hex
from beam_tfr.schema.features import ARRAY_DTYPE, ARRAY_RAW, ARRAY_SHAPE, FILE_BYTES, FILE_SHA256
from beam_tfr.tensors import DTYPES, STRING
from beam_tfr.verify.problems import shown

_MAX_RANK = 64  # of an array


def file_problems(data: bytes, sha256: bytes) -> Iterator[str]:
    """Whether the bytes of a record are those whose hash stands beside them."""
    if sha256_hex(data).encode() != sha256:
        yield f"{FILE_BYTES} has the SHA-256 {sha256_hex(data)}, but {FILE_SHA256} is {shown(sha256)}"


def array_problems(record: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Whatever does not fit in the tensor of a record and what the record says of it."""
    dtype = record[ARRAY_DTYPE][0].decode("latin-1")
    if dtype not in DTYPES:
        yield f"{ARRAY_DTYPE} is {shown(dtype)}, expected one of {', '.join(DTYPES)}"
    elif len(record[ARRAY_SHAPE]) > _MAX_RANK:
        yield f"{ARRAY_SHAPE} has {len(record[ARRAY_SHAPE])} sides, expected at most {_MAX_RANK}"
    else:
        yield from tensor_problems(ARRAY_RAW, record[ARRAY_RAW][0], dtype, record[ARRAY_SHAPE])


def tensor_problems(name: str, data: bytes, dtype: str, shape: Sequence[int]) -> Iterator[str]:
    """Whatever is wrong with a serialized TensorProto (tensorflow/core/framework/tensor.proto).

    Args:
        name: of the feature.
        data: dtype, shape and content, in this order, as tf.io.serialize_tensor writes them.
        dtype, shape: that it must have.
    """
    count = math.prod(shape)
    field, expected = (8, count) if dtype == STRING else (4, int(count > 0))
    try:
        fields = _fields(memoryview(data))
        head = list(itertools.islice(fields, 2))
        if [number for number, _ in head] != [1, 2] or not isinstance(head[1][1], memoryview):
            raise ValueError("it does not begin with them")
        found, sides = head[0][1], _sides(head[1][1], len(shape))
        values = size = 0
        for number, content in fields:
            if number != field or not isinstance(content, memoryview):
                raise ValueError(f"field {number} is too much")
            values, size = values + 1, size + len(content)
    except ValueError as error:
        yield f"{name} is not a TensorProto of dtype, shape and content: {error}"
        return
    if found != DTYPES[dtype]:
        yield f"{name} has the dtype {found}, expected {DTYPES[dtype]} ({dtype})"
    if sides != list(shape):
        yield f"{name} has the shape {_shape(sides)}, but the record says {_shape(shape)}"
    elif dtype == STRING:
        if values != expected:
            yield f"{name} has {values} texts, expected {count}"
    elif values != expected or size != count * np.dtype(dtype).itemsize:
        yield f"{name} has {size} bytes of values, expected {count * np.dtype(dtype).itemsize}"


def _sides(data: memoryview, most: int) -> list[int]:
    """The sides of a TensorShapeProto.

    Raises:
        ValueError: it is none, or has more than `most`.
    """
    sides = []
    for number, dim in itertools.islice(_fields(data), most + 1):
        fields = list(itertools.islice(_fields(dim), 2)) if isinstance(dim, memoryview) else []
        if number != 2 or len(fields) > 1 or any(field != 1 or not isinstance(value, int) for field, value in fields):
            raise ValueError("its shape is none")
        sides.append(fields[0][1] if fields else 0)  # a side of 0 is left out
    return sides


def _shape(sides: Sequence[int]) -> str:
    return "x".join(map(str, sides))


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a protobuf message: integers and bytes.

    Raises:
        ValueError: it ends early, or has a field of another kind.
    """
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value, position = _varint(data, position)
        if key & 7 == 0:
            yield key >> 3, value
        elif key & 7 == 2 and position + value <= len(data):
            yield key >> 3, data[position : position + value]
            position += value
        else:
            raise ValueError(f"field {key >> 3} is of another kind, or ends too early")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position + shift // 7 >= len(data):
            break
        byte = data[position + shift // 7]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position + shift // 7 + 1
    raise ValueError("a number in it ends too early")
