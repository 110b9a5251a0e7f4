"""Draws records as thumbnails."""

import base64
import contextlib
import functools
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageColor, ImageDraw, ImageOps

from beam_tfr.dataset.conditions import value_text
from beam_tfr.features.registry import KINDS
from beam_tfr.features.shapes import Dots, Outline, Rectangle, Shape, Tint
from beam_tfr.images import limits
from beam_tfr.inspection.fonts import drawable, find_font
from beam_tfr.inspection.records import InspectedRecord, open_image, tensor_of
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.feature_names import ENCODED, RAW

SIDE = 112  # width and height of a thumbnail in pixels
SIDE_WITH_SHAPES = 224  # the same on a sheet with boxes, masks or points
INK = "#1f2328"
_FAINT = "#d0d7de"
_LIGHT = 0.179  # from this relative luminance on, black has more contrast than white
GROUND = "#c9ccd1"  # around an image: not white, so that white margins are visible
MOST_DRAWN = 100  # shapes of each kind on an image
_MOST_POINTS = 10_000  # points in a shape
_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # number of channels -> mode of Pillow
# Colors of classes; neighbors differ in hue and lightness.
BOX_COLORS = (
    "#00c853",
    "#ff1744",
    "#2979ff",
    "#ffea00",
    "#d500f9",
    "#00e5ff",
    "#ff6d00",
    "#8d4b20",
    "#b2ff59",
    "#6a1b9a",
    "#f8bbd0",
    "#00695c",
    "#1a237e",
    "#7cb5ff",
)


def is_drawn(record: InspectedRecord) -> bool:
    """Whether shapes are drawn on the image of a record, which then needs more space."""
    return any(kind.is_drawn(record.values) for kind in KINDS)


def draw_thumbnail(record: InspectedRecord, side: int) -> PillowImage.Image:
    """Draws a record's image and shapes in a square, or a gray square if there is no image."""
    pixels = _read_pixels(record.values, side)
    if pixels is None:
        return PillowImage.new("RGB", (side, side), _FAINT)
    image = _fit(_to_pillow(pixels), side)
    each_shape(record.values, functools.partial(draw_shape, image))
    return ImageOps.pad(image, (side, side), color=GROUND)


def each_shape(values: Mapping[str, Sequence[Any]], use: Callable[[Shape], object]) -> None:
    """Calls a function for each shape that is drawn on the image of a record.

    Other programs may write unusable values: the remaining shapes of that kind are then left out.
    """
    for kind in KINDS:
        with contextlib.suppress(LookupError, TypeError, ValueError):
            for shape in itertools.islice(kind.shapes(values), MOST_DRAWN):
                use(shape)


def read_square(values: Mapping[str, Sequence[Any]], side: int) -> NDArray[np.uint8] | None:
    """Reads a record's image, stretched to a square [side, side, 3], if there is an image."""
    pixels = _read_pixels(values, side)
    if pixels is None:
        return None
    image = _to_pillow(pixels).resize((side, side), PillowImage.Resampling.BOX)
    return np.asarray(image)


def draw_source(data: bytes, side: int) -> PillowImage.Image | None:
    """Draws an encoded image of any size in a square; returns None if the data is not an image.

    Raises:
        RejectError: the image is damaged, or would take too much memory.
    """
    pixels = _decode(data, side)
    if pixels is None:
        return None
    image = _fit(_to_pillow(pixels), side)
    return ImageOps.pad(image, (side, side), color=GROUND)


def _fit(image: PillowImage.Image, side: int) -> PillowImage.Image:
    """Scales a picture to fit into a square; each side keeps a length of at least one pixel."""
    longest = max(image.size)
    width = max(1, round(image.width / longest * side))
    height = max(1, round(image.height / longest * side))
    return image.resize((width, height), PillowImage.Resampling.BICUBIC)


def _to_pillow(pixels: NDArray[np.uint8]) -> PillowImage.Image:
    """Converts pixels from `_pixels` into an RGB picture."""
    height, width, channels = pixels.shape
    stored = PillowImage.frombytes(_MODES[channels], (width, height), pixels.tobytes())
    return stored.convert("RGB")


def draw_shape(image: PillowImage.Image, shape: Shape) -> None:
    """Draws a shape in the color of its class."""
    match shape:
        case Rectangle():
            _draw_rectangle(image, shape)
        case Dots(points, label):
            canvas = ImageDraw.Draw(image)
            for place in _scale(points, image):
                canvas.circle(place, 2, fill=color_of(label))
        case Outline(corners, label):
            canvas = ImageDraw.Draw(image)
            places = _scale(corners, image)
            if len(places) > 1:
                canvas.polygon(places, outline=color_of(label))
        case Tint():
            _draw_tint(image, shape)


