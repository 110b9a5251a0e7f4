"""PBM, PGM and PPM, plain and binary, 1 to 16 bit (netpbm.sourceforge.net/doc/ppm.html). Own code: Pillow takes a
microsecond for every sample that is not of 8 bit.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.images.formats.depth import blocks, to_8_bit
from beam_tfr.images.source import Decoded, Source
from beam_tfr.schema import RejectError

_SPACE = rb"(?:[ \t\r\n\v\f]|#[^\r\n]*[\r\n])+"
_SIZES = rb"P([1-6])" + _SPACE + rb"(\d{1,9})" + _SPACE + rb"(\d{1,9})"
_BITMAP = re.compile(_SIZES + rb"[ \t\r\n\v\f]")
_MAP = re.compile(_SIZES + _SPACE + rb"(\d{1,5})[ \t\r\n\v\f]")
_MOST_HEADER = 1 << 16  # bytes
_MOST_COMMENTS = 1 << 16
_ANY_SPACE = re.compile(rb"\s")
_AT_ONCE = 1 << 20  # bytes of text


def open_pnm(data: bytes) -> Source:
    """
    Raises:
        RejectError: `damaged-image`.
    """
    bitmap = data[1:2] in b"14"
    found = (_BITMAP if bitmap else _MAP).match(data[:_MOST_HEADER])
    numbers = [int(number) for number in found.groups()] if found else []
    if found is None or 0 in numbers:
        raise RejectError("damaged-image", "PNM: the header is broken")
    kind, width, height, top = *numbers[:3], 1 if bitmap else numbers[3]
    if top > 65535:
        raise RejectError("damaged-image", f"PNM: a largest value of {top}, 65535 is the most")
    begin = found.end()

    def decode(_: tuple[int, int] | None) -> Decoded:
        shape = (height, width, 3 if kind in (3, 6) else 1)
        read = _plain if kind <= 3 else _binary
        samples = read(data, begin, shape, top, bitmap)
        if samples is None:
            raise RejectError("damaged-image", "PNM: ends before its last pixel, or holds other things than numbers")
        pixels = np.empty(shape, np.uint8)
        for rows in blocks(height, width * shape[2]):
            part = samples[rows]
            if part.max(initial=0) > top:
                raise RejectError("damaged-image", f"PNM: a value above {top}, its largest")
            scaled = part if top == 255 else to_8_bit(part, top)
            pixels[rows] = 255 - scaled if bitmap else scaled  # in a bitmap 1 is black
        bits = top.bit_length()
        return Decoded(pixels=pixels, bits=bits, adjusted=("depth-scaled",) if bits > 8 else ())

    return Source(format="ppm", height=height, width=width, decode=decode)


def _binary(data: bytes, begin: int, shape: tuple[int, int, int], top: int, bitmap: bool) -> NDArray[Any] | None:
    height, width, channels = shape
    kind, columns = (np.dtype(np.uint8), -(-width // 8)) if bitmap else (np.dtype(">u2" if top > 255 else "u1"), width)
    if len(data) - begin < height * columns * channels * kind.itemsize:
        return None
    samples = np.frombuffer(data, kind, height * columns * channels, begin).reshape(height, columns, channels)
    return np.unpackbits(samples, axis=1, count=width) if bitmap else samples


def _plain(data: bytes, begin: int, shape: tuple[int, int, int], top: int, bitmap: bool) -> NDArray[Any] | None:
    text, count = data[begin:], shape[0] * shape[1] * shape[2]
    if b"#" in text:
        if text.count(b"#") > _MOST_COMMENTS:
            return None
        text = re.sub(rb"#[^\r\n]*", b" ", text)
    if bitmap:  # digits need no spaces between them
        samples = np.frombuffer(text.translate(None, b" \t\r\n\v\f")[:count], np.uint8) - 48
    elif len(text) < 2 * count - 1:
        return None
    else:
        samples = _numbers(text, count)
    return samples.reshape(shape) if samples.size == count else None


def _numbers(text: bytes, count: int) -> NDArray[Any]:
    """The first so many whole numbers of a text; fewer where there are fewer, or where something else stands."""
    parts: list[NDArray[Any]] = []
    place = found = 0
    while found < count and place < len(text):
        space = _ANY_SPACE.search(text, place + _AT_ONCE)
        end = space.start() if space else len(text)
        part = text[place:end].strip()
        if part.translate(None, b"0123456789 \t\r\n\v\f"):
            break
        # Without its argument `count`: with it NumPy returns memory that was never written where text ends early.
        parts.append(np.fromstring(part, np.uint32, sep=" ") if part else np.empty(0, np.uint32))
        found += parts[-1].size
        place = end
    return np.concatenate(parts)[:count] if parts else np.empty(0, np.uint32)
