"""HEIC (ISO/IEC 23008-12), whose decoder comes with `pip install 'beam_tfr[formats]'` and is
imported on first use."""

import importlib
from typing import Any

import numpy as np

from beam_tfr.images.formats.depth import ALPHA_BYTES, split_samples
from beam_tfr.images.source import Decoded, Source, reject_damage
from beam_tfr.schema.errors import RejectError

_PIXEL_BYTES = (8, 16)  # of 8 and of more bits a sample


def open_heic(data: bytes) -> Source:
    """Opens a HEIC.

    The decoder applies the boxes that turn the picture (irot, imir). EXIF only repeats them, so it
    is ignored.

    Raises:
        RejectError: `damaged-image`; `unsupported-image` without the extra.
    """
    try:
        pillow_heif: Any = importlib.import_module("pillow_heif")
    except ImportError:
        cure = "reading HEIC requires an extra: pip install 'beam_tfr[formats]'"
        raise RejectError("unsupported-image", cure) from None
    pillow_heif.options.DECODE_THREADS = 1  # the runner's threads are the parallelism
    with reject_damage("HEIC"):
        file = pillow_heif.open_heif(data, convert_hdr_to_8bit=False)
        image = file[file.primary_index]
    (width, height) = image.size
    bits = image.info["bit_depth"]
    pixel_bytes = _PIXEL_BYTES[bits > 8] + ALPHA_BYTES * image.has_alpha

    def decode(_: tuple[int, int] | None) -> Decoded:
        with reject_damage("HEIC"):
            samples = np.asarray(image)[:, :width]
            if samples.shape[:2] != (height, width):
                raise ValueError(
                    f"{samples.shape[1]} x {samples.shape[0]} pixels, the header says {width} x {height}"
                )
            pixels, alpha = split_samples(samples)
            return Decoded(
                pixels=pixels, alpha=alpha, profile=image.info.get("icc_profile") or b"", bits=bits
            )

    return Source(
        format="heic",
        height=height,
        width=width,
        frames=min(2, len(file)),
        decode=decode,
        memory=lambda _: pixel_bytes * height * width,
    )
