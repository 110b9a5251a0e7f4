"""BMP: Pillow reads it, and OpenCV its run-length codes, which Pillow unpacks without a bound."""

from __future__ import annotations

from beam_tfr.images.containers import bmp
from beam_tfr.images.formats import by_opencv, general
from beam_tfr.images.source import Decoded, Source


def open_bmp(data: bytes) -> Source:
    """Opens a BMP.

    Raises:
        RejectError: `damaged-image`.
    """
    bitmap = bmp.read(data)
    source = general.open_any(data, "BMP")
    general.add_profile(source, bitmap.profile)
    if bitmap.compression in bmp.RUN_LENGTHS:

        def decode(_: tuple[int, int] | None) -> Decoded:
            return by_opencv.to_decoded(by_opencv.decode(data, "BMP", source.height, source.width))

        source.decode = decode
    return source
