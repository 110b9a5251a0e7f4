"""Sizes in AVIF files: those that the container says (ISO/IEC 23008-12) and those of the frames (AV1, section 5.5)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from beam_tfr.images.containers.chunks import boxes, inside

_SEQUENCE_HEADER = 1
_MAX_ITEMS = 1 << 16


def sizes_said(data: bytes) -> set[tuple[int, int]]:
    """(width, height) of all items, as the properties of the file say."""
    properties = inside(inside(_meta(data), b"iprp"), b"ipco")
    found = [bytes(box.content[4:12]).ljust(8, b"\0") for box in boxes(properties) if box.kind == b"ispe"]
    return {(width, height) for width, height in map(struct.Struct(">II").unpack, found)}


def frame_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the largest (width, height) of the frames of each item; without items that say when frames are shown."""
    meta = _meta(data)
    places, held = inside(meta, b"iloc").ljust(8, b"\0"), inside(meta, b"idat")
    version, sizes, more_sizes = places[0], places[4], places[5]
    wide = 4 if version > 1 else 2  # bytes of an item's number
    reader = _Bits(places, 8 * 6)
    for _ in range(min(_MAX_ITEMS, reader.take(8 * wide))):
        reader.take(8 * wide)
        method = reader.take(16) & 15 if version else 0
        reader.take(16)
        base = reader.take(8 * (more_sizes >> 4))
        starts = []
        for _ in range(reader.take(16)):
            reader.take(8 * (more_sizes & 15) if version else 0)
            starts.append(base + reader.take(8 * (sizes >> 4)))
            reader.take(8 * (sizes & 15))
        for start in starts[:1]:
            source = held if method == 1 else data
            if header := _sequence_header(source[start : start + 256]):
                yield from _frame_size(_Bits(header))


class _Bits:
    """Reads numbers of any number of bits; zeros behind the end."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data, self._place = data, place

    def take(self, bits: int) -> int:
        begin, self._place = self._place, self._place + bits
        part = self._data[begin // 8 : -(-self._place // 8)].ljust(-(-self._place // 8) - begin // 8, b"\0")
        return int.from_bytes(part, "big") >> -self._place % 8 & (1 << bits) - 1


def _meta(data: bytes) -> bytes:
    return inside(data, b"meta")[4:]


def _sequence_header(data: bytes) -> bytes:
    """The first sequence header of an item; empty for items that are not AV1."""
    while data:
        kind, extended, sized = data[0] >> 3 & 15, data[0] >> 2 & 1, data[0] >> 1 & 1
        start, length, shift = 1 + extended, 0, 0
        while sized and start < len(data):  # seven bits a byte
            length |= (data[start] & 127) << shift
            start, shift = start + 1, shift + 7
            if data[start - 1] < 128:
                break
        if kind == _SEQUENCE_HEADER:
            return data[start:]
        if not sized or kind == 0:
            break
        data = data[start + length :]
    return b""


def _frame_size(header: _Bits) -> Iterator[tuple[int, int]]:
    header.take(4)
    if header.take(1):  # a reduced header of a still picture
        header.take(5)
    else:
        timed, delayed = header.take(1), header.take(1)
        if timed:
            return
        for _ in range(header.take(5) + 1):
            header.take(12)
            header.take(header.take(5) > 7)
            header.take(4 * (delayed and header.take(1)))
    width_bits, height_bits = header.take(4) + 1, header.take(4) + 1
    yield header.take(width_bits) + 1, header.take(height_bits) + 1
