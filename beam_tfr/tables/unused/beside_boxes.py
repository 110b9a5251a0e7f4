"""Warns of columns that are not stored because box columns determine the features."""

from collections.abc import Iterator
from typing import Any

from beam_tfr.features.boxes import Boxes
from beam_tfr.features.cells import members_of
from beam_tfr.features.registry import find_boxes, parse_columns
from beam_tfr.schema.feature_names import (
    BOXES,
    FILENAME,
    OBJECT_MASK,
    OBJECT_TEXT,
    SIDES,
    SOURCE_WIDTH,
)
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.base import list_columns
from beam_tfr.tables.box_names import find_size_columns
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.unused.columns import list_unused
from beam_tfr.tables.unused.suggestions import read_first_cells

# TFRecord columns that no option stores.
_NEVER_STORED = {FILENAME, OBJECT_MASK}
# The prefix of columns with a value per box.
_OF_OBJECTS = OBJECT_TEXT.removesuffix("class/text")


def warn_beside_boxes(content: TableContent) -> Iterator[str]:
    """Yields a warning about columns next to box columns that are not stored."""
    if not content.implies_features:
        return
    boxes = find_boxes(parse_columns(content.options.feature_columns or {}))
    if boxes is None:
        return
    others = _list_unused_beside(content, boxes)
    if not others:
        return
    text = f"no values of the columns {list_columns(others)} are stored"
    storable = [name for name in others if name not in _NEVER_STORED]
    if not storable:
        yield f"{text}, and no option stores them"
        return
    roles = f"{spell_option('uri_column', content.options.uri_column)} with "
    if content.options.label_column and boxes.name == BOXES:
        roles += f"{spell_option('label_column', content.options.label_column)} and "
    columns = f"{boxes.name}:bbox[{boxes.form}],{_declare(content, boxes, storable[0])}"
    yield (
        f"{text}: name those to store with the boxes, such as "
        f"{roles}{spell_option('feature_columns', columns)}"
    )


def _list_unused_beside(content: TableContent, boxes: Boxes) -> list[str]:
    """Lists the columns that are not stored if boxes are stored."""
    columns_of_sides = {side.partition(".")[0] for side in boxes.columns}
    used = {*boxes.columns, *columns_of_sides, BOXES, *SIDES}
    if SOURCE_WIDTH in (content.options.feature_columns or {}):
        used |= {*find_size_columns(content.columns, boxes.columns).values()}
    others = [name for name in list_unused(content) if name not in used]
    objects = {name.rpartition(".")[0] for name in others}  # objects with named fields
    return [name for name in others if name not in objects]


def _declare(content: TableContent, boxes: Boxes, column: str) -> str:
    """Returns the declaration of a column with a value per box; for other columns, its name.

    A column with a value per box is a column of TFRecords, or a field of objects, next to the sides
    of boxes. Objects are stored as text.
    """
    values = list[Any]()
    for cell in read_first_cells(content, [column])[column]:
        values += members_of(cell)
    objects = {side.rpartition(".")[0] for side in boxes.columns}
    is_of_objects = "." in column and column.rpartition(".")[0] in objects
    if not column.startswith(_OF_OBJECTS) and not is_of_objects:
        holds_objects = any(isinstance(value, dict) for value in values)
        return f"{column}:bytes" if holds_objects else column
    for kind, name in ((int, "int64"), (float, "float")):
        if any(isinstance(value, kind) for value in values):
            return f"{column}:{name}[box]"
    return f"{column}:bytes[box]"
