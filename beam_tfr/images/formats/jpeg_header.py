"""Reads JPEG headers (ITU-T T.81, annex B), and makes copies that libjpeg decodes without
warnings."""

import dataclasses
import struct

from beam_tfr.images.containers import jpeg
from beam_tfr.schema.errors import RejectError

# Markers of frames (table B.1; JPEG-LS)
_LOSSLESS = 0xC3
_PROGRESSIVE = 0xC2
_ARITHMETIC_PROGRESSIVE = 0xCA
_READ = frozenset((0xC0, 0xC1, _PROGRESSIVE, _LOSSLESS, 0xC9, _ARITHMETIC_PROGRESSIVE))
_NOT_READ = frozenset((*range(0xC5, 0xC9), 0xCB, *range(0xCD, 0xD0), 0xDE, 0xDF, 0xF7))
_DECODING = _READ | {0xC4, 0xCC, 0xDB, 0xDD}  # frame, tables and restart interval
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_JFIF = b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"


@dataclasses.dataclass(slots=True)
class Header:
    """Everything before the data of the first scan.

    Attributes:
        process: which SOF marker, 0xC0 to 0xCF.
        precision: bits of a sample.
        height, width: in pixels.
        components: their ids.
        sampling: factors of each component, across and down.
        exif: the first EXIF block, from its TIFF header on; empty without one.
        xmp: the first XMP packet; empty without one.
        profile_parts: ICC profile segments without their name: number, count, data.
        adobe: color transform of the Adobe marker; -1 without one.
        jfif: whether there is a JFIF marker.
        stray: bytes between segments that belong to none.
        tables: start and end of each segment that decoding needs.
        first_scan: where the first SOS marker begins.
    """

    process: int = 0
    precision: int = 0
    height: int = 0
    width: int = 0
    components: tuple[int, ...] = ()
    sampling: tuple[tuple[int, int], ...] = ()
    exif: bytes = b""
    xmp: bytes = b""
    profile_parts: list[bytes] = dataclasses.field(default_factory=list)
    adobe: int = -1
    jfif: bool = False
    stray: int = 0
    tables: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    first_scan: int = 0

    @property
    def lossless(self) -> bool:
        return self.process == _LOSSLESS

    @property
    def samples(self) -> int:
        """Samples of all components, as stored."""
        widest = max((across * down for across, down in self.sampling), default=1)
        return sum(
            self.height * self.width * across * down // max(1, widest)
            for across, down in self.sampling
        )

    @property
    def progressive(self) -> bool:
        return self.process in (_PROGRESSIVE, _ARITHMETIC_PROGRESSIVE)


def read_header(data: bytes) -> Header:
    """Reads a JPEG up to its first scan.

    Args:
        data: a file that begins with an SOI marker.

    Raises:
        RejectError: `damaged-image`: the file ends before a scan, or is not made of segments;
            `unsupported-image`: a kind of JPEG that no decoder here reads.
    """
    header = Header()
    end = 2
    for segment in jpeg.segments(data):
        marker = segment.marker
        if segment.begin > end:
            header.stray += len(data[end : segment.begin].rstrip(b"\xff"))
        end = segment.end
        if marker in _NOT_READ:
            raise RejectError(
                "unsupported-image", f"JPEG with marker 0x{marker:02x}: hierarchical or JPEG-LS"
            )
        if marker == jpeg.SOS:
            if not header.process or segment.start == segment.end:
                raise RejectError("damaged-image", "JPEG: a scan before any frame, or of nothing")
            header.first_scan = segment.begin
            return header
        _read_segment(header, marker, data[segment.start : segment.end])
        if marker in _DECODING:
            header.tables.append((segment.begin, segment.end))
    raise RejectError("damaged-image", "JPEG: ends before any scan")


def _read_segment(header: Header, marker: int, payload: bytes) -> None:
    if marker in _READ:
        if len(payload) < 6:
            raise RejectError("damaged-image", "JPEG: its frame header is not whole")
        header.process = marker
        header.precision, header.height, header.width = struct.unpack_from(">BHH", payload)
        header.components = tuple(payload[6::3])
        header.sampling = tuple((factors >> 4, factors & 15) for factors in payload[7::3])
        if not header.height or not header.width:
            raise RejectError("unsupported-image", "JPEG without its size before the first scan")
    elif marker == jpeg.APP1 and payload.startswith(b"Exif\0\0"):
        header.exif = header.exif or payload[6:]
    elif marker == jpeg.APP1 and payload.startswith(_XMP):
        header.xmp = header.xmp or payload[len(_XMP) :]
    elif marker == jpeg.APP2 and payload.startswith(b"ICC_PROFILE\0"):
        header.profile_parts.append(payload[12:])
    elif marker == jpeg.APP0 and len(payload) >= 14 and payload.startswith(b"JFIF\0"):
        header.jfif = True
    elif marker == jpeg.APP14 and len(payload) >= 12 and payload.startswith(b"Adobe"):
        header.adobe = payload[11]


def count_scans(data: bytes, header: Header) -> int:
    """Counts the scans of the image, without thumbnails and pictures after it.

    Raises:
        RejectError: `damaged-image`: no EOI marker, too many segments, or a component has no scan.
    """
    if not header.progressive and data[header.first_scan + 4] == len(header.components):
        return 1  # libjpeg takes a second one for an error
    count = 0
    components = set[int]()
    for segment in jpeg.segments(data, header.first_scan):
        if segment.marker == jpeg.SOS:
            count += 1
            if not header.progressive or data[segment.end - 3 : segment.end - 2] == b"\0":
                components.update(data[segment.start + 1 : segment.end - 3 : 2])
    missing = set(header.components) - components
    if missing:
        raise RejectError("damaged-image", f"JPEG: no scan of component {min(missing)}")
    return count


def join_profile(parts: list[bytes]) -> bytes | None:
    """Joins the ICC profile of APP2 segments (ICC.1, annex B.4) in the order of their numbers.

    Returns:
        Empty without parts; None when parts are missing, doubled or empty.
    """
    if not parts:
        return b""
    if any(len(part) < 2 or part[1] != len(parts) for part in parts):
        return None
    if sorted(part[0] for part in parts) != list(range(1, len(parts) + 1)):
        return None
    return b"".join(part[2:] for part in sorted(parts, key=lambda part: part[0])) or None


def without_oddities(data: bytes, header: Header) -> bytes:
    """Copies only what is needed to decode an image, in a form that libjpeg does not warn about.

    Metadata and stray bytes are left out. An unknown color transform becomes the one that libjpeg
    assumes; parameters of a sequential scan that mean nothing become those of the standard.
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
        for segment in jpeg.segments(data, header.first_scan):
            if segment.marker == jpeg.SOS:
                end = segment.end - header.first_scan
                scans[end - 3 : end] = b"\0\x3f\0"
    return b"".join([*parts, scans])


def without_padding(data: bytes, stray: int) -> bytes | None:
    """Copies an image without `stray` bytes before its EOI marker; None where they are not all 0x00
    or 0xFF.

    Those are what cameras leave. Any others are as likely the end of image data that a damage made
    shorter.
    """
    *_, last = jpeg.segments(data, read_header(data).first_scan)
    end = last.begin  # of EOI
    image = data[:end].rstrip(b"\xff")  # without fill bytes, which belong to the marker
    return None if image[-stray:].strip(b"\0\xff") else image[:-stray] + data[end:]
