"""Opens PBM, PGM and PPM, plain and binary, with 1 to 16 bits; OpenCV decodes the pixels.

See netpbm.sourceforge.net/doc/ppm.html.
"""

import re
from typing import NamedTuple

from beam_tfr.images.formats import by_opencv
from beam_tfr.images.source import Decoded, Size, Source
from beam_tfr.schema.errors import RejectError

_SPACE = rb"(?:[ \t\r\n\v\f]|#[^\r\n]*[\r\n])+"
_SIZES = rb"P([1-6])" + _SPACE + rb"(\d{1,9})" + _SPACE + rb"(\d{1,9})"
_BITMAP = re.compile(_SIZES + rb"[ \t\r\n\v\f]")
_MAP = re.compile(_SIZES + _SPACE + rb"(\d{1,5})[ \t\r\n\v\f]")
_MAX_HEADER = 1 << 16  # bytes
_BITMAPS = (1, 4)
_PLAIN = (1, 2, 3)
_COLOR = (3, 6)


class _PnmHeader(NamedTuple):
    """The numbers at the beginning of a file.

    Attributes:
        kind: the number after the P, 1 to 6.
        width, height: in pixels.
        white: the largest value; 255 for bitmaps, whose headers do not state a value.
    """

    kind: int
    width: int
    height: int
    white: int = 255

    @property
    def sample_bytes(self) -> int:
        return 1 if self.white <= 255 else 2

    def for_opencv(self) -> bytes:
        """Returns a header that states the largest value of the samples' type.

        With this header, OpenCV neither scales nor clips the samples.
        """
        sizes = b"P%d %d %d" % self[:3]
        if self.kind in _BITMAPS:
            return sizes + b"\n"
        largest = 256**self.sample_bytes - 1
        return sizes + b" %d\n" % largest


def open_pnm(data: bytes) -> Source:
    """Opens a PBM, PGM or PPM.

    Raises:
        RejectError: `damaged-image`.
    """
    pattern = _BITMAP if data[1:2] in b"14" else _MAP
    match = pattern.match(data[:_MAX_HEADER])
    if match is None:
        raise RejectError("damaged-image", "PNM: the header is broken")
    header = _read_header(match)
    pixels = memoryview(data)[match.end() :]
    end = b"\n" if header.kind in _PLAIN else b""

    def decode(_: Size | None) -> Decoded:
        parts: list[bytes | memoryview] = [header.for_opencv(), pixels, end]
        samples = by_opencv.decode_samples(parts, "PNM", header.height, header.width)
        if samples.max() > header.white:
            raise RejectError("damaged-image", f"PNM: a value is above {header.white}, its maximum")
        bits = header.white.bit_length()
        return by_opencv.to_decoded(samples, bits=bits, white=header.white)

    channels = 3 if header.kind in _COLOR else 1
    needed = header.height * header.width * channels * header.sample_bytes
    return Source(
        format="ppm",
        height=header.height,
        width=header.width,
        decode=decode,
        memory=lambda _: needed,
    )


def _read_header(match: re.Match[bytes]) -> _PnmHeader:
    header = _PnmHeader(*map(int, match.groups()))
    if 0 in header:
        raise RejectError("damaged-image", "PNM: the header is broken")
    if header.white > 65535:
        raise RejectError("damaged-image", f"PNM: its maximum value is {header.white}, above 65535")
    return header
