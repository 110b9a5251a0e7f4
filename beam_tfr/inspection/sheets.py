"""Draws contact sheets: rows of thumbnails with captions, and legends for their colors."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from PIL import Image as PillowImage
from PIL import ImageDraw

from beam_tfr.dataset.conditions import value_text
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inspection import pictures
from beam_tfr.inspection.fonts import choose_lettering
from beam_tfr.inspection.legend import DrawnShapes, Legend
from beam_tfr.inspection.pictures import SIDE, SIDE_WITH_SHAPES
from beam_tfr.inspection.records import InspectedRecord, label_of

COLUMNS = 8
_GAP = 8  # pixels between thumbnails
_LINE = 18  # height of a caption line in pixels
_SIZE = 12  # font size of captions
_FAINT = "#57606a"
_PAPER = "#e4e6ea"  # not white, so that images with white margins end visibly


class Cell(NamedTuple):
    """A thumbnail on a sheet.

    Attributes:
        draw: draws the thumbnail as a square, given the side in pixels.
        text: the text below the thumbnail.
        key: key of the record, shown below the text; empty if no key is shown.
    """

    draw: Callable[[int], PillowImage.Image]
    text: str
    key: str = ""


class Row(NamedTuple):
    """A row of thumbnails below a heading, which may be empty."""

    cells: Sequence[Cell]
    heading: str = ""


def contact_sheet(
    records: Sequence[InspectedRecord],
    *,
    columns: int = COLUMNS,
    names: bool = False,
    dataset: Manifest | None = None,
) -> PillowImage.Image:
    """Draws a grid of thumbnails with their classes and the numbers of their records.

    A thumbnail without an image is gray.

    Args:
        records: the records to draw.
        columns: thumbnails per row.
        names: whether to show keys too.
        dataset: dataset of the records, for a legend of its classes and masks; None for other
            files.
    """
    cells = [_cell(record, names, dataset) for record in records]
    rows = [Row(cells[begin : begin + columns]) for begin in range(0, len(cells), columns)]
    shapes = DrawnShapes()
    for record in records:
        shapes.add(record.values)
    legends = shapes.list_legends(dataset.class_names if dataset else ())
    return draw_rows(rows, legends, _choose_side(records))


def draw_records(rows: Sequence[Sequence[tuple[InspectedRecord, str]]]) -> PillowImage.Image:
    """Draws rows of thumbnails, given the records and the text below each of them."""
    records = [record for row in rows for record, _ in row]
    drawn = []
    for row in rows:
        drawn.append(Row([Cell(_drawer(record), text) for record, text in row]))
    return draw_rows(drawn, [], _choose_side(records))


def draw_rows(
    rows: Sequence[Row], legends: Sequence[Legend], side: int, *, columns: int = 1
) -> PillowImage.Image:
    """Draws rows of thumbnails, and legends below them.

    Args:
        rows: the rows.
        legends: meanings of the colors.
        side: side of a thumbnail in pixels.
        columns: minimum width of the sheet, as a number of thumbnails.
    """
    columns = max(columns, *(len(row.cells) for row in rows)) if rows else columns
    width = columns * (side + _GAP) + _GAP
    heights = [_row_height(row, side) for row in rows] or [side + _LINE + _GAP]
    lines = [line for legend in legends for line in _legend_lines(legend, width)]
    height = sum(heights) + _GAP + len(lines) * _LINE
    sheet = PillowImage.new("RGB", (width, height), _PAPER)
    top = _GAP
    for row, row_height in zip(rows, heights, strict=False):
        _draw_row(sheet, row, top, side)
        top += row_height
    for line in lines:
        _draw_legend_line(sheet, line, top)
        top += _LINE
    return sheet


def _choose_side(records: Sequence[InspectedRecord]) -> int:
    """Returns the side of thumbnails, which are larger if they show shapes."""
    return SIDE_WITH_SHAPES if any(map(pictures.is_drawn, records)) else SIDE


def _drawer(record: InspectedRecord) -> Callable[[int], PillowImage.Image]:
    return functools.partial(pictures.draw_thumbnail, record)


def _cell(record: InspectedRecord, names: bool, dataset: Manifest | None) -> Cell:
    key = _key_of(record, dataset) if names else ""
    return Cell(_drawer(record), caption(record), key)


def caption(record: InspectedRecord) -> str:
    """Returns the number and class of a record."""
    label = label_of(record.values)
    return f"{record.number}: {label}" if label else f"{record.number}"


def _key_of(record: InspectedRecord, dataset: Manifest | None) -> str:
    """Returns the key of a record, under its name in a dataset or in TensorFlow's tutorials."""
    features = [dataset.names.key] if dataset else ["image/filename", "image/source_id"]
    for feature in features:
        for value in record.values.get(feature, ()):
            return value_text(value)
    return "no key"


