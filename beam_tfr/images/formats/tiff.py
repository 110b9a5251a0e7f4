"""Opens TIFF 6.0 and BigTIFF: OpenCV decodes samples with more than 8 bits, Pillow all others.

Files that neither of them decodes exactly are `unsupported-image`: half floats, signed 8-bit
samples, uncompressed YCbCr, and RGB with several further bands; with more than 8 bits, also
separate planes, palettes, CMYK, and gray with alpha. 8-bit BigTIFF in big-endian order is
unsupported too, because Pillow cannot open it.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ImageFile

from beam_tfr.images import orientation
from beam_tfr.images.blocks import row_blocks
from beam_tfr.images.containers import tiff
from beam_tfr.images.formats import by_opencv, by_pillow
from beam_tfr.images.formats.depth import ALPHA_BYTES, find_white
from beam_tfr.images.source import LEAST_USED, Decoded, Pixels, Size, Source
from beam_tfr.schema.errors import RejectError

# Tags.
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
# Photometric interpretations.
_WHITE_IS_ZERO = 0
_RGB = 2
_YCBCR = 6
_LAB = (8, 9, 10)
# Extra samples: unknown, which is also TIFF's default, and alpha, with colors premultiplied or not.
_UNSPECIFIED = 0
_ASSOCIATED = 1
_UNASSOCIATED = 2
# Compressions.
_UNCOMPRESSED = 1
_JPEG = (6, 7)
_FAX = (2, 3, 4, 32771)
_NOT_UNPACKED = (34712, 34887, 50001, 50002)  # Pillow lacks: JPEG 2000, LERC, WebP, JPEG XL
# Planar configurations.
_ONE_PLANE = 1
_SEPARATE_PLANES = 2
_UNSIGNED = 1  # format of samples
_BITS_OF_SAMPLES = (1, 2, 4, 8, 16, 24, 32, 64)
# Photometric interpretation and number of samples that OpenCV decodes exactly: gray, and RGB with
# or without a fourth sample.
_DEEP = ((0, 1), (1, 1), (2, 3), (2, 4))
# By sample format: unsigned, signed, float.
_DEEP_BITS = {1: (16, 32, 64), 2: (16, 32, 64), 3: (32, 64)}
_DEEP_COMPRESSIONS = (1, 5, 8, 32773, 32946)  # none, LZW, deflate, PackBits, old deflate
_SMALL_PART = 4 << 20  # bytes of a strip or tile that do not count
_MAX_SAMPLES = 1024
_LEFT_OUT = ("band-left-out",)  # in `Decoded.adjusted`
_DOUBTFUL = ("alpha-doubtful",)  # likewise
_NEARLY_WHITE = ("nearly-white",)  # likewise
_START_OF_SCAN = b"\xff\xda"  # occurs nowhere else in JPEG data


@dataclasses.dataclass(slots=True, kw_only=True)
class _Page:
    """The fields of the first directory.

    Attributes:
        tags: number -> values, for tags that `Directory.read_integers` can read.
        orientation: 1 to 8.
        upright: the file, with the orientation set to 1.
        profile: ICC profile, or empty.
    """

    tags: dict[int, tuple[int, ...]]
    orientation: int
    upright: bytes
    profile: bytes

    def get(self, tag: int) -> int:
        """Returns the first value of a tag, or TIFF's default for the tag."""
        default = _DEFAULTS.get(tag, 0)
        return self.tags.get(tag, (default,))[0]

    @property
    def height(self) -> int:
        return self.get(_HEIGHT)

    @property
    def width(self) -> int:
        return self.get(_WIDTH)

    @property
    def samples(self) -> int:
        """The number of samples per pixel."""
        return self.get(_SAMPLES)

    @property
    def compression(self) -> int:
        return self.get(_COMPRESSION)

    @property
    def photometric(self) -> int:
        """The meaning of the samples, as a number that TIFF defines."""
        return self.get(_PHOTOMETRIC)

    @property
    def bits(self) -> int:
        """The number of bits in the deepest sample."""
        return max(self.tags.get(_BITS, (1,)))

    @property
    def parts(self) -> tuple[int, ...]:
        """Where the tiles or strips are; empty if there are none."""
        return self.tags.get(_TILES) or self.tags.get(_STRIPS, ())

    @property
    def is_raw_photo(self) -> bool:
        """Whether this page is the thumbnail of a camera raw file."""
        is_reduced = bool(self.get(_SUBFILE) & 1)
        return _DNG_VERSION in self.tags or (is_reduced and _SUB_DIRECTORIES in self.tags)

    @property
    def is_deep(self) -> bool:
        """Whether samples have more than 8 bits or are signed; Pillow has no mode for these."""
        return self.bits > 8 or self.get(_FORMAT) != _UNSIGNED

    @property
    def has_unknown_band(self) -> bool:
        """Whether no tag says what the fourth sample of RGB means: in NAIP, it is near infrared."""
        is_four = self.photometric == _RGB and self.samples == 4
        return is_four and self.get(_EXTRA) == _UNSPECIFIED

    @property
    def _is_packed_in_planes(self) -> bool:
        return self.get(_PLANAR) == _SEPARATE_PLANES and self.compression != _UNCOMPRESSED

    @property
    def is_fax(self) -> bool:
        """Whether the page consists of the lines of a fax."""
        return self.compression in _FAX and self.bits == 1 and self.samples == 1

    @property
    def is_exact_in_opencv(self) -> bool:
        """Whether OpenCV decodes these deep samples exactly."""
        if (self.photometric, self.samples) not in _DEEP or self.get(_PLANAR) != _ONE_PLANE:
            return False
        if self.compression not in _DEEP_COMPRESSIONS:
            return False
        if self.bits not in _DEEP_BITS.get(self.get(_FORMAT), ()):
            return False
        return self._has_equal_samples(_BITS) and self._has_equal_samples(_FORMAT)

    def _has_equal_samples(self, tag: int) -> bool:
        return len(set(self.tags.get(tag, ()))) <= 1

    @property
    def is_supported(self) -> bool:
        """Whether a decoder here decodes the page exactly."""
        if self.bits not in _BITS_OF_SAMPLES or self.compression in _NOT_UNPACKED:
            return False
        if self.photometric in _LAB:
            return False
        if self.photometric == _RGB and self.samples > 4:
            return False
        if self.has_unknown_band and _EXTRA not in self.tags and self._is_packed_in_planes:
            return False  # Pillow divides colors by the band
        if self.photometric == _YCBCR and self.compression == _UNCOMPRESSED:
            return False
        return self.is_exact_in_opencv or not self.is_deep

    @property
    def sample_bytes(self) -> int:
        """The size of all samples in memory."""
        return int(self.height * self.width * self._pixel_bytes)

    @property
    def part_bytes(self) -> int:
        """By how much the largest strip or tile, which is unpacked whole, exceeds `_SMALL_PART`."""
        if _TILES in self.tags:
            pixels = self.get(_TILE_HEIGHT) * self.get(_TILE_WIDTH)
        else:
            rows = self.get(_STRIP_ROWS) or self.height
            pixels = min(self.height, rows) * self.width
        return max(0, int(pixels * self._pixel_bytes) - _SMALL_PART)

    @property
    def _pixel_bytes(self) -> float:
        return self.samples * self.bits / 8

    def __str__(self) -> str:
        planes = " in separate planes" if self.get(_PLANAR) == _SEPARATE_PLANES else ""
        return (
            f"{self.samples} samples of {self.bits} bit{planes}, "
            f"sample format {self.get(_FORMAT)}, "
            f"photometric interpretation {self.photometric}, compression {self.compression}"
        )


