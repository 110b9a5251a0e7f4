"""Checks whether the numbers in declared boxes suggest another form of boxes."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.features.box_formats import RELATIVE, is_relative
from beam_tfr.features.boxes import Boxes
from beam_tfr.features.registry import find_boxes, parse_columns
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.base import table_error
from beam_tfr.tables.box_shares import are_centers, guess_form, read_quads
from beam_tfr.tables.content import TableContent

_LEAST_PIXELS = 2  # boxes in pixels have at least one number as large as this


def check_shares(
    content: TableContent, declarations: Mapping[str, str], cells: Mapping[str, Sequence[Any]]
) -> None:
    """Checks that boxes declared in pixels are not fractions of the image size.

    Args:
        content: the findings about the tables.
        declarations: column -> declaration, or an empty string if the cells determine the type.
        cells: column -> its cells in the first rows.

    Raises:
        UsageError: all numbers of the first boxes are less than 2, and not all numbers are whole.
    """
    boxes = _find_free_boxes(content, declarations)
    if boxes is None or is_relative(boxes.form):
        return
    quads = read_quads(cells[boxes.name])
    numbers = [*itertools.chain.from_iterable(quads)]
    are_small = bool(numbers) and max(map(abs, numbers)) < _LEAST_PIXELS
    if not are_small or all(map(float.is_integer, numbers)):
        return
    form = guess_form(boxes.form, quads)
    if not is_relative(form):
        form = RELATIVE + form
    declaration = boxes.text.replace(boxes.form, form, 1)
    raise table_error(
        content.files[0],
        f"column {boxes.name!r} as {boxes.text}: no box in the first rows, such as {quads[0]}, has "
        f"a number as large as {_LEAST_PIXELS}, so these are fractions of the image size, not "
        f"pixels: give {spell_option('feature_columns', f'{boxes.name}:{declaration}')}",
    )


def warn_of_centers(
    content: TableContent, declarations: Mapping[str, str], cells: Mapping[str, Sequence[Any]]
) -> Iterator[str]:
    """Yields a warning about relative boxes that are inside images only if read as centers."""
    boxes = _find_free_boxes(content, declarations)
    if boxes is None or boxes.form != "rel_xywh" or not are_centers(read_quads(cells[boxes.name])):
        return
    declaration = boxes.text.replace(boxes.form, "rel_center_xywh", 1)
    yield (
        f"boxes in column {boxes.name!r} extend beyond their images as {boxes.text}, but all boxes "
        "in the first rows are inside if their first two numbers are centers: if so, give "
        f"{spell_option('feature_columns', f'{boxes.name}:{declaration}')}"
    )


def _find_free_boxes(content: TableContent, declarations: Mapping[str, str]) -> Boxes | None:
    """Returns the boxes of tables that may hold any form of boxes; None if there are no boxes."""
    if content.read_rows or not content.table_format.may_have_box_rows:
        return None
    return find_boxes(parse_columns(declarations))
