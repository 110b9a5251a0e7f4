"""Finds lists of objects in the rows of tables, with fields for the sides of boxes.

Examples are tables from SageMaker Ground Truth (`"annotations": [{"left": 5, "top": 6, "width": 20,
"height": 15, "class_id": 0}]`), Vertex AI, Azure ML and BDD100K.
"""

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr.schema.extensions import has_image_name
from beam_tfr.schema.spelling import quote_word
from beam_tfr.tables.box_names import (
    CLASSES,
    FILES,
    SPLITS,
    BoxColumns,
    by_plain_name,
    find_marked_sides,
    find_name,
)
from beam_tfr.tables.formats import list_fields, read_first_rows

_FIRST_ROWS = 1_000  # rows that are searched for fields
_FEW_ROWS = 100  # rows whose cells are examined
_MOST_OBJECTS = 20  # objects with sides whose cells are examined
CLASS_FIELDS = (*CLASSES, "displayname", "tag", "name")
OF_PERCENT = "original_width"  # next to sides in percent, as in Label Studio
SHAPES_OF_PERCENT = re.compile(rf"\A\s*\[\s*{{.*['\"]{OF_PERCENT}['\"]", re.DOTALL)  # as text
_CLASS_MAP = re.compile(r"(?s)(?P<field>.*\.class-map)\..+")


class BoxObjects(NamedTuple):
    """A column with lists of objects, and other columns about the images.

    All names except those in `boxes` may be empty.

    Attributes:
        boxes: the fields with the sides of the objects' boxes.
        file: the column with the paths of images.
        label: the field with the objects' classes.
        split: the column, or field, that may name the split.
        names: the field with an object that maps class numbers to names.
    """

    boxes: BoxColumns
    file: str
    label: str
    split: str
    names: str

    @property
    def column(self) -> str:
        """The column that holds the objects."""
        return self.boxes.sides[0].partition(".")[0]

    def describe_names(self, path: str) -> Iterator[str]:
        """Yields a line about class names that the table stores in another field.

        Args:
            path: the table.
        """
        if self.names and _hold_numbers(path, self.label):
            yield describe_class_map(path, self.label, self.names)


def describe_class_map(path: str, label: str, names: str) -> str:
    """Returns the message about classes that are numbers, with a program that inserts names.

    Args:
        path: the table.
        label: the column with lists of numbers, or a field of the objects in a column.
        names: the field with an object that maps these numbers to names.
    """
    parent, _, field = label.rpartition(".")
    members = f"{write_jq(parent)}[]{write_jq(field)}" if parent else f"{write_jq(label)}[]"
    program = f"{write_jq(names)} as $names | {members} |= $names[tostring]"
    folder, _, name = path.rpartition("/")
    named = f"{folder}/named-{name.partition('.')[0]}.jsonl"  # never overwrite the table itself
    return (
        f"classes in {label} are numbers, and their names are in {names}: jq -c "
        f"{quote_word(program, 'FILTER')} {quote_word(path, 'TABLE')} > "
        f"{quote_word(named, 'NAMED.jsonl')} writes a table with "
        "these names"
    )


def find_box_objects(path: str, columns: Sequence[str]) -> BoxObjects | None:
    """Finds lists of objects with the sides of boxes; None if there are none.

    Args:
        path: the table.
        columns: the columns of the table.
    """
    fields = list_fields(path, _FIRST_ROWS)
    for parent, boxes in itertools.islice(_find_sides(fields), _MOST_OBJECTS):
        sides = tuple(f"{parent}.{name}" for name in boxes.sides)
        if not _hold_flat_lists(path, sides):
            continue
        others = [name for name in fields if not name.startswith(f"{parent}.")]
        label = find_label(path, parent, fields)
        return BoxObjects(
            boxes._replace(sides=sides),
            file=find_file(path, columns),
            label=label,
            split=find_name(SPLITS, by_end([*columns, *others])),
            names=_find_class_map(others) if label else "",
        )
    return None


