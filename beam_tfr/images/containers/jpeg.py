"""Walks through JPEG segments (ITU-T T.81, annex B), finding them as libjpeg does."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema.errors import RejectError

SOI = 0xD8
EOI = 0xD9
SOS = 0xDA
APP0 = 0xE0
APP1 = 0xE1
APP2 = 0xE2
APP14 = 0xEE
BARE = frozenset((0x01, *range(0xD0, 0xDA)))  # markers without a segment: TEM, RSTn, SOI, EOI
# Enough for every useful scan, and for 64 MiB of metadata in segments of ordinary size.
MAX_SEGMENTS = 1 << 15
# Not RSTn, which belong to the data; any 0xFF before a marker are fill bytes.
MARKER = re.compile(rb"\xff([^\0\xd0-\xd7\xff])")


class Segment(NamedTuple):
    """A marker at `begin`, and its payload, `data[start:end]`."""

    marker: int
    begin: int
    start: int
    end: int


def segments(data: bytes, offset: int = 2) -> Iterator[Segment]:
    """Yields the segments of a JPEG up to and including EOI, without scan data.

    Args:
        data: a whole file.
        offset: where to begin; the default is after SOI.

    Raises:
        RejectError: `damaged-image`: the file ends before EOI or within a segment, or has more than
            `MAX_SEGMENTS` segments.
    """
    end = offset
    for _ in range(MAX_SEGMENTS):
        match = MARKER.search(data, end)
        if match is None:
            raise RejectError(
                "damaged-image", f"JPEG: ends after {len(data)} bytes without an EOI marker"
            )
        begin, end = match.span()
        marker = data[end - 1]
        if marker in BARE:
            yield Segment(marker, begin, end, end)
            if marker == EOI:
                return
            continue
        start = end
        end = start + int.from_bytes(data[start : start + 2], "big")
        if not start + 2 <= end <= len(data):
            raise RejectError("damaged-image", f"JPEG: segment 0x{marker:02x} is incomplete")
        yield Segment(marker, begin, start + 2, end)
    raise RejectError("damaged-image", f"JPEG: more than {MAX_SEGMENTS} segments")


def scan_headers(data: bytes, offset: int) -> Iterator[Segment]:
    """Yields the segments that begin scans, like `segments`."""
    return (segment for segment in segments(data, offset) if segment.marker == SOS)
