"""Opens AVIF, if the installed Pillow can read it."""

import re

from PIL import features

from beam_tfr.images.formats import by_pillow
from beam_tfr.images.source import Source
from beam_tfr.schema.errors import RejectError

_DECODER_BYTES = 8  # per pixel, in addition to the image
_CONFIGURATION = re.compile(rb"av1C..(.)", re.DOTALL)  # configuration of the AV1 codec; its flags
_HIGH_BITDEPTH = 0x40
_TWELVE_BIT = 0x20


def open_avif(data: bytes) -> Source:
    """Opens an AVIF.

    Raises:
        RejectError: `damaged-image`; `unsupported-image`: the installed build of Pillow does not
            read AVIF.
    """
    if not features.check("avif"):
        raise RejectError("unsupported-image", "AVIF: this build of Pillow cannot read it")
    image = by_pillow.open_image(data, "AVIF")
    return by_pillow.to_source(
        image,
        frames=min(2, getattr(image, "n_frames", 1)),
        bits=_read_bits(data),
        decoder_bytes=_DECODER_BYTES,
    )


def _read_bits(data: bytes) -> int:
    """Reads the bits per sample from the first codec configuration."""
    configuration = _CONFIGURATION.search(data[:65536])
    if configuration is None:
        return 8
    flags = configuration[1][0]
    if not flags & _HIGH_BITDEPTH:
        return 8
    return 12 if flags & _TWELVE_BIT else 10
