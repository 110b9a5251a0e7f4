"""Finds rows with the same key in any of the tables, with 24 bytes per row that are sorted in small parts."""

from __future__ import annotations

import hashlib
import itertools
import operator
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

FLUSH_ROWS = 1 << 16
HASH_BYTES = 12
_PLACE = struct.Struct(">IQ")  # table and row


class Repeats(NamedTuple):
    """The number of rows that repeat a key, and the first of them with the row that it repeats, as (table, row)."""

    number: int
    first: tuple[int, int]
    before: tuple[int, int]


class Seen:
    """Collects the rows of the `table`-th table."""

    def __init__(self, table: int) -> None:
        self._table, self._rows = table, list[bytes]()

    def add(self, key: str, row: int) -> Iterator[tuple[int, bytes]]:
        """Adds a row; yields (bucket, rows) of the rows so far whenever there are enough."""
        encoded = key.encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(encoded, digest_size=HASH_BYTES, person=b"beam_tfr row").digest()
        self._rows.append(digest + _PLACE.pack(self._table, row))
        if len(self._rows) >= FLUSH_ROWS:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[int, bytes]]:
        """Yields (bucket, rows) of the rows that are left; the bucket is the first byte of the hash."""
        rows, self._rows = sorted(self._rows), []
        for bucket, found in itertools.groupby(rows, operator.itemgetter(0)):
            yield bucket, b"".join(found)


def find_repeats(parts: Iterable[bytes]) -> Repeats | None:
    """The repeats among all rows of one bucket, or None."""
    joined, size = b"".join(parts), HASH_BYTES + _PLACE.size
    rows = sorted(joined[start : start + size] for start in range(0, len(joined), size))
    again = [
        (row[HASH_BYTES:], before[HASH_BYTES:])
        for before, row in itertools.pairwise(rows)
        if row.startswith(before[:HASH_BYTES])
    ]
    return Repeats(len(again), *map(_PLACE.unpack, min(again))) if again else None


def merge_repeats(repeats: Sequence[Repeats]) -> Repeats:
    """The repeats of several buckets, of which there is at least one."""
    first = min(repeats, key=lambda one: one.first)
    return first._replace(number=sum(one.number for one in repeats))
