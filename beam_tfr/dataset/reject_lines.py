"""Reads rejects.jsonl, an untrusted file."""

import contextlib
from collections.abc import Iterator

from beam_tfr import storage
from beam_tfr.schema.encoded_ref import to_bytes
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import Reject
from beam_tfr.schema.untrusted import parse_json

_MOST_LINE_BYTES = 1 << 20  # convert writes no line this long


def read_rejects(path: str) -> Iterator[Reject]:
    """Yields the rejects in a file.

    Raises:
        DataError: a line is damaged.
    """
    with storage.open_binary(path) as file:
        while line := file.readline(_MOST_LINE_BYTES):
            reject = _parse_reject(line)
            if reject is None:
                raise DataError(f"{path} is damaged: a line is not a reject")
            yield reject


def _parse_reject(line: bytes) -> Reject | None:
    """Parses a line of rejects.jsonl; returns None if the line is damaged."""
    with contextlib.suppress(ValueError):
        fields = parse_json(line)
        if isinstance(fields, dict) and isinstance(fields.get("key"), str):
            to_bytes(fields["key"])  # raises an error for lone surrogates
            texts = [str(fields.get(name, "")) for name in Reject._fields]
            return Reject(*texts)
    return None
