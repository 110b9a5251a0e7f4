"""Which format a file is of, by its first bytes alone, and who opens it. A format is added here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from beam_tfr.images import general, jpeg
from beam_tfr.images.source import Source
from beam_tfr.schema import RejectError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
    """An image format that is read.

    Attributes:
        is_one: whether bytes begin like a file of it.
        extensions: of its files' names, lower case.
        open: reads the header; raises RejectError `damaged-image` or `unsupported-image`.
        lossless: what it stores is not changed by encoding it (so it becomes a PNG when it must be encoded again).
    """

    is_one: Callable[[bytes], bool]
    extensions: tuple[str, ...]
    open: Callable[[bytes], Source]
    lossless: bool = False


def _begins(*signatures: bytes) -> Callable[[bytes], bool]:
    return lambda data: data.startswith(signatures)


FORMATS: dict[str, Format] = {
    "jpeg": Format(
        is_one=_begins(b"\xff\xd8\xff"),
        extensions=("jpg", "jpeg", "jpe", "jfif", "mpo"),
        open=lambda data: jpeg.open_jpeg(data) or general.open_any(data, "JPEG"),
    ),
    "png": Format(
        is_one=_begins(b"\x89PNG\r\n\x1a\n"),
        extensions=("png", "apng"),
        open=lambda data: general.open_any(data, "PNG"),
        lossless=True,
    ),
    "gif": Format(
        is_one=_begins(b"GIF87a", b"GIF89a"),
        extensions=("gif",),
        open=lambda data: general.open_any(data, "GIF"),
        lossless=True,
    ),
    "webp": Format(
        is_one=lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP",
        extensions=("webp",),
        open=lambda data: general.open_any(data, "WEBP"),
    ),
    "bmp": Format(
        is_one=lambda data: data[:2] == b"BM" and len(data) >= 26,
        extensions=("bmp", "dib"),
        open=lambda data: general.open_any(data, "BMP"),
        lossless=True,
    ),
    "tiff": Format(
        is_one=_begins(b"II*\0", b"MM\0*"),
        extensions=("tif", "tiff"),
        open=lambda data: general.open_any(data, "TIFF"),
        lossless=True,
    ),
    "ppm": Format(
        is_one=lambda data: data[:1] == b"P" and data[1:2] in b"123456" and data[2:3].isspace(),
        extensions=("ppm", "pgm", "pbm", "pnm"),
        open=lambda data: general.open_any(data, "PPM"),
        lossless=True,
    ),
    "jpeg2000": Format(
        is_one=_begins(b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  \r\n\x87\n"),
        extensions=("jp2", "j2k", "jpx", "jpf", "j2c"),
        open=lambda data: general.open_any(data, "JPEG2000"),
    ),
    "avif": Format(
        is_one=lambda data: data[4:12] in (b"ftypavif", b"ftypavis"),
        extensions=("avif",),
        open=lambda data: general.open_any(data, "AVIF"),
    ),
}
_BY_EXTENSION = {extension: name for name, form in FORMATS.items() for extension in form.extensions}


def identify(data: bytes) -> str:
    """The key in `FORMATS` of a file, by its content.

    Raises:
        RejectError: `not-an-image`, with what it seems to be.
    """
    for name, form in FORMATS.items():
        if form.is_one(data):
            return name
    raise RejectError("not-an-image", f"begins with {data[:16]!r}")


def is_wrong_extension(name: str, found: str) -> bool:
    """Whether a file's name ends like a format that its content is not of; unknown endings say nothing."""
    extension = name.rpartition(".")[2].lower() if "." in name.rpartition("/")[2] else ""
    return _BY_EXTENSION.get(extension, found) != found
