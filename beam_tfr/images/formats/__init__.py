"""The table of formats: how a file of each is recognized by its first bytes, and what opens it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from beam_tfr.images.formats import avif, bmp, extras, gif, jpeg, jpeg2000, kinds, png, pnm, tiff, webp
from beam_tfr.images.source import Source
from beam_tfr.schema import RejectError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
    """An image format.

    Attributes:
        is_one: whether bytes begin like a file of this format.
        extensions: of file names, lower case.
        open: reads the header; raises RejectError `damaged-image` or `unsupported-image`.
        lossless: it stores pixels exactly; with --encoding keep, what must be encoded again becomes a PNG.
    """

    is_one: Callable[[bytes], bool]
    extensions: tuple[str, ...]
    open: Callable[[bytes], Source]
    lossless: bool = False


def _begins(*signatures: bytes) -> Callable[[bytes], bool]:
    return lambda data: data.startswith(signatures)


def _brands(data: bytes) -> set[bytes]:
    """Major and compatible brands of an ISO base media file (ISO/IEC 14496-12, ftyp)."""
    if data[4:8] != b"ftyp":
        return set()
    names = data[8 : min(int.from_bytes(data[:4], "big"), 1024)]
    return {names[:4]} | {names[place : place + 4] for place in range(8, len(names), 4)}


_AVIF = {b"avif", b"avis"}
_HEIC = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}


FORMATS: dict[str, Format] = {
    "jpeg": Format(
        is_one=_begins(b"\xff\xd8\xff"),
        extensions=("jpg", "jpeg", "jpe", "jfif", "mpo"),
        open=jpeg.open_jpeg,
    ),
    "png": Format(
        is_one=_begins(b"\x89PNG\r\n\x1a\n"),
        extensions=("png", "apng"),
        open=png.open_png,
        lossless=True,
    ),
    "gif": Format(
        is_one=_begins(b"GIF87a", b"GIF89a"),
        extensions=("gif",),
        open=gif.open_gif,
        lossless=True,
    ),
    "webp": Format(
        is_one=lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP",
        extensions=("webp",),
        open=webp.open_webp,
    ),
    "bmp": Format(
        is_one=lambda data: data[:2] == b"BM" and len(data) >= 26,
        extensions=("bmp", "dib"),
        open=bmp.open_bmp,
        lossless=True,
    ),
    "tiff": Format(
        is_one=lambda data: data.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")) and data[8:10] != b"CR",
        extensions=("tif", "tiff"),
        open=tiff.open_tiff,
        lossless=True,
    ),
    "ppm": Format(
        is_one=lambda data: re.match(rb"P[1-6][\s#]", data) is not None,
        extensions=("ppm", "pgm", "pbm", "pnm"),
        open=pnm.open_pnm,
        lossless=True,
    ),
    "jpeg2000": Format(
        is_one=_begins(b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  \r\n\x87\n"),
        extensions=("jp2", "j2k", "jpx", "jpf", "j2c"),
        open=jpeg2000.open_jpeg2000,
    ),
    "avif": Format(
        is_one=lambda data: bool(_AVIF & _brands(data)),
        extensions=("avif",),
        open=avif.open_avif,
    ),
    "heic": Format(
        is_one=lambda data: bool(_HEIC & _brands(data)),
        extensions=("heic", "heif", "hif"),
        open=extras.open_heic,
    ),
    "jxl": Format(
        is_one=_begins(b"\xff\x0a", b"\0\0\0\x0cJXL \r\n\x87\n"),
        extensions=("jxl",),
        open=extras.open_jxl,
    ),
}
_BY_EXTENSION = {extension: name for name, form in FORMATS.items() for extension in form.extensions}


def identify(data: bytes) -> str:
    """Finds the key in `FORMATS` of a file, by its content.

    Raises:
        RejectError: `not-an-image`; the detail says what it seems to be.
    """
    for name, form in FORMATS.items():
        if form.is_one(data):
            return name
    raise RejectError("not-an-image", kinds.describe(data))


def extra_versions() -> dict[str, str]:
    """Versions of the installed libraries of the extra `formats`."""
    return extras.versions()


def is_wrong_extension(name: str, found: str) -> bool:
    """Whether a name has the extension of a format other than `found`; unknown extensions are never wrong."""
    base, dot, extension = name.rpartition("/")[2].rpartition(".")
    return bool(base and dot) and _BY_EXTENSION.get(extension.lower(), found) != found
