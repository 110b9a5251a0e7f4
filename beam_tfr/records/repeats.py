"""Finds keys that occur twice in a dataset or in tables, by 24 bytes for each key that can be
compared in 256 parts."""

import hashlib
from collections.abc import Iterator

import numpy as np

HASH_BYTES = 16
KeyPosition = tuple[int, int]  # number of a file, and of a record or row in it
_ROW = np.dtype([("hash", "<u8", 2), ("file", "<u4"), ("number", "<u4")])


def hash_key(key: bytes) -> bytes:
    """A hash of `HASH_BYTES` that stands for a key."""
    return hashlib.blake2b(key, digest_size=HASH_BYTES).digest()


def number_keys(file: int, hashes: bytes | bytearray, first: int = 0) -> np.ndarray:
    """The hashes of a file's keys with their places, 24 bytes each; the first key has the number
    `first`."""
    pairs = np.frombuffer(hashes, "<u8").reshape(-1, 2)
    rows = np.empty(len(pairs), _ROW)
    rows["hash"] = pairs
    rows["file"] = file
    rows["number"] = np.arange(first, first + len(pairs))
    return rows


def divide_by_hash(rows: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """Yields (part, rows as bytes); equal keys are in the same of 256 parts."""
    numbers = rows["hash"][:, 0] & np.uint64(0xFF)
    for number in np.unique(numbers):
        yield int(number), rows[numbers == number].tobytes()


def find_repeats(data: bytes) -> list[tuple[KeyPosition, KeyPosition]]:
    """Finds the keys that occurred before: the places of each and of the one before it, sorted.

    Args:
        data: `number_keys` any files, or one of the `divide_by_hash` each, in any order.
    """
    rows = np.frombuffer(data, _ROW)
    rows = rows[np.lexsort((rows["number"], rows["file"], rows["hash"][:, 0], rows["hash"][:, 1]))]
    again = np.flatnonzero((rows["hash"][1:] == rows["hash"][:-1]).all(axis=1))
    places = rows[["file", "number"]]
    return sorted(zip(places[again + 1].tolist(), places[again].tolist(), strict=True))
