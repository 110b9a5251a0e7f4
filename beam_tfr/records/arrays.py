"""Parses .npy files, without unpickling.

The header is checked against the size of the file before anything is allocated, so a header that
claims an exabyte costs nothing.
"""

import hashlib
import io
import math
import tokenize
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import google_crc32c
import numpy as np

from beam_tfr.records.tensors import DTYPES, STRING, serialize_tensor
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Array

MAX_TEXTS = 1 << 20  # each string becomes an object, however short
MAX_RANK = 32  # every version of NumPy supports it
MAX_ELEMENTS = 1 << 62  # product of all sides other than 0; TensorFlow counts in int64
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# NumPy evaluates a header of at most 10,000 characters as a Python literal.
_HEADER_ERRORS = (
    ValueError,
    TypeError,
    SyntaxError,
    tokenize.TokenError,
    MemoryError,
    RecursionError,
    LookupError,
    AttributeError,
)


class _NpyHeader(NamedTuple):
    """What the header of a .npy file states.

    Attributes:
        shape: shape of the array.
        order: "C", or "F" if the first index varies fastest.
        dtype: type of the elements.
        num_bytes: size of the header, which precedes the elements.
    """

    shape: tuple[int, ...]
    order: Literal["C", "F"]
    dtype: np.dtype[Any]
    num_bytes: int


def parse_array(data: bytes) -> Array:
    """Parses a .npy file.

    Args:
        data: a whole file, in format 1.0 or 2.0.

    Returns:
        The array as a TensorProto, in C order; bytes (`S`) and text (`U`, as UTF-8) become strings.

    Raises:
        RejectError: `not-an-array`, which includes arrays of objects, records or times;
            `damaged-array`.
    """
    header = _read_header(data)
    shape = header.shape
    dtype = header.dtype
    name = _name_type(dtype)
    if name not in DTYPES:
        raise RejectError("not-an-array", f"tensors cannot have the type {str(dtype)[:100]}")
    if not _is_possible(shape):
        raise RejectError(
            "damaged-array", f"its header states the impossible shape {str(shape)[:100]}"
        )
    num_elements = math.prod(shape)
    elements = data[header.num_bytes :]
    promised = num_elements * dtype.itemsize
    if len(elements) != promised:
        raise RejectError(
            "damaged-array", f"its header states {promised} bytes, but it has {len(elements)}"
        )
    if name == STRING and (num_elements > MAX_TEXTS or not dtype.itemsize):
        raise RejectError(
            "not-an-array",
            f"{num_elements} strings of {dtype.itemsize} bytes, more than allowed",
        )
    array = np.frombuffer(elements, dtype).reshape(shape, order=header.order)
    return Array(
        serialize_tensor(name, shape, _tensor_content(array)),
        shape,
        name,
        hashlib.sha256(data).hexdigest(),
        len(data),
        google_crc32c.value(data),
    )


def _name_type(dtype: np.dtype[Any]) -> str:
    """Returns the name of a type, which is a key of `DTYPES` if tensors support it."""
    if dtype.kind in "SU":
        return STRING
    if dtype.kind == "T":  # NumPy 2's strings, which no file can hold
        return str(dtype)
    return dtype.newbyteorder("=").name


def _read_header(data: bytes) -> _NpyHeader:
    """Reads the header of a file, which may contain anything.

    Raises:
        RejectError: `not-an-array`: the version of the file is unknown; `damaged-array`.
    """
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version not in _READERS:
            raise RejectError(
                "not-an-array",
                f"a .npy file with version {version}: structured arrays are not supported",
            )
        shape, is_fortran, dtype = _READERS[version](file)
    except _HEADER_ERRORS as error:
        if not data.startswith(np.lib.format.MAGIC_PREFIX):
            raise RejectError(
                "not-an-array", f"begins with {data[:8].hex(' ')}, expected a .npy file"
            ) from None
        problem = " ".join(str(error).split())[:200]
        raise RejectError("damaged-array", f"its header: {problem}") from error
    return _NpyHeader(shape, "F" if is_fortran else "C", dtype, file.tell())


def _is_possible(shape: Sequence[Any]) -> bool:
    """Whether a tensor can have this shape, which may be any shape that NumPy accepts."""
    if len(shape) > MAX_RANK or {*map(type, shape)} - {int}:
        return False
    if min(shape, default=0) < 0:
        return False
    num_elements: int = math.prod(max(side, 1) for side in shape)
    return num_elements < MAX_ELEMENTS


def _tensor_content(array: np.ndarray[Any, Any]) -> bytes | list[bytes]:
    """Returns the values of an array as `serialize_tensor` expects them.

    Raises:
        RejectError: `damaged-array`: a boolean is neither 0 nor 1, or text is not valid Unicode.
    """
    kind = array.dtype.kind
    if kind == "S":
        return [bytes(text) for text in array.ravel()]
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if kind == "U":
        try:
            return [_encode_text(text.tobytes()) for text in little_endian.reshape(-1, 1)]
        except UnicodeDecodeError as error:
            raise RejectError("damaged-array", f"invalid Unicode text: {error}") from error
    if kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise RejectError("damaged-array", "a boolean value is neither 0 nor 1")
    return little_endian.tobytes()


def _encode_text(characters: bytes) -> bytes:
    """Encodes a string in an array as UTF-8.

    For invalid characters, NumPy's own conversion ends in an internal error of the interpreter.
    """
    return characters.decode("utf-32-le").rstrip("\0").encode()
