"""ParseArrays: parses .npy files, without unpickling.

The header is checked against the size of the file before anything is allocated, so one that claims
an exabyte costs nothing.
"""

import hashlib
import io
import math
import tokenize
from typing import Any

import google_crc32c
import numpy as np

from beam_tfr.records.tensors import DTYPES, STRING, serialize_tensor
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Array

MAX_TEXTS = 1 << 20  # each becomes an object, however short
MAX_RANK = 32  # that every version of NumPy supports
MAX_ELEMENTS = 1 << 62  # product of all sides other than 0; TensorFlow counts in int64


def parse_array(data: bytes) -> Array:
    """Parses a .npy file.

    Args:
        data: a whole file, of format 1.0 or 2.0.

    Returns:
        The array as a TensorProto, in C order; bytes (`S`) and text (`U`, as UTF-8) become strings.

    Raises:
        RejectError: `not-an-array`, also for objects, records and times; `damaged-array`.
    """
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            raise RejectError(
                "not-an-array",
                f"a .npy file of version {version}: structured arrays are not supported",
            )
        shape, fortran, dtype = readers[version](file)
    # NumPy evaluates a header of at most 10,000 characters as a Python literal.
    except (
        ValueError,
        TypeError,
        SyntaxError,
        tokenize.TokenError,
        MemoryError,
        RecursionError,
    ) as error:
        if not data.startswith(np.lib.format.MAGIC_PREFIX):
            raise RejectError(
                "not-an-array", f"begins with {data[:8].hex(' ')}, expected a .npy file"
            ) from None
        raise RejectError(
            "damaged-array", f"its header: {' '.join(str(error).split())[:200]}"
        ) from error
    name = STRING if dtype.kind in "SU" else dtype.newbyteorder("=").name
    if name not in DTYPES:
        raise RejectError("not-an-array", f"no tensor has values of the type {str(dtype)[:100]}")
    sound = len(shape) <= MAX_RANK and all(type(side) is int and side >= 0 for side in shape)
    if not sound or math.prod(side for side in shape if side) >= MAX_ELEMENTS:
        raise RejectError("damaged-array", f"its header says the shape {str(shape)[:100]}")
    content = data[file.tell() :]
    promised = math.prod(shape) * dtype.itemsize
    if len(content) != promised:
        raise RejectError(
            "damaged-array", f"its header promises {promised} bytes, but it has {len(content)}"
        )
    if name == STRING and (math.prod(shape) > MAX_TEXTS or not dtype.itemsize):
        raise RejectError(
            "not-an-array",
            f"{math.prod(shape)} texts of {dtype.itemsize} bytes, more than is allowed",
        )
    array = np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
    tensor = serialize_tensor(name, shape, _content(array))
    sides = tuple(int(side) for side in shape)
    return Array(
        tensor, sides, name, hashlib.sha256(data).hexdigest(), len(data), google_crc32c.value(data)
    )


def _content(array: np.ndarray[Any, Any]) -> bytes | list[bytes]:
    """The values of an array, as `serialize_tensor` takes them.

    Raises:
        RejectError: `damaged-array`: a boolean that is neither 0 nor 1, or text that is not valid
            Unicode.
    """
    kind = array.dtype.kind
    if kind == "S":
        return [bytes(text) for text in array.ravel()]
    if kind == "U":
        try:
            # NumPy's own conversion ends in an internal error of the interpreter on an invalid
            # character.
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            return [
                text.tobytes().decode("utf-32-le").rstrip("\0").encode()
                for text in little.reshape(-1, 1)
            ]
        except UnicodeDecodeError as error:
            raise RejectError("damaged-array", f"invalid Unicode text: {error}") from error
    if kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise RejectError("damaged-array", "a boolean value is neither 0 nor 1")
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
