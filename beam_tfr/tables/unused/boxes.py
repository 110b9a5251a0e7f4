"""Finds columns that may hold boxes, points, or objects with boxes or points."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from beam_tfr.features.cells import UntypedCellError, check_shapes, split_boxes, to_finite
from beam_tfr.schema.feature_names import BOXES
from beam_tfr.schema.spelling import quote_word, spell_option
from beam_tfr.tables.base import list_columns
from beam_tfr.tables.box_names import BOX, find_possible_boxes
from beam_tfr.tables.box_objects import find_file, find_label, hold_nested_lists, write_jq
from beam_tfr.tables.box_shares import guess_form, join_sides
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.coordinates import find_point_columns, names_boxes, names_places
from beam_tfr.tables.text_rows import Delimited
from beam_tfr.tables.unused.suggestions import Suggestion, list_fields_of, read_first_cells

# Names of columns with objects.
_OBJECTS = re.compile(
    r"(?i)(.*[_./])?(objects?|bounding_?box(es)?|(gt_?)?b?box(es)?"
    r"|(box(es)?|prediction)_?string)|.*annotations?"
)
_POLYGONS = re.compile(r"(?i).+\.(?:polygons?|segmentations?)")
_SIDES_OF_BOX = 4
_NUMBERS_OF_QUADRANGLE = 8


def find_sides(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds four columns, or fields of the object in a column, that may be the sides of boxes."""
    boxes = find_possible_boxes(columns)
    if boxes is None:
        boxes = find_possible_boxes(list_fields_of(content, filter(_may_hold_objects, columns)))
    if boxes is None or _are_nested(content, boxes.sides):
        return None
    cells = read_first_cells(content, boxes.sides)
    boxes = boxes._replace(form=guess_form(boxes.form, join_sides(cells.values())))
    message = (
        f"no values of {list_columns(boxes.sides)} are stored: if they are the sides of boxes, "
        f"{spell_option('feature_columns', f'{BOX}:{boxes.declaration}')} stores the boxes"
    )
    columns_of_fields = [side.partition(".")[0] for side in boxes.sides]
    return Suggestion([*boxes.sides, *columns_of_fields], message)


