"""Warns of columns of tables of which nothing is stored: what they may hold, and what stores it."""

import contextlib
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.features.registry import find_boxes, parse_columns
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.schema.feature_names import (
    BOXES,
    CHANNELS,
    COLORSPACE,
    FILENAME,
    FORMAT,
    HEIGHT,
    LABEL,
    OBJECT_LABEL,
    OBJECT_MASK,
    OBJECT_TEXT,
    SHA256,
    SIDES,
    SOURCE_WIDTH,
    TEXT,
    WIDTH,
)
from beam_tfr.tables.base import list_columns
from beam_tfr.tables.box_names import BOX, find_possible_boxes, find_size_columns
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.coordinates import find_point_columns, names_places
from beam_tfr.tables.formats import list_fields, read_columns, read_rows
from beam_tfr.tables.samples import EXTENSIONS, Samples
from beam_tfr.tables.split_columns import is_named_like_splits
from beam_tfr.tables.text_rows import Delimited, JsonLines
from beam_tfr.tables.tfrecord_rows import TfRecord

_MOST_TABLES = 20  # whose columns are compared
_FIELD_ROWS = 100  # the first rows, in which fields of objects are looked for
# Columns that say the same, as number and as text.
_SAME_COLUMNS = ({TEXT, LABEL}, {OBJECT_TEXT, OBJECT_LABEL})
# Columns of TFRecords that are made anew from the image.
_MADE_ANEW = {HEIGHT, WIDTH, CHANNELS, COLORSPACE, FORMAT, SHA256}
# Columns of TFRecords that no option stores.
_NEVER_STORED = {FILENAME, OBJECT_MASK}
# Columns with a value for each box begin so.
_OF_OBJECTS = OBJECT_TEXT.removesuffix("class/text")
# Names of columns with objects.
_OBJECTS = re.compile(
    r"(?i)(.*[_./])?(objects?|.*annotations?|bounding_?box(es)?|b?box(es)?"
    r"|(box(es)?|prediction)_?string)"
)
# Names of those of them with boxes.
_BOXES = re.compile(r"(?i)(.*[_./])?(bounding_?)?b?box(es)?(_?string)?")
# Columns of VIA's CSV, with a region in each row.
_VIA = frozenset({"region_shape_attributes", "region_attributes"})
# Names of columns with masks as run lengths, as in competitions of Kaggle.
_RUN_LENGTHS = re.compile(r"(?i)(.*[_. ])?(encoded_?pixels|rles?|run_?lengths?)([_. ].*)?")
# Names of columns with the paths of masks.
_MASKS = re.compile(
    r"(?i)(.*[_. ])?(masks?|seg|segmentation)([_. ]?(files?|images?|paths?|names?))?"
)


# Cells of columns that say for a class whether an image has it; -1 for none, or not sure.
_FLAGS = frozenset({"", "-1", "0", "1", "-1.0", "0.0", "1.0", "False", "True"})
_TRUE_FLAGS = frozenset({"1", "1.0", "True"})


class _Suggestion(NamedTuple):
    """What columns without a role may hold.

    Attributes:
        columns: the columns.
        message: says so, and what stores it.
    """

    columns: Sequence[str]
    message: str


def warn_of_unused_columns(content: TableContent) -> Iterator[str]:
    """Yields warnings about columns of which nothing is stored, if none is chosen by option."""
    options = content.options
    if content.implies_features:
        yield from _warn_beside_boxes(content)
    if not options.uri_column or options.feature_columns is not None:
        return
    others = _list_unused(content)
    for find in _FINDERS:
        suggestion = find(content, others)
        if suggestion:
            yield suggestion.message
            others = [name for name in others if name not in suggestion.columns]
    if not others:
        return
    cure = "`feature_columns=` names those of features"
    if not options.label_column:
        cure = f"`label_column=` names that of classes, {cure}"
    yield f"nothing is stored of the columns {list_columns(others)}: {cure}"