def open_tiff(data: bytes) -> Source:
    """Opens the first page of a TIFF.

    Raises:
        RejectError: `damaged-image`, `unsupported-image`; `not-an-image` for camera raw files,
            whose first picture is a thumbnail.
    """
    directories = tiff.directories(data)
    page = _read_page(data, next(directories))
    _check_page(page)
    decode, needed = _choose_decoder(page)

    def decode_whole(_: Size | None) -> Decoded:
        # Decoders skip missing strips.
        if page.compression == _UNCOMPRESSED and len(data) < page.sample_bytes:
            raise RejectError(
                "damaged-image",
                f"TIFF: {len(data)} bytes cannot hold {page.width} x {page.height} pixels",
            )
        return decode()

    return Source(
        format="tiff",
        height=page.height,
        width=page.width,
        orientation=page.orientation,
        frames=2 if _has_further_page(directories) else 1,
        scans=_count_scans(data, page),
        decode=decode_whole,
        memory=lambda _: needed,
    )


def _read_page(data: bytes, directory: tiff.Directory) -> _Page:
    page = _Page(tags={}, orientation=1, upright=data, profile=b"")
    for entry in directory:
        values = directory.read_integers(entry)
        if values:
            page.tags[entry.tag] = values
        if entry.tag == _PROFILE:
            page.profile = data[entry.start : entry.start + entry.size]
        elif entry.tag == orientation.TAG and values and 1 < values[0] <= 8:
            page.orientation = values[0]
            page.upright = directory.with_integer(entry, 1)  # otherwise decoders turn the picture
    return page


