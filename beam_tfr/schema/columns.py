"""Types of columns of tables: parses and infers them, and converts cells to values."""

import dataclasses
import datetime
import decimal
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from beam_tfr.schema.boxes import BOX_FORMATS, RELATIVE
from beam_tfr.schema.differences import join_texts

# The type of a column: `int64`, `float[]`, `int64[box]`, `enum(s|m|l)=m`, `bbox[xyxy]`,
# `points[xyv]`, `mask[255]`, `mask[box]`, `pair[0]`.
COLUMN_TYPE = re.compile(
    r"(?P<kind>int64|float|bytes|enum\((?P<members>[^()]+)\))(?P<list>\[(?:box)?\])?(?:=(?P<default>.*))?"
    rf"|bbox\[(?P<boxes>{'|'.join(BOX_FORMATS)})\]|points\[(?P<points>(?:{RELATIVE})?xyv?)\]"
    r"|(?P<beside>mask|pair)(?:\[(?P<outside>1?[0-9]{1,2}|2[0-4][0-9]|25[0-5])\])?"
    r"|(?P<of_box>mask\[box\])",
    re.DOTALL,
)
SEPARATOR = "|"  # of the members of a list in a text cell, unless it is a JSON list
MAX_MASK_BYTES = 1 << 20  # 1 MiB, of the mask of a box as JSON
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}(?:\.0*)?")
_PLAIN_INTEGER = re.compile(
    r"0|-?[1-9][0-9]*"
)  # others, such as 00501, are names: a number would lose the zeros
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf(?:inity)?)",
    re.IGNORECASE,
)
_MAX_FLOAT = 3.4028235677973366e38  # anything less rounds to a finite float32


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnType:
    """The type of a column; made by `parse_type`.

    Attributes:
        text: the type as plans and manifests hold it.
        dtype: "int64", "float" or "bytes".
        is_list: whether a cell holds any number of values, including none.
        members: members of an enum, whose value is its index.
        default: text for rows without a value; None rejects them.
        each_box: whether the list has a member for each box of the row, as those of boxes and
            points have.
        boxes: format of boxes, such as "rel_xywh"; empty for other columns.
        points: format of points of boxes, such as "rel_xyv"; empty for other columns.
        beside: "mask" or "pair" if it names files that are stored beside the images; empty for
            other columns.
        is_box_mask: whether the list has the mask of each box of the row.
        outside: of these files, the value where a padded image has no pixels.
    """

    text: str
    dtype: str
    is_list: bool
    members: tuple[str, ...]
    default: str | None
    each_box: bool
    boxes: str
    points: str
    beside: str
    is_box_mask: bool
    outside: int

    def values(self, cell: Any) -> list[Any]:
        """The values of a cell: int, float or bytes; xmin, ymin, xmax, ymax of each box; lists of
        the points of each.

        Raises:
            ValueError: the cell does not fit the type.
        """
        if self.beside:
            return []  # the file is read later
        if isinstance(cell, ValueError):  # of a tar
            raise cell
        if self.boxes:
            return self._boxes(self.corners(cell))
        if self.points:
            return [
                _points(part, len(self.points.removeprefix(RELATIVE))) for part in self.parts(cell)
            ]
        if self.is_box_mask:
            return [_mask(part, number) for number, part in enumerate(self.parts(cell), 1)]
        if self.is_list:
            return [self._value(part) for part in self.parts(cell)]
        if cell is None or (cell == "" and (self.dtype != "bytes" or self.members)):
            if self.default is None:
                name = "enum" if self.members else self.dtype
                raise ValueError(
                    f"has no value; give a default, such as {name}={_EXAMPLES[name]}, or make it a list: {name}[]"
                )
            return [self._value(self.default)]
        return [self._value(cell)]

    def corners(self, cell: Any) -> list[tuple[float, ...] | ValueError]:
        """For each box of a cell its xmin, ymin, xmax and ymax, or what is wrong with it.

        Raises:
            ValueError: see `parts`.
        """
        found = list[tuple[float, ...] | ValueError]()
        for number, box in enumerate(self.parts(cell), 1):
            try:
                found.append(_corners(box, self.boxes))
            except ValueError as error:
                found.append(ValueError(f"{name_box(box, number)}: {error}"))
        tiny = [at for at, box in enumerate(found) if self._is_tiny(box)]
        if tiny and len(tiny) < sum(
            not isinstance(box, ValueError) for box in found
        ):  # else their format is wrong
            for at in tiny:
                found[at] = ValueError(
                    f"{name_box(self.parts(cell)[at], at + 1)}: less than a pixel"
                )
        return found

    def _is_tiny(self, box: tuple[float, ...] | ValueError) -> bool:
        """Whether a box ends within the first pixel."""
        return (
            not isinstance(box, ValueError)
            and box[2] <= 1
            and box[3] <= 1
            and not self.boxes.startswith(RELATIVE)
        )

    def _boxes(self, boxes: Sequence[tuple[float, ...] | ValueError]) -> list[tuple[float, ...]]:
        bad = [str(box) for box in boxes if isinstance(box, ValueError)]
        if bad:
            raise ValueError(join_texts(bad))
        if boxes and self._is_tiny(boxes[0]):  # so all are
            cure = f"if these are shares of the image, its format is {RELATIVE}{self.boxes}"
            raise ValueError(f"no box is larger than a pixel; {cure}")
        return [box for box in boxes if not isinstance(box, ValueError)]

    def parts(self, cell: Any) -> Sequence[Any]:
        """The members of the list in a cell; of boxes, what should be a list of four numbers for
        each.

        Raises:
            ValueError: the cell is no list.
        """
        if cell is None or cell == "":
            return []
        if isinstance(cell, str) and cell.startswith("[") and json_list(cell) is None:
            raise ValueError(f"{cell!a:.60} begins like a JSON list but is not one")
        parts = split_list(cell, SEPARATOR) if isinstance(cell, str) else cell
        parts = parts if isinstance(parts, list) else [parts]
        if not self.boxes or any(isinstance(part, list) for part in parts):
            return parts
        rest = len(parts) % 4
        if rest:
            raise ValueError(f"{parts[-rest:]!a:.60} is no box of four numbers")
        return [parts[at : at + 4] for at in range(0, len(parts), 4)]

    def _value(self, cell: Any) -> int | float | bytes:
        if not self.members:
            return _CONVERTERS[self.dtype](cell)
        if cell not in self.members:
            raise ValueError(f"{cell!a:.60} is not one of {', '.join(self.members)}")
        return self.members.index(cell)


