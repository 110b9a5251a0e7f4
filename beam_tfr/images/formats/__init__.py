"""The table of formats: how to recognize a file by its first bytes, and the function that opens
it."""

import posixpath
import re
from collections.abc import Callable
from typing import NamedTuple

from beam_tfr.images.formats import general, gif, heic, jpeg, png, pnm, tiff
from beam_tfr.images.source import Source
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.extensions import FORMAT_OF


class Format(NamedTuple):
    """An image format.

    Attributes:
        matches: whether bytes begin like a file of this format.
        open: reads the header; raises RejectError `damaged-image` or `unsupported-image`.
        lossless: it stores pixels exactly; with --encoding keep, what must be encoded again becomes
            a PNG.
        needs_guard: whether a file's header does not bound the memory and time that its decoder
            takes, or the decoder prints what it should report. Such files are decoded in a guarded
            process.
    """

    matches: Callable[[bytes], object]
    open: Callable[[bytes], Source]
    lossless: bool = False
    needs_guard: bool = False


def _begins(pattern: bytes) -> Callable[[bytes], object]:
    return re.compile(pattern, re.DOTALL).match


def _has_brand(*names: bytes) -> Callable[[bytes], object]:
    """Looks at major and compatible brands of an ISO base media file (ISO/IEC 14496-12, ftyp)."""

    def matches(data: bytes) -> bool:
        brands = (
            data[8 : min(int.from_bytes(data[:4], "big"), 1024)] if data[4:8] == b"ftyp" else b""
        )
        return any(brands[place : place + 4] in names for place in (0, *range(8, len(brands), 4)))

    return matches


def _refuse(name: str) -> Callable[[bytes], Source]:
    """The function that opens a format which is not supported, but has a name."""

    def open_none(_: bytes) -> Source:
        raise RejectError(
            "unsupported-image",
            f"{name} is not supported: convert the file first, for example to PNG",
        )

    return open_none


_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
# In this order: an AVIF may have the brands of a HEIC too.
FORMATS = {
    "jpeg": Format(_begins(rb"\xff\xd8\xff"), jpeg.open_jpeg),
    "png": Format(_begins(rb"\x89PNG\r\n\x1a\n"), png.open_png, lossless=True),
    "gif": Format(_begins(rb"GIF8[79]a"), gif.open_gif, lossless=True),
    "webp": Format(_begins(rb"RIFF.{4}WEBP"), general.open_webp),
    "bmp": Format(_begins(rb"BM.{24}"), general.open_bmp, lossless=True),
    "tiff": Format(
        _begins(rb"(II[*+]\0|MM\0[*+])(?!.{4}CR)"), tiff.open_tiff, lossless=True, needs_guard=True
    ),
    "ppm": Format(_begins(rb"P[1-6][\s#]"), pnm.open_pnm, lossless=True),
    "jpeg2000": Format(
        _begins(rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n"), _refuse("JPEG 2000")
    ),
    "avif": Format(_has_brand(b"avif", b"avis"), general.open_avif, needs_guard=True),
    "heic": Format(_has_brand(*_HEIC_BRANDS), heic.open_heic, needs_guard=True),
    "jxl": Format(_begins(rb"\xff\x0a|\0\0\0\x0cJXL \r\n\x87\n"), _refuse("JPEG XL")),
}


# What files in folders of images often are instead.
_STRANGERS = {
    rb"\Z": "an empty file",
    rb"PK\x03\x04": "a ZIP archive",
    rb"(?i:\s*<(!doctype )?html)": "HTML",
    rb"[\t-\r -~]+\Z": "text",
}


def identify(data: bytes) -> str:
    """Finds the key in `FORMATS` of a file, by its content.

    Raises:
        RejectError: `not-an-image`; the detail says how it begins.
    """
    for name, form in FORMATS.items():
        if form.matches(data):
            return name
    descriptions = (
        description for pattern, description in _STRANGERS.items() if re.match(pattern, data[:4096])
    )
    raise RejectError("not-an-image", next(descriptions, f"begins with {data[:16]!r}"))


def is_wrong_extension(name: str, found: str) -> bool:
    """True if a name has the extension of a format other than `found`; unknown extensions are never
    wrong."""
    extension = posixpath.splitext(name)[1][1:].lower()
    return FORMAT_OF.get(extension, found) != found
