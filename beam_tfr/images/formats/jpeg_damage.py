"""Finds what is left of JPEGs without an end marker.

The data of such a file may end early, and other bytes may follow: a thumbnail, the video of a
motion photo, or old contents of the disk.
"""

import bisect
import itertools
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import simplejpeg

from beam_tfr.images.containers import jpeg
from beam_tfr.images.formats.jpeg_header import Header
from beam_tfr.images.source import Pixels, describe_error
from beam_tfr.schema.errors import RejectError

_LEAST_ZEROS = 16  # this many zeros at the end of a scan are not its data
_TEXT = bytes((*b"\t\n\r", *range(0x20, 0x7F)))
_LEAST_TEXT = 64  # this many bytes of text at the end of a scan are not its data
_TEXT_VALUES = 6  # least number of different bytes in text: codes of a flat area repeat fewer
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_MARKER_OR_RESTART = re.compile(rb"\xff([^\0\xff])")
_STUFFED = b"\xff\0"  # a byte 0xFF in scan data; rare in other bytes before a marker
# Markers allowed between two scans: tables, restart intervals, comments, metadata.
_BETWEEN_SCANS = frozenset((0xC4, 0xCC, 0xDB, 0xDC, 0xDD, *range(0xE0, 0xF0), 0xFE))
_FOLLOWING = (jpeg.EOI, jpeg.SOS)  # markers after the last scan that do not begin other bytes
_EOI = b"\xff\xd9"
_FILLER = bytes(range(1, 128))  # further data of a scan, without a marker
# Its first bit differs, and so does the first code that needs it.
_INVERTED_FILLER = bytes(255 - byte for byte in _FILLER)
_COEFFICIENTS = 64  # per block
_Coefficient = tuple[int, int]  # component, number
_RESTART_INTERVAL = 0xDD  # marker
_LEAST_SCAN_BYTES = 6  # in the header of a scan
_LAST_CODES = 4  # bytes after the last pixel, with codes that change no pixel
_SKIPPED = re.compile(r"(?<!\d)(\d+) extraneous bytes before marker 0xd9")
_NEAR = 32  # bytes around the end of the picture that the decoder states
_UNTOLD = 16  # bytes after a picture: fewer do not show what they are
_COMPARED = 256  # bytes before the end of a picture to compare
_COMPARED_BEHIND = 1 << 12  # bytes after the end of a picture to compare
_ALIKE_SHARE = 0.5  # fraction of the pairs of bytes before the end that also occur after it


class CompleteFile(NamedTuple):
    """A JPEG that ends with an EOI marker after the data of its last scan.

    Attributes:
        data: the file.
        padding: number of bytes before the marker that are zeros or text, as left by broken
            downloads and some trailers; a few of these bytes may be data of the scan.
        other_bytes: number of bytes that followed the data, beginning with another marker.
    """

    data: bytes
    padding: int
    other_bytes: int


def remove_padding(data: bytes, padding: int) -> bytes:
    """Removes a number of bytes before the EOI marker at the end of a JPEG."""
    end = len(data) - len(_EOI) - padding
    return data[:end].rstrip(b"\xff") + _EOI


def complete_file(data: bytes, header: Header) -> CompleteFile | None:
    """Puts an EOI marker after the data of the last scan.

    Returns None if EOI or another scan follows the data.

    Args:
        data: the file.
        header: its header.
    """
    last = _find_last_scan(data, header)
    marker = last.marker.search(data, last.start)
    end = len(data)
    if marker is not None:
        end = marker.start()
        if marker[1][0] in _FOLLOWING:
            return None
    scan = data[last.start : end].rstrip(b"\xff")
    padding = len(scan) - _find_padding(scan)
    return CompleteFile(data[: last.start] + scan + _EOI, padding, len(data) - end)


def count_other_bytes(data: bytes, header: Header) -> int:
    """Counts the bytes that follow the data of the last scan where EOI should be.

    These bytes begin with a marker, zeros or text; any others look like data of the scan.
    """
    completed = complete_file(data, header)
    if completed is None:
        return 0
    others = completed.padding + completed.other_bytes
    return others if others >= _UNTOLD else 0