def _scale(shares: NDArray[np.float64], image: PillowImage.Image) -> list[tuple[float, float]]:
    """Scales points [n, 2] from fractions of an image's sides to pixels.

    If there are very many points, uses only some. Leaves out points that are not finite, and keeps
    the others within one side length of the image, because Pillow processes all pixels that it
    draws, even those outside of the image.
    """
    step = 1 + len(shares) // _MOST_POINTS
    some = shares[::step]
    finite = some[np.isfinite(some).all(axis=1)]
    places = np.clip(finite, -1, 2) * image.size
    return [(x, y) for x, y in places.tolist()]


def color_of(label: int) -> str:
    """Returns the color in which a class or mask value is always drawn."""
    return BOX_COLORS[label % len(BOX_COLORS)]


def ink_on(color: str) -> str:
    """Returns black or white, whichever is readable on a color.

    Source: relative luminance and contrast as defined in https://www.w3.org/TR/WCAG22/.
    """
    shares = np.array(ImageColor.getrgb(color)) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ (0.2126, 0.7152, 0.0722))
    return "black" if luminance > _LIGHT else "white"


def _draw_rectangle(image: PillowImage.Image, rectangle: Rectangle) -> None:
    """Draws a box with its name above it; below or inside it if there is no space above."""
    canvas = ImageDraw.Draw(image)
    color = color_of(rectangle.label)
    corners = np.reshape(rectangle.corners, (2, 2))
    places = _scale(corners, image)
    if len(places) < len(corners):
        return
    (left, top), (right, bottom) = places
    canvas.rectangle((left, top, right, bottom), outline=color, width=2)
    text = drawable(value_text(rectangle.name)[:SIDE_WITH_SHAPES])
    if not text:
        return
    font = find_font(text, 11)
    _, _, text_right, text_bottom = canvas.textbbox((0, 0), text, font=font)
    width = text_right + 4
    height = text_bottom + 2
    if width > image.width or height > image.height:
        return
    x = min(max(left, 0), image.width - width)
    y = top - height
    if y < 0:
        y = bottom + 1 if bottom + 1 + height <= image.height else max(top, 0)
    canvas.rectangle((x, y, x + width, y + height), fill=color)
    canvas.text((x + 2, y), text, fill=ink_on(color), font=font)


def _draw_tint(image: PillowImage.Image, tint: Tint) -> None:
    """Tints the covered pixels of an image with the colors of their classes."""
    stored = PillowImage.fromarray(tint.pixels)
    shown = stored.resize(image.size, PillowImage.Resampling.NEAREST)
    pixels = np.asarray(shown)
    colors = np.array([*map(ImageColor.getrgb, BOX_COLORS)], np.uint8)
    classes = pixels % len(colors)
    if tint.label is not None:
        classes = np.full(pixels.shape, tint.label % len(colors))
    colored = PillowImage.fromarray(colors[classes])
    blended = PillowImage.blend(image, colored, 0.5)
    image.paste(blended, mask=PillowImage.fromarray(pixels > 0))


def _read_pixels(values: Mapping[str, Sequence[Any]], side: int) -> NDArray[np.uint8] | None:
    """Reads the pixels of a record's image like `_pixels`; returns None if the image is damaged."""
    with contextlib.suppress(RejectError):
        return _pixels(values, side)
    return None


def _pixels(values: Mapping[str, Sequence[Any]], side: int) -> NDArray[np.uint8] | None:
    """Returns the pixels of the image, or of the first other feature that is an image, or None.

    The pixels may be scaled down. They are uint8 [h, w, 1, 3 or 4]; four channels are CMYK.

    Raises:
        RejectError: the image is damaged, or would take too much memory.
    """
    others = sorted(values.keys() - {ENCODED, RAW})
    for name in (ENCODED, RAW, *others):
        match values.get(name):
            case [bytes(data)]:
                pixels = _raw_pixels(data) if name == RAW else _decode(data, side)
                if pixels is not None:
                    return pixels
    return None


def _raw_pixels(data: bytes) -> NDArray[np.uint8] | None:
    """Returns the pixels of a tensor; None if it does not hold pixels."""
    array = tensor_of(data)
    if array is None or array.dtype != np.uint8 or array.ndim != 3:
        return None
    return array if array.size and array.shape[2] in (1, 3) else None


def _decode(data: bytes, side: int) -> NDArray[np.uint8] | None:
    """Decodes the pixels of an image as for `_pixels`; returns None if the data is not an image."""
    source = open_image(data)
    if source is None:
        return None
    least = (side, side)
    options = ImageOptions()
    limits.check_header(source, options)
    limits.check_memory(source, source.memory(least), options)
    return source.decode(least).pixels


def html_image(image: PillowImage.Image) -> str:
    """Returns a picture as an HTML element."""
    file = io.BytesIO()
    image.save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="records" src="data:image/png;base64,{data}">'