class Box(list[float]):
    """A box with the id of its annotation."""

    __slots__ = ("annotation",)

    def __init__(self, numbers: Iterable[float], annotation: Any) -> None:
        super().__init__(numbers)
        self.annotation = annotation


def name_box(box: Any, number: int) -> str:
    """What messages call a box of a row, which has this number, from 1."""
    return f"annotation {box.annotation!a:.60}" if isinstance(box, Box) else f"box {number}"


def _corners(box: Any, form: str) -> tuple[float, float, float, float]:
    """xmin, ymin, xmax and ymax of a box, whose numbers have the order of Keras' formats of the
    same names."""
    if not isinstance(box, list) or len(box) != 4:
        raise ValueError(f"{box!a:.60} is no box of four numbers")
    box = [_to_float(number) for number in box]
    left, top, right, bottom = box if "yxyx" not in form else (box[1], box[0], box[3], box[2])
    if form.endswith("xywh"):
        width = right
        height = bottom
        if form.endswith("center_xywh"):
            left = left - width / 2
            top = top - height / 2
        right = left + width
        bottom = top + height
    if not (
        left < right
        and top < bottom
        and math.isfinite(right - left)
        and math.isfinite(bottom - top)
    ):
        raise ValueError(f"{box} is no box with an area in the format {form}")
    if right <= 0 or bottom <= 0:
        raise ValueError(f"{box} is outside of its image")
    return left, top, right, bottom


