"""AVIF: Pillow reads it, as far as its build can."""

from __future__ import annotations

import re

from PIL import features

from beam_tfr.images.formats import general
from beam_tfr.images.source import Source
from beam_tfr.schema import RejectError


def open_avif(data: bytes) -> Source:
    """Opens an AVIF.

    Raises:
        RejectError: `damaged-image`; `unsupported-image`: this build of Pillow does not read it.
    """
    if not features.check("avif"):
        raise RejectError("unsupported-image", "AVIF: this build of Pillow does not read it")
    depth = re.search(rb"av1C..(.)", data[:65536], re.DOTALL)  # AV1 codec configuration: high_bitdepth, twelve_bit
    flags = depth[1][0] if depth else 0
    return general.open_any(data, "AVIF", animated=True, bits=(12 if flags & 0x20 else 10) if flags & 0x40 else 8)
