"""Column types of tables: parses and infers them, and converts cells to values."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from beam_tfr.schema.boxes import RELATIVE
from beam_tfr.schema.features import COLUMN_TYPE, MASK_OF_BOX, column_feature

SEPARATOR = "|"  # of the members of a list in a text cell, unless it is a JSON list
MAX_MASK_BYTES = 1 << 20  # 1 MiB, of the mask of a box as JSON
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}(?:\.0*)?")
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")  # others, such as 00501, are names: a number would lose the zeros
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
_MAX_FLOAT = 3.4028235677973366e38  # anything less rounds to a finite float32


@dataclasses.dataclass(frozen=True)
class ColumnType:
    """The type of a column, such as `int64`, `float[]` or `enum(s|m|l)=m`.

    Attributes:
        dtype: "int64", "float" or "bytes".
        is_list: whether a cell holds any number of values, including none.
        members: members of an enum, whose value is its index.
        default: text for rows without a value; None rejects them.
        each_box: whether the list has a value for each box of the row.
        boxes: format of boxes, such as "rel_xywh"; empty for other columns.
        points: format of points of boxes, such as "rel_xyv"; empty for other columns.
        outside: of masks, the value where a padded image has no pixels; None for other columns.
        is_mask: whether the list has the mask of each box of the row.
    """

    dtype: str
    is_list: bool = False
    members: tuple[str, ...] = ()
    default: str | None = None
    each_box: bool = False
    boxes: str = ""
    points: str = ""
    outside: int | None = None
    is_mask: bool = False

    def __str__(self) -> str:
        if self.outside is not None:
            return f"mask[{self.outside}]"
        if self.is_mask:
            return MASK_OF_BOX
        if self.boxes:
            return f"bbox[{self.boxes}]"
        if self.points:
            return f"points[{self.points}]"
        kind = f"enum({'|'.join(self.members)})" if self.members else self.dtype
        kind += "[box]" if self.each_box else "[]" if self.is_list else ""
        return kind if self.default is None else f"{kind}={self.default}"

    def values(self, cell: Any) -> list[Any]:
        """The values of a cell: int, float or bytes; of boxes xmin, ymin, xmax, ymax of each, of points lists of them.

        Raises:
            ValueError: the cell does not fit the type.
        """
        if self.outside is not None:
            return []  # the file of a mask is read later
        if self.boxes:
            return [side for box in _boxes([*self._parts(cell)]) for side in _corners(box, self.boxes)]
        if self.points:
            return [_points(part, len(self.points.removeprefix(RELATIVE))) for part in self._parts(cell)]
        if self.is_mask:
            return [_mask(part, number) for number, part in enumerate(self._parts(cell), 1)]
        if self.is_list:
            return [self._value(part) for part in self._parts(cell)]
        if cell is None or (cell == "" and (self.dtype != "bytes" or self.members)):
            if self.default is None:
                name = "enum" if self.members else self.dtype
                raise ValueError(f"has no value; a default, such as {name}={_EXAMPLES[name]}, or {name}[] lets it")
            return [self._value(self.default)]
        return [self._value(cell)]

    def _parts(self, cell: Any) -> Iterable[Any]:
        if cell is None or cell == "":
            return []
        if isinstance(cell, list):
            return cell
        if not isinstance(cell, str):
            return [cell]
        if cell.startswith("[") and json_list(cell) is None:
            raise ValueError(f"{cell!a:.60} begins like a JSON list but is not one")
        return split_list(cell, SEPARATOR)

    def _value(self, cell: Any) -> int | float | bytes:
        if not self.members:
            return _CONVERTERS[self.dtype](cell)
        if cell not in self.members:
            raise ValueError(f"{cell!a:.60} is not one of {', '.join(self.members)}")
        return self.members.index(cell)


def _boxes(parts: list[Any]) -> list[list[float]]:
    """The numbers of each box, from a list of lists or of numbers."""
    if not any(isinstance(part, list) for part in parts):
        parts = [parts[at : at + 4] for at in range(0, len(parts), 4)]
    for box in parts:
        if not isinstance(box, list) or len(box) != 4:
            raise ValueError(f"{box!a:.60} is no box of four numbers")
    return [[_to_float(number) for number in box] for box in parts]


def _corners(box: list[float], form: str) -> tuple[float, float, float, float]:
    """xmin, ymin, xmax and ymax of a box, whose numbers have the order of Keras' formats of the same names."""
    left, top, right, bottom = box if "yxyx" not in form else (box[1], box[0], box[3], box[2])
    if form.endswith("xywh"):
        width, height = right, bottom
        if form.endswith("center_xywh"):
            left, top = left - width / 2, top - height / 2
        right, bottom = left + width, top + height
    if not (left < right and top < bottom and math.isfinite(right - left) and math.isfinite(bottom - top)):
        raise ValueError(f"{box} is no box with an area in the format {form}")
    if not form.startswith("rel_") and max(right, bottom) <= 1:
        raise ValueError(f"{box} is less than a pixel; if these are shares of the image, its format is rel_{form}")
    return left, top, right, bottom