def warn_of_other_tables(content: TableContent) -> Iterator[str]:
    """Yields a warning about a table with columns that the first one has not.

    Looks at the first tables of text, and at the first rows of TFRecords, on a disk.
    """
    first = content.files[0]
    has_choice = content.options.feature_columns is not None and not content.implies_features
    if not content.options.uri_column or has_choice:
        return
    if storage.is_remote(first) or content.read_rows:
        return
    if isinstance(content.table_format, TfRecord):
        others_of = functools.partial(_list_other_columns, {*content.columns, *_MADE_ANEW}, 1)
        cure = "leave the first table out of `table=` to have them read"
    elif isinstance(content.table_format, Delimited | JsonLines):
        others_of = functools.partial(_list_other_columns, {*content.columns}, _FIELD_ROWS)
        cure = "add them there, with empty cells, to have them read"
    else:
        return
    for path in content.files[1:_MOST_TABLES]:
        others = others_of(path)
        if others:
            yield (
                f"{path} has columns that the first table, {first}, has not, and nothing is "
                f"stored of these: {list_columns(others)}; {cure}"
            )
            return


def _list_other_columns(known: Set[str], num_rows: int, path: str) -> list[str]:
    """The columns of a table, as its first rows have them, but for known ones."""
    columns = list[str]()
    with contextlib.suppress(BeamTfrError):  # which reading its rows raises
        columns = read_columns(path, num_rows)
    return [name for name in columns if name and name not in known]


def _warn_beside_boxes(content: TableContent) -> Iterator[str]:
    """Yields a warning about columns beside those of boxes, which imply the features."""
    features = content.options.feature_columns or {}
    boxes = find_boxes(parse_columns(features))
    if boxes is None:
        return
    columns_of_sides = {side.partition(".")[0] for side in boxes.columns}
    used = {*boxes.columns, *columns_of_sides, BOXES, *SIDES}
    if SOURCE_WIDTH in features:
        used |= {*find_size_columns(content.columns, boxes.columns).values()}
    others = [name for name in _list_unused(content) if name not in used]
    if not others:
        return
    text = f"nothing is stored of the columns {list_columns(others)}"
    storable = [name for name in others if name not in _NEVER_STORED]
    if not storable:
        yield f"{text}, which no option stores"
        return
    roles = f"`uri_column={content.options.uri_column}` with "
    if content.options.label_column and boxes.name == BOXES:
        roles += f"`label_column={content.options.label_column}` and "
    columns = f"{boxes.name}:bbox[{boxes.form}],{_declare_beside_boxes(content, storable[0])}"
    yield (
        f"{text}: name those to store beside the boxes, such as {roles}"
        f"`feature_columns='{columns}'`"
    )


def _declare_beside_boxes(content: TableContent, column: str) -> str:
    """The declaration of a column of TFRecords with a value for each box; the name of another."""
    if not column.startswith(_OF_OBJECTS):
        return column
    values = list[Any]()
    with contextlib.suppress(BeamTfrError):  # which reading the rows raises
        for _, (cell,) in itertools.islice(read_rows(content.files[0], [column]), _FIELD_ROWS):
            values += cell if isinstance(cell, list) else [cell]
    for kind, name in ((int, "int64"), (float, "float")):
        if any(isinstance(value, kind) for value in values):
            return f"{column}:{name}[box]"
    return f"{column}:bytes[box]"


def _list_unused(content: TableContent) -> list[str]:
    """The columns without a role, but those that say the same as one with a role."""
    roles = {*content.options.roles}
    used = {*roles}
    if isinstance(content.table_format, TfRecord):
        used |= _MADE_ANEW
    for group in _SAME_COLUMNS:
        if roles & group:
            used |= group
    if isinstance(content.table_format, Samples) and roles & {*EXTENSIONS}:
        used |= {*EXTENSIONS}
    if content.options.shares:  # instead of those of a column
        used |= {*filter(is_named_like_splits, content.columns)}
    with_fields = {name.partition(".")[0] for name in roles - {*content.columns}}
    fields = _list_fields(content, with_fields)
    unused = [name for name in content.columns if name and name not in used | with_fields]
    return unused + [name for name in fields if name not in used]


