"""Reads the files of companions: replaces values, scales files, and fills in for missing ones."""

import collections
import dataclasses
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import IGNORES_ORIENTATION, PixelMap
from beam_tfr.features.mask_colors import (
    describe_colors,
    describe_unvalued,
    select_main_colors,
)
from beam_tfr.features.png_chunks import keep_pixels
from beam_tfr.schema.beside import HIGHEST, OPTIONAL, OUTSIDE, SCALE
from beam_tfr.schema.palettes import Palette

_BYTES_A_PIXEL = 8  # the most that decoding needs
_MOST_SCALED = 1 << 25  # pixels of a file that is larger than its image
_BLOCK_PIXELS = 1 << 18  # pixels to read together
_MOST_COLORS = 1_000  # in a mask without noise
_MOST_COUNTED = 1 << 16  # colors of a file to tell apart
_MUST = "it must be a PNG"
# ImageMagick would number the values of a palette anew.
_CURE = (
    "mkdir NEW; python3 -c 'import pathlib, sys, PIL.Image; [PIL.Image.open(file).save("
    'pathlib.Path("NEW", pathlib.Path(file).stem + ".png")) for file in sys.argv[1:]]\' FILES '
    "writes PNGs with the same values into a folder NEW"
)
_ONE_CHANNEL = "it must have one gray channel"
_DEEP_COLORS = (
    f"has several channels with 16 bits; {_ONE_CHANNEL}; if all are equal, "
    "`mogrify -channel R -separate FILES` keeps one"
)
# How files other than PNGs begin, and what they are.
_OTHER_FORMATS = {
    rb"\xff\xd8\xff": f"a JPEG, which changes values; {_MUST} made from the original",
    rb"GIF8": f"a GIF; {_MUST}: {_CURE}",
    rb"BM": f"a BMP; {_MUST}: {_CURE}",
    rb"II[*+]\0|MM\0[*+]": f"a TIFF; {_MUST}: {_CURE}",
    rb"RIFF.{4}WEBP": f"a WebP; {_MUST}",
    rb"(?!\x89PNG)": f"not an image; {_MUST}",
}
_COLORED = ("RGB", "RGBA", "LA", "PA")  # Pillow modes
_BITS_AT = 24  # the bits of a sample, in the header of a PNG


class NotGrayError(ValueError):
    """A file is not a PNG with a single gray channel."""


