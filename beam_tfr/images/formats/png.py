"""PNG (ISO/IEC 15948): OpenCV decodes the pixels; everything else is read from the chunks."""

import contextlib
import zlib

import numpy as np

from beam_tfr.images.color import MAX_PROFILE_BYTES
from beam_tfr.images.containers.chunks import PNG_SIGNATURE, png_chunks
from beam_tfr.images.formats import by_opencv
from beam_tfr.images.formats.depth import ALPHA_BYTES, drop_if_opaque
from beam_tfr.images.orientation import find_orientation
from beam_tfr.images.source import Decoded, Source
from beam_tfr.schema.errors import RejectError

_DECODING = (b"IHDR", b"PLTE", b"tRNS", b"IDAT")
_END = b"\0\0\0\0IEND\xae\x42\x60\x82"
_ABOUT = (b"IHDR", b"tRNS", b"iCCP", b"eXIf", b"fdAT")
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_EXIF_TEXT = b"Raw profile type exif"
_XMP_TEXT = b"XML:com.adobe.xmp"
_MAX_TEXT_BYTES = 1 << 20  # of EXIF or XMP, decompressed
_GRAY = 0
_GRAY_AND_ALPHA = 4  # color types
# Instead of ALPHA_BYTES: may become colors, and is copied out of four channels.
_GRAY_ALPHA_BYTES = {_GRAY: 4, _GRAY_AND_ALPHA: 2}


def open_png(data: bytes) -> Source:
    """Opens a PNG. Data after the pixels may be truncated.

    Raises:
        RejectError: `damaged-image`.
    """
    contents: dict[bytes, bytes] = {}
    decoding: list[memoryview] = []
    with contextlib.suppress(RejectError):  # where pixels are missing, decoding shows it
        for chunk in png_chunks(data):
            if chunk.kind in _DECODING:
                decoding.append(chunk.whole)
            if chunk.kind in _TEXTS:
                name, _, text = bytes(chunk.content).partition(b"\0")
                if name in (_EXIF_TEXT, _XMP_TEXT):
                    contents.setdefault(name, _decompressed(chunk.kind, text))
            elif chunk.kind in _ABOUT:
                contents.setdefault(chunk.kind, bytes(chunk.content))
    header = contents.get(b"IHDR", b"")
    height = int.from_bytes(header[4:8], "big")
    width = int.from_bytes(header[:4], "big")
    if len(header) != 13 or not height or not width:
        raise RejectError("damaged-image", "PNG: the header is broken")
    bits, kind = header[8:10]
    clear = contents.get(b"tRNS") if kind == _GRAY else None

    def decode(_: tuple[int, int] | None) -> Decoded:
        samples = by_opencv.decode_samples(
            b"".join((PNG_SIGNATURE, *decoding, _END)), "PNG", height, width
        )
        if kind == _GRAY_AND_ALPHA:
            samples = samples[..., ::3]  # OpenCV repeats the gray
        packed = contents.get(b"iCCP", b"").partition(b"\0")[2][1:]  # after its name and the method
        profile = _inflate(
            packed, MAX_PROFILE_BYTES + 1
        )  # one that is too large is cut to a size that is ignored too
        alpha = None
        if clear is not None:  # which OpenCV ignores for gray
            level = int.from_bytes(clear[:2], "big") * (255 // ((1 << bits) - 1) if bits < 8 else 1)
            alpha = drop_if_opaque((samples[..., 0] != level).view(np.uint8) * np.uint8(255))
        decoded = by_opencv.to_decoded(samples, bits=bits, profile=profile)
        if alpha is not None:
            decoded.alpha = alpha
        return decoded

    may_be_clear = kind >= _GRAY_AND_ALPHA or b"tRNS" in contents
    channels = (1 if kind == _GRAY else 3 + may_be_clear) * (
        1 + (bits > 8)
    )  # that OpenCV decodes, in bytes
    return Source(
        format="png",
        height=height,
        width=width,
        orientation=find_orientation(
            contents.get(b"eXIf") or _raw_profile(contents), contents.get(_XMP_TEXT, b"")
        ),
        frames=2 if b"fdAT" in contents else 1,  # pixels of a further frame
        decode=decode,
        memory=lambda _: (
            height * width * (channels + _GRAY_ALPHA_BYTES.get(kind, ALPHA_BYTES) * may_be_clear)
        ),
    )


def _inflate(packed: bytes, max_bytes: int) -> bytes:
    """At most `most` bytes; empty where the stream is damaged."""
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj().decompress(packed, max_bytes)
    return b""


def _decompressed(kind: bytes, text: bytes) -> bytes:
    """The text of a text chunk, after the zero that ends its keyword (section 11.3.3)."""
    compressed = kind == b"zTXt" or (kind == b"iTXt" and text[:1] == b"\1")
    if kind == b"zTXt":
        text = text[1:]  # after the method
    elif kind == b"iTXt":
        text = text[2:].split(b"\0", 2)[-1]  # after flag, method, language and translated keyword
    return _inflate(text, _MAX_TEXT_BYTES) if compressed else text[:_MAX_TEXT_BYTES]


def _raw_profile(contents: dict[bytes, bytes]) -> bytes:
    """The EXIF block of ImageMagick's text: a line break, a name, a length and hexadecimal digits,
    a line each."""
    with contextlib.suppress(ValueError):
        return bytes.fromhex(
            b"".join(contents.get(_EXIF_TEXT, b"").split(b"\n")[3:]).decode("latin-1")
        )
    return b""
