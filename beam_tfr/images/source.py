"""Defines the values that the steps of a conversion pass on, and the errors of decoders."""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from beam_tfr.schema.errors import RejectError

Pixels = NDArray[np.uint8]
Size = tuple[int, int]  # height and width
SMALLEST = (1, 1)  # decodes a JPEG to an eighth of its size, which reads all bytes in half the time
LEAST_USED = 64  # of 255: the highest level of 14 bits stored in 16; 12 bits reach less
_NO_PIXELS = np.empty((0, 0, 1), np.uint8)
_MEMORY_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclasses.dataclass(slots=True, kw_only=True)
class Decoded:
    """The pixels of a source as stored: not rotated, and in the file's own colors.

    Attributes:
        pixels: uint8 [h, w, channels], 1 (gray), 3 (RGB) or 4 (CMYK, 255 is full ink), without
            transparency.
        alpha: uint8 [h, w], 0 is transparent; None if everything is opaque.
        eighths: the scale at which the decoder decoded, in eighths: h = ceil(height * eighths / 8),
            and w likewise.
        profile: embedded ICC profile, or empty bytes.
        bits: bits per sample in the file; samples with more than 8 bits were scaled to 8.
        adjusted: further members of `schema.dataset.ADJUSTMENTS` that apply.
    """

    pixels: Pixels
    alpha: Pixels | None = None
    eighths: int = 8
    profile: bytes = b""
    bits: int = 8
    adjusted: tuple[str, ...] = ()

    def take_pixels(self) -> tuple[Pixels, Pixels | None]:
        """Hands over the pixels and the alpha, which only the caller may then overwrite or free."""
        taken = (self.pixels, self.alpha)
        self.pixels = _NO_PIXELS
        self.alpha = None
        return taken


@dataclasses.dataclass(slots=True, kw_only=True)
class Source:
    """An opened file whose header has been read.

    Attributes:
        format: a key of `formats.FORMATS`.
        height, width: in pixels, as stored; the orientation may swap them.
        orientation: orientation from EXIF, 1 to 8; 1 is upright.
        frames: number of pictures, counted only up to 2.
        scans: number of scans of a progressive JPEG, even inside a TIFF; 1 for all other images.
        decode: decodes to the end and closes the file. Its argument is the smallest (height, width)
            to which it may scale down; None for no scaling. Raises RejectError `damaged-image`.
        memory: returns how many bytes `decode` uses at most for the same argument, until the pixels
            are resized.
    """

    format: str
    height: int
    width: int
    orientation: int = 1
    frames: int = 1
    scans: int = 1
    decode: Callable[[Size | None], Decoded]
    memory: Callable[[Size | None], int]


@contextlib.contextmanager
def reject_damage(format_name: str) -> Iterator[None]:
    """Turns all errors of decoders into rejects, since damage can cause almost any kind of error.

    Raises:
        RejectError: `damaged-image`.
    """
    try:
        yield
    except RejectError:
        raise
    except Exception as error:
        raise RejectError("damaged-image", f"{format_name}: {describe_error(error)}") from error


def describe_error(error: Exception) -> str:
    """Returns the message of a decoder's error, on one line, without memory addresses."""
    line = str(error).partition("\n")[0]
    message = _MEMORY_ADDRESS.sub("", line)[:200]
    return message or type(error).__name__
