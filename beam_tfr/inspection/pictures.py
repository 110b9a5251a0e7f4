"""Draws records as thumbnails: on a contact sheet, or as a row in a terminal that can show pictures."""

from __future__ import annotations

import base64
import contextlib
import functools
import io
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageDraw, ImageFont, ImageOps

from beam_tfr.images import formats, limits
from beam_tfr.inspection.records import Record
from beam_tfr.inspection.values import image_of, label_of, tensor_of
from beam_tfr.options import ImageOptions
from beam_tfr.schema import RejectError
from beam_tfr.schema.features import RAW
from beam_tfr.terminal import printable

SIDE = 112  # pixels of a thumbnail
COLUMNS = 8
_GAP, _LINE = 8, 18
_INK, _FAINT, _PAPER = "#1f2328", "#d0d7de", "white"
_FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "Arial Unicode.ttf",
    "msyh.ttc",
    "malgun.ttf",
)
_CHUNK = 4096  # characters that kitty takes at once


def contact_sheet(records: Sequence[Record], *, columns: int = COLUMNS) -> PillowImage.Image:
    """A grid of thumbnails with their classes and the numbers of their records; gray where there is no image."""
    columns = max(1, min(columns, len(records)))
    rows = max(1, -(-len(records) // columns))
    width, height = SIDE + _GAP, SIDE + _LINE + _GAP
    sheet = PillowImage.new("RGB", (columns * width + _GAP, rows * height + _GAP), _PAPER)
    canvas = ImageDraw.Draw(sheet)
    texts = [f"{record.number} {label_of(record.values)}" for record in records]
    font, _ = caption("".join(texts), system_fonts())
    for place, record in enumerate(records):
        x, y = _GAP + place % columns * width, _GAP + place // columns * height
        sheet.paste(_thumbnail(record), (x, y))
        _, text = caption(texts[place], [font])
        while canvas.textlength(text, font=font) > SIDE:
            text = f"{text.rstrip('…')[:-1]}…"
        canvas.text((x, y + SIDE + 2), text, fill=_INK, font=font)
    return sheet


Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont


@functools.cache
def system_fonts() -> list[Font]:
    """Pillow's own font, which has few letters beyond ASCII, and those of the system that are likely to have more."""
    found: list[Font] = [ImageFont.load_default(12)]
    for name in _FONTS:
        with contextlib.suppress(OSError):
            found.append(ImageFont.truetype(name, 12))
    return found


def caption(text: str, fonts: Sequence[Font]) -> tuple[Font, str]:
    """A line of text with the font that draws most of it; what that would draw as a box is escaped."""
    text = printable(text.replace("\n", " "))
    lacking = [_lacking(font, text) for font in fonts]
    best = min(range(len(fonts)), key=lambda place: len(lacking[place]))
    return fonts[best], "".join(c.encode("unicode_escape").decode() if c in lacking[best] else c for c in text)


def _lacking(font: Font, text: str) -> set[str]:
    box = bytes(font.getmask("\U0010ffff"))
    return {char for char in text if not char.isascii() and bytes(font.getmask(char)) == box}


def _thumbnail(record: Record) -> PillowImage.Image:
    found = image_of(record.values)
    if found is None:
        return PillowImage.new("RGB", (SIDE, SIDE), _FAINT)
    name, data = found
    if name == RAW and (pixels := tensor_of(data)) is not None:
        return _fitted(pixels)
    try:
        pixels = _decoded(data)
    except RejectError:
        return PillowImage.new("RGB", (SIDE, SIDE), _FAINT)
    return _fitted(pixels)


def _decoded(data: bytes) -> NDArray[np.uint8]:
    """The pixels of an image, perhaps scaled down: uint8 [h, w, 1, 3 or 4]; four are CMYK.

    Raises:
        RejectError: it is damaged, or would take too much memory.
    """
    options, least = ImageOptions(), (SIDE, SIDE)
    source = formats.FORMATS[formats.identify(data)].open(data)
    limits.check(source, options)
    limits.check_memory(source, len(data), source.memory(least), options)
    return source.decode(least).pixels


def _fitted(pixels: NDArray[np.uint8]) -> PillowImage.Image:
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[pixels.shape[2]]
    image = PillowImage.frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())
    return ImageOps.pad(image.convert("RGB"), (SIDE, SIDE), color=_PAPER)


def png(image: PillowImage.Image) -> bytes:
    """A picture as the bytes of a PNG."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def for_terminal(image: PillowImage.Image, environment: Mapping[str, str]) -> str:
    """The escape sequence that shows a picture in this terminal; empty if it is not known to support any."""
    if "TMUX" in environment or environment.get("TERM", "").startswith("screen"):
        return ""
    data = png(image)
    text = base64.b64encode(data).decode()
    if "KITTY_WINDOW_ID" in environment or environment.get("TERM") in ("xterm-kitty", "xterm-ghostty"):
        parts = [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)]
        more = [1] * (len(parts) - 1) + [0]
        first = ["a=T,f=100,", *[""] * (len(parts) - 1)]
        return "".join(f"\x1b_G{a}m={m};{p}\x1b\\" for a, m, p in zip(first, more, parts, strict=True)) + "\n"
    if environment.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm"):
        return f"\x1b]1337;File=inline=1;size={len(data)}:{text}\x07\n"
    return ""


def html_image(image: PillowImage.Image) -> str:
    """A picture as an HTML element."""
    return f'<img alt="records" src="data:image/png;base64,{base64.b64encode(png(image)).decode()}">'
