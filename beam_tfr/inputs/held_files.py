"""Holds the files of an archive in memory, in a few bytes each, until all are listed."""

import collections
import json
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_PACKED = 1000  # files that are packed together
_PACKED_LETTERS = 256 << 10  # letters in their names that suffice for packing fewer files

Row = tuple[str, Sequence[Any]]


class Hashes:
    """Hashes of strings, 8 bytes each.

    The chance that two of a million strings have the same hash is 3 in 10^8.
    """

    def __init__(self) -> None:
        self._added = array("q")
        self._in_order = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._added)

    def add(self, text: str) -> None:
        self._added.append(hash(text))

    def has(self, text: str) -> bool:
        """Whether a string was added."""
        hashed = hash(text)
        in_order = self._sort()
        place = int(np.searchsorted(in_order, hashed))
        return place < len(in_order) and int(in_order[place]) == hashed

    def find_repeated(self) -> set[int]:
        """Returns the hashes that were added more than once."""
        in_order = self._sort()
        return {*in_order[1:][in_order[1:] == in_order[:-1]].tolist()}

    def _sort(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        if len(self._in_order) != len(self._added):
            self._in_order = np.sort(np.frombuffer(self._added, np.int64))
        return self._in_order


class HeldFiles:
    """File names, each with some values, in the order in which they were added.

    A file takes some 40 bytes when packed, and 8 more for the hash of its name.
    """

    def __init__(self) -> None:
        self._packed = list[bytes]()
        self._last = list[Row]()
        self._letters = 0  # number of letters in the names in `_last`
        self._hashes = Hashes()

    def __len__(self) -> int:
        return len(self._hashes)

    def __iter__(self) -> Iterator[Row]:
        for packed in self._packed:
            yield from json.loads(zlib.decompress(packed))
        yield from self._last

    def add(self, name: str, values: Sequence[Any] = ()) -> None:
        """Adds a file.

        Args:
            name: the name of the file; it may have been added before.
            values: values that JSON can represent.
        """
        self._hashes.add(name)
        self._last.append((name, values))
        self._letters += len(name)
        if len(self._last) >= _PACKED or self._letters >= _PACKED_LETTERS:
            self._packed.append(zlib.compress(json.dumps(self._last).encode(), 1))
            self._last = []
            self._letters = 0

    def find_repeated(self) -> set[str]:
        """Returns the names that were added more than once."""
        hashes = self._hashes.find_repeated()
        if not hashes:
            return set()
        names = collections.Counter(name for name, _ in self if hash(name) in hashes)
        return {name for name, number in names.items() if number > 1}
