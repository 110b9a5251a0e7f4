"""Opens PNG (ISO/IEC 15948): OpenCV decodes the pixels; the rest is read from the chunks."""

import contextlib
import dataclasses
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.png_chunks import PIXEL_KINDS, PNG_END, PNG_SIGNATURE, png_chunks
from beam_tfr.images.color import MAX_PROFILE_BYTES
from beam_tfr.images.formats import by_opencv
from beam_tfr.images.formats.depth import ALPHA_BYTES, is_opaque
from beam_tfr.images.orientation import find_orientation
from beam_tfr.images.source import Decoded, Pixels, Source
from beam_tfr.schema.errors import RejectError

_XCODE = b"CgBI"  # Apple's chunk: pixels without the header of zlib, blue before red
_READ = (b"IHDR", b"tRNS", b"iCCP", b"eXIf", b"fdAT", _XCODE)
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_EXIF_TEXT = b"Raw profile type exif"
_XMP_TEXT = b"XML:com.adobe.xmp"
_MAX_PROFILE_CHUNK = MAX_PROFILE_BYTES + (1 << 16)  # enough bytes even without compression
_MAX_TEXT_BYTES = 1 << 20  # decompressed bytes of EXIF or XMP
_HEADER = struct.Struct(">IIBB3x")
_FREE_STREAM_BYTES = 8 << 20  # 8 MiB of compressed pixels inflate in at most 8 s
_INFLATED_BYTES = 1 << 20  # inflates 1 MiB per call
_FREE_BYTES_BEHIND = 64 << 20  # inflated bytes allowed after the pixels: 64 MiB
_MOST_BYTES_BESIDE = 16  # additional bytes per row, for its filters
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # color type -> samples of a pixel
_GRAY = 0
_GRAY_AND_ALPHA = 4  # color types
# Replaces ALPHA_BYTES: gray may become colors, and is copied from four channels.
_GRAY_ALPHA_BYTES = {_GRAY: 4, _GRAY_AND_ALPHA: 2}


class _PngHeader(NamedTuple):
    """The content of IHDR."""

    width: int
    height: int
    bits: int
    color_type: int


@dataclasses.dataclass(slots=True)
class _Chunks:
    """The chunks that are read: the first of each kind and keyword.

    Attributes:
        needed: whole chunks that decoding needs, in order.
        contents: kind -> content.
        texts: keyword -> text of EXIF or XMP.
    """

    needed: list[memoryview] = dataclasses.field(default_factory=list)
    contents: dict[bytes, memoryview] = dataclasses.field(default_factory=dict)
    texts: dict[bytes, bytes] = dataclasses.field(default_factory=dict)

    def read_profile(self) -> bytes:
        """Reads the ICC profile; truncates profiles that are so large that they will be ignored."""
        content = bytes(self.contents.get(b"iCCP", b"")[:_MAX_PROFILE_CHUNK])
        _, _, packed = content.partition(b"\0")  # after its name
        return _inflate(packed[1:], MAX_PROFILE_BYTES + 1)  # after the method

    def read_exif(self) -> bytes:
        """Reads the EXIF block, from its chunk or from ImageMagick's text.

        This text consists of a line break, and lines with a name, a length and hexadecimal digits.
        """
        exif = self.contents.get(b"eXIf")
        if exif:
            return bytes(exif)
        lines = self.texts.get(_EXIF_TEXT, b"").split(b"\n")
        digits = b"".join(lines[3:]).decode("latin-1")
        with contextlib.suppress(ValueError):
            return bytes.fromhex(digits)
        return b""


def open_png(data: bytes) -> Source:
    """Opens a PNG. Data after the pixels may be truncated.

    Raises:
        RejectError: `damaged-image`.
    """
    chunks = _read_chunks(data)
    header = _read_header(chunks.contents.get(b"IHDR", b""))
    is_animated = b"fdAT" in chunks.contents  # pixels of another frame
    needed = header.height * header.width * _pixel_bytes(header, chunks)
    return Source(
        format="png",
        height=header.height,
        width=header.width,
        orientation=find_orientation(chunks.read_exif(), chunks.texts.get(_XMP_TEXT, b"")),
        frames=2 if is_animated else 1,
        decode=lambda _: _decode(header, chunks),
        memory=lambda _: needed,
    )


def _read_chunks(data: bytes) -> _Chunks:
    chunks = _Chunks()
    with contextlib.suppress(RejectError):  # decoding reports missing pixels
        for chunk in png_chunks(data):
            if chunk.kind in PIXEL_KINDS:
                chunks.needed.append(chunk.whole)
            if chunk.kind in _READ:
                chunks.contents.setdefault(chunk.kind, chunk.content)
            elif chunk.kind in _TEXTS:
                keyword, _, text = bytes(chunk.content).partition(b"\0")
                if keyword in (_EXIF_TEXT, _XMP_TEXT) and keyword not in chunks.texts:
                    chunks.texts[keyword] = _read_text(chunk.kind, text)
    return chunks


