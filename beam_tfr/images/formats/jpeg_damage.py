"""Counts the rows of JPEGs that end early."""

import re
import zlib

import simplejpeg

from beam_tfr.images.containers import jpeg
from beam_tfr.images.formats.jpeg_header import Header
from beam_tfr.images.source import detail
from beam_tfr.schema.errors import RejectError

_ZEROS = re.compile(rb"\0{16,}\Z")
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_END = b"\xff\xd9"
_FILLER = bytes(range(1, 128))  # further data of a scan, without a marker
_INVERTED = bytes(
    255 - byte for byte in _FILLER
)  # whose first bit differs, and so the first code that needs it


def complete(data: bytes) -> bytes:
    """Returns a JPEG that has an EOI marker unchanged, else with one after its last whole segment
    or data.

    Many zeros at the end are left out: a download that broke off leaves them.
    """
    end = 2
    try:
        for segment in jpeg.segments(data):
            end = segment.end
    except RejectError:
        rest = jpeg.MARKER.search(data, end)  # of a segment that is not whole
        return _ZEROS.sub(b"", data[: rest.start() if rest else len(data)]).rstrip(b"\xff") + _END
    return data


def count_rows(data: bytes, header: Header, colorspace: str) -> int:
    """Counts the rows from the top that no further data could change.

    The image is decoded twice, with other data after its own.

    Args:
        data: from `complete`, with an EOI marker at its end.
        header: its header.
        colorspace: to decode to.

    Raises:
        RejectError: `damaged-image`: it does not decode, or lacks whole scans.
    """
    last_scan = _check_scans(data, header)
    restart = b"\xff" + bytes(
        [0xD0 + len(_RESTART.findall(data, last_scan)) % 8]
    )  # if it ends before this marker
    checksums = []
    for filler in (_FILLER, _INVERTED):
        longer = b"".join((data.removesuffix(_END), filler, restart, filler, _END))
        try:
            pixels = simplejpeg.decode_jpeg(longer, colorspace, strict=False)
        except ValueError as error:
            raise RejectError("damaged-image", f"JPEG: {detail(error)}") from error
        checksums.append([zlib.crc32(row) for row in pixels])
        del pixels
    same = [first == second for first, second in zip(*checksums, strict=True)]
    return [*same, False].index(False)


def _check_scans(data: bytes, header: Header) -> int:
    """Checks that a scan has the last bit of every coefficient; returns where the data of the last
    scan begin."""
    last_scan = header.first_scan
    missing = {(component, place) for component in header.components for place in range(64)}
    for segment in jpeg.segments(data, header.first_scan):
        if segment.marker == jpeg.SOS and segment.end - segment.start >= 6:
            last_scan = segment.end
            *components, first, last, bits = data[segment.start + 1 : segment.end]
            if not header.progressive:
                first = 0
                last = 63
                bits = 0
            if not bits & 15:
                missing -= {
                    (component, place)
                    for component in components[::2]
                    for place in range(first, last + 1)
                }
    if missing:
        raise RejectError("damaged-image", "JPEG: its last scans are missing")
    return last_scan