def _row_height(row: Row, side: int) -> int:
    height = side + _LINE + _GAP
    if row.heading:
        height += _LINE
    if any(cell.key for cell in row.cells):
        height += _LINE
    return height


def _draw_row(sheet: PillowImage.Image, row: Row, top: int, side: int) -> None:
    if row.heading:
        _write(sheet, (_GAP, top), row.heading, sheet.width - 2 * _GAP)
        top += _LINE
    for column, cell in enumerate(row.cells):
        left = _GAP + column * (side + _GAP)
        sheet.paste(cell.draw(side), (left, top))
        _write(sheet, (left, top + side + 2), cell.text, side)
        if cell.key:
            place = (left, top + side + 2 + _LINE)
            _write(sheet, place, cell.key, side, color=_FAINT, keep_end=True)


def _write(
    sheet: PillowImage.Image,
    place: tuple[int, int],
    text: str,
    width: int,
    *,
    color: str = pictures.INK,
    keep_end: bool = False,
) -> None:
    """Writes text, shortened to a width in pixels."""
    canvas = ImageDraw.Draw(sheet)
    line, font = choose_lettering(text, _SIZE)
    measure = functools.partial(canvas.textlength, font=font)
    shown = _shorten_begin(line, width, measure) if keep_end else _shorten(line, width, measure)
    canvas.text(place, shown, fill=color, font=font)


def _shorten(text: str, width: int, measure: Callable[[str], float]) -> str:
    """Shortens text to as many of its first characters as fit."""
    text = text[:width]  # thousands of labels would take long to measure
    while measure(text) > width:
        kept = text.rstrip("…")[:-1]
        text = f"{kept}…"
    return text


def _shorten_begin(text: str, width: int, measure: Callable[[str], float]) -> str:
    """Shortens text to as many of its last characters as fit, which say most in a path."""
    text = text[-width:]
    while measure(text) > width:
        kept = text.lstrip("…")[1:]
        text = f"…{kept}"
    return text


class _LegendLine(NamedTuple):
    """A line below a sheet: a title, or colors with their meanings, from left to right."""

    title: str
    entries: Sequence[tuple[int, str, str]] = ()  # left, color, text


def _legend_lines(legend: Legend, width: int) -> list[_LegendLine]:
    """Returns the lines of a legend, wrapped at a width in pixels."""
    lines = [_LegendLine(f"{legend.title}:")]
    entries = [(entry.color, entry.text) for entry in legend.entries]
    if legend.more:
        entries.append(("", f"and {legend.more:,} more"))
    line = list[tuple[int, str, str]]()
    left = _GAP
    for color, text in entries:
        shown, font = choose_lettering(text, _SIZE)
        entry_width = _LINE + round(font.getlength(shown)) + 2 * _GAP
        if line and left + entry_width > width:
            lines.append(_LegendLine("", line))
            line = []
            left = _GAP
        line.append((left, color, text))
        left += entry_width
    return [*lines, _LegendLine("", line)]


def _draw_legend_line(sheet: PillowImage.Image, line: _LegendLine, top: int) -> None:
    canvas = ImageDraw.Draw(sheet)
    if line.title:
        _write(sheet, (_GAP, top), line.title, sheet.width - 2 * _GAP, color=_FAINT)
    for left, color, text in line.entries:
        if color:
            canvas.rectangle((left, top + 2, left + 11, top + 13), fill=color)
        _write(sheet, (left + _LINE, top), text, sheet.width - left - _LINE - _GAP)
