"""HEIC and JPEG XL, whose decoders come with `pip install 'beam_tfr[formats]'` and are imported on first use."""

import importlib
from typing import Any

import numpy as np

from beam_tfr.images.containers.chunks import boxes
from beam_tfr.images.formats.depth import ALPHA_BYTES, decoded_parts
from beam_tfr.images.source import Decoded, Source, damage_in
from beam_tfr.schema.errors import RejectError

_RATIOS = ((0, 0), (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))  # of width to height
_HEIC_BYTES, _JXL_BYTES = (8, 16), (10, 36)  # a pixel, of 8 and of more bits a sample


def _library(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        cure = f"reading {name} requires an extra: pip install 'beam_tfr[formats]'"
        raise RejectError("unsupported-image", cure) from None


def open_heic(data: bytes) -> Source:
    """Opens a HEIC (ISO/IEC 23008-12).

    The decoder applies the boxes that turn the picture (irot, imir). EXIF only repeats them, so it is ignored.

    Raises:
        RejectError: `damaged-image`; `unsupported-image` without the extra.
    """
    pillow_heif = _library("pillow_heif", "HEIC")
    pillow_heif.options.DECODE_THREADS = 1  # the runner's threads are the parallelism
    with damage_in("HEIC"):
        file = pillow_heif.open_heif(data, convert_hdr_to_8bit=False)
        image = file[file.primary_index]
    width, height = image.size
    pixel_bytes = _HEIC_BYTES[image.info["bit_depth"] > 8] + ALPHA_BYTES * image.has_alpha

    def decode(_: tuple[int, int] | None) -> Decoded:
        with damage_in("HEIC"):
            samples = np.asarray(image)[:, :width]
            return _decoded(samples, height, width, image.info.get("icc_profile") or b"", image.info["bit_depth"])

    return Source(
        format="heic",
        height=height,
        width=width,
        frames=min(2, len(file)),
        decode=decode,
        memory=lambda _: pixel_bytes * height * width,
    )


def open_jxl(data: bytes) -> Source:
    """Opens a JPEG XL (ISO/IEC 18181).

    The decoder applies the orientation of the codestream. EXIF only repeats it, so it is ignored.

    Raises:
        RejectError: `damaged-image`; `unsupported-image` without the extra.
    """
    pillow_jxl = _library("pillow_jxl", "JPEG XL")
    try:
        height, width, animated, deep = _jxl_header(_codestream(data)[:64])
    except IndexError:
        raise RejectError("damaged-image", "JPEG XL: the header is cut") from None

    def decode(_: tuple[int, int] | None) -> Decoded:
        with damage_in("JPEG XL"):
            _, info, packed, profile, _ = pillow_jxl.Decoder(num_threads=0)(_without_jpeg(data))
            count = info.num_channels + info.has_alpha_channel
            kind = "f" if info.mode.startswith("F") else "u"
            sample = np.dtype(f"{kind}{len(packed) // (height * width * count)}")
            samples = np.frombuffer(packed, sample).reshape(info.height, info.width, count)
            return _decoded(samples, height, width, profile or b"", 8 * sample.itemsize)

    return Source(
        format="jxl",
        height=height,
        width=width,
        frames=1 + animated,
        decode=decode,
        memory=lambda _: (_JXL_BYTES[deep] + ALPHA_BYTES) * height * width,
    )


def _decoded(samples: Any, height: int, width: int, profile: bytes, bits: int) -> Decoded:
    if samples.shape[:2] != (height, width):
        raise ValueError(f"{samples.shape[1]} x {samples.shape[0]} pixels, the header says {width} x {height}")
    pixels, alpha = decoded_parts(samples)
    return Decoded(pixels=pixels, alpha=alpha, profile=profile, bits=bits)


def _codestream(data: bytes) -> bytes:
    """The codestream, bare or from the boxes of a container (ISO/IEC 18181-2), which number its parts."""
    if data[:2] == b"\xff\x0a":
        return data
    starts = {b"jxlc": 0, b"jxlp": 4}
    return b"".join(box.content[starts[box.kind] :] for box in boxes(data) if box.kind in starts)


def _without_jpeg(data: bytes) -> bytes:
    """The same file without the box that would make the decoder give back a JPEG instead of pixels."""
    if data[:2] == b"\xff\x0a":
        return data
    return b"".join(box.whole for box in boxes(data) if box.kind != b"jbrd")


def _jxl_header(codestream: bytes) -> tuple[int, int, bool, bool]:
    """Reads height, width, whether it is animated, and whether samples may have more than 8 bits.

    See ISO/IEC 18181-1, SizeHeader and ImageMetadata.

    Raises:
        IndexError: it is cut.
    """
    if len(codestream) < 12:
        raise IndexError
    stream, place = int.from_bytes(codestream, "little"), 16

    def take(bits: int) -> int:
        nonlocal place
        place += bits
        return stream >> place - bits & (1 << bits) - 1

    def sizes() -> tuple[int, int]:
        small = take(1)
        height = 8 * (take(5) + 1) if small else take((9, 13, 18, 30)[take(2)]) + 1
        ratio = take(3)
        if ratio:
            over, under = _RATIOS[ratio]
            return height, height * over // under
        return height, 8 * (take(5) + 1) if small else take((9, 13, 18, 30)[take(2)]) + 1

    height, width = sizes()
    if take(1):  # all by default
        return height, width, False, False
    if not take(1):  # no extra fields
        return height, width, False, take(3) > 0  # a float, or not the first choice of bits
    if take(3) >= 4:  # EXIF's orientation less 1: turned by a quarter
        height, width = width, height
    if take(1):  # an intrinsic size
        sizes()
    preview, animated = take(1), take(1)
    return height, width, bool(animated and not preview), bool(preview or animated or take(3))
