"""Reads the directories of TIFF files and EXIF blocks (TIFF 6.0, section 2, and BigTIFF)."""

import struct
from collections.abc import Iterator
from typing import Literal, NamedTuple

from beam_tfr.schema.errors import RejectError

MAX_DIRECTORIES = 10_000
MAX_ENTRIES = 1 << 16  # in a directory
MAX_VALUES = 1 << 17  # in an entry


class _Layout(NamedTuple):
    """How a file stores its numbers; types are given as in the module `struct`.

    Attributes:
        byteorder: "little" or "big".
        order: the byte order, as `struct` spells it.
        number: type of the field with the number of entries.
        entry: types of the fields of an entry, without its values or their offset.
        word: type of an offset.
        first: slice of the file that holds the offset of the first directory.
    """

    byteorder: Literal["little", "big"]
    order: str
    number: str
    entry: str
    word: str
    first: slice


_SIGNATURES = {
    b"II*\0": _Layout("little", "<", "H", "HHI", "I", slice(4, 8)),
    b"MM\0*": _Layout("big", ">", "H", "HHI", "I", slice(4, 8)),
    b"II+\0": _Layout("little", "<", "Q", "HHQ", "Q", slice(8, 16)),
    b"MM\0+": _Layout("big", ">", "Q", "HHQ", "Q", slice(8, 16)),
}
# Type of an entry -> bytes per value.
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
# Type of an entry -> type of `struct`, for unsigned integers.
_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}


class TiffEntry(NamedTuple):
    """One entry of a directory.

    Attributes:
        tag: number that defines what the entry means.
        kind: type of the values.
        values: number of the values.
        start: where the values begin in the file.
        size: total size of the values in bytes; the file may end before them.
    """

    tag: int
    kind: int
    values: int
    start: int
    size: int


class Directory:
    """One image file directory; iterating over it yields its entries.

    Attributes:
        following: where the next directory is; 0 after the last directory.

    Raises:
        RejectError: `damaged-image`: the file ends within the directory.
    """

    def __init__(self, data: bytes, layout: _Layout, start: int) -> None:
        self._data = data
        self._layout = layout
        self._word_size = struct.calcsize(layout.word)
        self._entry_size = struct.calcsize("=" + layout.entry + layout.word)
        (entries,) = self._unpack(layout.number, start)
        first = start + struct.calcsize(layout.number)
        end = first + entries * self._entry_size
        self._starts = range(first, end, self._entry_size)
        self.following = 0
        if end + self._word_size <= len(data):
            (self.following,) = self._unpack(layout.word, end)

    def __iter__(self) -> Iterator[TiffEntry]:
        for entry_start in self._starts[:MAX_ENTRIES]:
            tag, kind, count = self._unpack(self._layout.entry, entry_start)
            start = entry_start + self._entry_size - self._word_size
            size = count * _SIZES.get(kind, 0)
            if size > self._word_size:
                (start,) = self._unpack(self._layout.word, start)
            yield TiffEntry(tag, kind, count, start, size)

    def read_integers(self, entry: TiffEntry) -> tuple[int, ...]:
        """Reads the values of an entry, if they are unsigned integers.

        Returns no values if the values have the wrong type, are too many, or are not all in the
        file.
        """
        if entry.kind not in _INTEGERS or entry.values > MAX_VALUES:
            return ()
        if entry.start + entry.size > len(self._data):
            return ()
        return self._unpack(f"{entry.values}{_INTEGERS[entry.kind]}", entry.start)

    def with_integer(self, entry: TiffEntry, value: int) -> bytes:
        """Returns the file with the first value of an entry replaced.

        `read_integers` must be able to read the entry.
        """
        packed = struct.pack(self._layout.order + _INTEGERS[entry.kind], value)
        end = entry.start + len(packed)
        return self._data[: entry.start] + packed + self._data[end:]

    def _unpack(self, types: str, start: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(self._layout.order + types, self._data, start)
        except (struct.error, OverflowError):
            raise RejectError("damaged-image", "TIFF: a directory is missing or cut off") from None


def directories(data: bytes) -> Iterator[Directory]:
    """Yields the directories of a TIFF or an EXIF block, up to the first outside the file.

    Yields at most `MAX_DIRECTORIES`.

    Raises:
        RejectError: `damaged-image`: there is no TIFF header or no directory, or the directories
            form a loop.
    """
    layout = _SIGNATURES.get(data[:4])
    if layout is None:
        raise RejectError("damaged-image", "TIFF: the header is broken")
    start = int.from_bytes(data[layout.first], layout.byteorder)
    directory = Directory(data, layout, start)
    seen = {start}
    yield directory
    while directory.following and len(seen) < MAX_DIRECTORIES:
        start = directory.following
        if start in seen:
            raise RejectError("damaged-image", "TIFF: its directories form a loop")
        try:
            directory = Directory(data, layout, start)
        except RejectError:
            return
        seen.add(start)
        yield directory