def _find_sides(content: TableContent, columns: Sequence[str]) -> _Suggestion | None:
    """Four columns, or fields of the object in one, that may be the sides of boxes."""
    boxes = find_possible_boxes(columns)
    if boxes is None:
        boxes = find_possible_boxes(_list_fields(content, filter(_may_hold_objects, columns)))
    if boxes is None or _hold_nested_lists(content, boxes.sides):
        return None
    message = (
        f"nothing is stored of {list_columns(boxes.sides)}: if they are the sides of boxes, "
        f"`feature_columns='{BOX}:{boxes.declaration}'` stores these"
    )
    columns_of_fields = [side.partition(".")[0] for side in boxes.sides]
    return _Suggestion([*boxes.sides, *columns_of_fields], message)


def _find_regions(_: TableContent, columns: Sequence[str]) -> _Suggestion | None:
    """Columns with the regions of VIA."""
    if not {*columns} >= _VIA:
        return None
    regions = [name for name in columns if name.startswith(("region_", "file_"))]
    message = (
        f"nothing is stored of {list_columns(regions)}, which VIA writes: export the regions there "
        "in COCO's format, which is a `table=`"
    )
    return _Suggestion(regions, message)


def _find_points(_: TableContent, columns: Sequence[str]) -> _Suggestion | None:
    """Columns that may be the x and y of points."""
    points = find_point_columns(columns)
    if not points:
        return None
    message = (
        f"nothing is stored of {list_columns(points)}: if they are points in the images, write a "
        'list of them for each box, in .jsonl, such as "box": [[5, 6, 20, 15]], "joint": '
        f"[[7, 8, 2, 9, 12, 2]]: `feature_columns='{BOX}:bbox[xywh],joint:points[xyv]'` stores "
        "these"
    )
    return _Suggestion(points, message)


def _find_run_lengths(_: TableContent, columns: Sequence[str]) -> _Suggestion | None:
    """Columns that may hold masks as run lengths."""
    masks = [*filter(_RUN_LENGTHS.fullmatch, columns)]
    if not masks:
        return None
    message = (
        f"nothing is stored of {list_columns(masks)}: if they are run lengths of masks, write "
        "the mask of each image as a PNG, whose path is in a column: "
        "`feature_columns=mask:mask` stores it"
    )
    return _Suggestion(masks, message)


def _find_classes(content: TableContent, columns: Sequence[str]) -> _Suggestion | None:
    """Columns of 0 and 1, each of which may be that of a class."""
    label = content.options.label_column
    wanted = {*columns, label}
    flags = _list_flags(content, [name for name in content.columns if name in wanted])
    if len(flags.columns) < 2 or (label and label not in flags.columns):
        return None
    names = json.dumps(flags.columns, ensure_ascii=False)
    classes = "idxmax(axis=1)"
    option = "`label_column=class`"
    if not flags.is_one_each:
        classes = 'eq(1).apply(lambda row: "|".join(row.index[row]), axis=1)'
        option = "`label_column=class` with `label_separator='|'`"
    unused = [name for name in flags.columns if name != label]
    message = (
        f"nothing is stored of {list_columns(unused)}, which have 0 or 1 in each row: if "
        "each is a class, write the classes of each row into one column, for "
        f'{option}; with pandas: table["class"] = table[{names}].{classes}'
    )
    return _Suggestion(flags.columns, message)


class _Flags(NamedTuple):
    """Columns of 0 and 1.

    Attributes:
        columns: the columns.
        is_one_each: whether each row has one 1.
    """

    columns: Sequence[str]
    is_one_each: bool


def _list_flags(content: TableContent, columns: Sequence[str]) -> _Flags:
    """Those of some columns that have 0 and 1 in the first rows."""
    may_have = isinstance(content.table_format, Delimited | JsonLines) and not content.read_rows
    flags = list[str]()
    numbers = list[int]()  # of classes, in each of the first rows
    texts_of = _read_texts(content, columns) if may_have and len(columns) > 1 else {}
    for name, cells in texts_of.items():
        if {*cells} <= _FLAGS and any(cells):
            flags.append(name)
            numbers = numbers or [0] * len(cells)
            numbers = [
                number + (cell in _TRUE_FLAGS) for number, cell in zip(numbers, cells, strict=True)
            ]
    if not any(numbers):
        return _Flags((), is_one_each=False)
    return _Flags(flags, is_one_each={*numbers} == {1})


