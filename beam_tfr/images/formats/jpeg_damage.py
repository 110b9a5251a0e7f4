"""Finds what is there of JPEGs that lack their end marker.

Their data may end early, and other bytes may follow it: a thumbnail, the video of a motion photo,
or what a disk held before.
"""

import bisect
import itertools
import re
import zlib
from typing import NamedTuple

import simplejpeg

from beam_tfr.images.containers import jpeg
from beam_tfr.images.formats.jpeg_header import Header, has_one_scan
from beam_tfr.images.source import Pixels, describe_error
from beam_tfr.schema.errors import RejectError

_ZEROS = re.compile(rb"\0{16,}\Z")
_TEXT = re.compile(rb"[\t\n\r -~]{64,}\Z")
_TEXT_VALUES = 6  # of its bytes, at least: the codes of a flat area repeat fewer
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_SCAN_CODE = re.compile(rb"\xff[\0\xd0-\xd7]")  # in data of scans, and hardly in other bytes
# What may stand between two scans: tables, restart intervals, comments, metadata.
_BETWEEN_SCANS = frozenset((0xC4, 0xCC, 0xDB, 0xDC, 0xDD, *range(0xE0, 0xF0), 0xFE))
_FOLLOWING = (jpeg.EOI, jpeg.SOS)  # markers after the last scan that do not begin other bytes
_EOI = b"\xff\xd9"
_FILLER = bytes(range(1, 128))  # further data of a scan, without a marker
# Its first bit differs, and so the first code that needs it.
_INVERTED_FILLER = bytes(255 - byte for byte in _FILLER)
_COEFFICIENTS = 64  # of a block
_UNTOLD = 16  # bytes behind a picture, which are too few to say what they are
_COMPARED = 256  # bytes before the end of a picture, and behind it
_MAX_VALUES = 64  # of the compared bytes behind it: more of them tell nothing
_ALIKE_SHARE = 0.9  # of the compared bytes before it: those that have these values


class CompleteFile(NamedTuple):
    """A JPEG that ends with an EOI marker after the data of its last scan.

    Attributes:
        data: the file.
        other_bytes: how many followed the data where EOI should be, from a marker on.
    """

    data: bytes
    other_bytes: int


def complete_file(data: bytes, header: Header) -> CompleteFile | None:
    """Puts an EOI marker after the data of the last scan; None if it, or one scan more, is there.

    Zeros and text at the end of the data, as broken downloads and some trailers leave, are no data.

    Args:
        data: the file.
        header: its header.
    """
    start = _find_last_scan(data, header)
    marker = jpeg.MARKER.search(data, start)
    end = len(data)
    if marker is not None:
        end = marker.start()
        if marker[1][0] in _FOLLOWING:
            return None
    scan = _without_text(_ZEROS.sub(b"", data[start:end])).rstrip(b"\xff")
    return CompleteFile(data[:start] + scan + _EOI, len(data) - end)


def count_other_bytes(data: bytes, header: Header) -> int:
    """Counts the bytes that follow the data of the last scan where EOI should be.

    They begin with a marker, zeros or text; other bytes look like data of the scan.
    """
    completed = complete_file(data, header)
    if completed is None:
        return 0
    others = len(data) - len(completed.data.removesuffix(_EOI))
    return others if others >= _UNTOLD else 0


def _find_last_scan(data: bytes, header: Header) -> int:
    """The place where the data of the last scan begins.

    Nothing behind a marker that cannot stand between scans is looked at: it belongs to another
    picture, or to none.
    """
    start = header.first_scan
    try:
        for segment in jpeg.segments(data, header.first_scan):
            if segment.marker == jpeg.SOS:
                start = segment.end
                if has_one_scan(data, header):
                    break
            elif segment.marker not in _BETWEEN_SCANS:
                break
    except RejectError:  # a segment is not whole
        pass
    return start


def _without_text(scan: bytes) -> bytes:
    """Leaves out text at the end of the data of a scan."""
    text = _TEXT.search(scan)
    if text is None or len(set(text[0])) < _TEXT_VALUES:
        return scan
    return scan[: text.start()]


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
        checksums.append(_sum_rows(_decode(longer, colorspace)))
    rows = 0
    for first, second in zip(*checksums, strict=True):
        if first != second:
            break
        rows += 1
    return rows


def cut_behind_picture(data: bytes, header: Header, colorspace: str) -> bytes:
    """Leaves out the bytes of the last scan that come after the last pixel.

    Args:
        data: a file of which all rows are there, with an EOI marker at its end.
        header: its header.
        colorspace: to decode to.

    Raises:
        RejectError: `damaged-image`: these bytes are like those before them, so the end of the
            picture seems to consist of other data.
    """
    start = _find_scans(data, header)[-1].end
    end = len(data) - len(_EOI)
    checksums = _sum_rows(_decode(data, colorspace))

    def is_whole(place: int) -> bool:
        filler = _INVERTED_FILLER if data[place] < 128 else _FILLER
        shorter = data[:place].rstrip(b"\xff") + filler + _EOI
        return _sum_rows(_decode(shorter, colorspace)) == checksums

    first = max(start, end - _UNTOLD)
    if is_whole(first):
        first = start
    places = range(first, end)
    picture_end = first + bisect.bisect_left(places, True, key=is_whole)
    if _goes_on(data[start:picture_end], data[picture_end:end]):
        raise RejectError(
            "damaged-image",
            f"JPEG: {end - picture_end} bytes behind its last row are like those before: fewer "
            "than 95% of its rows may be its own",
        )
    return data[:picture_end] + _EOI


def _goes_on(scan: bytes, others: bytes) -> bool:
    """Whether bytes behind the data of a picture seem to be more of the same."""
    if len(others) < _UNTOLD:
        return False
    if _SCAN_CODE.search(others):
        return True
    values = set(others[:_COMPARED])
    if len(values) > _MAX_VALUES:
        return False
    compared = scan[-_COMPARED:]
    alike = sum(byte in values for byte in compared)
    return alike > _ALIKE_SHARE * len(compared)


def _decode(data: bytes, colorspace: str) -> Pixels:
    """Decodes a file with whatever damage it has."""
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace, strict=False)
    except ValueError as error:
        raise RejectError("damaged-image", f"JPEG: {describe_error(error)}") from error
    return pixels


def _sum_rows(pixels: Pixels) -> list[int]:
    return [zlib.crc32(row) for row in pixels]


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