class _LastScan(NamedTuple):
    """The last scan of a picture.

    Attributes:
        start: where the data of the scan begins.
        marker: pattern of the marker that ends the data.
    """

    start: int
    marker: re.Pattern[bytes]


def _find_last_scan(data: bytes, header: Header) -> _LastScan:
    """Finds the scan that completes a picture, or the last scan in the file.

    Ignores everything after a marker that cannot occur between scans: what follows belongs to
    another picture, or to none.
    """
    start = header.first_scan
    missing = _all_coefficients(header)
    restarts = any(data[begin + 1] == _RESTART_INTERVAL for begin, _ in header.needed)
    try:
        for segment in jpeg.segments(data, header.first_scan):
            restarts |= segment.marker == _RESTART_INTERVAL
            if segment.marker == jpeg.SOS:
                start = segment.end
                missing.difference_update(_find_covered(data, segment, header))
            elif segment.marker not in _BETWEEN_SCANS:
                break
            if not missing:
                break
    except RejectError:  # a segment is incomplete
        pass
    return _LastScan(start, jpeg.MARKER if restarts else _MARKER_OR_RESTART)


def _find_padding(scan: bytes) -> int:
    """Finds where the zeros or text at the end of a scan's data begin."""
    without_zeros = len(scan.rstrip(b"\0"))
    if len(scan) - without_zeros >= _LEAST_ZEROS:
        return without_zeros
    without_text = len(scan.rstrip(_TEXT))
    text = scan[without_text:]
    if len(text) >= _LEAST_TEXT and len(set(text)) >= _TEXT_VALUES:
        return without_text
    return len(scan)


def count_rows(data: bytes, header: Header, colorspace: str) -> int:
    """Counts the rows from the top that no further data could change.

    Decodes the image twice, with different data appended to the data of the image.

    Args:
        data: from `complete_file`, with an EOI marker at its end.
        header: the header of the file.
        colorspace: color space to decode to.

    Raises:
        RejectError: `damaged-image`: the image cannot be decoded, lacks whole scans, or has damage
            in a scan before the last.
    """
    scans = _find_scans(data, header)
    _check_scans(data, header, scans)
    if header.is_progressive:
        _check_earlier_scans(data, scans, colorspace)
    restarts = len(_RESTART.findall(data, scans[-1].end))
    restart = bytes((0xFF, 0xD0 + restarts % 8))  # in case the scan ends before this marker
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


def cut_behind_picture(
    data: bytes, header: Header, colorspace: str, *, padding: int
) -> bytes | None:
    """Removes the bytes of the last scan that come after the last pixel.

    Args:
        data: a file that seems to have all rows, with an EOI marker at its end.
        header: the header of the file.
        colorspace: color space to decode to.
        padding: number of bytes before the marker that are zeros or text.

    Returns:
        The file; None if zeros or text were decoded as pixels.

    Raises:
        RejectError: `damaged-image`: the removed bytes resemble those before them, so other data
            seems to make up the end of the picture.
    """
    start = _find_scans(data, header)[-1].end
    end = len(data) - len(_EOI)
    picture_end = _find_picture_end(data, start, colorspace)
    if picture_end > end - padding + _UNTOLD:
        return None
    if _goes_on(data[start:picture_end], data[picture_end:end]):
        raise RejectError(
            "damaged-image",
            f"JPEG: {end - picture_end} bytes after its last row resemble those before, so fewer "
            "than 95% of its rows may be its own",
        )
    for place in range(picture_end, min(picture_end + _LAST_CODES, end) + 1):
        picture = data[:place].rstrip(b"\xff") + _EOI
        if not _find_damage(picture, colorspace):
            return picture
    return data[:picture_end] + _EOI


