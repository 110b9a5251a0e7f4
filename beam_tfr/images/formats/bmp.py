"""Opens BMP: OpenCV decodes run-length encoded pixels, and Pillow decodes all others.

Pillow unpacks run-length codes without a limit.
"""

import struct

from beam_tfr.images.formats import by_opencv, by_pillow
from beam_tfr.images.source import Decoded, Size, Source

_V5_HEADER = b"\x7c\0\0\0"  # header size of files that may have a profile
_EMBEDDED = b"DEBM"  # type of color space PROFILE_EMBEDDED
_RUN_LENGTHS = (1, 2)  # compressions BI_RLE8, BI_RLE4


def open_bmp(data: bytes) -> Source:
    """Opens a BMP.

    Raises:
        RejectError: `damaged-image`.
    """
    image = by_pillow.open_image(data, "BMP")
    profile = _read_profile(data)
    if image.info["compression"] not in _RUN_LENGTHS:
        return by_pillow.to_source(image, profile=profile)
    height = image.height
    width = image.width

    def decode(_: Size | None) -> Decoded:
        samples = by_opencv.decode_samples([data], "BMP", height, width)
        return by_opencv.to_decoded(samples, profile=profile)

    return Source(
        format="bmp",
        height=height,
        width=width,
        decode=decode,
        memory=lambda _: 3 * height * width,
    )


def _read_profile(data: bytes) -> bytes:
    """Returns the embedded ICC profile, or empty bytes if there is none."""
    if data[14:18] != _V5_HEADER or data[70:74] != _EMBEDDED:
        return b""
    offset, size = struct.unpack_from("<II", data, 126)
    start = 14 + offset
    return data[start : start + size]