def _read_header(content: bytes | memoryview) -> _PngHeader:
    if len(content) == _HEADER.size:
        header = _PngHeader._make(_HEADER.unpack(content))
        if header.width and header.height:
            return header
    raise RejectError("damaged-image", "PNG: the header is broken")


def _pixel_bytes(header: _PngHeader, chunks: _Chunks) -> int:
    """Computes how many bytes per pixel OpenCV and the transparency need."""
    is_clear = header.color_type >= _GRAY_AND_ALPHA or b"tRNS" in chunks.contents
    channels = 1 if header.color_type == _GRAY else 3 + is_clear
    sample_bytes = 1 if header.bits <= 8 else 2
    alpha_bytes = _GRAY_ALPHA_BYTES.get(header.color_type, ALPHA_BYTES) * is_clear
    return channels * sample_bytes + alpha_bytes


def _decode(header: _PngHeader, chunks: _Chunks) -> Decoded:
    _check_length(header, chunks)
    parts: list[bytes | memoryview] = [PNG_SIGNATURE, *chunks.needed, PNG_END]
    with _name_xcode(chunks):
        samples = by_opencv.decode_samples(parts, "PNG", header.height, header.width)
    if header.color_type == _GRAY_AND_ALPHA:
        samples = samples[..., ::3]  # OpenCV repeats the gray
    clear = chunks.contents.get(b"tRNS")
    alpha = None
    if header.color_type == _GRAY and clear is not None:
        alpha = _clear_gray(samples, clear, header.bits)
    decoded = by_opencv.to_decoded(samples, bits=header.bits, profile=chunks.read_profile())
    if alpha is not None:
        decoded.alpha = alpha
    return decoded


def _check_length(header: _PngHeader, chunks: _Chunks) -> None:
    """Checks that a large file has no more pixels than its header states.

    libpng also inflates the data after the pixels, which may have a thousand times the size of the
    file.

    Raises:
        RejectError: `damaged-image`: the file has more pixels.
    """
    stored = [chunk[8:-4] for chunk in chunks.needed if bytes(chunk[4:8]) == b"IDAT"]
    if sum(map(len, stored)) <= _FREE_STREAM_BYTES:
        return
    pixel_bits = _SAMPLES[header.color_type] * header.bits if header.color_type in _SAMPLES else 64
    row_bytes = -(-header.width * pixel_bits // 8)
    # Each row has a byte for its filter; interlaced files have twice as many rows, cut anywhere.
    room = header.height * (row_bytes + _MOST_BYTES_BESIDE) + _FREE_BYTES_BEHIND
    inflater = zlib.decompressobj()
    with contextlib.suppress(zlib.error):  # decoding reports damage
        for part in stored:
            waiting: bytes | memoryview = part
            while waiting and not inflater.eof:
                room -= len(inflater.decompress(waiting, _INFLATED_BYTES))
                if room < 0:
                    raise RejectError(
                        "damaged-image", "PNG: has more pixels than its header states"
                    )
                waiting = inflater.unconsumed_tail


@contextlib.contextmanager
def _name_xcode(chunks: _Chunks) -> Iterator[None]:
    """Changes rejects for damage to `unsupported-image` if Xcode wrote the file for iPhones."""
    try:
        yield
    except RejectError as error:
        if _XCODE not in chunks.contents:
            raise
        raise RejectError(
            "unsupported-image",
            "PNG that Xcode changed for iPhones (CgBI): "
            "`pngcrush -revert-iphone-optimizations` turns it into an ordinary PNG",
        ) from error


def _clear_gray(samples: NDArray[Any], clear: memoryview, bits: int) -> Pixels | None:
    """Finds the transparency of gray pixels, because OpenCV ignores it; None if all are opaque.

    Args:
        samples: [h, w, 1], scaled to 8 bits if they have fewer bits in the file.
        clear: the content of tRNS: the level that is transparent.
        bits: bits per sample in the file.
    """
    scale = max(1, 255 // ((1 << bits) - 1))
    level = int.from_bytes(clear[:2], "big") * scale
    alpha = (samples[..., 0] != level).view(np.uint8) * np.uint8(255)
    return None if is_opaque(alpha) else alpha


def _read_text(kind: bytes, text: bytes) -> bytes:
    """Reads the text of a text chunk, after the zero that ends its keyword (section 11.3.3)."""
    match kind:
        case b"tEXt":
            return text[:_MAX_TEXT_BYTES]
        case b"zTXt":
            return _inflate(text[1:], _MAX_TEXT_BYTES)  # after the method
    is_compressed = text[:1] == b"\1"
    text = text[2:].split(b"\0", 2)[-1]  # after flag, method, language and translated keyword
    return _inflate(text, _MAX_TEXT_BYTES) if is_compressed else text[:_MAX_TEXT_BYTES]


def _inflate(packed: bytes, max_bytes: int) -> bytes:
    """Returns at most `max_bytes` inflated bytes, or no bytes if the stream is damaged."""
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj().decompress(packed, max_bytes)
    return b""