class FilePixels(NamedTuple):
    """The pixels of a companion's file.

    Attributes:
        values: [h, w].
        needs_scaling: whether the values have yet to be scaled to the size of the image.
        is_merged: whether the values were merged from several equal channels.
        palette: the palette that the values are indices into; None if they are not indices, or if
            they represent colors.
    """

    values: NDArray[Any]
    needs_scaling: bool
    is_merged: bool
    palette: Palette | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Handling:
    """How to treat the file of a companion.

    Attributes:
        outside: the value where a padded image has no pixels, and for an image without a file.
        scales: whether a file is scaled if its size differs from that of its image.
        is_optional: whether the file may be missing.
        values: value -> the value that replaces it; other values stay.
        colors: color, 0xRRGGBB -> value; other colors are not allowed.
    """

    outside: int = 0
    scales: bool = False
    is_optional: bool = False
    values: Mapping[int, int] = dataclasses.field(default_factory=dict)
    colors: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses the handling that a string in brackets, which matches `HANDLING`, declares.

        Raises:
            ValueError: the string contradicts itself, or a value is too large.
        """
        outside = list[int]()
        values = dict[int, int]()
        colors = dict[int, int]()
        words = set[str]()
        for part in filter(None, text.strip("[]").split(",")):
            source, equals, target = part.partition("=")
            if equals:
                replaced = colors if source.startswith("#") else values
                number = _parse_source(source)
                if number in replaced:
                    raise ValueError(f"[…] names {source} twice")
                replaced[number] = _parse_value(target)
            elif re.fullmatch(OUTSIDE, part):
                outside.append(int(part))
            else:
                words.add(part)
        if len(outside) > 1:
            raise ValueError(f"[…] has several values for margins: {outside[0]} and {outside[1]}")
        if values and colors:
            raise ValueError("[…] must replace either values or colors, not both")
        return cls(
            outside=outside[0] if outside else 0,
            scales=SCALE in words,
            is_optional=OPTIONAL in words,
            values=values,
            colors=colors,
        )

    def __str__(self) -> str:
        parts = [str(self.outside)]
        if self.scales:
            parts.append(SCALE)
        if self.is_optional:
            parts.append(OPTIONAL)
        parts += [f"{source}={target}" for source, target in sorted(self.values.items())]
        parts += [f"#{source:06x}={target}" for source, target in sorted(self.colors.items())]
        return ",".join(parts)

    def read_pixels(self, data: bytes, pixels: PixelMap, dtypes: Mapping[str, Any]) -> "FilePixels":
        """Reads the pixels of a file.

        Several equal channels count as one, since some programs write gray images in color.

        Args:
            data: the file, a PNG with 1 to 16 bits.
            pixels: the mapping from the image to the record.
            dtypes: Pillow modes that the file may have -> dtypes of the pixels.

        Raises:
            ValueError: the file is not such a PNG, or has the wrong size.
        """
        from PIL import Image

        _check_is_png(data)
        with Image.open(io.BytesIO(keep_pixels(data)), formats=("PNG",)) as image:
            needs_scaling = self._check_size(image.size, pixels)
            width, height = image.size
            is_merged = image.mode in _COLORED and not self.colors
            if is_merged and data[_BITS_AT] > 8:  # Pillow reads only the upper half
                raise NotGrayError(_DEEP_COLORS)
            with pixels.hold_memory(_BYTES_A_PIXEL * width * height):
                values = self._decode(image, dtypes)
                stores_indices = image.mode == "P" and not self.colors
                palette = Palette.of_image(image) if stores_indices else None
        return FilePixels(values, needs_scaling, is_merged, palette)

    def _decode(self, image: Any, dtypes: Mapping[str, Any]) -> NDArray[Any]:
        """Decodes the values of an opened file."""
        if self.colors and image.mode in (*_COLORED, "P", "L", "1"):
            return self._read_colors(image)
        if image.mode in _COLORED:
            return _replace(_read_gray(image), self.values)
        dtype = dtypes.get(image.mode)
        if dtype is None:
            raise NotGrayError(f"has pixels of mode {image.mode}; {_ONE_CHANNEL}")
        values: NDArray[Any] = np.empty((image.height, image.width), dtype)
        for top, block in _blocks(image):  # Pillow would copy the whole image twice
            values[top : top + block.height] = np.asarray(block)
        return _replace(values, self.values)

    def _read_colors(self, image: Any) -> NDArray[Any]:
        """Reads a file, and replaces each color with the value that `colors` gives it."""
        _check_opaque(image)
        highest = max(self.colors.values())
        values = np.zeros((image.height, image.width), np.uint8 if highest <= 0xFF else np.uint16)
        for top, colors in _color_blocks(image):
            present, places = np.unique(colors, return_inverse=True)
            if not self.colors.keys() >= {*present.tolist()}:
                raise ValueError(describe_unvalued(_count_colors(image), self.colors))
            targets = [self.colors[color] for color in present.tolist()]
            rows = np.array(targets, values.dtype)[places]
            values[top : top + len(colors)] = rows.reshape(colors.shape)
        return values

    def _check_size(self, size: tuple[int, int], pixels: PixelMap) -> bool:
        """Checks the (width, height) of a file; returns whether it has to be scaled.

        Raises:
            ValueError: the size does not match that of the image.
        """
        if size == pixels.shown_size:
            return False
        is_alike = _has_equal_aspect(size, pixels.shown_size)
        if is_alike and self.scales:
            _check_scalable(size, pixels.shown_size)
            return True
        cause = ""
        if is_alike:
            cause = ", with the same aspect ratio; scale it with [scale]"
        elif size == pixels.stored_size:
            cause = f": it ignores {IGNORES_ORIENTATION}"
        raise ValueError(f"has {size} pixels, but the image has {pixels.shown_size}{cause}")


def scale_nearest(values: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Scales pixels [h, w] to a (width, height); each new pixel gets the value under its center."""
    width, height = size
    rows = (2 * np.arange(height) + 1) * values.shape[0] // (2 * height)
    columns = (2 * np.arange(width) + 1) * values.shape[1] // (2 * width)
    return values[np.ix_(rows, columns)]


