"""GIF (89a): the first frame is cut out, so that Pillow sees neither comments nor the frames behind it."""

from __future__ import annotations

import struct

import numpy as np

from beam_tfr.images.formats import general
from beam_tfr.images.formats.depth import opaque_is_none
from beam_tfr.images.source import Decoded, Source
from beam_tfr.schema import RejectError

_EXTENSION, _CONTROL, _IMAGE = 0x21, 0xF9, 0x2C


def open_gif(data: bytes) -> Source:
    """
    Raises:
        RejectError: `damaged-image`.
    """
    try:
        head = 13 + _palette_bytes(data[10])
        control, start = _find_image(data, head)
        left, top, width, height = struct.unpack_from("<4H", data, start + 1)
        end, more = _end_of_image(data, start)
    except (IndexError, struct.error):
        raise RejectError("damaged-image", "GIF: ends before its first picture") from None
    source = general.open_any(data[:head] + control + data[start:end] + b";", "GIF")
    decode_whole = source.decode

    def decode(least: tuple[int, int] | None) -> Decoded:
        decoded = decode_whole(least)
        if (height, width) != (source.height, source.width):  # what a frame does not cover is transparent
            alpha = np.zeros((source.height, source.width), np.uint8)
            inside = np.s_[top : top + height, left : left + width]
            alpha[inside] = 255 if decoded.alpha is None else decoded.alpha[inside]
            decoded.alpha = opaque_is_none(alpha)
        return decoded

    source.decode = decode
    source.frames = 2 if more else 1
    return source


def _palette_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _skip_blocks(data: bytes, place: int) -> int:
    """Behind a row of blocks, each with its length before it, the last of length 0."""
    while length := data[place]:
        place += length + 1
    return place + 1


def _find_image(data: bytes, place: int) -> tuple[bytes, int]:
    """The last graphic control extension before the next image, and where that begins."""
    control = b""
    while data[place] != _IMAGE:
        if data[place] != _EXTENSION:  # the trailer, or garbage
            raise IndexError
        start, place = place, _skip_blocks(data, place + 2)
        if data[start + 1] == _CONTROL:
            control = data[start:place]
    return control, place


def _end_of_image(data: bytes, start: int) -> tuple[int, bool]:
    """Where the image that begins there ends, and whether another follows."""
    try:
        end = _skip_blocks(data, start + 10 + _palette_bytes(data[start + 9]) + 1)
    except IndexError:  # cut: perhaps behind its last pixel
        return len(data), False
    try:
        _find_image(data, end)
    except IndexError:
        return end, False
    return end, True