def _points(cell: Any, size: int) -> list[tuple[float, ...]]:
    """The points of a box, from a list of numbers, points or polygons; between polygons is a point
    of NaN."""
    if isinstance(cell, ValueError):  # of annotations
        raise cell
    if cell is None:
        parts = []
    else:
        parts = cell if isinstance(cell, list) else [cell]
    if size > 2 or not any(isinstance(part, list) and len(part) > size for part in parts):
        parts = [
            [number for part in parts for number in (part if isinstance(part, list) else [part])]
        ]
    points = list[tuple[float, ...]]()
    for numbers in parts:
        if not isinstance(numbers, list) or len(numbers) % size:
            raise ValueError(f"{numbers!a:.60} are no points of {size} numbers each")
        points += [(math.nan,) * size] if points else []
        found = zip(*[iter(numbers)] * size, strict=True)
        points += [(_to_finite(x), _to_finite(y), *map(_to_int, seen)) for x, y, *seen in found]
    return points


def points_of(parts: Sequence[Sequence[Any]]) -> list[list[list[float]]]:
    """The points of each box, given their features: the numbers of each of its polygons, or of all
    its keypoints."""
    *places, numbers = parts
    points = zip(*places, strict=True)
    boxes = [[*itertools.islice(points, number)] for number in numbers]
    rings = [itertools.groupby(box, lambda point: math.isnan(point[0])) for box in boxes]
    return [
        [[*itertools.chain(*ring)] for is_gap, ring in of_box if not is_gap] for of_box in rings
    ]


def _mask(cell: Any, number: int) -> bytes:
    """The mask of a box as JSON: its run lengths, or the points of its polygons. `images.instances`
    reads it."""
    try:
        if isinstance(cell, dict):
            wanted: Any = {key: cell.get(key) for key in ("size", "counts")}
        else:
            wanted = _points(cell, 2)
        text = json.dumps(wanted, default=bytes.decode)  # Parquet has bytes
    except (ValueError, TypeError) as error:
        raise ValueError(f"the mask of box {number}: {error}") from None
    if len(text) > MAX_MASK_BYTES:
        raise ValueError(f"the mask of box {number} takes more than {MAX_MASK_BYTES >> 20} MiB")
    return text.encode()


def json_list(text: str) -> list[Any] | None:
    """The members of a JSON list; None for any other text."""
    try:
        return list(json.loads(text)) if text.startswith("[") else None
    except (ValueError, RecursionError):
        return None


def split_list(text: str, separator: str) -> list[Any]:
    """The members of a list in a text cell: of a JSON list, or of any other text between the
    separators, if any."""
    if (parts := json_list(text)) is not None:
        return parts
    return text.split(separator) if separator else [text]


_EXAMPLES = {"int64": "-1", "float": "nan", "bytes": "", "enum": "MEMBER"}


def _to_int(cell: Any) -> int:
    text = cell.strip().lower() if isinstance(cell, str) else ""
    if text in ("true", "false"):
        return int(text == "true")
    if _INTEGER.fullmatch(text):
        value = int(text.partition(".")[0])
    elif isinstance(cell, int) or (isinstance(cell, float) and cell.is_integer()):
        value = int(cell)
    else:
        raise ValueError(f"{cell!a:.60} is not a whole number")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{cell!a:.60} does not fit into 64 bits")
    return value


def _to_float(cell: Any) -> float:
    is_number = isinstance(cell, (int, float)) and not isinstance(cell, bool)
    if not is_number and not (isinstance(cell, str) and _NUMBER.fullmatch(cell.strip())):
        raise ValueError(f"{cell!a:.60} is no number")
    try:
        value = float(cell)
    except OverflowError:
        value = math.inf
    if abs(value) >= _MAX_FLOAT and not (math.isinf(value) and "inf" in str(cell).lower()):
        raise ValueError(f"{cell!a:.60} does not fit into 32 bits")
    return value


def _to_finite(cell: Any) -> float:
    if not math.isfinite(value := _to_float(cell)):
        raise ValueError(f"{cell!a:.60} is no place in an image")
    return value


def _to_bytes(cell: Any) -> bytes:
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal)):
        cell = str(cell)
    elif isinstance(cell, (dict, list)):
        cell = json.dumps(cell, ensure_ascii=False, sort_keys=True, default=str)
    if not isinstance(cell, str):
        raise ValueError(f"{cell!a:.60} is no text")
    try:
        return cell.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{cell!a:.60} is no text that UTF-8 can hold") from None


