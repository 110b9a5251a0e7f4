"""The markers of a JPEG (ITU-T T.81, annex B), read as libjpeg reads them, so that both see the same image."""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema import RejectError

_LOSSLESS, _PROGRESSIVE, _ARITHMETIC_PROGRESSIVE = 0xC3, 0xC2, 0xCA
_READ = {
    0xC0: "baseline",
    0xC1: "sequential",
    _PROGRESSIVE: "progressive",
    _LOSSLESS: "lossless",
    0xC9: "sequential arithmetic",
    _ARITHMETIC_PROGRESSIVE: "progressive arithmetic",
}
_NOT_READ = {
    **dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF, 0xDE, 0xDF), "hierarchical JPEG"),
    0xCB: "lossless JPEG with arithmetic coding",
    0xC8: "JPEG extension",
    0xF7: "JPEG-LS",
}
_SOI, EOI, SOS, _APP0, _APP1, _APP2, _APP14 = 0xD8, 0xD9, 0xDA, 0xE0, 0xE1, 0xE2, 0xEE
_BARE = (0x01, *range(0xD0, 0xD8))  # TEM and RSTn, markers without a segment
_DECODING = (*_READ, 0xC4, 0xCC, 0xDB, 0xDD)  # frame, tables and restart interval
MAX_SCANS = 4 * 64 * 14  # each component, coefficient and bit of it in a scan of its own
MAX_SEGMENTS = 1 << 15  # enough for that, and for 64 MiB of metadata in segments of ordinary size
_MARKER = re.compile(rb"\xff([^\0\xff])")  # any 0xFF before it are fill bytes
_SCAN_END = re.compile(rb"\xff([^\0\xd0-\xd7\xff])")
_JFIF = b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"


class Segment(NamedTuple):
    """A marker with its payload: `data[start:end]`; `begin` is where the marker itself begins."""

    marker: int
    begin: int
    start: int
    end: int


@dataclasses.dataclass(slots=True)
class Header:
    """All before the data of the first scan.

    Attributes:
        process: 0xC0 to 0xCF: which SOF marker.
        precision: bits of a sample.
        height, width: in pixels.
        components: their ids.
        sampling: factors of each, across and down.
        exif: payload of the first APP1 that has one, from its TIFF header on; empty without.
        profile_parts: payloads of APP2 segments of ICC profiles, without their name: number, of how many, data.
        adobe: byte that tells the colour transform, -1 without an Adobe marker.
        jfif: whether there is a JFIF marker.
        stray: bytes between segments that belong to none.
        tables: start and end of each segment that is needed for decoding.
        first_scan: where the first SOS marker begins.
    """

    process: int = 0
    precision: int = 0
    height: int = 0
    width: int = 0
    components: tuple[int, ...] = ()
    sampling: tuple[tuple[int, int], ...] = ()
    exif: bytes = b""
    profile_parts: list[bytes] = dataclasses.field(default_factory=list)
    adobe: int = -1
    jfif: bool = False
    stray: int = 0
    tables: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    first_scan: int = 0

    @property
    def kind(self) -> str:
        return f"{_READ[self.process]} JPEG of {self.precision} bits a sample"

    @property
    def lossless(self) -> bool:
        return self.process == _LOSSLESS

    @property
    def progressive(self) -> bool:
        return self.process in (_PROGRESSIVE, _ARITHMETIC_PROGRESSIVE)


def read_header(data: bytes) -> Header:
    """
    Args:
        data: a file that begins with an SOI marker.

    Raises:
        RejectError: `damaged-image`: ends within, or is not made of segments; `unsupported-image`: a kind of JPEG that
            no decoder here reads.
    """
    header, position = Header(), 2
    for _ in range(MAX_SEGMENTS):
        found = _MARKER.search(data, position)
        if found is None:
            raise RejectError("damaged-image", f"JPEG: ends after {len(data)} bytes, within its header")
        if found.start() > position:
            header.stray += len(data[position : found.start()].rstrip(b"\xff"))
        marker, start = found[1][0], found.end()
        if marker in _NOT_READ:
            raise RejectError("unsupported-image", _NOT_READ[marker])
        if marker in _BARE:
            position = start
            continue
        if marker in (_SOI, EOI):
            raise RejectError("damaged-image", f"JPEG: marker 0x{marker:02x} before any scan")
        position = start + int.from_bytes(data[start : start + 2], "big")
        if position < start + 2 or position > len(data):
            raise RejectError("damaged-image", f"JPEG: segment 0x{marker:02x} is not whole")
        if marker == SOS:
            if not header.process or position == start + 2:
                raise RejectError("damaged-image", "JPEG: a scan before any frame, or of nothing")
            header.first_scan = found.start()
            return header
        _read_segment(header, marker, data[start + 2 : position])
        if marker in _DECODING:
            header.tables.append((found.start(), position))
    raise RejectError("damaged-image", f"JPEG: more than {MAX_SEGMENTS} segments")


