"""PBM, PGM and PPM, plain and binary, 1 to 16 bit (netpbm.sourceforge.net/doc/ppm.html): OpenCV
decodes the pixels."""

import re

from beam_tfr.images.formats import by_opencv
from beam_tfr.images.source import Decoded, Source
from beam_tfr.schema.errors import RejectError

_SPACE = rb"(?:[ \t\r\n\v\f]|#[^\r\n]*[\r\n])+"
_SIZES = rb"P([1-6])" + _SPACE + rb"(\d{1,9})" + _SPACE + rb"(\d{1,9})"
_BITMAP = re.compile(_SIZES + rb"[ \t\r\n\v\f]")
_MAP = re.compile(_SIZES + _SPACE + rb"(\d{1,5})[ \t\r\n\v\f]")
_MAX_HEADER = 1 << 16  # bytes


def open_pnm(data: bytes) -> Source:
    """Opens a PBM, PGM or PPM.

    Raises:
        RejectError: `damaged-image`.
    """
    bitmap = data[1:2] in b"14"
    match = (_BITMAP if bitmap else _MAP).match(data[:_MAX_HEADER])
    numbers = [int(number) for number in match.groups()] if match else []
    if match is None or 0 in numbers:
        raise RejectError("damaged-image", "PNM: the header is broken")
    kind, width, height, top = *numbers[:3], 255 if bitmap else numbers[3]
    if top > 65535:
        raise RejectError("damaged-image", f"PNM: a largest value of {top}, 65535 is the most")
    # OpenCV scales some samples by the largest value and clips others; this one makes it do
    # neither.
    if bitmap:
        largest = b""
    else:
        largest = b" 255" if top <= 255 else b" 65535"
    header = b"P%d %d %d%b\n" % (kind, width, height, largest)
    pixels = memoryview(data)[match.end() :]

    def decode(_: tuple[int, int] | None) -> Decoded:
        plain_end = b"\n" * (kind <= 3)
        samples = by_opencv.decode_samples(
            b"".join((header, pixels, plain_end)), "PNM", height, width
        )
        if samples.max() > top:
            raise RejectError("damaged-image", f"PNM: a value above {top}, its largest")
        return by_opencv.to_decoded(samples, bits=top.bit_length(), white=top)

    samples = 3 if kind in (3, 6) else 1
    needed = height * width * samples * (1 + (top > 255))
    return Source(format="ppm", height=height, width=width, decode=decode, memory=lambda _: needed)
