"""Converts one image, from the bytes of a file to the bytes of a record.

    bytes ──formats──▶ Source ──limits──▶ decode ──▶ Decoded, as stored
        ──geometry──▶ resized ──orientation──▶ upright ──color──▶ sRGB or gray ──encode──▶ Image

The format is determined by the content, never by the name. Colors are converted after resizing,
when there are fewer pixels. Only transparent images are converted before resizing, because they are
blended with the background.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import google_crc32c

from beam_tfr.images import (
    color,
    encode,
    formats,
    geometry,
    guard,
    hard_limits,
    keep,
    limits,
    resample,
)
from beam_tfr.images.appearance import COMPARED_SIDE, ChannelSums, describe_pixels, sum_channels
from beam_tfr.images.mapping import source_size
from beam_tfr.images.orientation import turn_upright
from beam_tfr.images.source import LEAST_USED, Decoded, Pixels, Size, Source
from beam_tfr.options import ImageOptions
from beam_tfr.schema.differences import ABSENT
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Appearance, Image

MAX_STRETCH = 1.2  # larger changes of the aspect ratio are visible
MAX_CUT = 500_000  # millionths of an image that a crop may cut off without being counted
_LIBRARIES = (
    "simplejpeg",
    "cykooz-resizer",
    "opencv-python-headless",
    "pillow",
    "numpy",
    "pillow-heif",  # from the extra `formats`
)
_COLORSPACES = {1: "Gray", 3: "RGB", 4: "CMYK"}


@functools.cache
def codec_versions() -> dict[str, str]:
    """Returns the versions of the libraries that affect the bytes of images.

    The version of a library that is not installed is `ABSENT`.
    """
    versions = dict.fromkeys(_LIBRARIES, ABSENT)
    for name in versions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def convert_image(
    data: bytes,
    options: ImageOptions | None = None,
    *,
    name: str = "",
    statistics: bool = True,
    **changes: Any,
) -> Image:
    """Decodes an image, rotates and resizes it, converts its colors, and encodes it.

    Args:
        data: the content of a file in any format in `formats.FORMATS`.
        options: the options of the conversion; None for the defaults.
        name: name of the file; the result notes if the extension belongs to another format.
        statistics: whether to compute the sums of pixels. Without sums, a JPEG that is kept is only
            checked, in half the time.
        **changes: fields of `ImageOptions` that override `options`, such as `image_size=(224,
            224)`.

    Returns:
        The encoded image, which decodes to uint8 [height, width, channels], and the sums of its
        pixels for statistics.

    Raises:
        RejectError: the image cannot be used; its `reason` is one of
            `schema.dataset.REJECT_REASONS`.
        UsageError: the value of an option is wrong.
        TypeError: `data` is not bytes, or one of `changes` is not an option.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"data must be the bytes of a file, not {type(data).__name__}")
    options = _resolve_options(options, changes)
    if len(data) > options.max_file_bytes:
        raise RejectError(
            "file-too-large",
            f"{len(data)} bytes, more than --max_file_bytes {options.max_file_bytes}",
        )
    format_name = formats.identify(data)
    image_format = formats.FORMATS[format_name]
    request = _Request(data, name, options, statistics)
    if image_format.needs_guard:
        guarded = hard_limits.of_this_process()
        if guarded is None:
            return guard.convert_guarded(data, options, name=name, statistics=statistics)
        limited = guarded.enforce(format_name, len(data), options.max_decode_bytes)
        source = _open_limited(image_format, data, limited)
        return _begin_conversion(request, source).keep_or_encode()
    try:
        source = image_format.open(data)
        return _begin_conversion(request, source).keep_or_encode()
    except RejectError as error:
        is_damaged_jpeg = error.reason == "damaged-image" and format_name == "jpeg"
        if not is_damaged_jpeg:
            raise
        if options.damaged == "reject":
            raise formats.jpeg.explain_damage(data, error) from error
    source = formats.jpeg.open_damaged_jpeg(data)
    return _begin_conversion(request, source).encode()