_CONVERTERS: dict[str, Callable[[Any], int | float | bytes]] = {
    "int64": _to_int,
    "float": _to_float,
    "bytes": _to_bytes,
}


def parse_type(text: str) -> ColumnType:
    """Parses a type such as `int64`, `bytes[]` or `float=nan`.

    Raises:
        ValueError: there is no such type, or its default does not fit it.
    """
    match = COLUMN_TYPE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a type; use int64, float, bytes or enum(a|b|…), also with [], [box] or =VALUE; "
            f"bbox[FORMAT], points[xyv], mask, mask[box] or pair. Formats: {', '.join(BOX_FORMATS)}"
        )
    kind, names, shape, default, boxes, points, beside, outside, of_box = match.groups()
    each_box = bool(shape == "[box]" or boxes or points or of_box)
    if shape and default is not None:
        raise ValueError(f"{text!r}: a list has no default; rows without a value get an empty list")
    members = tuple(names.split(SEPARATOR)) if names else ()
    if len(set(members)) != len(members) or not all(members):
        raise ValueError(f"{text!r}: the members of an enum must be distinct and not empty")
    column_type = ColumnType(
        text=f"{beside}[{int(outside or 0)}]" if beside else text,
        dtype="float" if boxes or points else "int64" if members else kind or "bytes",
        is_list=bool(shape or each_box),
        members=members,
        default=default,
        each_box=each_box,
        boxes=boxes or "",
        points=points or "",
        beside=beside or "",
        is_box_mask=bool(of_box),
        outside=int(outside or 0),
    )
    if default is not None:
        try:
            column_type.values(default if default or kind == "bytes" else None)
        except ValueError as error:
            raise ValueError(f"{text!r}: its default {error}") from None
    return column_type


def typed(columns: Mapping[str, str] | None) -> dict[str, ColumnType]:
    """Columns with their types, parsed; the type of those that are still to be inferred is
    bytes."""
    return {name: parse_type(kind or "bytes") for name, kind in (columns or {}).items()}


def infer_type(cells: Iterable[Any], *, typed: bool) -> ColumnType:
    """The narrowest type that all cells of a column fit; cells without a value are ignored.

    In CSV, a JSON list is a list, unless other cells of the column are text.

    Args:
        cells: cells of one column.
        typed: whether text is text (JSON, Parquet) or may be a number or a list (CSV).

    Raises:
        ValueError: there is none, as for numbers mixed with text, or objects.
    """
    kinds = set()
    listed = set()
    is_list = False
    for cell in cells:
        value = cell if typed or not isinstance(cell, str) else _in_text(cell)
        if isinstance(value, list):
            is_list = True
            listed |= {*map(_kind, value)}
        elif value is not None and value != "" and not isinstance(value, ValueError):
            kinds.add(_kind(value))
    if not typed and "texts" in kinds:
        return parse_type("bytes")
    kinds |= listed
    for dtype, allowed in _INFERRED:
        if kinds <= allowed:
            return parse_type(dtype + "[]" * is_list)
    if not typed and not is_list:
        return parse_type("bytes")
    raise ValueError(
        f"holds {' and '.join(sorted(kinds))}{' in lists' * (is_list and kinds <= _PLAIN)}"
    )


_INFERRED = (
    ("bytes", {"texts"}),
    ("int64", {"booleans"}),
    ("int64", {"integers"}),
    ("float", {"integers", "numbers"}),
)
_KINDS = {str: "texts", bytes: "texts", bool: "booleans", int: "integers", float: "numbers"}
_PLAIN = {*_KINDS.values()}
_KINDS |= {dict: "objects", list: "lists in lists", type(None): "lists with holes"}


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), f"values of the type {type(value).__name__}")


def _in_text(text: str) -> Any:
    """What the text of a cell is: a list, a truth value, a number; else itself."""
    if (parts := json_list(text)) is not None:
        return parts
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text):
        return text
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return float(text)
    fits = _PLAIN_INTEGER.fullmatch(text) and len(text) <= 20 and -(1 << 63) <= int(text) < 1 << 63
    return int(text) if fits else text  # which a number would change