def _check_page(page: _Page) -> None:
    """Rejects a page that is not a picture, or that none of the decoders supports."""
    if page.is_raw_photo:
        raise RejectError("not-an-image", "a camera raw file (DNG, NEF or the like)")
    if not 1 <= page.bits <= 64 or not 1 <= page.samples <= _MAX_SAMPLES:
        raise RejectError("damaged-image", f"TIFF: {page}")
    if not page.height or not page.width or not page.parts:
        raise RejectError("damaged-image", "TIFF: no size, or no pixels")
    if not page.is_supported:
        raise RejectError("unsupported-image", f"TIFF: {page}")


def _has_further_page(directories: Iterable[tiff.Directory]) -> bool:
    return any(not _is_thumbnail(directory) for directory in directories)


def _is_thumbnail(directory: tiff.Directory) -> bool:
    """Whether another directory holds the same picture, smaller or cropped."""
    try:
        first = next(iter(directory))  # tags are sorted
    except (RejectError, StopIteration):
        return True
    return first.tag == _SUBFILE and any(value & 1 for value in directory.read_integers(first))


def _count_scans(data: bytes, page: _Page) -> int:
    """Counts the scans of JPEG data, averaged over the strips or tiles and rounded up.

    Pages without JPEG data have 1.
    """
    if page.compression not in _JPEG:
        return 1
    return -(-data.count(_START_OF_SCAN) // len(page.parts))


def _choose_decoder(page: _Page) -> tuple[Callable[[], Decoded], int]:
    """Returns a function that decodes a page, and the number of bytes that this function uses."""
    if page.is_deep:
        alpha_bytes = ALPHA_BYTES if page.samples == 4 else 0
        needed = page.sample_bytes + alpha_bytes * page.height * page.width + page.part_bytes
        return lambda: _decode_deep(page), needed
    try:
        image = by_pillow.open_image(page.upright, "TIFF")
    except RejectError as error:
        raise RejectError("unsupported-image", f"TIFF: {page}") from error
    image.info.pop("xmp", None)  # Pillow would turn the picture according to it
    needed = by_pillow.loading_bytes(image) + page.part_bytes
    if page.is_fax:
        return lambda: _decode_fax(page), needed
    return lambda: _decode_plain(image, page), needed


def _decode_plain(image: ImageFile.ImageFile, page: _Page) -> Decoded:
    """Decodes samples with up to 8 bits."""
    decoded = by_pillow.load(image, bits=page.bits)
    if page.has_unknown_band:  # without a tag, Pillow treats it as alpha
        decoded.alpha = None
        decoded.adjusted = _LEFT_OUT
    elif _is_doubtful(decoded.alpha, page):
        decoded.adjusted = _DOUBTFUL
    return decoded


def _decode_fax(page: _Page) -> Decoded:
    """Decodes fax lines.

    libtiff only warns about damage in faxes, and OpenCV can print its warnings. After a damaged
    line, libtiff continues with the next line, or leaves the rest of the memory as it was.
    """
    with by_opencv.print_warnings():
        samples = by_opencv.decode_samples([page.upright], "TIFF", page.height, page.width)
    return by_opencv.to_decoded(samples, bits=page.bits, profile=page.profile)


def _decode_deep(page: _Page) -> Decoded:
    """Decodes samples that have more than 8 bits or are signed."""
    samples = by_opencv.decode_samples([page.upright], "TIFF", page.height, page.width)
    if samples.shape[2] == 4:
        extra = page.get(_EXTRA)
        if extra == _ASSOCIATED:
            _undo_association(samples)
        elif extra != _UNASSOCIATED:
            samples = samples[..., :3]
    decoded = by_opencv.to_decoded(samples, bits=page.bits, profile=page.profile)
    if page.photometric == _WHITE_IS_ZERO:
        if decoded.bits > 8 and int(decoded.pixels.max(initial=0)) <= LEAST_USED:
            decoded.adjusted = _NEARLY_WHITE
        decoded.pixels = 255 - decoded.pixels
    if page.has_unknown_band:
        decoded.adjusted = _LEFT_OUT
    elif _is_doubtful(decoded.alpha, page):
        decoded.adjusted = _DOUBTFUL
    return decoded


def _is_doubtful(alpha: Pixels | None, page: _Page) -> bool:
    """Whether a fourth band is hardly transparency: most pixels are neither opaque nor clear."""
    if alpha is None or page.samples != 4 or page.get(_EXTRA) != _UNASSOCIATED:
        return False
    between = 0
    for rows in row_blocks(*alpha.shape):
        block = alpha[rows]
        between += int(np.count_nonzero((block > 0) & (block < 255)))
    return 2 * between > alpha.size


def _undo_association(samples: NDArray[Any]) -> None:
    """Divides colors by their alpha, in place."""
    white = find_white(samples)
    for rows in row_blocks(samples.shape[0], samples[0].size):
        colors = samples[rows, :, :3]
        alpha = samples[rows, :, 3:]
        exact = colors * (white / np.where(alpha > 0, alpha, white))
        colors[...] = np.clip(exact, 0, white)
