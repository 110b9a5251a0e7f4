"""Draws records as thumbnails on a contact sheet."""

import base64
import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageColor, ImageDraw, ImageFont, ImageOps

from beam_tfr.console.terminal import printable
from beam_tfr.dataset.conditions import value_text
from beam_tfr.dataset.elements import decode_mask
from beam_tfr.images import limits
from beam_tfr.inspection.records import StoredRecord, label_of, open_image, tensor_of
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.feature_names import (
    ENCODED,
    HEIGHT,
    MASK,
    OBJECT_LABEL,
    OBJECT_MASK,
    OBJECT_TEXT,
    RAW,
    SIDES,
    WIDTH,
)

SIDE = 112
WITH_BOXES = 224  # pixels of a thumbnail, and of one on a sheet with boxes or masks
COLUMNS = 8
_GAP = 8
_LINE = 18
_INK = "#1f2328"
_FAINT = "#d0d7de"
_PAPER = "white"
MOST_DRAWN = 100  # boxes of an image
BOX_COLORS = (
    "#00c853",
    "#ff1744",
    "#2979ff",
    "#ffea00",
    "#d500f9",
    "#00e5ff",
    "#ff9100",
    "#f50057",
)  # of classes


def contact_sheet(records: Sequence[StoredRecord], *, columns: int = COLUMNS) -> PillowImage.Image:
    """A grid of thumbnails with their classes and the numbers of their records; gray where there is
    no image."""
    columns = max(1, min(columns, len(records)))
    rows = max(1, -(-len(records) // columns))
    if any(record.values.get(SIDES[0]) or MASK in record.values for record in records):
        side = WITH_BOXES
    else:
        side = SIDE
    width = side + _GAP
    height = side + _LINE + _GAP
    sheet = PillowImage.new("RGB", (columns * width + _GAP, rows * height + _GAP), _PAPER)
    canvas = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(12)
    for place, record in enumerate(records):
        x = _GAP + place % columns * width
        y = _GAP + place // columns * height
        sheet.paste(_thumbnail(record, side), (x, y))
        text = caption(record)[:side]  # of thousands of labels, more than fit
        while canvas.textlength(text, font=font) > side:
            text = f"{text.rstrip('…')[:-1]}…"
        canvas.text((x, y + side + 2), text, fill=_INK, font=font)
    return sheet


def caption(record: StoredRecord) -> str:
    """The number and class of a record."""
    return _ascii(f"{record.number} {label_of(record.values)}")


def _ascii(text: str) -> str:
    """A text on one line, with escapes for all letters but ASCII, which Pillow's own font may
    lack."""
    return printable(text.replace("\n", " ")).encode("ascii", "backslashreplace").decode()


def _thumbnail(record: StoredRecord, side: int) -> PillowImage.Image:
    with contextlib.suppress(RejectError):
        if (pixels := _pixels(record.values, side)) is not None:
            mode = {1: "L", 3: "RGB", 4: "CMYK"}[pixels.shape[2]]
            image = PillowImage.frombytes(
                mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes()
            )
            image = ImageOps.contain(image.convert("RGB"), (side, side))
            with contextlib.suppress(
                LookupError, TypeError, ValueError
            ):  # what another program wrote
                _draw_boxes(image, record.values)
                _tint_masks(image, record.values)
            return ImageOps.pad(image, (side, side), color=_PAPER)
    return PillowImage.new("RGB", (side, side), _FAINT)


def _draw_boxes(image: PillowImage.Image, values: Mapping[str, Sequence[Any]]) -> None:
    """Draws the boxes of a record and their points, in the colors of their classes, and the names
    of these."""
    canvas = ImageDraw.Draw(image)
    font = ImageFont.load_default(11)
    boxes = np.column_stack([values.get(side, ()) for side in SIDES])[:MOST_DRAWN].clip(0, 1) * (
        image.size * 2
    )
    labels = values.get(OBJECT_LABEL) or [0] * len(boxes)
    names = values.get(OBJECT_TEXT) or [b""] * len(boxes)
    for (left, top, right, bottom), label, name in zip(boxes.tolist(), labels, names, strict=False):
        color = BOX_COLORS[label % len(BOX_COLORS)]
        canvas.rectangle((left, top, right, bottom), outline=color, width=2)
        text = _ascii(value_text(name)[:WITH_BOXES])
        edges = canvas.textbbox((left + 3, top + 2), text, font=font)
        if text and edges[2] < right and edges[3] < bottom:
            canvas.rectangle((left, top, edges[2] + 2, edges[3] + 2), fill=color)
            canvas.text((left + 3, top + 2), text, fill=_INK, font=font)
    for name in [
        name[: -len("/num")]
        for name in values
        if name.startswith("image/object/") and name.endswith("/num")
    ]:
        points = np.column_stack([values[f"{name}/x"], values[f"{name}/y"]]) * image.size
        ends = np.cumsum(values[f"{name}/num"]).tolist()
        for label, begin, end in zip(labels, [0, *ends], ends, strict=False):
            _draw_points(
                canvas,
                points[begin:end],
                BOX_COLORS[label % len(BOX_COLORS)],
                f"{name}/visibility" in values,
            )


def _draw_points(
    canvas: ImageDraw.ImageDraw, points: NDArray[np.float64], color: str, are_keypoints: bool
) -> None:
    """Draws the points of a box: dots where keypoints are visible, or the outlines of polygons."""
    if are_keypoints:
        for x, y in points[points.any(axis=1)].tolist():
            canvas.ellipse((x - 2, y - 2, x + 2, y + 2), fill=color)
    else:
        for polygon in np.split(points, np.flatnonzero(np.isnan(points[:, 0]))):
            canvas.polygon([(x, y) for x, y in polygon.tolist() if x == x], outline=color)


def _tint_masks(image: PillowImage.Image, values: Mapping[str, Sequence[Any]]) -> None:
    """Tints what the mask of a record and those of its boxes cover, in the colors of classes; 0 is
    background."""
    size = values[HEIGHT][0], values[WIDTH][0]
    for mask in values.get(MASK, ()):
        _tint(image, decode_mask(mask, size))
    masks = values.get(OBJECT_MASK, ())[:MOST_DRAWN]
    for mask, label in zip(masks, values.get(OBJECT_LABEL) or [0] * len(masks), strict=False):
        _tint(image, decode_mask(mask, size) * (len(BOX_COLORS) + label % len(BOX_COLORS)))


def _tint(image: PillowImage.Image, classes: NDArray[np.int32]) -> None:
    shown = np.asarray(
        PillowImage.fromarray(classes).resize(image.size, PillowImage.Resampling.NEAREST)
    )
    colors = np.array([ImageColor.getrgb(color) for color in BOX_COLORS], np.uint8)
    tint = PillowImage.fromarray(colors[shown % len(colors)])
    image.paste(PillowImage.blend(image, tint, 0.5), mask=PillowImage.fromarray(shown > 0))


def _pixels(values: Mapping[str, Sequence[Any]], side: int) -> NDArray[np.uint8] | None:
    """The pixels of the image, else of the first feature that is one, perhaps scaled down, or a
    tensor; None without.

    They are uint8 [h, w, 1, 3 or 4]; four are CMYK.

    Raises:
        RejectError: the image is damaged, or would take too much memory.
    """
    options = ImageOptions()
    least = (side, side)
    for name, found in sorted(
        values.items(), key=lambda item: (item[0] not in (ENCODED, RAW), item[0])
    ):
        data = found[0] if len(found) == 1 else None
        if not isinstance(data, bytes):
            continue
        if name == RAW:
            array = tensor_of(data)
            if (
                array is not None
                and array.dtype == np.uint8
                and array.ndim == 3
                and array.shape[2] in (1, 3)
            ):
                return array
        elif source := open_image(data):
            limits.check_header(source, options)
            limits.check_memory(source, source.memory(least), options)
            return source.decode(least).pixels
    return None


def html_image(image: PillowImage.Image) -> str:
    """A picture as an HTML element."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return f'<img alt="records" src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'
