"""BMP: Pillow reads it; here is the run-length code (BI_RLE8, BI_RLE4), which Pillow unpacks without a bound."""

from __future__ import annotations

import struct
from typing import cast

import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images.formats import general
from beam_tfr.images.source import DECODER_ERRORS, Decoded, Pixels, Source, detail
from beam_tfr.schema import RejectError

_AT_ONCE = 1 << 16  # runs


def open_bmp(data: bytes) -> Source:
    """
    Raises:
        RejectError: `damaged-image`.
    """
    source = general.open_any(data, "BMP")
    if data[14:18] == b"\x7c\0\0\0" and data[70:74] == b"DEBM":  # BITMAPV5HEADER, PROFILE_EMBEDDED
        place, size = struct.unpack_from("<II", data, 126)
        general.add_profile(source, data[14 + place : 14 + place + size])
    image = general.open_image(data, "BMP")
    if image.tile[0].codec_name != "bmp_rle":
        return source
    begin = image.tile[0].offset
    _, half, direction = cast(tuple[str, bool, int], image.tile[0].args)

    def decode(_: tuple[int, int] | None) -> Decoded:
        try:
            rows = _unpack(data, begin, source.height, source.width, half)
            mode = "P" if image.mode == "P" else "L"
            if image.mode == "1":  # two colours, black and white
                rows = rows.translate(b"\0" + b"\xff" * 255)
            indices = PillowImage.frombytes(mode, image.size, rows, "raw", mode, 0, direction)
            if mode == "P" and image.palette is not None:
                indices.putpalette(image.palette)
            return general.split(indices)
        except IndexError:
            raise RejectError("damaged-image", "BMP: ends before its last pixel") from None
        except DECODER_ERRORS as error:
            raise RejectError("damaged-image", f"BMP: {detail(error)}") from error

    source.decode = decode
    return source


def _unpack(data: bytes, begin: int, height: int, width: int, half: bool) -> bytes:
    """One byte a pixel, in the order of the file; half: two pixels in a byte.

    Raises:
        IndexError: the file is cut.
    """
    packed = np.frombuffer(data, np.uint8, (len(data) - begin) // 2 * 2, begin)
    counts, values = packed[::2], packed[1::2]  # everything is of whole pairs
    pixels = np.zeros((height, width), np.uint8)
    row = column = place = 0
    while row < height:
        at = begin + 2 * place
        count, value = data[at], data[at + 1]
        if count:  # a row of runs
            window = counts[place : place + (min(_AT_ONCE, width - column) if column < width else _AT_ONCE)]
            runs = int((window == 0).argmax()) or len(window)
            run = _expand(window[:runs], values[place : place + runs], max(0, width - column), half)
            place += runs
        elif value == 0:
            row, column, place = row + 1, 0, place + 1
            continue
        elif value == 1:
            break
        elif value == 2:
            right, up = data[at + 2], data[at + 3]
            row, column, place = row + up, column + right, place + 2
            if not right + up or column > width:
                raise ValueError("a jump to nowhere")
            continue
        else:
            length = value + 1 >> 1 if half else value
            run = packed[2 * place + 2 : 2 * place + 2 + length]
            if len(run) < length:
                raise IndexError
            run = (np.stack([run >> 4, run & 15], 1).ravel() if half else run)[:value]
            place += 1 + (length + 1 >> 1)
        part = pixels[row, column : column + len(run)]
        part[:] = run[: len(part)]
        column = min(width, column + len(run))
    return pixels.tobytes()


def _expand(counts: Pixels, values: Pixels, most: int, half: bool) -> Pixels:
    """Runs to pixels, `most` of them and some more."""
    ends = np.cumsum(counts, dtype=np.int64)
    used = int(np.searchsorted(ends, most)) + 1
    run = np.repeat(values[:used], counts[:used])
    if half:  # the first pixel of a run is the upper half
        begins = np.repeat(ends[:used] - counts[:used], counts[:used])
        odd = (np.arange(len(run)) - begins) % 2 == 1
        run = np.where(odd, run & 15, run >> 4)
    return run