def _points(cell: Any, size: int) -> list[tuple[float, ...]]:
    """The points of a box, from a list of numbers, points or polygons; between polygons is a point of NaN."""
    if isinstance(cell, ValueError):  # of annotations
        raise cell
    parts = [] if cell is None else cell if isinstance(cell, list) else [cell]
    if size > 2 or not any(isinstance(part, list) and len(part) > size for part in parts):
        parts = [[number for part in parts for number in (part if isinstance(part, list) else [part])]]
    points = list[tuple[float, ...]]()
    for numbers in parts:
        if not isinstance(numbers, list) or len(numbers) % size:
            raise ValueError(f"{numbers!a:.60} are no points of {size} numbers each")
        points += [(math.nan,) * size] if points else []
        found = zip(*[iter(numbers)] * size, strict=True)
        points += [(_to_finite(x), _to_finite(y), *map(_to_int, seen)) for x, y, *seen in found]
    return points


def _mask(cell: Any, number: int) -> bytes:
    """The mask of a box as JSON: its run lengths, or the points of its polygons. `images.instances` reads it."""
    try:
        wanted = {key: cell.get(key) for key in ("size", "counts")} if isinstance(cell, dict) else _points(cell, 2)
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
    """The members of a list in a text cell: of a JSON list, or of any other text between the separators."""
    parts = json_list(text)
    return text.split(separator) if parts is None else parts


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
    dtype, shape = column_feature(text)
    of = COLUMN_TYPE.fullmatch(text).groupdict()  # type: ignore[union-attr]
    members, default = of["members"], of["default"]
    if shape and default is not None:
        raise ValueError(f"{text!r}: a list has no default; rows without a value get an empty list")
    if of["of_box"]:
        return ColumnType(dtype, is_list=True, each_box=True, is_mask=True)
    if text.startswith("mask"):
        return ColumnType(dtype, outside=int(of["outside"] or 0))
    names = tuple(members.split(SEPARATOR)) if members else ()
    if len(set(names)) != len(names) or (names and not all(names)):
        raise ValueError(f"{text!r}: the members of an enum must be distinct and not empty")
    column_type = ColumnType(
        dtype, bool(shape), names, default, of["list"] == "[box]", of["boxes"] or "", of["points"] or ""
    )
    if default is not None:
        try:
            column_type.values(default if default or dtype == "bytes" else None)
        except ValueError as error:
            raise ValueError(f"{text!r}: its default {error}") from None
    return column_type


def infer_type(cells: Iterable[Any], *, typed: bool) -> ColumnType:
    """The narrowest type that all cells of a column fit; cells without a value are ignored.

    In CSV, a JSON list is a list, unless other cells of the column are text.

    Args:
        cells: cells of one column.
        typed: whether text is text (JSON, Parquet) or may be a number or a list (CSV).

    Raises:
        ValueError: there is none, as for numbers mixed with text, or objects.
    """
    kinds, listed, is_list = set(), set(), False
    for cell in cells:
        parts = cell if typed or not isinstance(cell, str) else json_list(cell)
        if isinstance(parts, list):
            is_list = True
            listed |= {_kind(part, typed=True) for part in parts}
        elif cell is not None and cell != "":
            kinds.add(_kind(cell, typed))
    if not typed and (not is_list or "texts" in kinds) and kinds <= _IN_TEXT:
        return next((ColumnType(dtype) for dtype, allowed in _INFERRED if kinds <= allowed), ColumnType("bytes"))
    kinds |= listed
    for dtype, allowed in _INFERRED:
        if kinds <= allowed:
            return ColumnType(dtype, is_list)
    raise ValueError(f"holds {' and '.join(sorted(kinds))}{' in lists' * (is_list and kinds <= _IN_TEXT)}")


_IN_TEXT = {"texts", "booleans", "integers", "numbers"}
_INFERRED = (
    ("bytes", {"texts"}),
    ("int64", {"booleans"}),
    ("int64", {"integers"}),
    ("float", {"integers", "numbers"}),
)
_NOT_READ = {"dict": "objects", "list": "lists in lists", "NoneType": "lists with holes"}


def _kind(cell: Any, typed: bool) -> str:
    if isinstance(cell, bytes) or (isinstance(cell, str) and (typed or not _NUMBER.fullmatch(cell))):
        is_bool = not typed and isinstance(cell, str) and cell.lower() in ("true", "false")
        return "booleans" if is_bool else "texts"
    if isinstance(cell, str):
        if not re.fullmatch(r"[+-]?[0-9]+", cell):
            return "numbers"
        fits = _PLAIN_INTEGER.fullmatch(cell) and len(cell) <= 20 and -(1 << 63) <= int(cell) < 1 << 63
        return "integers" if fits else "texts"  # a number would change it
    if isinstance(cell, bool):
        return "booleans"
    if isinstance(cell, (int, float)):
        return "integers" if isinstance(cell, int) else "numbers"
    return _NOT_READ.get(type(cell).__name__, f"values of the type {type(cell).__name__}")