def _find_sides(fields: Iterable[str]) -> Iterator[tuple[str, BoxColumns]]:
    """Yields each object that has fields for the sides of a box, along with these fields."""
    for parent, names in _group_fields(fields).items():
        boxes = find_marked_sides(names)
        if boxes is not None and OF_PERCENT not in names:
            yield parent, boxes


def _group_fields(fields: Iterable[str]) -> dict[str, list[str]]:
    """Maps each object, such as `image.boxes`, to the names of its fields."""
    names_of = defaultdict[str, list[str]](list)
    for field in fields:
        parent, _, name = field.rpartition(".")
        names_of[parent].append(name)
    return names_of


def _hold_flat_lists(path: str, fields: Sequence[str]) -> bool:
    """Whether fields hold lists of values in the first rows, and no nested lists."""
    cells = [*itertools.chain.from_iterable(_read_cells(path, fields))]
    has_lists = any(isinstance(cell, list) for cell in cells)
    return has_lists and not hold_nested_lists(cells)


def hold_nested_lists(cells: Iterable[Any]) -> bool:
    """Whether cells hold nested lists, as the fields of nested lists of objects do."""
    members = itertools.chain.from_iterable(cell for cell in cells if isinstance(cell, list))
    return any(isinstance(member, list) for member in members)


def _hold_numbers(path: str, field: str) -> bool:
    """Whether all values of a field are numbers in the first rows."""
    cells = [cell for (cell,) in _read_cells(path, [field]) if isinstance(cell, list)]
    members = itertools.chain.from_iterable(cells)
    return all(str(member).isdecimal() for member in members if member is not None)


def find_label(path: str, parent: str, fields: Sequence[str]) -> str:
    """Finds the field with the classes of objects or of outer objects, or returns an empty string.

    Args:
        path: the table.
        parent: the object with the sides.
        fields: all fields.
    """
    names_of = _group_fields(fields)
    while parent:
        name = find_name(CLASS_FIELDS, by_plain_name(names_of[parent]))
        label = f"{parent}.{name}"
        if name and _hold_flat_lists(path, [label]):
            return label
        parent = parent.rpartition(".")[0]
    return ""


def find_file(path: str, columns: Sequence[str]) -> str:
    """Finds the column of image paths, by its name or cells, or returns an empty string."""
    name = find_name(FILES, by_plain_name(columns))
    if name:
        return name
    once = [column for column, number in Counter(columns).items() if number == 1]
    candidates = list[str]()
    for row_number, cells in enumerate(_read_cells(path, once)):
        row = dict(zip(once, cells, strict=True))
        others = candidates if row_number else once
        candidates = [column for column in others if _names_image(row[column])]
        if not candidates:
            break
    return next(iter(candidates), "")


def _names_image(cell: Any) -> bool:
    return isinstance(cell, str) and has_image_name(cell)


def _find_class_map(fields: Iterable[str]) -> str:
    """Finds the field in which SageMaker stores the class names, or returns an empty string."""
    for field in fields:
        match = _CLASS_MAP.fullmatch(field)
        if match:
            return match["field"]
    return ""


def by_end(fields: Iterable[str]) -> dict[str, str]:
    """Maps plain names, such as `mluse`, to fields; a plain name is the last part of a field."""
    ends = {re.split(r"[./]", field)[-1]: field for field in fields}
    return {name: ends[end] for name, end in by_plain_name(ends).items()}


def _read_cells(path: str, fields: Sequence[str]) -> Iterator[Sequence[Any]]:
    """Yields the cells of some fields in the first rows."""
    for _, cells in read_first_rows(path, fields, _FEW_ROWS):
        yield cells


def write_jq(field: str) -> str:
    """Spells a field in the syntax of jq: `."bounding-box"."annotations"`."""
    return "".join(f".{json.dumps(name, ensure_ascii=False)}" for name in field.split("."))