def _find_picture_end(data: bytes, start: int, colorspace: str) -> int:
    """Finds where the bytes of the last pixel end, in a file whose last scan begins at `start`.

    Removes bytes from the end until the picture changes; the last codes may change no pixel. The
    decoder shows roughly where the end is, as it skips the bytes after the end.
    """
    end = len(data) - len(_EOI)
    checksums = _sum_rows(_decode(data, colorspace))

    def is_whole(place: int) -> bool:
        filler = _INVERTED_FILLER if data[place] < 128 else _FILLER
        shorter = data[:place].rstrip(b"\xff") + filler + _EOI
        return _sum_rows(_decode(shorter, colorspace)) == checksums

    skipped = _SKIPPED.search(_find_damage(data, colorspace))
    if skipped is not None:
        near = end - int(skipped[1])
        first = max(start, near - _NEAR)
        last = min(end, near + _NEAR)
        if first < last and is_whole(last) and not is_whole(first):
            return first + bisect.bisect_left(range(first, last), True, key=is_whole)
    last = end
    first = max(start, end - _UNTOLD)
    while first > start and is_whole(first):  # few bytes follow most pictures
        last = first
        first = max(start, end - _UNTOLD * (end - first))
    return first + bisect.bisect_left(range(first, last), True, key=is_whole)


def _goes_on(scan: bytes, others: bytes) -> bool:
    """Whether the bytes after the data of a picture seem to be more of the same data."""
    if len(others) < _UNTOLD:
        return False
    if _STUFFED in others:
        return True
    pairs = {*itertools.pairwise(others[:_COMPARED_BEHIND])}
    before = [*itertools.pairwise(scan[-_COMPARED:])]
    alike = sum(pair in pairs for pair in before)
    return alike > _ALIKE_SHARE * len(before)


def _decode(data: bytes, colorspace: str) -> Pixels:
    """Decodes a file despite any damage."""
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace, strict=False)
    except ValueError as error:
        raise RejectError("damaged-image", f"JPEG: {describe_error(error)}") from error
    return pixels


def _find_damage(data: bytes, colorspace: str) -> str:
    """Returns the last warning about a file, or an empty string if there is none."""
    try:
        simplejpeg.decode_jpeg(data, colorspace)
    except ValueError as error:
        return describe_error(error)
    return ""


def _sum_rows(pixels: Pixels) -> list[int]:
    return [zlib.crc32(row) for row in pixels]


def _find_scans(data: bytes, header: Header) -> list[jpeg.Segment]:
    """Finds the segments that begin scans, except those that lack components or parameters."""
    segments = jpeg.scan_headers(data, header.first_scan)
    return [segment for segment in segments if segment.end - segment.start >= _LEAST_SCAN_BYTES]


def _check_scans(data: bytes, header: Header, scans: list[jpeg.Segment]) -> None:
    """Checks that the scans contain every coefficient of every component to its last bit."""
    missing = _all_coefficients(header)
    for scan in scans:
        missing.difference_update(_find_covered(data, scan, header))
    if missing:
        raise RejectError("damaged-image", "JPEG: its last scans are missing")


def _check_earlier_scans(data: bytes, scans: list[jpeg.Segment], colorspace: str) -> None:
    """Checks that the scans of a progressive JPEG before the last one are complete.

    Each scan refines all rows, so damage in a scan cannot be found anywhere else.
    """
    if len(scans) < 2:
        return
    damage = _find_damage(data[: scans[-1].begin] + _EOI, colorspace)
    if damage:
        raise RejectError("damaged-image", f"JPEG: {damage}")


def _all_coefficients(header: Header) -> set[_Coefficient]:
    return set(itertools.product(header.components, range(_COEFFICIENTS)))


def _find_covered(data: bytes, scan: jpeg.Segment, header: Header) -> Iterator[_Coefficient]:
    """Finds the coefficients that a scan completes to their last bit."""
    if scan.end - scan.start < _LEAST_SCAN_BYTES:
        return iter(())
    *selectors, first, last, approximation = data[scan.start + 1 : scan.end]
    components = selectors[::2]  # each is followed by the numbers of its tables
    missing_bits = approximation & 15
    if not header.is_progressive:
        return itertools.product(components, range(_COEFFICIENTS))
    if missing_bits:
        return iter(())
    return itertools.product(components, range(first, last + 1))