def _parse_source(text: str) -> int:
    if text.startswith("#"):
        return int(text.removeprefix("#"), 16)
    return _parse_value(text)


def _parse_value(text: str) -> int:
    value = int(text)
    if value > HIGHEST:
        raise ValueError(f"[…] has {value}, but the highest value is {HIGHEST}")
    return value


def _check_is_png(data: bytes) -> None:
    """Checks how a file begins.

    Raises:
        ValueError: the file is not a PNG; the message says what it is.
    """
    for begin, name in _OTHER_FORMATS.items():
        if re.match(begin, data, re.DOTALL):
            raise NotGrayError(f"is {name}")


def _has_equal_aspect(size: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two sizes have the same aspect ratio, if the sides of the smaller one are rounded."""
    smaller, larger = sorted((size, other))
    width = larger[0] * smaller[1] / larger[1]
    height = larger[1] * smaller[0] / larger[0]
    return abs(width - smaller[0]) < 1 or abs(height - smaller[1]) < 1


def _check_scalable(size: tuple[int, int], shown_size: tuple[int, int]) -> None:
    """Checks that scaling a file does not need far more memory than its image does."""
    pixels = size[0] * size[1]
    if pixels > max(_MOST_SCALED, shown_size[0] * shown_size[1]):
        raise ValueError(f"has {size} pixels, too many to be scaled to {shown_size}")


def _replace(values: NDArray[Any], replaced: Mapping[int, int]) -> NDArray[Any]:
    """Replaces values with others, which may need more bits."""
    if not replaced:
        return values
    highest = int(np.iinfo(values.dtype).max)
    table: NDArray[Any] = np.arange(highest + 1, dtype=np.uint16)
    for source, target in replaced.items():
        if source <= highest:
            table[source] = target
    if table.max() <= highest:
        table = table.astype(values.dtype)
    replacing: NDArray[Any] = table[values]
    return replacing


def _color_blocks(image: Any) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """Yields the first row of each block of a file, and the block's colors, as 0xRRGGBB."""
    for top, block in _blocks(image):
        samples = np.asarray(block.convert("RGB")).astype(np.uint32)
        colors: NDArray[np.uint32] = samples @ np.array([1 << 16, 1 << 8, 1], np.uint32)
        yield top, colors


def _blocks(image: Any) -> Iterator[tuple[int, Any]]:
    """Yields the row where each block of rows in a file begins, and the block."""
    rows = max(1, _BLOCK_PIXELS // image.width)
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        yield top, image.crop((0, top, image.width, bottom))


def _check_opaque(image: Any) -> None:
    """Checks that no pixel of a file is transparent.

    Raises:
        ValueError: some pixels are transparent.
    """
    if image.has_transparency_data:
        lowest, _ = image.convert("RGBA").getchannel("A").getextrema()
        if lowest < 0xFF:
            raise ValueError(
                "has transparent pixels, whose colors are meaningless; if they do have a meaning, "
                "`mogrify -alpha off FILES` makes them opaque"
            )


def _read_gray(image: Any) -> NDArray[np.uint8]:
    """Reads the values of a file with several equal channels.

    Raises:
        ValueError: some channels differ, or pixels are transparent.
    """
    values = np.empty((image.height, image.width), np.uint8)
    for top, block in _blocks(image):
        samples = np.asarray(block.convert("RGB"))
        gray = samples[..., 0]
        if (samples != gray[..., None]).any():
            raise NotGrayError(_describe_colors(image))
        _check_opaque(block)
        values[top : top + block.height] = gray
    return values


def _describe_colors(image: Any) -> str:
    """Explains that a file has several channels; lists its colors, and how to give them values."""
    counts = _count_colors(image)
    if len(select_main_colors(counts)) > _MOST_COLORS:
        return f"has more than {_MOST_COLORS:,} colors; {_ONE_CHANNEL}"
    return describe_colors(counts, _ONE_CHANNEL)


def _count_colors(image: Any) -> dict[int, int]:
    """Counts the pixels of each color, 0xRRGGBB, in a file; stops after too many colors."""
    counts = collections.Counter[int]()
    for _, block in _color_blocks(image):
        colors, numbers = np.unique(block, return_counts=True)
        counts.update(dict(zip(colors.tolist(), numbers.tolist(), strict=True)))
        if len(counts) > _MOST_COUNTED:
            break
    return counts
