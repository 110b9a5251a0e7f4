"""Distinguishes relative boxes, in fractions of the image size, from boxes in pixels."""

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from beam_tfr.features.box_formats import RELATIVE, to_corners
from beam_tfr.features.cells import members_of, split_boxes, to_finite

_FIRST_CELLS = 1_000
_TOLERANCE = 0.01  # fraction of the image size by which boxes may extend beyond the image
Quad = list[float]  # the four numbers of a box


def guess_form(form: str, boxes: Sequence[Quad]) -> str:
    """Guesses the format of boxes whose names suggest a format in pixels.

    Args:
        form: one of `BOX_FORMATS`, in pixels.
        boxes: lists of four numbers.
    """
    if not boxes or any(not 0 <= number <= 1 for box in boxes for number in box):
        return form
    if form == "xywh" and are_centers(boxes):
        form = "center_xywh"
    return RELATIVE + form


def join_sides(columns: Iterable[Iterable[Any]]) -> list[Quad]:
    """Returns the boxes from columns with one side each; no boxes if any cell is not a number."""
    sides = [itertools.chain.from_iterable(map(members_of, cells)) for cells in columns]
    try:
        return [[*map(to_finite, box)] for box in zip(*sides, strict=True)]
    except ValueError:
        return []


def are_centers(boxes: Sequence[Quad]) -> bool:
    """Whether all relative boxes are inside the image if read as centers, but not as corners."""
    reach_out = any(_reaches_out(box, "rel_xywh") for box in boxes)
    return reach_out and not any(_reaches_out(box, "rel_center_xywh") for box in boxes)


def _reaches_out(box: Quad, form: str) -> bool:
    with contextlib.suppress(ValueError):  # boxes that are bad in any format
        left, top, right, bottom = to_corners(box, form)
        return min(left, top) < -_TOLERANCE or max(right, bottom) > 1 + _TOLERANCE
    return False


def read_quads(cells: Iterable[Any]) -> list[Quad]:
    """Returns the boxes in the first cells; leaves out bad boxes."""
    quads = list[Quad]()
    for cell in itertools.islice(cells, _FIRST_CELLS):
        with contextlib.suppress(ValueError):
            members = split_boxes(cell)
            are_lists = all(isinstance(member, list) for member in members)
            quads += [[*map(to_finite, box)] for box in (members if are_lists else [members])]
    return [quad for quad in quads if len(quad) == 4]
