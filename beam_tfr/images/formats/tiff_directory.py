"""TIFF 6.0 and BigTIFF: the directory of a page, read with bounds before any library sees it."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np

from beam_tfr.schema import RejectError

SUBFILE, WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 254, 256, 257, 258, 259, 262
STRIPS, ORIENTATION, SAMPLES, ROWS, STRIP_BYTES, PLANAR = 273, 274, 277, 278, 279, 284
PREDICTOR, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_BYTES = 317, 322, 323, 324, 325
SUB_DIRECTORIES, EXTRA, FORMAT, SUBSAMPLING, PROFILE, DNG_VERSION = 330, 338, 339, 530, 34675, 50706
YCBCR = 6  # photometric interpretation
MOST_SAMPLES = 32  # of a pixel
COLOURS = {0: 1, 1: 1, 2: 3, 5: 4, YCBCR: 3}  # photometric interpretation -> samples: grey, RGB, CMYK

_READ: tuple[int, ...] = (
    SUBFILE,
    WIDTH,
    HEIGHT,
    BITS,
    COMPRESSION,
    PHOTOMETRIC,
    STRIPS,
    ORIENTATION,
    SAMPLES,
    ROWS,
    STRIP_BYTES,
    PLANAR,
)
_READ += (PREDICTOR, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_BYTES, SUB_DIRECTORIES, EXTRA, FORMAT, SUBSAMPLING)
_DEFAULTS = {SUBFILE: 0, BITS: 1, COMPRESSION: 1, PHOTOMETRIC: 1, SAMPLES: 1, PLANAR: 1, PREDICTOR: 1, FORMAT: 1}
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_INTEGERS = {3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}  # type of a tag -> of struct
_BYTEWISE = (1, 5, 8, 32773, 32946, 34925, 50000)  # compressions of bytes, whatever they mean: none, LZW, deflate, …
_KINDS = {1: "u", 2: "i", 3: "f"}  # sample format -> of NumPy
_MOST_PAGES = 10_000  # looked at
_MOST_ENTRIES = 1 << 16  # of a directory
_MOST_VALUES = 1 << 17  # of a tag


@dataclasses.dataclass(slots=True, kw_only=True)
class Page:
    """One image file directory.

    Attributes:
        order: of bytes, "<" or ">".
        tags: number -> values; whole numbers alone.
        orientation: where in the file the value of the orientation stands; 0 without one.
        profile: ICC, or empty.
        following: where the next directory is; 0 for none.
    """

    order: str
    tags: dict[int, tuple[int, ...]]
    orientation: int
    profile: bytes
    following: int

    def get(self, tag: int) -> int:
        """The first value, or what TIFF takes for it."""
        return self.tags.get(tag, (_DEFAULTS.get(tag, 0),))[0]

    @property
    def bits(self) -> int:
        """Of the deepest sample."""
        return max(self.tags.get(BITS, (1,)))

    @property
    def planes(self) -> int:
        return self.get(SAMPLES) if self.get(PLANAR) == 2 else 1

    @property
    def is_deep(self) -> bool:
        """Whether Pillow has no mode for its samples: of more than 8 bits, signed, or YCbCr that is not compressed."""
        return self.bits > 8 or self.get(FORMAT) != 1 or (self.get(PHOTOMETRIC), self.get(COMPRESSION)) == (YCBCR, 1)

    @property
    def bytewise(self) -> np.dtype[Any] | None:
        """Of what kind every sample is, if it can be made of unpacked bytes; else None."""
        kinds, samples = set(self.tags.get(FORMAT, (1,))), self.get(SAMPLES)
        if (
            len(kinds) > 1
            or len(set(self.tags.get(BITS, (1,)))) > 1
            or self.bits % 8
            or self.get(COMPRESSION) not in _BYTEWISE
            or (self.get(PHOTOMETRIC) == YCBCR and (self.bits > 8 or self.tags.get(SUBSAMPLING) != (1, 1)))
            or not COLOURS.get(self.get(PHOTOMETRIC), MOST_SAMPLES) <= samples < MOST_SAMPLES
        ):
            return None
        try:
            return np.dtype(f"{self.order}{_KINDS[kinds.pop()]}{self.bits // 8}")
        except (KeyError, TypeError):
            return None

    def __str__(self) -> str:
        return (
            f"{self.get(SAMPLES)} samples of {self.bits} bit, sample format {self.get(FORMAT)}, "
            f"photometric interpretation {self.get(PHOTOMETRIC)}, compression {self.get(COMPRESSION)}"
        )


def first_page(data: bytes) -> tuple[Page, bool]:
    """The first page of a file, and whether another follows that is not one in a smaller size.

    Raises:
        RejectError: `damaged-image`: it is cut, has more bytes of tags than the file, or points in a circle.
    """
    order = "<" if data[:2] == b"II" else ">"
    try:
        (start,) = (
            struct.unpack_from(order + "Q", data, 8) if _is_big(data) else struct.unpack_from(order + "I", data, 4)
        )
        page = _read(data, order, start, _MOST_ENTRIES)
    except struct.error:
        raise RejectError("damaged-image", "TIFF: the first directory is not there, or cut") from None
    return page, _has_more(data, start, page)


def _has_more(data: bytes, start: int, page: Page) -> bool:
    seen, more = {start}, False
    while page.following and len(seen) < _MOST_PAGES:
        if page.following in seen:
            raise RejectError("damaged-image", "TIFF: directories that point in a circle")
        seen.add(page.following)
        try:
            page = _read(data, page.order, page.following, 1)  # tags are sorted
        except struct.error:
            break
        more = more or not page.get(SUBFILE) & 1
    return more


def _is_big(data: bytes) -> bool:
    return data[2:4] in (b"+\0", b"\0+")


def _read(data: bytes, order: str, start: int, most: int) -> Page:
    """
    Args:
        start: of the directory.
        most: entries that are read.

    Raises:
        RejectError: `damaged-image`.
        struct.error: it is cut.
    """
    counting, entry, pointer, word = ("Q", "HHQ", "Q", 8) if _is_big(data) else ("H", "HHI", "I", 4)
    if start >= len(data):
        raise struct.error
    (entries,) = struct.unpack_from(order + counting, data, start)
    start += struct.calcsize(counting)
    length = struct.calcsize("=" + entry) + word
    tags: dict[int, tuple[int, ...]] = {}
    orientation, profile, loaded = 0, b"", 0
    for number in range(min(entries, most)):
        place = start + number * length
        tag, kind, count = struct.unpack_from(order + entry, data, place)
        place += length - word
        size = count * _SIZES.get(kind, 0)
        if size > word:
            (place,) = struct.unpack_from(order + pointer, data, place)
            loaded += max(0, min(size, len(data) - place))
            if loaded > len(data):  # who loads every tag would read the file again and again
                raise RejectError("damaged-image", f"TIFF: tags of more than the {len(data)} bytes of the file")
        if kind in _INTEGERS and tag in _READ and 0 < count <= _MOST_VALUES and place + size <= len(data):
            tags[tag] = struct.unpack_from(f"{order}{count}{_INTEGERS[kind]}", data, place)
            if tag == ORIENTATION and kind in (3, 4):
                orientation = place
        if tag == DNG_VERSION:
            tags[tag] = (1,)
        if tag == PROFILE:
            profile = data[place : place + size]
    end = start + entries * length
    following = struct.unpack_from(order + pointer, data, end)[0] if end + word <= len(data) else 0
    return Page(order=order, tags=tags, orientation=orientation, profile=profile, following=following)
