"""Checks the file or array of a record that holds no image."""

from collections.abc import Iterator, Sequence

from beam_tfr.records.tensors import parse_tensor, serialize_tensor
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.feature_names import FILE_BYTES, FILE_SHA256
from beam_tfr.schema.untrusted import quote


def file_problems(data: bytes, sha256: bytes) -> Iterator[str]:
    """Yields a problem if the bytes of a file do not have the SHA-256 of their record."""
    actual = sha256_hex(data)
    if actual.encode() != sha256:
        yield f"{FILE_BYTES} has the SHA-256 {actual}, but {FILE_SHA256} is {quote(sha256)}"


def tensor_problems(name: str, data: bytes, dtype: str, shape: Sequence[int]) -> Iterator[str]:
    """Yields a problem unless the bytes are a serialized tensor of dtype and shape.

    They must be what `tf.io.serialize_tensor` makes of it.
    """
    parsed = parse_tensor(data)
    if parsed is None or parsed[:2] != (dtype, [*shape]) or serialize_tensor(*parsed) != data:
        yield f"{name} is not a serialized {quote(dtype)} tensor of shape {quote([*shape])}"
