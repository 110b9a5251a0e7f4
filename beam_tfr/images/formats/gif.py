"""GIF (89a): the first frame is cut out, so that Pillow sees neither comments nor the frames behind it."""

from __future__ import annotations

import struct

import numpy as np

from beam_tfr.images.formats import general
from beam_tfr.images.formats.depth import opaque_is_none
from beam_tfr.images.source import DECODER_ERRORS, Decoded, Source, detail
from beam_tfr.schema import RejectError

_PROFILE = b"\x21\xff\x0bICCRGBG1012"  # application extension (ICC.1, annex B.7)
_EXTENSION, _CONTROL, _IMAGE = 0x21, 0xF9, 0x2C


def open_gif(data: bytes) -> Source:
    """
    Raises:
        RejectError: `damaged-image`.
    """
    try:
        head = 13 + _palette_bytes(data[10])
        control, profile, start = _find_image(data, head)
        left, top, width, height = struct.unpack_from("<4H", data, start + 1)
        end, more = _end_of_image(data, start)
    except (IndexError, struct.error):
        raise RejectError("damaged-image", "GIF: ends before its first picture") from None
    # Without its control extension: transparency is ours, so that pixels which are missing are seen to be.
    frame = data[:head] + data[start:end] + b";"
    source = general.open_any(frame, "GIF")
    clear = control[6] if len(control) > 6 and control[3] & 1 else -1

    def decode(_: tuple[int, int] | None) -> Decoded:
        box = (left, top, min(left + width, source.width), min(top + height, source.height))
        try:
            image = general.load_whole(frame, "GIF", box=box)
            decoded = general.split(image)
        except DECODER_ERRORS as error:
            raise RejectError("damaged-image", f"GIF: {detail(error)}") from error
        inside = np.s_[box[1] : box[3], box[0] : box[2]]
        pixels, alpha = np.zeros_like(decoded.pixels), np.zeros((source.height, source.width), np.uint8)
        pixels[inside] = decoded.pixels[inside]  # what a frame does not cover is transparent
        alpha[inside] = (np.asarray(image)[inside] != clear).view(np.uint8) * np.uint8(255)
        return Decoded(pixels=pixels, alpha=opaque_is_none(alpha), profile=profile)

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


def _find_image(data: bytes, place: int) -> tuple[bytes, bytes, int]:
    """The last graphic control extension before the next image, an ICC profile, and where that image begins."""
    control, profile = b"", b""
    while data[place] != _IMAGE:
        if data[place] != _EXTENSION:  # the trailer, or garbage
            raise IndexError
        start, place = place, _skip_blocks(data, place + 2)
        if data[start + 1] == _CONTROL:
            control = data[start:place]
        elif data[start : start + len(_PROFILE)] == _PROFILE:
            profile = _join_blocks(data[start + len(_PROFILE) : place])
    return control, profile, place


def _join_blocks(blocks: bytes) -> bytes:
    parts, place = [], 0
    while length := blocks[place]:
        parts.append(blocks[place + 1 : place + 1 + length])
        place += length + 1
    return b"".join(parts)


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
