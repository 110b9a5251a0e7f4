"""Opens WebP (RFC 9649): OpenCV decodes still images, and Pillow decodes animations.

Everything else is read from the chunks. Pillow uses five times as much memory as OpenCV.
"""

import dataclasses
from collections.abc import Mapping

from beam_tfr.images.containers import chunks
from beam_tfr.images.formats import by_opencv, by_pillow
from beam_tfr.images.formats.depth import ALPHA_BYTES
from beam_tfr.images.orientation import find_orientation
from beam_tfr.images.source import Decoded, Size, Source
from beam_tfr.schema.errors import RejectError

_ALPHA = 0x10
_PROFILE = 0x20  # flags of VP8X
_LOSSLESS_ALPHA = 1 << 28  # flag of VP8L
_MAX_PIXELS = 1 << 32
# Bytes per pixel.
_LOSSY_BYTES = 3
_LOSSLESS_BYTES = 7
_ANIMATION_BYTES = 20  # two canvases, a frame, a copy, an image
_PLANE_BYTES = 6 + ALPHA_BYTES  # a plane of transparency, and its decoder, as for lossless pixels


@dataclasses.dataclass(frozen=True, slots=True)
class _WebpHeader:
    """What a WebP states about its picture.

    Attributes:
        width, height: in pixels.
        has_alpha: whether pixels may be transparent.
        has_profile: whether the ICC profile applies.
    """

    width: int
    height: int
    has_alpha: bool
    has_profile: bool


def open_webp(data: bytes) -> Source:
    """Opens a WebP.

    Raises:
        RejectError: `damaged-image`.
    """
    contents: dict[bytes, memoryview] = {}
    frames = 0
    for chunk in chunks.webp_chunks(data):
        contents.setdefault(chunk.kind, chunk.content)
        frames += chunk.kind == b"ANMF"
    header = _read_header(contents)
    height = header.height
    width = header.width
    if not 0 < width * height < _MAX_PIXELS:
        raise RejectError("damaged-image", f"WEBP: {width} x {height} pixels")
    profile = b""
    if header.has_profile:
        profile = bytes(contents.get(b"ICCP", b""))

    def decode(_: Size | None) -> Decoded:
        if frames:
            return by_pillow.load(by_pillow.open_image(data, "WEBP"))
        samples = by_opencv.decode_samples([data], "WEBP", height, width)
        return by_opencv.to_decoded(samples, profile=profile)

    if frames:
        pixel_bytes = _ANIMATION_BYTES
    elif contents.get(b"VP8L"):
        pixel_bytes = _LOSSLESS_BYTES
    else:
        pixel_bytes = _LOSSY_BYTES
    pixel_bytes += _PLANE_BYTES * header.has_alpha
    exif = bytes(contents.get(b"EXIF", b""))
    xmp = bytes(contents.get(b"XMP ", b""))
    return Source(
        format="webp",
        height=height,
        width=width,
        orientation=find_orientation(exif, xmp),
        frames=min(2, max(1, frames)),
        decode=decode,
        memory=lambda _: pixel_bytes * height * width,
    )


def _read_header(contents: Mapping[bytes, memoryview]) -> _WebpHeader:
    """Reads the header of an extended, a lossless or a lossy WebP."""
    extended = contents.get(b"VP8X", b"")
    flags = int.from_bytes(extended[:1])
    has_alpha = bool(flags & _ALPHA)
    has_profile = bool(flags & _PROFILE)
    if len(extended) >= 10:
        width = int.from_bytes(extended[4:7], "little") + 1
        height = int.from_bytes(extended[7:10], "little") + 1
        return _WebpHeader(width, height, has_alpha, has_profile)
    lossless = contents.get(b"VP8L", b"")
    if len(lossless) >= 5:
        sides = int.from_bytes(lossless[1:5], "little")
        width = (sides & 0x3FFF) + 1
        height = (sides >> 14 & 0x3FFF) + 1
        return _WebpHeader(width, height, bool(sides & _LOSSLESS_ALPHA), has_profile=False)
    lossy = contents.get(b"VP8 ", b"")
    width = int.from_bytes(lossy[6:8], "little") & 0x3FFF
    height = int.from_bytes(lossy[8:10], "little") & 0x3FFF
    return _WebpHeader(width, height, has_alpha, has_profile)
