"""JPEG: decoded by simplejpeg (libjpeg-turbo); a warning about damage is a reject.

libjpeg decodes a damaged image with a warning, but warns of harmless oddities too (jerror.h).
simplejpeg reports only the last warning, which may hide others. So a harmless oddity is fixed in a
copy of the bytes, which must then decode without any warning.
"""

import re

import numpy as np
import simplejpeg

from beam_tfr.images.formats import jpeg_damage, jpeg_header
from beam_tfr.images.formats.jpeg_header import Header
from beam_tfr.images.orientation import find_orientation
from beam_tfr.images.source import Decoded, Pixels, Source, detail
from beam_tfr.schema.errors import RejectError

# JPEGs that shrink by more are decoded without interpolating chroma. That saves a tenth of the
# decoder's time; against LANCZOS of all that was decoded, 379 photos of 400x533 have 53.6 instead
# of 56.3 dB at 224x224, and 42.5 at worst.
COARSE = 1.5
# Bytes: fewer than any segment whose loss could go unnoticed (an Adobe marker has 16), more than
# cameras pad with.
MAX_STRAY = 15
DAMAGED_SHARE = 0.95  # of the rows of a JPEG that ends early, which must be there to keep it
KEPT_DAMAGED = "damage-kept"  # in `Decoded.adjusted`
_COEFFICIENT_BYTES = (
    2  # of each sample of a progressive JPEG, all of which are kept until the last scan
)
_COLORSPACES = {1: "GRAY", 3: "RGB", 4: "CMYK"}
_BEFORE_EOI = re.compile(r"(\d+) extraneous bytes before marker 0xd9")
_HARMLESS = re.compile(
    r"Unknown Adobe color transform|unknown JFIF revision|bad ICC marker|Invalid SOS parameters for sequential"
    r"|extraneous bytes before marker"
)
_UNSUPPORTED = "Unsupported color conversion"  # lossless YCbCr
_UNKNOWN_SAMPLING = "Could not determine subsampling level"


