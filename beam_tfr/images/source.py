"""What travels between the steps of one image: the opened file, its pixels, and what every decoder may raise."""

from __future__ import annotations

import dataclasses
import re
import struct
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

# What Pillow's decoders raise on damaged files; MemoryError comes from absurd sizes in chunks.
DECODER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
)


@dataclasses.dataclass(slots=True, kw_only=True)
class Decoded:
    """The pixels of a source, as they are stored: not turned, in their own colours.

    Attributes:
        pixels: uint8 [h, w, channels], 1 (grey), 3 (RGB) or 4 (CMYK, 255 is full ink), without transparency.
        alpha: uint8 [h, w], 0 is transparent; None where everything is opaque.
        eighths: the decoder scaled to so many eighths, so that h = ceil(height * eighths / 8), likewise w; else 8.
        profile: embedded ICC profile; empty without one.
        bits: of a sample in the file; those of more than 8 were scaled.
        adjusted: members of `schema.ADJUSTMENTS` that the decoder found.
    """

    pixels: Pixels
    alpha: Pixels | None = None
    eighths: int = 8
    profile: bytes = b""
    bits: int = 8
    adjusted: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True, kw_only=True)
class Source:
    """A file whose header was read.

    Attributes:
        format: "jpeg", "png", …: a key of `formats.FORMATS`.
        height, width: in pixels, as stored (an orientation may turn them).
        orientation: EXIF's, 1 to 8; 1 is upright.
        frames: pictures in it, as far as it is known to have more than one.
        scans: of a progressive JPEG; 1 for everything else.
        decode: decodes to the end; its argument (height, width) are the least sides that it may scale down to, None
            for no scaling. Raises `RejectError` `damaged-image`, and closes the file.
    """

    format: str
    height: int
    width: int
    orientation: int = 1
    frames: int = 1
    scans: int = 1
    decode: Callable[[tuple[int, int] | None], Decoded]


def detail(error: Exception) -> str:
    """What a decoder's error says, for a reject."""
    return re.sub(r" at 0x[0-9a-f]+", "", f"{error}")[:200] or type(error).__name__  # not where it lies in memory
