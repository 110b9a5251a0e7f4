"""Checks what is stored without an image format: files, arrays and raw pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from beam_tfr.schema import sha256_hex
from beam_tfr.schema.features import ARRAY_DTYPE, ARRAY_RAW, ARRAY_SHAPE, FILE_BYTES, FILE_SHA256
from beam_tfr.tensors import DTYPES, STRING, message_class, serialize_tensor
from beam_tfr.verify.problems import shown

_MAX_RANK = 64  # of an array


def file_problems(data: bytes, sha256: bytes) -> Iterator[str]:
    """Yields a problem if the bytes of a file do not have the SHA-256 of their record."""
    if sha256_hex(data).encode() != sha256:
        yield f"{FILE_BYTES} has the SHA-256 {sha256_hex(data)}, but {FILE_SHA256} is {shown(sha256)}"


def array_problems(record: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields what is wrong with the array of a record."""
    dtype = record[ARRAY_DTYPE][0].decode("latin-1")
    if dtype not in DTYPES:
        yield f"{ARRAY_DTYPE} is {shown(dtype)}, expected one of {', '.join(DTYPES)}"
    elif len(record[ARRAY_SHAPE]) > _MAX_RANK:
        yield f"{ARRAY_SHAPE} has {len(record[ARRAY_SHAPE])} sides, expected at most {_MAX_RANK}"
    else:
        yield from tensor_problems(ARRAY_RAW, record[ARRAY_RAW][0], dtype, record[ARRAY_SHAPE])


def tensor_problems(name: str, data: bytes, dtype: str, shape: Sequence[int]) -> Iterator[str]:
    """Yields a problem unless the bytes are what `tf.io.serialize_tensor` makes of a tensor of this dtype and shape."""
    if not _is_tensor(data, dtype, shape):
        yield f"{name} is not a serialized {dtype} tensor of shape {shown([*shape])}"


def _is_tensor(data: bytes, dtype: str, shape: Sequence[int]) -> bool:
    try:
        tensor = message_class("TensorProto").FromString(data)
    except DecodeError:
        return False
    content, unit = (
        (list(tensor.string_val), 1) if dtype == STRING else (tensor.tensor_content, np.dtype(dtype).itemsize)
    )
    fits = min(shape, default=0) >= 0 and len(content) == math.prod(shape) * unit
    return fits and serialize_tensor(dtype, shape, content) == data