def _resolve_options(options: ImageOptions | None, changes: dict[str, Any]) -> ImageOptions:
    """Returns the options with the changes applied, and checks that the encoding is for images."""
    if options is None:
        options = ImageOptions(**changes)
    elif changes:
        options = dataclasses.replace(options, **changes)
    if options.encoding not in IMAGE_ENCODINGS:
        options.refuse(
            "encoding",
            f"is not for images; must be one of: {', '.join(IMAGE_ENCODINGS)}",
        )
    return options


def _open_limited(
    image_format: formats.ImageFormat, data: bytes, limited: contextlib.ContextDecorator
) -> Source:
    """Opens a file under hard limits, which also apply when the file is decoded."""
    source = limited(image_format.open)(data)
    source.decode = limited(source.decode)
    return source


class _Action(enum.Enum):
    """The purpose of decoding an image.

    Attributes:
        ENCODE: encode the pixels.
        KEEP: store the bytes of the file if they show the right pixels, and sum those pixels.
        CHECK: like KEEP, without sums: the decoder only looks for damage, and decodes as few pixels
            as a perceptual hash needs.
    """

    ENCODE = enum.auto()
    KEEP = enum.auto()
    CHECK = enum.auto()


class _Request(NamedTuple):
    """The arguments of `convert_image`."""

    data: bytes
    name: str
    options: ImageOptions
    statistics: bool


class _Stored(NamedTuple):
    """The content of a record: an encoded image, its format and its size."""

    encoded: bytes
    format: str
    height: int
    width: int
    channels: int


class _Described(NamedTuple):
    """A description of a record's pixels in numbers."""

    channel_sums: ChannelSums
    appearance: Appearance


def _describe(pixels: Pixels, picture: Pixels) -> _Described:
    """Describes the pixels of a record; `picture` holds the pixels without margins."""
    channel_sums = sum_channels(pixels)
    picture_sums = channel_sums
    if picture.shape != pixels.shape:
        picture_sums = sum_channels(picture)
    return _Described(channel_sums, describe_pixels(picture, picture_sums))


