"""Finds rows with the same key in any of the tables, with 24 bytes per row that are sorted in small parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

BUCKETS = 256
FLUSH_ROWS = 1 << 16
_ROW = np.dtype([("key", "<u8"), ("more", "<u4"), ("table", "<u4"), ("row", "<u8")])  # a hash of 96 bits, and where


class Repeats(NamedTuple):
    """The number of rows that repeat a key, and the first of them with the row that it repeats, as (table, row)."""

    number: int
    first: tuple[int, int]
    before: tuple[int, int]


class Seen:
    """Collects the rows of the `table`-th table."""

    def __init__(self, table: int) -> None:
        self._table = table.to_bytes(4, "little")
        self._buckets: list[list[bytes]] = [[] for _ in range(BUCKETS)]
        self._rows = 0

    def add(self, key: str, row: int) -> Iterator[tuple[int, bytes]]:
        """Adds a row; yields (bucket, rows) of the rows so far whenever there are enough."""
        digest = hashlib.blake2b(
            key.encode("utf-8", "surrogateescape"), digest_size=12, person=b"beam_tfr row"
        ).digest()
        self._buckets[digest[0]].append(digest + self._table + row.to_bytes(8, "little"))
        self._rows += 1
        if self._rows >= FLUSH_ROWS:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[int, bytes]]:
        """Yields (bucket, rows) of the rows that are left."""
        for number, rows in enumerate(self._buckets):
            if rows:
                yield number, b"".join(rows)
        self._buckets = [[] for _ in range(BUCKETS)]
        self._rows = 0


def find_repeats(parts: Iterable[bytes]) -> Repeats | None:
    """The repeats among all rows of one bucket, or None."""
    rows = np.frombuffer(b"".join(parts), _ROW)
    rows = rows[np.lexsort((rows["row"], rows["table"], rows["more"], rows["key"]))]
    again = (rows["key"][1:] == rows["key"][:-1]) & (rows["more"][1:] == rows["more"][:-1])
    if not again.any():
        return None
    later, earlier = rows[1:][again], rows[:-1][again]
    first = np.lexsort((later["row"], later["table"]))[0]
    return Repeats(int(again.sum()), _place(later[first]), _place(earlier[first]))


def _place(row: np.void) -> tuple[int, int]:
    return int(row["table"]), int(row["row"])


def merge_repeats(repeats: Sequence[Repeats]) -> Repeats:
    """The repeats of several buckets, of which there is at least one."""
    first = min(repeats, key=lambda one: one.first)
    return first._replace(number=sum(one.number for one in repeats))
