"""TIFF 6.0 and BigTIFF. OpenCV decodes samples of more than 8 bits, Pillow all others.

What neither decodes exactly is `unsupported-image`: half floats, signed 8-bit samples, YCbCr
without compression and, of more than 8 bits, separate planes, palettes, CMYK, and gray with alpha.
So is 8-bit BigTIFF in big-endian order, which Pillow cannot open.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.images import orientation
from beam_tfr.images.containers import tiff
from beam_tfr.images.formats import by_opencv, general
from beam_tfr.images.formats.depth import ALPHA_BYTES, blocks, find_white
from beam_tfr.images.source import Decoded, Source
from beam_tfr.schema.errors import RejectError

_SUBFILE = 254
_WIDTH = 256
_HEIGHT = 257
_BITS = 258
_COMPRESSION = 259
_PHOTOMETRIC = 262
_STRIPS = 273
_SAMPLES = 277
_STRIP_ROWS = 278
_PLANAR = 284
_TILE_WIDTH = 322
_TILE_HEIGHT = 323
_TILES = 324
_SUB_DIRECTORIES = 330
_EXTRA = 338
_FORMAT = 339
_PROFILE = 34675
_DNG_VERSION = 50706
_DEFAULTS = {_BITS: 1, _COMPRESSION: 1, _PHOTOMETRIC: 1, _SAMPLES: 1, _PLANAR: 1, _FORMAT: 1}
_WHITE_IS_ZERO = 0
_LAB = (8, 9, 10)
_YCBCR = 6  # photometric interpretations
_ASSOCIATED = 1
_UNASSOCIATED = 2  # extra samples: alpha, colors multiplied with it or not
# Photometric interpretation and number of samples that OpenCV decodes exactly: gray, and RGB with
# or without a fourth.
_DEEP = ((0, 1), (1, 1), (2, 3), (2, 4))
_DEEP_BITS = {
    1: (16, 32, 64),
    2: (16, 32, 64),
    3: (32, 64),
}  # by sample format: unsigned, signed, float
_DEEP_COMPRESSIONS = (1, 5, 8, 32773, 32946)  # none, LZW, deflate, PackBits, old deflate
_JPEG = (6, 7)
_FAX = (2, 3, 4, 32771)
_NOT_UNPACKED = (
    34712,
    34887,
    50001,
    50002,
)  # JPEG 2000, LERC, WebP, JPEG XL: not in the libtiff of Pillow
_SMALL_PART = 4 << 20  # bytes of a strip or tile that do not count


@dataclasses.dataclass(slots=True, kw_only=True)
class _Page:
    """The fields of the first directory.

    Attributes:
        tags: number -> values, of those that `Directory.integers` reads.
        orientation: 1 to 8.
        upright: the file, with the orientation 1.
        profile: ICC, or empty.
    """

    tags: dict[int, tuple[int, ...]]
    orientation: int
    upright: bytes
    profile: bytes

    def get(self, tag: int) -> int:
        """The first value, or the default of TIFF."""
        return self.tags.get(tag, (_DEFAULTS.get(tag, 0),))[0]

    @property
    def bits(self) -> int:
        """Of the deepest sample."""
        return max(self.tags.get(_BITS, (1,)))

    @property
    def is_deep(self) -> bool:
        """True if Pillow has no mode for its samples: of more than 8 bits, or signed."""
        return self.bits > 8 or self.get(_FORMAT) != 1

    @property
    def is_exact_in_opencv(self) -> bool:
        """True if OpenCV decodes such samples exactly."""
        return (
            (self.get(_PHOTOMETRIC), self.get(_SAMPLES)) in _DEEP
            and self.get(_PLANAR) == 1
            and self.get(_COMPRESSION) in _DEEP_COMPRESSIONS
            and self.bits in _DEEP_BITS.get(self.get(_FORMAT), ())
            and all(len(set(self.tags.get(tag, ()))) <= 1 for tag in (_BITS, _FORMAT))
        )

    def __str__(self) -> str:
        return (
            f"{self.get(_SAMPLES)} samples of {self.bits} bit{' in separate planes' * (self.get(_PLANAR) == 2)}, "
            f"sample format {self.get(_FORMAT)}, photometric interpretation {self.get(_PHOTOMETRIC)}, "
            f"compression {self.get(_COMPRESSION)}"
        )


def open_tiff(data: bytes) -> Source:
    """Opens the first page of a TIFF.

    Raises:
        RejectError: `damaged-image`, `unsupported-image`; `not-an-image` for camera raw files,
            whose first picture is a thumbnail.
    """
    directories = tiff.directories(data)
    page = _read(data, next(directories))
    _check(page)
    height = page.get(_HEIGHT)
    width = page.get(_WIDTH)
    bytes_each = page.get(_SAMPLES) * page.bits / 8
    sample_bytes = int(height * width * bytes_each)
    strip = min(height, page.get(_STRIP_ROWS) or height), width
    rows, columns = (
        (page.get(_TILE_HEIGHT), page.get(_TILE_WIDTH)) if _TILES in page.tags else strip
    )
    part_bytes = max(
        0, int(rows * columns * bytes_each) - _SMALL_PART
    )  # a decoder unpacks them whole
    needed = sample_bytes + part_bytes + ALPHA_BYTES * height * width * (page.get(_SAMPLES) == 4)
    uses_opencv = page.is_deep or (
        page.get(_COMPRESSION) in _FAX and (page.bits, page.get(_SAMPLES)) == (1, 1)
    )
    if not page.is_deep:
        try:
            image = general.open_image(page.upright, "TIFF")
            image.info.pop("xmp", None)  # Pillow would turn the picture by it
        except RejectError:
            raise RejectError("unsupported-image", f"TIFF: {page}") from None
        needed = general.loading_bytes(image) + part_bytes

    def decode(_: tuple[int, int] | None) -> Decoded:
        if (
            page.get(_COMPRESSION) == 1 and len(data) < sample_bytes
        ):  # decoders leave out strips that are not there
            raise RejectError(
                "damaged-image", f"TIFF: {len(data)} bytes cannot hold {width} x {height} pixels"
            )
        if uses_opencv:
            return _decode_by_opencv(page, height, width)
        return general.load(image, page.bits)

    source = Source(
        format="tiff",
        height=height,
        width=width,
        orientation=page.orientation,
        frames=1 + any(not _is_thumbnail(directory) for directory in directories),
        decode=decode,
        memory=lambda _: needed,
    )
    if page.get(_COMPRESSION) in _JPEG:  # start of scan, which occurs nowhere else in JPEG data
        source.scans = -(
            -data.count(b"\xff\xda") // len(page.tags.get(_TILES) or page.tags[_STRIPS])
        )
    return source


def _read(data: bytes, directory: tiff.Directory) -> _Page:
    page = _Page(tags={}, orientation=1, upright=data, profile=b"")
    for entry in directory:
        values = directory.integers(entry)
        if values:
            page.tags[entry.tag] = values
        if entry.tag == _PROFILE:
            page.profile = data[entry.place : entry.place + entry.size]
        elif entry.tag == orientation.TAG and values and 1 < values[0] <= 8:
            page.orientation = values[0]
            page.upright = directory.with_integer(entry, 1)  # otherwise decoders turn it
    return page


def _is_thumbnail(directory: tiff.Directory) -> bool:
    """True if another directory holds the same picture, smaller or cropped."""
    try:
        first = next(iter(directory))  # tags are sorted
    except (RejectError, StopIteration):
        return True
    return first.tag == _SUBFILE and any(value & 1 for value in directory.integers(first))


def _check(page: _Page) -> None:
    """Rejects a page that is not a picture, or that no decoder supports."""
    if _DNG_VERSION in page.tags or (page.get(_SUBFILE) & 1 and _SUB_DIRECTORIES in page.tags):
        raise RejectError("not-an-image", "a camera raw file (DNG, NEF or the like)")
    if not 1 <= page.bits <= 64 or not 1 <= page.get(_SAMPLES) <= 1024:
        raise RejectError("damaged-image", f"TIFF: {page}")
    if (
        not page.get(_HEIGHT)
        or not page.get(_WIDTH)
        or not (page.tags.get(_STRIPS) or page.tags.get(_TILES))
    ):
        raise RejectError("damaged-image", "TIFF: no size, or no pixels")
    if (
        page.bits not in (1, 2, 4, 8, 16, 24, 32, 64)
        or page.get(_COMPRESSION) in _NOT_UNPACKED
        or page.get(_PHOTOMETRIC) in _LAB
        or (page.get(_PHOTOMETRIC), page.get(_COMPRESSION)) == (_YCBCR, 1)
        or (page.is_deep and not page.is_exact_in_opencv)
    ):
        raise RejectError("unsupported-image", f"TIFF: {page}")


def _decode_by_opencv(page: _Page, height: int, width: int) -> Decoded:
    """Decodes deep samples, and fax lines, about whose damage libtiff has only warnings, which
    OpenCV can print.

    Where a line is damaged, libtiff continues with the next one, or leaves the rest of the memory
    as it was.
    """
    samples = by_opencv.decode_samples(
        page.upright, "TIFF", height, width, print_warnings=not page.is_deep
    )
    if samples.shape[2] == 4:
        extra = page.get(_EXTRA)
        if extra == _ASSOCIATED:
            _undo_association(samples)
        elif extra != _UNASSOCIATED and _EXTRA in page.tags:
            samples = samples[..., :3]
    decoded = by_opencv.to_decoded(samples, bits=page.bits, profile=page.profile)
    if page.is_deep and page.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        decoded.pixels = 255 - decoded.pixels
    return decoded


def _undo_association(samples: NDArray[Any]) -> None:
    """Divides colors by their alpha, in place."""
    white = find_white(samples)
    for rows in blocks(samples.shape[0], samples[0].size):
        colors = samples[rows, :, :3]
        alpha = samples[rows, :, 3:]
        exact = colors * (white / np.where(alpha > 0, alpha, white))
        colors[...] = np.clip(exact, 0, white)
