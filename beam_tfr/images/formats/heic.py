"""Opens HEIC (ISO/IEC 23008-12).

The decoder comes with `pip install 'beam_tfr[formats]'`, and is imported on first use.
"""

import importlib
from typing import Any

import numpy as np

from beam_tfr.images.formats.depth import ALPHA_BYTES, split_samples
from beam_tfr.images.source import Decoded, Size, Source, reject_damage
from beam_tfr.schema.errors import RejectError

# Bytes per pixel.
_DECODER_BYTES = 8
_DEEP_DECODER_BYTES = 16  # if samples have more than 8 bits


def open_heic(data: bytes) -> Source:
    """Opens a HEIC.

    The decoder applies the boxes that rotate the picture (irot, imir). EXIF only repeats them, so
    its orientation is ignored.

    Raises:
        RejectError: `damaged-image`; `unsupported-image`: the extra is not installed.
    """
    pillow_heif = _import_decoder()
    with reject_damage("HEIC"):
        file = pillow_heif.open_heif(data, convert_hdr_to_8bit=False)
        image = file[file.primary_index]
    width, height = image.size
    bits = image.info["bit_depth"]

    def decode(_: Size | None) -> Decoded:
        with reject_damage("HEIC"):
            samples = np.asarray(image)[:, :width]
            rows, columns = samples.shape[:2]
            if (rows, columns) != (height, width):
                raise ValueError(
                    f"{columns} x {rows} pixels, but the header says {width} x {height}"
                )
            pixels, alpha = split_samples(samples)
            profile = image.info.get("icc_profile") or b""
            return Decoded(pixels=pixels, alpha=alpha, profile=profile, bits=bits)

    pixel_bytes = _DECODER_BYTES if bits <= 8 else _DEEP_DECODER_BYTES
    pixel_bytes += ALPHA_BYTES * image.has_alpha
    return Source(
        format="heic",
        height=height,
        width=width,
        frames=min(2, len(file)),
        decode=decode,
        memory=lambda _: pixel_bytes * height * width,
    )


def _import_decoder() -> Any:
    """Imports pillow_heif."""
    try:
        decoder: Any = importlib.import_module("pillow_heif")
    except ImportError:
        raise RejectError(
            "unsupported-image",
            "reading HEIC requires an extra: pip install 'beam_tfr[formats]'",
        ) from None
    decoder.options.DECODE_THREADS = 1  # the runner already uses several threads
    return decoder