@dataclasses.dataclass(frozen=True, slots=True)
class _Conversion:
    """An image whose header is within the limits.

    Attributes:
        request: the arguments of the call.
        source: the opened file.
        layout: where the pixels of the source go.
    """

    request: _Request
    source: Source
    layout: geometry.ImageLayout

    @property
    def options(self) -> ImageOptions:
        return self.request.options

    def keep_or_encode(self) -> Image:
        """Stores the bytes of the file if options request this and the bytes show the same pixels.

        Otherwise, encodes the pixels.
        """
        action = self._choose_action()
        if action is _Action.ENCODE:
            return self.encode()
        with self._decoding(action) as decoded:
            if keep.is_kept(self.request.data, self.source, decoded, self.options):
                return self._keep(decoded, action)
            if decoded.eighths == 8:
                return self._encode(decoded)
        return self.encode()  # decodes again, at a larger scale

    def encode(self) -> Image:
        """Encodes the pixels."""
        encode.check_size(*self.layout.shown.canvas, self._encoding)
        with self._decoding(_Action.ENCODE) as decoded:
            return self._encode(decoded)

    @property
    def _encoding(self) -> str:
        """The encoding of the pixels."""
        if self.options.encoding != "keep":
            return self.options.encoding
        return "png" if formats.FORMATS[self.source.format].lossless else "jpeg"

    def _choose_action(self) -> _Action:
        """Chooses the action to try first."""
        unchanged = geometry.keep_size(self.source.height, self.source.width)
        if self.options.encoding != "keep" or self.layout.stored != unchanged:
            return _Action.ENCODE
        return _Action.KEEP if self.request.statistics else _Action.CHECK

    @contextlib.contextmanager
    def _decoding(self, action: _Action) -> Iterator[Decoded]:
        """Decodes the file once there is enough memory, which stays reserved within the context."""
        min_size = self._choose_min_size(action)
        needed = self.source.memory(min_size)
        limits.check_memory(self.source, needed, self.options)
        if action is not _Action.CHECK:
            needed += self._resizing_bytes()
        with limits.BUDGET.hold(needed, self.options.max_decode_bytes):
            decoded = self.source.decode(min_size)
            decoded.adjusted += _note_depth(decoded)
            yield decoded

    def _choose_min_size(self, action: _Action) -> Size:
        """Chooses the smallest size to which the decoder may scale down.

        This is twice the size of the stored image or, if the file is only checked, the size that a
        hash needs.
        """
        shorter_side = min(self.source.height, self.source.width)
        is_scaled = shorter_side >= 2 * COMPARED_SIDE
        if action is _Action.CHECK and is_scaled:
            return COMPARED_SIDE, COMPARED_SIDE
        stored = self.layout.stored
        height = -(-2 * stored.height * self.source.height // stored.rows)
        width = -(-2 * stored.width * self.source.width // stored.columns)
        return height, width

    def _resizing_bytes(self) -> int:
        """Computes the most memory that resizing, the resized image and the encoder use.

        Filters use four bytes per pixel.
        """
        canvas = self.layout.shown.canvas
        decoded_pixels = self.source.height * self.source.width
        filtered_pixels = math.prod(
            resample.FILTERED * (side + 2 * resample.LOBES) for side in canvas
        )
        copied_bytes = 4 * min(decoded_pixels, filtered_pixels)
        result_bytes = 4 + encode.ENCODER_BYTES.get(self._encoding, 0)
        return min(copied_bytes, resample.WHOLE_BYTES) + result_bytes * math.prod(canvas)

    def _keep(self, decoded: Decoded, action: _Action) -> Image:
        """Stores the bytes of the file."""
        stored = _Stored(
            encoded=self.request.data,
            format=self.source.format,
            height=self.source.height,
            width=self.source.width,
            channels=decoded.pixels.shape[2],
        )
        pixels = decoded.pixels
        if action is _Action.KEEP:
            pixels, _ = self._render(decoded)
        described = _describe(pixels, pixels)
        return self._to_image(stored, described, self._note_source(decoded))

    def _encode(self, decoded: Decoded) -> Image:
        """Encodes the pixels of a decoded file."""
        options = self.options
        picture, color_notes = self._render(decoded)
        background = color.convert_background(options.background, picture.shape[2])
        pixels = geometry.pad(picture, self.layout.shown.canvas, background)
        notes = {*color_notes, *self._note_placement(), *self._note_source(decoded)}
        if options.encoding == "keep":
            notes.add("re-encoded")
        described = _describe(pixels, picture)
        encoded = encode.encode(
            pixels,
            self._encoding,
            quality=options.quality,
            chroma=options.chroma,
            may_overwrite=True,
        )
        stored = _Stored(encoded, self._encoding, *pixels.shape)
        return self._to_image(stored, described, notes)

    def _render(self, decoded: Decoded) -> tuple[Pixels, tuple[str, ...]]:
        """Resizes and rotates a decoded image and converts its colors; may overwrite its pixels.

        Returns:
            The pixels of the record without the margin, and the members of
            `schema.dataset.ADJUSTMENTS` that apply to the colors.
        """
        options = self.options
        converts_profile = options.icc == "convert"
        pixels, alpha = decoded.take_pixels()
        notes: tuple[str, ...] = ()
        if alpha is not None:
            pixels, notes = color.composite_to_srgb(
                pixels, alpha, decoded.profile, options.background, convert=converts_profile
            )
            notes += ("alpha-composited",)
        is_opaque = alpha is None
        alpha = None
        pixels = geometry.resize(
            pixels, self.layout.stored, eighths=decoded.eighths, may_overwrite=True
        )
        pixels = turn_upright(pixels, self._undone_orientation)
        if is_opaque:
            pixels, notes = color.to_srgb(
                pixels, decoded.profile, convert=converts_profile, may_overwrite=True
            )
        return color.to_channels(pixels, options.color), notes

    @property
    def _undone_orientation(self) -> int:
        return self.source.orientation if self.layout.geometry.turned else 1

    def _note_placement(self) -> Iterator[str]:
        """Yields the adjustments of size and orientation that apply.

        They are members of `schema.dataset.ADJUSTMENTS`.
        """
        stored = self.layout.stored
        down = stored.rows / stored.height
        right = stored.columns / stored.width
        if self._undone_orientation > 1:
            yield "rotated"
        if self.options.resize == "stretch" and max(down / right, right / down) > MAX_STRETCH:
            yield "aspect-changed"
        if min(down, right) < 1:
            yield "enlarged"
        cut = geometry.compute_cut_ppm(stored, self.source.height, self.source.width)
        if cut > MAX_CUT:
            yield "cropped"

    def _note_source(self, decoded: Decoded) -> set[str]:
        """Lists the members of `schema.dataset.ADJUSTMENTS` that apply to the file."""
        notes = set(decoded.adjusted)
        if self.options.icc == "ignore":
            notes.discard("profile-ignored")
        if formats.has_wrong_extension(self.request.name, self.source.format):
            notes.add("wrong-extension")
        if self.source.frames > 1:
            notes.add("first-frame")
        return notes

    def _to_image(self, stored: _Stored, described: _Described, notes: set[str]) -> Image:
        """Describes the stored image."""
        source = self.source
        placed = self.layout.geometry
        source_width, source_height = source_size(placed, upright=placed.turned)
        statistics = self._count_statistics(described.channel_sums)
        damaged = None
        if self.options.damaged == "keep":
            damaged = formats.jpeg.KEPT_DAMAGED in notes
        return Image(
            **stored._asdict(),
            colorspace=_COLORSPACES[stored.channels],
            source_height=source_height,
            source_width=source_width,
            source_format=source.format,
            source_sha256=hashlib.sha256(self.request.data).hexdigest(),
            channel_sums=statistics.sums,
            channel_squares=statistics.squares,
            adjusted=tuple(sorted(notes)),
            damaged=damaged,
            source_bytes=len(self.request.data),
            source_crc32c=google_crc32c.value(self.request.data),
            appearance=described.appearance,
            geometry=placed,
        )

    def _count_statistics(self, channel_sums: ChannelSums) -> ChannelSums:
        """Returns sums for statistics; in datasets in color, gray counts for all three channels."""
        if not self.request.statistics:
            return ChannelSums((), ())
        if self.options.color == "gray" or len(channel_sums.sums) == 3:
            return channel_sums
        return ChannelSums(channel_sums.sums * 3, channel_sums.squares * 3)


def _note_depth(decoded: Decoded) -> tuple[str, ...]:
    """Lists the members of `schema.dataset.ADJUSTMENTS` that apply to scaling to 8 bits."""
    if decoded.bits <= 8:
        return ()
    if int(decoded.pixels.max(initial=0)) <= LEAST_USED:
        return ("depth-scaled", "nearly-black")
    return ("depth-scaled",)


def _begin_conversion(request: _Request, source: Source) -> _Conversion:
    """Checks the header of an opened file, and computes where its pixels go."""
    options = request.options
    limits.check_header(source, options)
    layout = geometry.compute_layout(source.height, source.width, source.orientation, options)
    limits.check_result(layout.shown.canvas, options)
    if layout.stored != geometry.keep_size(source.height, source.width):
        between = geometry.count_pixels_between(layout.stored, source.height, source.width)
        limits.check_resizing(layout.shown.canvas, between, options)
    return _Conversion(request, source, layout)
