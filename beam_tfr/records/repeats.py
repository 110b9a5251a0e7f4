"""Finds keys that occur more than once in a dataset or in tables.

This takes 24 bytes of memory per key; the keys can be compared in 256 parts, one at a time.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

HASH_BYTES = 16
_PARTS = 256
KeyPosition = tuple[int, int]  # number of a file, and of a record or row in it
# Hash of a key that occurs more than once -> its first two positions.
RepeatedKeys = Mapping[bytes, tuple[KeyPosition, KeyPosition]]
# The hash of a key, in two halves, and its `KeyPosition`.
_NUMBERED_HASH = np.dtype([("hash", "<u8", 2), ("file", "<u4"), ("number", "<u4")])


def hash_key(key: bytes) -> bytes:
    """Computes a hash of `HASH_BYTES` that represents a key."""
    return hashlib.blake2b(key, digest_size=HASH_BYTES).digest()


def number_keys(file: int, hashes: bytes | bytearray, first: int = 0) -> NDArray[Any]:
    """Returns the hashes and positions of a file's keys, 24 bytes for each key.

    Args:
        file: number of the file.
        hashes: hashes of the keys, in order.
        first: number of the first key.
    """
    halves = np.frombuffer(hashes, "<u8").reshape(-1, 2)
    rows = np.empty(len(halves), _NUMBERED_HASH)
    rows["hash"] = halves
    rows["file"] = file
    rows["number"] = np.arange(first, first + len(halves))
    return rows


def divide_by_hash(rows: NDArray[Any]) -> Iterator[tuple[int, bytes]]:
    """Divides rows into 256 parts, yielded as (part, rows as bytes); equal keys share a part."""
    parts = rows["hash"][:, 0] & np.uint64(_PARTS - 1)
    for part in np.unique(parts):
        yield int(part), rows[parts == part].tobytes()


def find_repeats(data: bytes) -> list[tuple[KeyPosition, KeyPosition]]:
    """Finds the keys that occurred before.

    Returns the positions of each repeated key and of its previous occurrence, sorted.

    Args:
        data: results of `number_keys` for any files, or one part of each result, in any order.
    """
    rows = _sort_keys(data)
    positions = rows[["file", "number"]]
    repeated = _find_equal(rows)
    pairs = zip(positions[repeated + 1].tolist(), positions[repeated].tolist(), strict=True)
    return sorted(pairs)


def find_repeated_keys(data: bytes) -> RepeatedKeys:
    """Finds the keys that occur more than once, given the same data as `find_repeats`."""
    rows = _sort_keys(data)
    positions = rows[["file", "number"]]
    hashes = rows["hash"]
    first_two = dict[bytes, tuple[KeyPosition, KeyPosition]]()
    for place in _find_equal(rows):
        pair = (positions[place].tolist(), positions[place + 1].tolist())
        first_two.setdefault(hashes[place].tobytes(), pair)
    return first_two


def merge_parts(parts: Iterable[RepeatedKeys]) -> RepeatedKeys:
    """Merges the repeated keys of all parts; each key is in only one part."""
    merged = dict[bytes, tuple[KeyPosition, KeyPosition]]()
    for part in parts:
        merged.update(part)
    return merged


def _sort_keys(data: bytes) -> NDArray[Any]:
    """Sorts numbered hashes by hash and then by position."""
    rows = np.frombuffer(data, _NUMBERED_HASH)
    first_half, second_half = rows["hash"].T
    order = np.lexsort((rows["number"], rows["file"], first_half, second_half))
    return rows[order]


def _find_equal(rows: NDArray[Any]) -> NDArray[Any]:
    """Finds the indices of sorted hashes that equal the next hash."""
    hashes = rows["hash"]
    is_repeated = (hashes[1:] == hashes[:-1]).all(axis=1)
    return np.flatnonzero(is_repeated)