def find_polygons(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds object fields with lists of polygons, as in Azure ML, or with quadrangles."""
    fields = [*columns, *list_fields_of(content, columns)]
    polygons = [name for name in fields if _POLYGONS.fullmatch(name)]
    if not polygons or not hold_nested_lists(read_first_cells(content, polygons[:1])[polygons[0]]):
        polygons = _list_quadrangles(content, fields)
    if not polygons:
        return None
    parent = polygons[0].rpartition(".")[0]
    message = f"no values of {polygons[0]} are stored: {_cure_polygons(content, polygons[0])}"
    return Suggestion([name for name in columns if name in (polygons[0], parent)], message)


def _cure_polygons(content: TableContent, field: str) -> str:
    """Returns a program that writes a table with the boxes around the polygons in a field."""
    path = content.files[0]
    parent, _, name = field.rpartition(".")
    boxes = f"{path.rpartition('/')[0]}/boxes.jsonl"
    program = (
        f"{write_jq(parent)} |= map([{write_jq(name)} | .. | numbers] as $all | [$all[range(0; "
        "$all | length; 2)]] as $x | [$all[range(1; $all | length; 2)]] as $y | . + {xmin: ($x | "
        "min), ymin: ($y | min), xmax: ($x | max), ymax: ($y | max)})"
    )
    return (
        f"write the boxes around polygons; jq -c {quote_word(program, 'FILTER')} "
        f"{quote_word(path, 'TABLE')} > {quote_word(boxes, 'boxes.jsonl')} writes a table with "
        "these"
    )


def find_points(_: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds columns that may be the x and y coordinates of points."""
    points = find_point_columns(columns)
    if not points:
        return None
    message = (
        f"no values of {list_columns(points)} are stored: if they are points in the images, write "
        "a "
        'list of them for each box, in .jsonl, such as "box": [[5, 6, 20, 15]], "joint": '
        "[[7, 8, 2, 9, 12, 2]]: "
        f"{spell_option('feature_columns', f'{BOX}:bbox[xywh],joint:points[xyv]')} stores these"
    )
    return Suggestion(points, message)


def find_objects(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds columns that may hold objects, or lists of boxes."""
    objects = [*filter(_may_hold_objects, columns)]
    if not objects:
        return None
    uri_column = content.options.uri_column
    cure = cure_box_field(content, objects)
    if cure:
        return Suggestion(objects, f"no values of {list_columns(objects)} are stored: {cure}")
    if not content.options.label_column and not _hold_boxes(content, objects):
        return None
    box = next(filter(names_boxes, objects), BOX)
    form = "rel_xyxy" if box == BOXES else _guess_form(content, objects)
    message = (
        f"no values of {list_columns(objects)} are stored, but may be objects in the images: "
        f"{spell_option('uri_column', uri_column)} with "
        f"{spell_option('feature_columns', f'{box}:bbox[{form}]')} stores the boxes of a column "
        f"{box} with four numbers each, in this or another format; their classes, if any, are the "
        "lists in `label_column=`"
    )
    return Suggestion(objects, message)


def cure_box_field(content: TableContent, objects: Sequence[str]) -> str:
    """Returns options that store classes and the boxes in an object field, or an empty string.

    Args:
        content: the table.
        objects: columns that may hold objects with such a field.
    """
    field = _find_boxes(content, objects)
    if not field:
        return ""
    if _list_quadrangles(content, [field]):
        return f"{field} has the corners of quadrangles: {_cure_polygons(content, field)}"
    path = content.files[0]
    uri_column = content.options.uri_column or find_file(path, content.columns) or "NAME"
    label = find_label(path, field.rpartition(".")[0], list_fields_of(content, objects))
    classes = f"{spell_option('label_column', label or 'NAME')} their classes"
    if not label:
        classes += ", if they are in a field next to it"
    declaration = f"{field}:bbox[{_guess_form(content, [field])}]"
    return (
        f"{spell_option('uri_column', uri_column)} with "
        f"{spell_option('feature_columns', declaration)} stores the boxes, and {classes}"
    )


def find_shapes_as_text(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds a column with objects or geographic shapes as text, as pandas writes them to CSV."""
    if not isinstance(content.table_format, Delimited):
        return None
    for name, cells in read_first_cells(content, columns).items():
        texts = [cell for cell in cells if cell]
        try:
            for text in texts:
                check_shapes(text)
        except UntypedCellError as error:
            return Suggestion([name], f"no values of {name:.60} are stored, since {error}")
    return None


def _hold_boxes(content: TableContent, columns: Sequence[str]) -> bool:
    """Whether any of the columns has lists of four numbers in all of the first rows."""
    return any(map(_parse_boxes, read_first_cells(content, columns).values()))


def _guess_form(content: TableContent, columns: Sequence[str]) -> str:
    """Guesses the format of boxes from the first column that has boxes."""
    boxes = next(filter(None, map(_parse_boxes, read_first_cells(content, columns).values())), [])
    if not boxes or any(not 0 <= number <= 1 for box in boxes for number in box):
        return "xywh"
    are_corners = all(left < right and top < bottom for left, top, right, bottom in boxes)
    return "rel_xyxy" if are_corners else "rel_xywh"


def _list_quadrangles(content: TableContent, fields: Sequence[str]) -> list[str]:
    """Lists the object fields that are named like boxes and have the x and y of four corners."""
    boxes = [name for name in fields if names_boxes(name.partition(".")[2])]
    cells = read_first_cells(content, boxes)
    return [name for name in boxes if _parse_boxes(cells[name], _NUMBERS_OF_QUADRANGLE)]


def _parse_boxes(cells: Iterable[Any], numbers: int = _SIDES_OF_BOX) -> list[list[float]]:
    """Parses the boxes in cells; returns an empty list if a cell holds anything else.

    Args:
        cells: the cells.
        numbers: the number of numbers in a box.
    """
    boxes = list[list[float]]()
    for cell in cells:
        try:
            members = split_boxes(cell)
            are_lists = all(isinstance(member, list) for member in members)
            for box in members if are_lists else [members]:
                boxes.append([*map(to_finite, box)])
        except ValueError:
            return []
    return boxes if all(len(box) == numbers for box in boxes) else []


def _find_boxes(content: TableContent, objects: Sequence[str]) -> str:
    """Returns the field with boxes, such as `objects.bbox`, or an empty string."""
    for name in list_fields_of(content, objects):
        if names_boxes(name.partition(".")[2]):
            return name
    return ""


def _may_hold_objects(column: str) -> bool:
    """Whether a column is named like boxes, points, or objects."""
    return names_places(column) or bool(_OBJECTS.fullmatch(column))


def _are_nested(content: TableContent, columns: Sequence[str]) -> bool:
    """Whether the columns are object fields with lists of lists."""
    if not any("." in name for name in columns):
        return False
    cells = itertools.chain.from_iterable(read_first_cells(content, columns).values())
    return hold_nested_lists(cells)
