"""Warns of columns with angles, which do not rotate the boxes in the same rows."""

from collections.abc import Iterator, Sequence
from typing import Any

from beam_tfr.features.base import ColumnKind
from beam_tfr.features.boxes import Boxes
from beam_tfr.features.cells import members_of, to_float
from beam_tfr.tables.box_names import letters_of
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.unused.suggestions import list_fields_of, read_first_cells

_ANGLES = frozenset(
    ("angle", "rotation", "theta", "rot", "rotationangle", "degrees", "rotate", "orientation")
)
_BOX_WORDS = ("boundingbox", "bbox", "box")


def warn_of_turned_boxes(content: TableContent, features: Sequence[ColumnKind]) -> Iterator[str]:
    """Yields a warning about an angle next to boxes, unless it is 0 in all of the first rows.

    Args:
        content: the findings about the tables.
        features: the features that the columns become.
    """
    boxes = next((feature for feature in features if isinstance(feature, Boxes)), None)
    if boxes is None or content.read_rows:
        return
    objects = {name.partition(".")[0] for name in (boxes.name, *boxes.columns) if "." in name}
    columns = [*content.columns, *list_fields_of(content, objects)]
    angles = [*filter(_names_angle, columns)]
    if not angles:
        return
    for name, cells in read_first_cells(content, angles).items():
        if any(map(_is_turn, cells)):
            yield (
                f"the rotation in column {name!r:.60} is not applied: boxes are stored unrotated; "
                "if they should enclose the rotated objects, write boxes that do"
            )
            return


def _names_angle(column: str) -> bool:
    """Whether a column, or an object field, is named like the angle of boxes."""
    letters = letters_of(column.rpartition(".")[2])
    for word in _BOX_WORDS:
        letters = letters.removeprefix(word)
    return letters in _ANGLES


def _is_turn(cell: Any) -> bool:
    """Whether a cell, or a member of its list, is a number other than 0."""
    for member in members_of(cell):
        try:
            if to_float(member):
                return True
        except ValueError:
            continue
    return False