def _read_texts(content: TableContent, columns: Sequence[str]) -> dict[str, list[str]]:
    """Column -> the texts of its cells in the first rows."""
    texts_of: dict[str, list[str]] = {name: [] for name in columns}
    with contextlib.suppress(BeamTfrError):  # which reading the rows raises
        for _, cells in itertools.islice(read_rows(content.files[0], columns), _FIELD_ROWS):
            for name, cell in zip(columns, cells, strict=True):
                texts_of[name].append("" if cell is None else str(cell))
    return texts_of


def _find_masks(_: TableContent, columns: Sequence[str]) -> _Suggestion | None:
    """Columns that may hold the paths of masks."""
    masks = [*filter(_MASKS.fullmatch, columns)]
    if not masks:
        return None
    message = (
        f"nothing is stored of {list_columns(masks)}: if they are the paths of masks, "
        f"`feature_columns={masks[0]}:mask` stores these"
    )
    return _Suggestion(masks, message)


def _find_objects(content: TableContent, columns: Sequence[str]) -> _Suggestion | None:
    """Columns that may hold objects, or lists of boxes."""
    objects = [*filter(_may_hold_objects, columns)]
    if not objects:
        return None
    field = _find_boxes(content, objects)
    uri_column = content.options.uri_column
    if field:
        message = (
            f"nothing is stored of {list_columns(objects)}: `uri_column={uri_column}` with "
            f"`feature_columns={field}:bbox[xywh]` stores the boxes, and `label_column=` their "
            "classes, if they are in a field beside it"
        )
        return _Suggestion(objects, message)
    if not content.options.label_column:
        return None
    box = next(filter(_BOXES.fullmatch, objects), BOX)
    form = "rel_xyxy" if box == BOXES else "xywh"
    message = (
        f"nothing is stored of {list_columns(objects)}, which may hold objects in the images: "
        f"`uri_column={uri_column}` with `feature_columns={box}:bbox[{form}]` stores "
        f"the boxes of a column {box} with four numbers for each, in this or another form; their "
        "classes, if any, are the lists of `label_column=`"
    )
    return _Suggestion(objects, message)


def _find_boxes(content: TableContent, objects: Sequence[str]) -> str:
    """The field with boxes of a column of objects, such as `objects.bbox`; empty without one."""
    for name in _list_fields(content, objects):
        if _BOXES.fullmatch(name.partition(".")[2]):
            return name
    return ""


def _may_hold_objects(column: str) -> bool:
    """Whether the name of a column is one of boxes, points, or objects."""
    return names_places(column) or bool(_OBJECTS.fullmatch(column))


def _list_fields(content: TableContent, columns: Iterable[str]) -> list[str]:
    """The fields of the objects in some columns, such as `objects.bbox`."""
    wanted = {*columns}
    if content.read_rows or not wanted:  # a dataset has no columns of objects
        return []
    fields = list_fields(content.files[0], _FIELD_ROWS)
    return [name for name in fields if name not in wanted and name.partition(".")[0] in wanted]


def _hold_nested_lists(content: TableContent, fields: Sequence[str]) -> bool:
    """Whether fields have lists in lists, as those of lists of objects in such lists have."""
    if not any("." in name for name in fields):
        return False
    rows = itertools.islice(read_rows(content.files[0], fields), _FIELD_ROWS)
    lists = (cell for _, cells in rows for cell in cells if isinstance(cell, list))
    return any(isinstance(member, list) for member in itertools.chain.from_iterable(lists))


_FINDERS: tuple[Callable[[TableContent, Sequence[str]], _Suggestion | None], ...] = (
    _find_regions,
    _find_sides,
    _find_points,
    _find_run_lengths,
    _find_masks,
    _find_objects,
    _find_classes,
)
