"""BMP: Pillow reads it; here is the run-length code (BI_RLE8, BI_RLE4), which Pillow unpacks without a bound."""

from __future__ import annotations

from typing import cast

from PIL import Image as PillowImage

from beam_tfr.images import general
from beam_tfr.images.source import DECODER_ERRORS, Decoded, Source, detail
from beam_tfr.schema import RejectError


def open_bmp(data: bytes) -> Source:
    """
    Raises:
        RejectError: `damaged-image`.
    """
    source = general.open_any(data, "BMP")
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


def _unpack(data: bytes, place: int, height: int, width: int, half: bool) -> bytes:
    """One byte a pixel, in the order of the file; half: two pixels in a byte."""
    pixels = bytearray(height * width)
    row = column = 0
    while row < height:
        count, value = data[place], data[place + 1]
        place += 2
        if count:
            run = bytes((value >> 4, value & 15)) * (count + 1 >> 1) if half else bytes((value,)) * count
        elif value == 0:
            row, column = row + 1, 0
            continue
        elif value == 1:
            break
        elif value == 2:
            row, column = row + data[place + 1], column + data[place]
            place += 2
            continue
        else:
            count = value
            length = count + 1 >> 1 if half else count
            run = data[place : place + length]
            place += length + length % 2
            if half:
                run = bytes(part for byte in run for part in (byte >> 4, byte & 15))
        kept = min(count, width - column)
        if kept > 0:
            if len(run) < kept:
                raise IndexError
            pixels[row * width + column : row * width + column + kept] = run[:kept]
        column += count
    return bytes(pixels)
