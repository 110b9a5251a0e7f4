"""Opens JPEG, which simplejpeg (libjpeg-turbo) decodes; warnings about damage become rejects.

libjpeg decodes damaged images with a warning, but it also warns about harmless oddities (jerror.h).
simplejpeg reports only the last warning, which may hide others. Harmless oddities are therefore
fixed in a copy of the bytes, which must then decode without any warning.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import simplejpeg

from beam_tfr.images.formats import jpeg_damage, jpeg_header
from beam_tfr.images.formats.jpeg_header import Header
from beam_tfr.images.orientation import find_orientation
from beam_tfr.images.source import Decoded, Pixels, Size, Source, describe_error
from beam_tfr.schema.errors import RejectError

# JPEGs that shrink by more are decoded without interpolating chroma, which saves a tenth of the
# decoder's time. Compared with LANCZOS on the fully decoded image, 379 photos of 400x533 have 53.6
# instead of 56.3 dB at 224x224, and 42.5 at worst.
COARSE = 1.5
# Bytes: fewer than any segment whose loss could go unnoticed (an Adobe marker has 16), and more
# than cameras pad with.
MAX_STRAY = 15
DAMAGED_SHARE = 0.95  # fraction of its rows that a JPEG that ends early needs to be kept
KEPT_DAMAGED = "damage-kept"  # in `Decoded.adjusted`
# The decoder's largest useful scaling factor, in eighths: larger ones are slower than no scaling.
_MOST_EIGHTHS = 4
# Bytes per sample of a progressive JPEG; all coefficients are kept until the last scan.
_COEFFICIENT_BYTES = 2
_COLORSPACES = {1: "GRAY", 3: "RGB", 4: "CMYK"}
_BEFORE_EOI = re.compile(r"(?<!\d)(\d+) extraneous bytes before marker 0xd9")
_HARMLESS = re.compile(
    "Unknown Adobe color transform|unknown JFIF revision|bad ICC marker"
    "|Invalid SOS parameters for sequential|extraneous bytes before marker"
)
_UNSUPPORTED = "Unsupported color conversion"  # lossless YCbCr
_UNKNOWN_SAMPLING = "Could not determine subsampling level"


class _Attempt(NamedTuple):
    """The result of the decoder: pixels, or the message of an error or warning."""

    pixels: Pixels | None
    message: str = ""


def open_jpeg(data: bytes) -> Source:
    """Opens a JPEG; pictures after the first, as in an MPO, are ignored.

    Raises:
        RejectError: `damaged-image` or `unsupported-image`.
    """
    header = _read_header(data)
    if header.stray > MAX_STRAY:
        raise RejectError("damaged-image", f"JPEG: {header.stray} stray bytes in its header")

    def decode(min_size: Size | None) -> Decoded:
        pixels, is_padded = _decode(data, header, min_size)
        adjusted = ("padding-ignored",) if is_padded else ()
        return _to_decoded(pixels, header, adjusted)

    return _to_source(data, header, decode, lambda min_size: _memory(header, min_size))


def open_damaged_jpeg(data: bytes) -> Source:
    """Opens a JPEG that may end early, or have other bytes in place of its end marker.

    The header may contain any number of stray bytes.

    Raises:
        RejectError: `damaged-image` or `unsupported-image`. `decode` also raises `damaged-image` if
            the file has fewer than `DAMAGED_SHARE` of the rows, or other bytes follow an incomplete
            image.
    """
    header = _read_header(data)
    completed = jpeg_damage.complete_file(data, header)

    def decode(min_size: Size | None) -> Decoded:
        if completed is None:
            pixels, _ = _decode(data, header, min_size)
        else:
            pixels = _decode_cut(completed, header, min_size)
        return _to_decoded(pixels, header, (KEPT_DAMAGED,))

    def memory(min_size: Size | None) -> int:
        is_cut = completed is not None
        return _memory(header, None if is_cut else min_size)  # all rows are decoded to count them

    return _to_source(completed.data if completed else data, header, decode, memory)


def explain_damage(data: bytes, error: RejectError) -> RejectError:
    """Creates the reject for a damaged JPEG; mentions other bytes in place of the end marker."""
    try:
        others = jpeg_damage.count_other_bytes(data, _read_header(data))
    except RejectError:  # there is no scan
        return error
    if not others:
        return error
    return RejectError(
        error.reason,
        f"{error.detail} (no end marker before {others} other bytes; --damaged keep accepts it if "
        "it has all rows)",
    )


def _read_header(data: bytes) -> Header:
    header = jpeg_header.read_header(data)
    if header.precision != 8:
        raise RejectError("unsupported-image", f"JPEG with {header.precision} bits per sample")
    if len(header.components) not in _COLORSPACES:
        raise RejectError("unsupported-image", f"JPEG with {len(header.components)} components")
    return header


def _to_source(
    data: bytes,
    header: Header,
    decode: Callable[[Size | None], Decoded],
    memory: Callable[[Size | None], int],
) -> Source:
    return Source(
        format="jpeg",
        height=header.height,
        width=header.width,
        orientation=find_orientation(header.exif, header.xmp),
        scans=jpeg_header.count_scans(data, header),
        decode=decode,
        memory=memory,
    )


def _memory(header: Header, min_size: Size | None) -> int:
    """Computes how many bytes decoding uses if the decoder may scale down to `min_size`."""
    rows, columns = min_size or (header.height, header.width)
    eighths = max(-(-8 * rows // header.height), -(-8 * columns // header.width))
    if eighths > _MOST_EIGHTHS:
        eighths = 8
    height = -(-header.height * eighths // 8)
    width = -(-header.width * eighths // 8)
    coefficients = header.samples if header.is_progressive else 0
    return 4 * height * width + _COEFFICIENT_BYTES * coefficients


def _to_decoded(pixels: Pixels, header: Header, adjusted: tuple[str, ...]) -> Decoded:
    if header.adobe_transform is not None and len(header.components) == 4:
        np.subtract(255, pixels, out=pixels)
    profile = jpeg_header.join_profile(header.profile_parts)
    if profile is None:
        adjusted += ("profile-ignored",)
    longest = max(header.height, header.width)
    eighths = 8 * max(pixels.shape[:2]) // longest
    return Decoded(pixels=pixels, eighths=eighths, profile=profile or b"", adjusted=adjusted)


def _decode(data: bytes, header: Header, min_size: Size | None) -> tuple[Pixels, bool]:
    """Decodes a JPEG; also returns whether stray bytes were ignored.

    Raises:
        RejectError: `damaged-image` or `unsupported-image`.
    """
    is_padded = header.stray > 0
    attempt = _try_decoder(data, header, min_size)
    if _HARMLESS.search(attempt.message):
        data = jpeg_header.without_oddities(data, header)
        attempt = _try_decoder(data, header, min_size)
    padding = _BEFORE_EOI.search(attempt.message)
    if padding is not None and int(padding[1]) <= MAX_STRAY:
        shorter = jpeg_header.without_padding(data, int(padding[1]))
        if shorter is not None:
            attempt = _try_decoder(shorter, header, min_size)
            is_padded = True
    if attempt.pixels is None:
        raise _to_reject(attempt.message, header)
    return attempt.pixels, is_padded


def _to_reject(message: str, header: Header) -> RejectError:
    """Creates the reject for a message from the decoder."""
    if _UNKNOWN_SAMPLING in message:
        factors = ", ".join(f"{across}x{down}" for across, down in header.sampling)
        return RejectError(
            "unsupported-image",
            f"JPEG of {header.width} x {header.height} pixels with sampling factors {factors}, "
            "which libjpeg-turbo does not decode; convert it first, for example to PNG",
        )
    reason = "unsupported-image" if _UNSUPPORTED in message else "damaged-image"
    return RejectError(reason, f"JPEG: {message}")


def _decode_cut(
    completed: jpeg_damage.CompleteFile, header: Header, min_size: Size | None
) -> Pixels:
    """Decodes a JPEG that ends early; libjpeg fills in the rest.

    Raises:
        RejectError: `damaged-image`: the file has fewer than `DAMAGED_SHARE` of the rows, other
            bytes follow an incomplete image, or the image is damaged elsewhere.
    """
    plain = jpeg_header.without_oddities(completed.data, header)
    plain_header = jpeg_header.read_header(plain)
    colorspace = _COLORSPACES[len(header.components)]
    whole = None
    if jpeg_damage.count_rows(plain, plain_header, colorspace) == header.height:
        whole = jpeg_damage.cut_behind_picture(
            plain, plain_header, colorspace, padding=completed.padding
        )
    if whole is None:
        plain = jpeg_damage.remove_padding(plain, completed.padding)
        rows = jpeg_damage.count_rows(plain, plain_header, colorspace)
        _check_rows(rows, header, completed.other_bytes)
    attempt = _try_decoder(whole or plain, header, min_size, strict=whole is not None)
    if attempt.pixels is None:
        raise RejectError("damaged-image", f"JPEG: {attempt.message}")
    return attempt.pixels


def _check_rows(rows: int, header: Header, other_bytes: int) -> None:
    """Checks that a JPEG without an end marker has enough rows."""
    share = f"has {rows} of {header.height} rows"
    if rows < DAMAGED_SHARE * header.height:
        raise RejectError("damaged-image", f"JPEG: {share}, fewer than {DAMAGED_SHARE:.0%}")
    if rows < header.height and other_bytes:
        raise RejectError("damaged-image", f"JPEG: {share}, then {other_bytes} other bytes")


def _try_decoder(
    data: bytes, header: Header, min_size: Size | None, *, strict: bool = True
) -> _Attempt:
    """Decodes a JPEG with libjpeg-turbo; if `strict`, warnings count as errors."""
    channels = len(header.components)
    colorspace = _COLORSPACES[channels]
    scaling: dict[str, Any] = {}
    if min_size is not None and _can_scale(header):
        scaling = _scaling(header, min_size)
        is_resized = min_size != (2 * header.height, 2 * header.width)
        if is_resized and channels == 3:
            colorspace = "RGBX"  # four bytes per pixel are resized without a copy
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace, strict=strict, **scaling)
    except ValueError as error:
        return _Attempt(None, describe_error(error))
    return _Attempt(pixels[..., :channels])


def _can_scale(header: Header) -> bool:
    """Whether the decoder can scale down, and its choice of factor shows in the resulting size.

    Below 8 pixels, several factors give the same size.
    """
    return not header.is_lossless and max(header.height, header.width) >= 8


def _scaling(header: Header, min_size: Size) -> dict[str, Any]:
    """Returns arguments that make the decoder scale down: this is fast, and nearly exact.

    The decoder's factors are eighths; factors above a half are slower than no scaling.
    """
    rows, columns = min_size
    shrinks = 2 * min(header.height / rows, header.width / columns)  # to twice the wanted size
    return {
        "min_height": rows,
        "min_width": columns,
        "min_factor": 2,
        "fastupsample": shrinks >= COARSE,
    }
