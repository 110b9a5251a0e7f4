"""Recognizes image formats by the first bytes of files, and opens the files."""

import posixpath
import re
from collections.abc import Callable
from typing import NamedTuple

from beam_tfr.images.formats import avif, bmp, gif, heic, jpeg, png, pnm, tiff, webp
from beam_tfr.images.source import Source
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.extensions import FORMAT_OF


class ImageFormat(NamedTuple):
    """An image format.

    Attributes:
        matches: returns whether bytes begin like a file in this format.
        open: reads the header; raises RejectError `damaged-image` or `unsupported-image`.
        lossless: whether the format stores pixels exactly; with --encoding keep, images in lossless
            formats become PNGs if they must be encoded again.
        needs_guard: whether files are decoded in a guarded process, because their headers do not
            bound the memory and time that the decoder uses, or because the decoder prints errors
            instead of reporting them.
    """

    matches: Callable[[bytes], object]
    open: Callable[[bytes], Source]
    lossless: bool = False
    needs_guard: bool = False


def _signature(pattern: bytes) -> Callable[[bytes], object]:
    """Makes a function that matches the first bytes of a file."""
    return re.compile(pattern, re.DOTALL).match


def _brand(*brands: bytes) -> Callable[[bytes], object]:
    """Makes a function that matches files in the ISO base media format with one of these brands."""

    def matches(data: bytes) -> bool:
        return not _read_brands(data).isdisjoint(brands)

    return matches


def _read_brands(data: bytes) -> set[bytes]:
    """Reads the major and the compatible brands of a file (ISO/IEC 14496-12, ftyp)."""
    if data[4:8] != b"ftyp":
        return set()
    end = min(int.from_bytes(data[:4], "big"), 1024)
    header = data[8:end]
    places = (0, *range(8, len(header), 4))  # a version follows the first
    return {header[place : place + 4] for place in places}


def _refuse(name: str) -> Callable[[bytes], Source]:
    """Makes the `open` function of a format that is recognized but not supported."""

    def open_none(_: bytes) -> Source:
        raise RejectError(
            "unsupported-image",
            f"{name} is not supported: convert the file first, for example to PNG",
        )

    return open_none


_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
# The order matters: an AVIF may have the brands of a HEIC too.
FORMATS = {
    "jpeg": ImageFormat(_signature(rb"\xff\xd8\xff"), jpeg.open_jpeg),
    "png": ImageFormat(_signature(rb"\x89PNG\r\n\x1a\n"), png.open_png, lossless=True),
    "gif": ImageFormat(_signature(rb"GIF8[79]a"), gif.open_gif, lossless=True),
    "webp": ImageFormat(_signature(rb"RIFF.{4}WEBP"), webp.open_webp),
    "bmp": ImageFormat(_signature(rb"BM.{24}"), bmp.open_bmp, lossless=True),
    "tiff": ImageFormat(
        _signature(rb"(II[*+]\0|MM\0[*+])(?!.{4}CR)"),
        tiff.open_tiff,
        lossless=True,
        needs_guard=True,
    ),
    "ppm": ImageFormat(_signature(rb"P[1-6][\s#]"), pnm.open_pnm, lossless=True),
    "jpeg2000": ImageFormat(
        _signature(rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n"), _refuse("JPEG 2000")
    ),
    "avif": ImageFormat(_brand(b"avif", b"avis"), avif.open_avif, needs_guard=True),
    "heic": ImageFormat(_brand(*_HEIC_BRANDS), heic.open_heic, needs_guard=True),
    "jxl": ImageFormat(_signature(rb"\xff\x0a|\0\0\0\x0cJXL \r\n\x87\n"), _refuse("JPEG XL")),
}


# Other files that are common in image folders.
_OTHER_FILES = {
    rb"\Z": "an empty file",
    rb"PK\x03\x04": "a ZIP archive",
    rb"(?i:\s*<(!doctype )?html)": "HTML",
    rb"[\t-\r -~]+\Z": "text",
}


def identify(data: bytes) -> str:
    """Finds the key of a file's format in `FORMATS` by the content of the file.

    Raises:
        RejectError: `not-an-image`; the detail says how the file begins.
    """
    for name, image_format in FORMATS.items():
        if image_format.matches(data):
            return name
    for pattern, description in _OTHER_FILES.items():
        if re.match(pattern, data[:4096]):
            raise RejectError("not-an-image", description)
    raise RejectError("not-an-image", f"begins with {data[:16]!r}")


def has_wrong_extension(name: str, format_name: str) -> bool:
    """Whether a file name has the extension of another format; unknown extensions do not count."""
    extension = posixpath.splitext(name)[1][1:].lower()
    return FORMAT_OF.get(extension, format_name) != format_name
