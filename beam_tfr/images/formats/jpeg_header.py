"""Reads JPEG headers (ITU-T T.81, annex B), and makes copies that libjpeg does not warn about."""

import dataclasses
import struct

from beam_tfr.images.containers import jpeg
from beam_tfr.schema.errors import RejectError

# Markers of frames (table B.1; JPEG-LS)
_LOSSLESS = 0xC3
_PROGRESSIVE = (0xC2, 0xCA)  # with Huffman or arithmetic codes
_FRAMES = frozenset((0xC0, 0xC1, 0xC9, _LOSSLESS, *_PROGRESSIVE))
_UNSUPPORTED = frozenset((*range(0xC5, 0xC9), 0xCB, *range(0xCD, 0xD0), 0xDE, 0xDF, 0xF7))
_NEEDED = _FRAMES | {0xC4, 0xCC, 0xDB, 0xDD}  # for decoding: frame, tables and restart interval
_EXIF = b"Exif\0\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_ICC = b"ICC_PROFILE\0"
_SOI = b"\xff\xd8"
_JFIF = b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
_ADOBE = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0%c"  # with its color transform
# Color transforms of the Adobe marker; 0 means none.
_YCC = 1
_YCCK = 2


@dataclasses.dataclass(slots=True)
class Header:
    """Everything before the data of the first scan.

    Attributes:
        process: number of the SOF marker, 0xC0 to 0xCF.
        precision: bits per sample.
        height, width: in pixels.
        components: ids of the components.
        sampling: sampling factors of each component, across and down.
        exif: the first EXIF block, from its TIFF header on, or empty bytes.
        xmp: the first XMP packet, or empty bytes.
        profile_parts: segments of the ICC profile without their name; each has a number, a count
            and data.
        adobe_transform: color transform of the Adobe marker; None if there is no such marker.
        jfif: whether there is a JFIF marker.
        stray: number of bytes between segments that belong to no segment.
        needed: start and end of each segment that decoding needs.
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
    adobe_transform: int | None = None
    jfif: bool = False
    stray: int = 0
    needed: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    first_scan: int = 0

    @property
    def is_lossless(self) -> bool:
        return self.process == _LOSSLESS

    @property
    def is_progressive(self) -> bool:
        return self.process in _PROGRESSIVE

    @property
    def samples(self) -> int:
        """The total number of samples in all components, as stored."""
        blocks = [across * down for across, down in self.sampling]
        largest = max([1, *blocks])
        return sum(self.height * self.width * block // largest for block in blocks)


def read_header(data: bytes) -> Header:
    """Reads a JPEG up to its first scan.

    Args:
        data: a file that begins with an SOI marker.

    Raises:
        RejectError: `damaged-image`: the file ends before a scan, or does not consist of segments;
            `unsupported-image`: none of the decoders reads this kind of JPEG.
    """
    header = Header()
    end = 2
    for segment in jpeg.segments(data):
        marker = segment.marker
        between = data[end : segment.begin].rstrip(b"\xff")  # without fill bytes
        header.stray += len(between)
        end = segment.end
        if marker in _UNSUPPORTED:
            raise RejectError(
                "unsupported-image", f"JPEG with marker 0x{marker:02x}: hierarchical or JPEG-LS"
            )
        if marker == jpeg.SOS:
            if not header.process or segment.start == segment.end:
                raise RejectError("damaged-image", "JPEG: a scan is empty, or before any frame")
            header.first_scan = segment.begin
            return header
        payload = data[segment.start : segment.end]
        if marker in _FRAMES:
            _read_frame(header, marker, payload)
        else:
            _read_metadata(header, marker, payload)
        if marker in _NEEDED:
            header.needed.append((segment.begin, segment.end))
    raise RejectError("damaged-image", "JPEG: ends before any scan")


def _read_frame(header: Header, marker: int, payload: bytes) -> None:
    if len(payload) < 6:
        raise RejectError("damaged-image", "JPEG: its frame header is incomplete")
    header.process = marker
    header.precision, header.height, header.width = struct.unpack_from(">BHH", payload)
    header.components = tuple(payload[6::3])
    header.sampling = tuple(divmod(factors, 16) for factors in payload[7::3])
    if not header.height or not header.width:
        raise RejectError("unsupported-image", "JPEG: its size is missing before the first scan")


def _read_metadata(header: Header, marker: int, payload: bytes) -> None:
    """Reads an application segment; ignores other segments and unknown applications."""
    match marker:
        case jpeg.APP0 if len(payload) >= 14:
            header.jfif |= payload.startswith(b"JFIF\0")
        case jpeg.APP1 if payload.startswith(_EXIF):
            header.exif = header.exif or payload.removeprefix(_EXIF)
        case jpeg.APP1 if payload.startswith(_XMP):
            header.xmp = header.xmp or payload.removeprefix(_XMP)
        case jpeg.APP2 if payload.startswith(_ICC):
            header.profile_parts.append(payload.removeprefix(_ICC))
        case jpeg.APP14 if len(payload) >= 12 and payload.startswith(b"Adobe"):
            header.adobe_transform = payload[11]


def count_scans(data: bytes, header: Header) -> int:
    """Counts the scans of the image, but not those of thumbnails and later pictures.

    Raises:
        RejectError: `damaged-image`: there is no EOI marker, there are too many segments, or a
            component has no scan.
    """
    components_of_first = data[header.first_scan + 4]
    if components_of_first == len(header.components) and not header.is_progressive:
        return 1  # libjpeg treats a second one as an error
    count = 0
    missing = set(header.components)
    for segment in jpeg.scan_headers(data, header.first_scan):
        count += 1
        spectral_start = data[segment.end - 3 : segment.end - 2]
        if spectral_start == b"\0" or not header.is_progressive:
            missing.difference_update(data[segment.start + 1 : segment.end - 3 : 2])
    if missing:
        raise RejectError("damaged-image", f"JPEG: no scan of component {min(missing)}")
    return count


def join_profile(parts: list[bytes]) -> bytes | None:
    """Joins the parts of the ICC profile in APP2 segments, in the order of their numbers.

    See ICC.1, annex B.4.

    Returns:
        The profile; empty bytes if there are no parts, None if parts are missing, repeated or
        empty.
    """
    if not parts:
        return b""
    ordered = sorted(parts, key=lambda part: part[:1])
    numbers = [tuple(part[:2]) for part in ordered]
    if numbers != [(number, len(parts)) for number in range(1, len(parts) + 1)]:
        return None
    return b"".join(part[2:] for part in ordered) or None


def without_oddities(data: bytes, header: Header) -> bytes:
    """Copies the parts that decoding an image needs, in a form about which libjpeg does not warn.

    Leaves out metadata and stray bytes. Replaces an unknown color transform with the one that
    libjpeg assumes, and meaningless parameters of a sequential scan with standard parameters.
    """
    parts = [_SOI]
    if header.jfif:
        parts.append(_JFIF)
    if header.adobe_transform is not None:
        assumed = _YCCK if len(header.components) == 4 else _YCC
        parts.append(_ADOBE % (assumed if header.adobe_transform else 0))
    parts += [data[start:end] for start, end in header.needed]
    scans = bytearray(data[header.first_scan :])
    if not header.is_progressive and not header.is_lossless:
        for segment in jpeg.scan_headers(data, header.first_scan):
            end = segment.end - header.first_scan
            scans[end - 3 : end] = b"\0\x3f\0"
    return b"".join([*parts, scans])


def without_padding(data: bytes, stray: int) -> bytes | None:
    """Copies an image without `stray` bytes before its EOI marker; None if these are not padding.

    Cameras pad with 0x00 or 0xFF. Any other bytes may as well be the end of image data that damage
    has shortened.
    """
    *_, last = jpeg.segments(data, read_header(data).first_scan)
    end = last.begin  # of EOI
    image = data[:end].rstrip(b"\xff")  # without fill bytes, which belong to the marker
    padding = image[-stray:]
    if padding.strip(b"\0\xff"):
        return None
    return image[:-stray] + data[end:]