def open_jpeg(data: bytes, *, damaged: bool = False) -> Source:
    """Opens a JPEG; pictures after the first, as in an MPO, are ignored.

    Args:
        data: the file.
        damaged: whether it may end early, if `DAMAGED_SHARE` of its rows are there, and have any
            number of stray bytes in its header.

    Raises:
        RejectError: `damaged-image` or `unsupported-image`.
    """
    cut = False
    if damaged:
        whole = jpeg_damage.complete(data)
        cut = whole is not data
        data = whole
    header = jpeg_header.read_header(data)
    if header.precision != 8:
        raise RejectError("unsupported-image", f"JPEG of {header.precision} bits a sample")
    if len(header.components) not in _COLORSPACES:
        raise RejectError("unsupported-image", f"JPEG of {len(header.components)} components")
    if header.stray > MAX_STRAY and not damaged:
        raise RejectError("damaged-image", f"JPEG: {header.stray} stray bytes in its header")

    def decode(least: tuple[int, int] | None) -> Decoded:
        # Letting the decoder scale down, to at least twice the size wanted, is fast and hardly less
        # exact. Its factors are eighths; a half and more is slower than no scaling. Below 8 pixels
        # several give the same size.
        if header.lossless or max(header.height, header.width) < 8:
            least = None
        pixels, padded = (
            (_decode_cut(data, header, least), False) if cut else _decode(data, header, least)
        )
        if header.adobe >= 0 and len(header.components) == 4:
            np.subtract(255, pixels, out=pixels)
        eighths = 8
        shape = pixels.shape[:2]
        if shape != (header.height, header.width):
            eighths = next(
                n
                for n in range(1, 8)
                if (-(-header.height * n // 8), -(-header.width * n // 8)) == shape
            )
        profile = jpeg_header.join_profile(header.profile_parts)
        notes = (KEPT_DAMAGED,) if damaged else ("padding-ignored",) * padded
        adjusted = notes + ("profile-ignored",) * (profile is None)
        return Decoded(pixels=pixels, eighths=eighths, profile=profile or b"", adjusted=adjusted)

    def memory(least: tuple[int, int] | None) -> int:
        least = None if cut else least  # all rows are decoded to count them
        rows, columns = least or (header.height, header.width)
        eighths = next(
            (
                n
                for n in range(1, 5)
                if header.height * n >= 8 * rows and header.width * n >= 8 * columns
            ),
            8,
        )
        pixels = 4 * -(-header.height * eighths // 8) * -(-header.width * eighths // 8)
        return pixels + (_COEFFICIENT_BYTES * header.samples if header.progressive else 0)

    return Source(
        format="jpeg",
        height=header.height,
        width=header.width,
        orientation=find_orientation(header.exif, header.xmp),
        scans=jpeg_header.count_scans(data, header),
        decode=decode,
        memory=memory,
    )


def _decode(data: bytes, header: Header, least: tuple[int, int] | None) -> tuple[Pixels, bool]:
    """Decodes a JPEG; also returns whether stray bytes were ignored.

    Raises:
        RejectError: `damaged-image` or `unsupported-image`.
    """
    padded = header.stray > 0
    result = _decode_strictly(data, header, least)
    if isinstance(result, str) and _HARMLESS.search(result):
        data = jpeg_header.without_oddities(data, header)
        result = _decode_strictly(data, header, least)
    if (
        isinstance(result, str)
        and (stray := _BEFORE_EOI.search(result))
        and int(stray[1]) <= MAX_STRAY
    ):
        shorter = jpeg_header.without_padding(data, int(stray[1]))
        if shorter is not None:
            result = _decode_strictly(shorter, header, least)
            padded = True
    if not isinstance(result, str):
        return result, padded
    if _UNKNOWN_SAMPLING in result:
        factors = ", ".join(f"{across}x{down}" for across, down in header.sampling)
        about = f"JPEG of {header.width} x {header.height} pixels with sampling factors {factors}"
        cure = "which libjpeg-turbo does not decode; convert it first, for example to PNG"
        raise RejectError("unsupported-image", f"{about}, {cure}")
    raise RejectError(
        "unsupported-image" if _UNSUPPORTED in result else "damaged-image", f"JPEG: {result}"
    )


def _decode_cut(data: bytes, header: Header, least: tuple[int, int] | None) -> Pixels:
    """Decodes a JPEG that ends early; libjpeg fills the rest.

    Raises:
        RejectError: `damaged-image`: fewer than `DAMAGED_SHARE` of its rows are there.
    """
    plain = jpeg_header.without_oddities(data, header)
    rows = jpeg_damage.count_rows(
        plain, jpeg_header.read_header(plain), _COLORSPACES[len(header.components)]
    )
    if rows < DAMAGED_SHARE * header.height:
        problem = f"{rows} of {header.height} rows are there, fewer than {DAMAGED_SHARE:.0%}"
        raise RejectError("damaged-image", f"JPEG: {problem}")
    result = _decode_strictly(plain, header, least, strict=False)
    if isinstance(result, str):
        raise RejectError("damaged-image", f"JPEG: {result}")
    return result


def _decode_strictly(
    data: bytes, header: Header, least: tuple[int, int] | None, *, strict: bool = True
) -> Pixels | str:
    """Decodes a JPEG with libjpeg-turbo; returns its message where it has an error or, if strict, a
    warning."""
    rows, columns, factor = (*least, 2) if least else (0, 0, 1)  # twice what is wanted
    coarse = least is not None and 2 * min(header.height / rows, header.width / columns) >= COARSE
    resized = least is not None and least != (2 * header.height, 2 * header.width)
    count = len(header.components)
    space = (
        "RGBX" if resized and count == 3 else _COLORSPACES[count]
    )  # four bytes a pixel are resized without a copy
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(
            data,
            space,
            min_height=rows,
            min_width=columns,
            min_factor=factor,
            fastupsample=coarse,
            strict=strict,
        )
    except ValueError as error:
        return detail(error)
    return pixels[..., :count]