def _read_segment(header: Header, marker: int, payload: bytes) -> None:
    if marker in _READ:
        if len(payload) < 6:
            raise RejectError("damaged-image", "JPEG: its frame header is not whole")
        header.process = marker
        header.precision, header.height, header.width = struct.unpack_from(">BHH", payload)
        header.components = tuple(payload[6::3])
        header.sampling = tuple((factors >> 4, factors & 15) for factors in payload[7::3])
        if not header.width:
            raise RejectError("damaged-image", "JPEG: of no width")
        if not header.height:
            raise RejectError("unsupported-image", "JPEG whose height stands behind its first scan (DNL)")
    elif marker == _APP1 and payload.startswith(b"Exif\0\0"):
        header.exif = header.exif or payload[6:]
    elif marker == _APP2 and payload.startswith(b"ICC_PROFILE\0"):
        header.profile_parts.append(payload[12:])
    elif marker == _APP0 and len(payload) >= 14 and payload.startswith(b"JFIF\0"):
        header.jfif = True
    elif marker == _APP14 and len(payload) >= 12 and payload.startswith(b"Adobe"):
        header.adobe = payload[11]


def segments_from(data: bytes, first_scan: int) -> Iterator[Segment]:
    """All from the first scan on, up to and with the EOI marker; without the data of the scans.

    Raises:
        RejectError: `damaged-image`: there is no end of them.
    """
    position = first_scan
    for _ in range(MAX_SEGMENTS):
        found = _SCAN_END.search(data, position)
        if found is None:
            return
        marker, start = found[1][0], found.end()
        position = start if marker in _BARE or marker == EOI else _end_of(data, start)
        yield Segment(marker, found.start(), start + 2, position)
        if marker == EOI:
            return
    raise RejectError("damaged-image", f"JPEG: more than {MAX_SEGMENTS} segments")


def count_scans(data: bytes, header: Header) -> int:
    """Counts what a decoder goes through; thumbnails before and pictures behind the image do not count.

    Raises:
        RejectError: `too-many-scans`: more than any image can use, whatever its size; `damaged-image`: no EOI marker,
            or a component has no scan.
    """
    first = next(segments_from(data, header.first_scan))
    if not header.progressive and data[first.start] == len(header.components):
        return 1  # libjpeg takes a second one for an error
    count, components = 0, set[int]()
    for segment in segments_from(data, header.first_scan):
        if segment.marker == EOI:
            break
        if segment.marker == SOS:
            count += 1
            if count > MAX_SCANS:
                raise RejectError("too-many-scans", f"more than {MAX_SCANS} scans, more than any image can use")
            if not header.progressive or data[segment.end - 3 : segment.end - 2] == b"\0":
                components.update(data[segment.start + 1 : segment.end - 3 : 2])
    else:
        raise RejectError("damaged-image", "JPEG: ends without an EOI marker")
    if missing := set(header.components) - components:
        raise RejectError("damaged-image", f"JPEG: no scan of component {min(missing)}")
    return count


def join_profile(parts: list[bytes]) -> bytes | None:
    """The ICC profile of APP2 segments (ICC.1, annex B.4), in the order of their numbers.

    Returns:
        Empty without parts; None when some are missing or doubled, or hold nothing.
    """
    if not parts:
        return b""
    if any(len(part) < 2 or part[1] != len(parts) for part in parts):
        return None
    if sorted(part[0] for part in parts) != list(range(1, len(parts) + 1)):
        return None
    return b"".join(part[2:] for part in sorted(parts, key=lambda part: part[0])) or None


def without_oddities(data: bytes, header: Header) -> bytes:
    """The same image with a header of nothing but what decoding needs, in the form that libjpeg does not warn of.

    Metadata and stray bytes are left out. An unknown colour transform becomes the one that libjpeg assumes, parameters
    of a sequential scan that mean nothing become those that the standard wants.
    """
    parts = [b"\xff\xd8"]
    if header.jfif:
        parts.append(_JFIF)
    if header.adobe >= 0:
        known, assumed = ((0, 2), 2) if len(header.components) == 4 else ((0, 1), 1)
        transform = header.adobe if header.adobe in known else assumed
        parts.append(b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([transform]))
    parts += [data[start:end] for start, end in header.tables]
    scans = bytearray(data[header.first_scan :])
    if not (header.progressive or header.lossless):
        for segment in segments_from(data, header.first_scan):
            if segment.marker == SOS and segment.end <= len(data):
                end = segment.end - header.first_scan
                scans[end - 3 : end] = b"\0\x3f\0"
    return b"".join([*parts, scans])


def without_padding(data: bytes, stray: int) -> bytes | None:
    """The same image without so many bytes before its EOI marker; None where others than 0x00 and 0xFF are there.

    Those are what cameras leave. Any others are as likely the end of image data that a damage made shorter.
    """
    first_scan = read_header(data).first_scan
    end = next((segment.begin for segment in segments_from(data, first_scan) if segment.marker == EOI), len(data))
    image = data[:end].rstrip(b"\xff")  # without fill bytes, which belong to the marker
    return None if image[-stray:].strip(b"\0\xff") else image[:-stray] + data[end:]


def _end_of(data: bytes, start: int) -> int:
    """Where the segment ends whose length stands at `start`; behind the length itself at least."""
    return start + max(2, int.from_bytes(data[start : start + 2], "big"))
