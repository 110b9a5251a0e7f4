"""TIFF directories (TIFF 6.0, section 2; BigTIFF), which EXIF blocks are made of too."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema.errors import RejectError

MAX_DIRECTORIES = 10_000
MAX_ENTRIES = 1 << 16  # of a directory
MAX_VALUES = 1 << 17  # of an entry
_SIGNATURES = {
    b"II*\0": ("<", False),
    b"MM\0*": (">", False),
    b"II+\0": ("<", True),
    b"MM\0+": (">", True),
}
_SIZES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
_INTEGERS = {
    1: "B",
    3: "H",
    4: "I",
    13: "I",
    16: "Q",
    18: "Q",
}  # type of an entry -> of struct, unsigned


class Entry(NamedTuple):
    """One entry of a directory.

    Attributes:
        tag: its number, which gives it its meaning.
        kind: type of its values.
        values: how many it has.
        place: where in the file the values are.
        size: size of all values, in bytes; the file may end before.
    """

    tag: int
    kind: int
    values: int
    place: int
    size: int


class Directory:
    """One image file directory; iterating over it yields its entries.

    Attributes:
        following: where the next directory is; 0 without one.

    Raises:
        RejectError: `damaged-image`: the file ends within it.
    """

    def __init__(self, data: bytes, order: str, big: bool, start: int) -> None:
        self._data = data
        self._order = order
        counting, self._entry, self._word = ("Q", "HHQ", "Q") if big else ("H", "HHI", "I")
        (count,) = self._unpack(counting, start)
        start += struct.calcsize(counting)
        self._length = struct.calcsize("=" + self._entry + self._word)
        end = start + count * self._length
        self._places = range(start, end, self._length)
        if end + struct.calcsize(self._word) <= len(data):
            self.following = self._unpack(self._word, end)[0]
        else:
            self.following = 0

    def __iter__(self) -> Iterator[Entry]:
        word = struct.calcsize(self._word)
        for begin in self._places[:MAX_ENTRIES]:
            tag, kind, count = self._unpack(self._entry, begin)
            place = begin + self._length - word
            size = count * _SIZES.get(kind, 0)
            if size > word:
                (place,) = self._unpack(self._word, place)
            yield Entry(tag, kind, count, place, size)

    def integers(self, entry: Entry) -> tuple[int, ...]:
        """The values of an entry; empty if they are not unsigned integers, too many, or not all in
        the file."""
        if (
            entry.kind not in _INTEGERS
            or entry.values > MAX_VALUES
            or entry.place + entry.size > len(self._data)
        ):
            return ()
        return self._unpack(f"{entry.values}{_INTEGERS[entry.kind]}", entry.place)

    def with_integer(self, entry: Entry, value: int) -> bytes:
        """The file with another value, the first of an entry that `integers` reads."""
        packed = struct.pack(self._order + _INTEGERS[entry.kind], value)
        return self._data[: entry.place] + packed + self._data[entry.place + len(packed) :]

    def _unpack(self, layout: str, place: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(self._order + layout, self._data, place)
        except (struct.error, OverflowError):
            raise RejectError("damaged-image", "TIFF: a directory is not there, or cut") from None


def directories(data: bytes) -> Iterator[Directory]:
    """Yields the directories of a TIFF or an EXIF block, at most `MAX_DIRECTORIES`, until one is
    not in the file.

    Raises:
        RejectError: `damaged-image`: no TIFF header, no directory, or they point in a circle.
    """
    if data[:4] not in _SIGNATURES:
        raise RejectError("damaged-image", "TIFF: the header is broken")
    order, big = _SIGNATURES[data[:4]]
    begin = data[8:16] if big else data[4:8]
    start = int.from_bytes(begin, "little" if order == "<" else "big")
    seen: set[int] = set()
    while len(seen) < MAX_DIRECTORIES and (start or not seen):
        if start in seen:
            raise RejectError("damaged-image", "TIFF: directories that point in a circle")
        try:
            directory = Directory(data, order, big, start)
        except RejectError:
            if not seen:
                raise
            return
        seen.add(start)
        yield directory
        start = directory.following
