"""Counts the rows of JPEGs that end early."""

import itertools
import re
import zlib

import simplejpeg

from beam_tfr.images.containers import jpeg
from beam_tfr.images.formats.jpeg_header import Header
from beam_tfr.images.source import describe_error
from beam_tfr.schema.errors import RejectError

_ZEROS = re.compile(rb"\0{16,}\Z")
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_EOI = b"\xff\xd9"
_FILLER = bytes(range(1, 128))  # further data of a scan, without a marker
# Its first bit differs, and so the first code that needs it.
_INVERTED_FILLER = bytes(255 - byte for byte in _FILLER)
_COEFFICIENTS = 64  # of a block


def complete_file(data: bytes) -> bytes:
    """Appends an EOI marker to a JPEG, unless it has one.

    It goes after the last whole segment or data.

    Many zeros at the end are left out: a download that broke off leaves them.
    """
    end = 2
    try:
        for segment in jpeg.segments(data):
            end = segment.end
    except RejectError:
        broken = jpeg.MARKER.search(data, end)  # of a segment that is not whole
        if broken is not None:
            data = data[: broken.start()]
        return _ZEROS.sub(b"", data).rstrip(b"\xff") + _EOI
    return data


def count_rows(data: bytes, header: Header, colorspace: str) -> int:
    """Counts the rows from the top that no further data could change.

    The image is decoded twice, with other data after its own.

    Args:
        data: from `complete_file`, with an EOI marker at its end.
        header: its header.
        colorspace: to decode to.

    Raises:
        RejectError: `damaged-image`: it does not decode, or lacks whole scans.
    """
    scans = _find_scans(data, header)
    _check_scans(data, header, scans)
    restarts = len(_RESTART.findall(data, scans[-1].end))
    restart = bytes((0xFF, 0xD0 + restarts % 8))  # if it ends before this marker
    checksums = []
    for filler in (_FILLER, _INVERTED_FILLER):
        longer = b"".join((data.removesuffix(_EOI), filler, restart, filler, _EOI))
        try:
            pixels = simplejpeg.decode_jpeg(longer, colorspace, strict=False)
        except ValueError as error:
            raise RejectError("damaged-image", f"JPEG: {describe_error(error)}") from error
        checksums.append([zlib.crc32(row) for row in pixels])
        del pixels
    rows = 0
    for first, second in zip(*checksums, strict=True):
        if first != second:
            break
        rows += 1
    return rows


def _find_scans(data: bytes, header: Header) -> list[jpeg.Segment]:
    """The segments that begin scans.

    Segments that lack a component or a parameter are left out.
    """
    segments = jpeg.scan_headers(data, header.first_scan)
    return [segment for segment in segments if segment.end - segment.start >= 6]


def _check_scans(data: bytes, header: Header, scans: list[jpeg.Segment]) -> None:
    """Checks that the scans hold every coefficient to its last bit.

    This holds for each component.
    """
    missing = set(itertools.product(header.components, range(_COEFFICIENTS)))
    for scan in scans:
        *selectors, first, last, approximation = data[scan.start + 1 : scan.end]
        components = selectors[::2]  # behind each the numbers of its tables
        missing_bits = approximation & 15
        if not header.is_progressive:
            coefficients = range(_COEFFICIENTS)
        elif missing_bits == 0:
            coefficients = range(first, last + 1)
        else:
            continue
        missing.difference_update(itertools.product(components, coefficients))
    if missing:
        raise RejectError("damaged-image", "JPEG: its last scans are missing")
