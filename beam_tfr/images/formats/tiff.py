"""TIFF 6.0 and BigTIFF: the directory is read and checked here, libtiff (in Pillow) unpacks the pixels.

Samples of more than 8 bits, and what Pillow has no mode for, are unpacked as bytes: libtiff is shown a file of grey
bytes with the same strips or tiles, and the bytes become samples here. So they are exact, for every kind of number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

from beam_tfr.images.exif import orientation_of
from beam_tfr.images.formats import general
from beam_tfr.images.formats import tiff_directory as tag
from beam_tfr.images.formats.depth import blocks, largest_of, opaque_is_none, to_8_bit, white_of
from beam_tfr.images.formats.tiff_directory import Page
from beam_tfr.images.source import DECODER_ERRORS, Decoded, Source, detail
from beam_tfr.schema import RejectError

_HEADER = 8  # bytes
_NOT_UNPACKED = (34712, 34887, 50001, 50002)  # JPEG 2000, LERC, WebP, JPEG XL: not in the libtiff of Pillow
_MOST_TILE = 1 << 26  # bytes of one tile, if it is larger than the image


def open_tiff(data: bytes) -> Source:
    """
    Raises:
        RejectError: `damaged-image`, `unsupported-image`; `not-an-image` for camera raw files, whose first picture is
            a thumbnail.
    """
    page, more = tag.first_page(data)
    if tag.DNG_VERSION in page.tags or (page.get(tag.SUBFILE) & 1 and tag.SUB_DIRECTORIES in page.tags):
        raise RejectError("not-an-image", "a camera raw file (DNG, NEF or the like)")
    height, width = page.get(tag.HEIGHT), page.get(tag.WIDTH)
    if not 1 <= page.bits <= 64 or not 1 <= page.get(tag.SAMPLES) <= 1024:
        raise RejectError("damaged-image", f"TIFF: {page}")
    if not height or not width or not (page.tags.get(tag.STRIPS) or page.tags.get(tag.TILES)):
        raise RejectError("damaged-image", "TIFF: no size, or no pixels")
    if page.bits not in (1, 2, 4, 8, 16, 24, 32, 64) or page.get(tag.COMPRESSION) in _NOT_UNPACKED:
        raise RejectError("unsupported-image", f"TIFF: {page}")
    if height * width > general.MOST_PIXELS:
        return general.too_large("tiff", height, width)
    _check_tiles(page)
    sample = page.bytewise
    if page.is_deep and sample is None and page.get(tag.PHOTOMETRIC) == tag.YCBCR and page.get(tag.COMPRESSION) == 1:
        raise RejectError("unsupported-image", f"TIFF: {page}")
    source = _open_bytewise(data, page, sample) if sample and page.is_deep else _open_pillow(data, page)
    source.frames = 2 if more else 1
    return source


def _check_tiles(page: Page) -> None:
    """
    Raises:
        RejectError: `damaged-image`: a tile is much larger than the image, and would be unpacked whole.
    """
    if tag.TILES not in page.tags:
        return
    depth = page.get(tag.SAMPLES) * page.bits
    tile, whole = (
        page.get(a) * page.get(b) * depth // 8 for a, b in ((tag.TILE_HEIGHT, tag.TILE_WIDTH), (tag.HEIGHT, tag.WIDTH))
    )
    if not tile or tile > max(_MOST_TILE, whole):
        raise RejectError(
            "damaged-image", f"TIFF: tiles of {page.get(tag.TILE_WIDTH)} x {page.get(tag.TILE_HEIGHT)} pixels"
        )


def _open_pillow(data: bytes, page: Page) -> Source:
    try:
        image = general.open_image(data, "TIFF")
        orientation = orientation_of(image)
    except RejectError:
        if sample := page.bytewise:
            return _open_bytewise(data, page, sample)
        raise RejectError("unsupported-image", f"TIFF: {page}") from None
    if image.mode == "LAB":
        raise RejectError("unsupported-image", "TIFF: Lab colours")
    if orientation > 1 and page.orientation:  # else Pillow would turn it
        value = struct.pack(page.order + "H", 1)
        image = general.open_image(data[: page.orientation] + value + data[page.orientation + 2 :], "TIFF")

    def decode(_: tuple[int, int] | None) -> Decoded:
        with image:
            try:
                image.load()
                return general.split(image, page.bits)
            except DECODER_ERRORS as error:
                raise RejectError("damaged-image", f"TIFF: {detail(error)}") from error

    return Source(
        format="tiff", height=page.get(tag.HEIGHT), width=page.get(tag.WIDTH), orientation=orientation, decode=decode
    )


def _open_bytewise(data: bytes, page: Page, sample: np.dtype[Any]) -> Source:
    orientation = page.get(tag.ORIENTATION)

    def decode(_: tuple[int, int] | None) -> Decoded:
        try:
            return _decode_bytewise(data, page, sample)
        except DECODER_ERRORS as error:
            raise RejectError("damaged-image", f"TIFF: {detail(error)}") from error

    return Source(
        format="tiff",
        height=page.get(tag.HEIGHT),
        width=page.get(tag.WIDTH),
        orientation=orientation if 1 <= orientation <= 8 else 1,
        decode=decode,
    )


def _decode_bytewise(data: bytes, page: Page, sample: np.dtype[Any]) -> Decoded:
    height, width = page.get(tag.HEIGHT), page.get(tag.WIDTH)
    colours = tag.COLOURS[page.get(tag.PHOTOMETRIC)]
    planes = [_unpack(data, page, plane, sample) for plane in range(min(page.planes, colours + 1))]
    extra = page.tags.get(tag.EXTRA, (2,) * (page.get(tag.SAMPLES) - colours))[:1]
    transparent = colours < 4 and extra in ((1,), (2,)) and page.get(tag.SAMPLES) > colours
    pixels = np.empty((height, width, colours), np.uint8)
    alpha = np.empty((height, width), np.uint8) if transparent else None
    everything = blocks(height, width * page.get(tag.SAMPLES))
    white = white_of(sample)
    if sample.kind == "f":
        white = white_of(sample, max(largest_of(_samples(planes, page, sample, rows)) for rows in everything))
    for rows in everything:
        samples = _samples(planes, page, sample, rows)
        if alpha is not None:
            opacity = np.clip(np.nan_to_num(samples[..., colours].astype(np.float64) / white), 0, 1)
            alpha[rows] = to_8_bit(opacity, 1)
            if extra == (1,):
                samples = samples[..., :colours] / np.where(opacity > 0, opacity, 1)[..., None]
        scaled = to_8_bit(samples[..., :colours], white)
        if page.get(tag.PHOTOMETRIC) == tag.YCBCR:
            scaled = np.asarray(PillowImage.fromarray(scaled, "YCbCr").convert("RGB"))
        pixels[rows] = 255 - scaled if page.get(tag.PHOTOMETRIC) == 0 else scaled
    bits = 8 * sample.itemsize
    return Decoded(
        pixels=pixels,
        alpha=opaque_is_none(alpha),
        profile=page.profile,
        bits=bits,
        adjusted=("depth-scaled",) if bits > 8 else (),
    )


def _unpack(data: bytes, page: Page, plane: int, sample: np.dtype[Any]) -> PillowImage.Image:
    """The bytes of a plane as a grey image, as wide as a row has bytes (whole tiles where it has tiles)."""
    size = sample.itemsize * page.get(tag.SAMPLES) // page.planes
    tiled = tag.TILES in page.tags
    places, lengths = (tag.TILES, tag.TILE_BYTES) if tiled else (tag.STRIPS, tag.STRIP_BYTES)
    tags: dict[int, Sequence[int]] = {
        tag.WIDTH: (_row_pixels(page) * size,),
        tag.HEIGHT: (page.get(tag.HEIGHT),),
        tag.BITS: (8,),
        tag.COMPRESSION: (page.get(tag.COMPRESSION),),
        tag.PHOTOMETRIC: (1,),
        tag.SAMPLES: (1,),
    }
    if tiled:
        tags |= {tag.TILE_WIDTH: (page.get(tag.TILE_WIDTH) * size,), tag.TILE_HEIGHT: (page.get(tag.TILE_HEIGHT),)}
    else:
        tags[tag.ROWS] = (min(page.get(tag.ROWS) or page.get(tag.HEIGHT), page.get(tag.HEIGHT)),)
    for number in (places, lengths):
        values = page.tags.get(number, ())
        share = len(values) // page.planes
        tags[number] = values[plane * share : (plane + 1) * share]
    # In front of the file, so that a cut one still ends where it ends.
    shift = _HEADER + len(_directory(tags))
    tags[places] = [place + shift for place in tags[places]]
    file = b"II*\0" + struct.pack("<I", _HEADER) + _directory(tags) + data
    image = general.open_image(file, "TIFF")
    image.load()
    return image


def _directory(tags: dict[int, Sequence[int]]) -> bytes:
    """The bytes of a directory behind the header, little-endian, every value as LONG."""
    entries, values = struct.pack("<H", len(tags)), b""
    behind = _HEADER + 2 + 12 * len(tags) + 4
    for number, value in sorted(tags.items()):
        packed = struct.pack(f"<{len(value)}I", *value)
        place = packed.ljust(4, b"\0")
        if len(packed) > 4:
            place = struct.pack("<I", behind + len(values))
            values += packed
        entries += struct.pack("<HHI", number, 4, len(value)) + place
    return entries + bytes(4) + values


def _row_pixels(page: Page) -> int:
    width, tile = page.get(tag.WIDTH), page.get(tag.TILE_WIDTH)
    return -(-width // tile) * tile if tag.TILES in page.tags else width


def _samples(planes: list[PillowImage.Image], page: Page, sample: np.dtype[Any], rows: slice) -> NDArray[Any]:
    """[rows, width, samples], predictors undone."""
    pixels = _row_pixels(page)
    tile = page.get(tag.TILE_WIDTH) if tag.TILES in page.tags else pixels
    parts = []
    for plane in planes:
        packed = np.asarray(plane.crop((0, rows.start, plane.width, rows.stop)))
        count = page.get(tag.SAMPLES) // page.planes
        packed = packed.reshape(len(packed), pixels // tile, tile * count * sample.itemsize)
        if page.get(tag.PREDICTOR) == 3:  # bytes are differences, all first bytes before all second ones
            packed = np.cumsum(packed.reshape(*packed.shape[:2], -1, count), axis=2, dtype=np.uint8)
            packed = packed.reshape(*packed.shape[:2], sample.itemsize, -1).swapaxes(2, 3)
            samples = np.ascontiguousarray(packed).view(sample.newbyteorder(">"))[..., 0]
        else:
            samples = packed.view(sample)
        samples = samples.reshape(len(packed), -1, tile, count)
        if page.get(tag.PREDICTOR) == 2:
            samples = np.cumsum(samples, axis=2, dtype=sample.newbyteorder("="))
        parts.append(samples.reshape(len(packed), pixels, count)[:, : page.get(tag.WIDTH)])
    return np.concatenate(parts, axis=2) if len(parts) > 1 else parts[0]
