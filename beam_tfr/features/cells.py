"""Converts cells of tables to numbers, strings and lists.

A cell is what a reader of tables returns: a string in CSV; strings, numbers, lists and objects in
other formats; a file for images; or a `BadCell` if there is no usable value.
"""

import dataclasses
import datetime
import decimal
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from beam_tfr.features.python_lists import parse_python_list
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.untrusted import parse_json

MAX_VALUES = 2_000_000  # in a text row or cell; a value may take 80 bytes of memory
MOST_BOXES = 250_000  # in an image
_FEW_BYTES = 1 << 20  # 1 MiB: shorter strings hold too few values to count them
SEPARATOR = "|"  # between the members of a list in a text cell, unless it has brackets
_GAP = r"(?:\s*+,\s*+|\s++)"
_NUMBER_OF_BOX = r"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
_BOX = re.compile(rf"\(?\s*+(?:{_NUMBER_OF_BOX}{_GAP}){{3}}{_NUMBER_OF_BOX}\s*+\)?")
# Objects in the notation of JSON or Python, and Well-Known Text.
_OBJECTS = re.compile(r"\[?\s*+\{\s*+(?:\"[^\"]{0,60}\"|'[^']{0,60}')\s*+:")
_GEOMETRY = re.compile(r"(?i)(?:multi)?(?:polygon|point|linestring|box|envelope)\s*+z?\s*+\(+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}(?:\.0*)?")
NUMBER = re.compile(
    r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf(?:inity)?)",
    re.IGNORECASE,
)
_MAX_FLOAT = 3.4028235677973366e38  # anything less rounds to a finite float32
# Words that programs write for a missing value.
_MISSING_WORD = re.compile(r"n/?a|#n/a|null|nil|none|missing|unknown|[-?.]{1,3}", re.IGNORECASE)
AS_TEXT = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal)


class UntypedCellError(ValueError):
    """A cell that no column type can read; the message says what to write instead."""


def members_of(cell: Any) -> list[Any]:
    """Returns the members of a list; any other cell is returned as the only member."""
    return cell if isinstance(cell, list) else [cell]


class FractionError(ValueError):
    """A number with a fraction in a column of integers."""


@dataclasses.dataclass(frozen=True, slots=True)
class BadCell:
    """The reason why a cell, or a member of a cell, has no usable value."""

    problem: str


def check_cell(cell: Any) -> None:
    """Checks that a cell has a value.

    Raises:
        ValueError: the cell is a `BadCell`.
    """
    if isinstance(cell, BadCell):
        raise ValueError(cell.problem)


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty: an empty string, or no value."""
    return cell is None or cell == ""


def check_json(text: str) -> None:
    """Checks that JSON does not hold too many values.

    Raises:
        ValueError: the JSON holds too many.
    """
    if len(text) > _FEW_BYTES:
        check_number(sum(map(text.count, "[{,:")))


def check_number(values: int) -> None:
    """Checks that a row or a cell does not have too many values.

    Raises:
        ValueError: there are too many.
    """
    if values > MAX_VALUES:
        raise ValueError(f"has about {values:,} values, more than {MAX_VALUES:,}")


def check_boxes(number: int) -> None:
    """Checks that an image does not have too many boxes.

    Raises:
        ValueError: there are too many.
    """
    if number > MOST_BOXES:
        raise ValueError(f"the image has {number:,} boxes, more than {MOST_BOXES:,}")


def parse_json_list(text: str) -> list[Any] | None:
    """Parses the members of a JSON list; returns None for any other string.

    Raises:
        ValueError: the list has too many values.
    """
    if not text.startswith("["):
        return None
    check_json(text)
    try:
        return list(parse_json(text))
    except ValueError:
        return None


def parse_list(text: str) -> list[Any] | None:
    """Parses a list in the notation of JSON, Python or NumPy; returns None for any other string.

    Raises:
        ValueError: the list has too many values.
    """
    members = parse_json_list(text)
    return parse_python_list(text, MAX_VALUES) if members is None else members


def split_text(text: str, separator: str) -> list[Any]:
    """Splits a string cell into the members of its list.

    These are the members that `parse_list` finds or, if the string is not such a list, the parts
    between separators.

    Raises:
        ValueError: there are too many members.
    """
    members = parse_list(text)
    if members is not None:
        return members
    return _split_at(text, separator) if separator else [text]


def _split_at(text: str, separator: str) -> list[Any]:
    check_number(text.count(separator))
    return text.split(separator)


def split_cell(cell: Any) -> list[Any]:
    """Splits a cell into the members of its list; a single value is a list of one.

    Raises:
        ValueError: the cell begins like a list but is not one, is a `BadCell`, or has too many
            members.
    """
    check_cell(cell)
    if is_missing(cell):
        return []
    if isinstance(cell, list):
        return cell
    if not isinstance(cell, str):
        return [cell]
    members = parse_list(cell)
    if members is not None:
        return members
    check_shapes(cell)
    if cell.startswith("["):
        raise ValueError(f"{cell!r:.60} begins like a JSON list but is not one")
    return _split_at(cell, SEPARATOR)


def check_shapes(text: str) -> None:
    """Checks that a string holds neither objects nor geographic shapes.

    Raises:
        UntypedCellError: the string holds objects or shapes.
    """
    if _OBJECTS.match(text):
        read = "json.loads" if _is_json(text) else "ast.literal_eval"
        raise UntypedCellError(
            f"{text!r:.60} holds objects as text; their fields are read only from JSON Lines: in "
            f"pandas, parse the text with `frame[NAME] = frame[NAME].map({read})`, then write "
            "`frame.to_json('table.jsonl', orient='records', lines=True)`"
        )
    if _GEOMETRY.match(text):
        raise UntypedCellError(
            f"{text!r:.60} is WKT; write the bounding box of each shape instead, as bbox[xyxy]: "
            "`shapely.from_wkt(text).bounds` returns it"
        )


def _is_json(text: str) -> bool:
    """Whether a string is JSON."""
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def split_boxes(cell: Any) -> list[Any]:
    """Splits a cell into the numbers of its box; if it has several boxes, into a list for each.

    In addition to the lists of `split_cell`, a string may hold four numbers, such as `5 6 20 15` or
    `(5, 6, 20, 15)`, or several such boxes separated by semicolons.

    Raises:
        ValueError: as for `split_cell`, or there are too many boxes.
    """
    if not isinstance(cell, str):
        return split_cell(cell)
    check_boxes(cell.count(";"))
    texts = [text.strip() for text in cell.split(";")]
    if len(texts) == 4 and all(map(NUMBER.fullmatch, texts)):
        return texts
    if not all(map(_BOX.fullmatch, texts)):
        check_shapes(cell)
        return split_cell(cell)
    boxes = [re.split(_GAP, text.strip("() \t")) for text in texts]
    return boxes[0] if len(boxes) == 1 else boxes


def as_list(part: Any) -> list[Any]:
    """Returns the members of a part of a cell that should be a list; a value is a list of one.

    Raises:
        ValueError: the part is a `BadCell`.
    """
    check_cell(part)
    if part is None:
        return []
    return part if isinstance(part, list) else [part]


def flatten_list(members: Sequence[Any]) -> list[Any]:
    """Flattens values, some of which may be in lists, into one list."""
    values = list[Any]()
    for member in members:
        values += member if isinstance(member, list) else [member]
    return values


def group_numbers(numbers: Any, size: int) -> list[list[Any]]:
    """Groups the numbers of all points by point.

    Args:
        numbers: what should be a list.
        size: the number of numbers per point.

    Raises:
        ValueError: `numbers` is not a list of such points.
    """
    if not isinstance(numbers, list) or len(numbers) % size:
        raise ValueError(f"{numbers!r:.60} is not a list of points with {size} numbers each")
    return [numbers[begin : begin + size] for begin in range(0, len(numbers), size)]


def to_integer(cell: Any) -> int:
    """Converts a cell to a 64-bit integer.

    Raises:
        ValueError: the cell holds no such integer.
    """
    value = _integer_in(cell)
    if value is None:
        kind = FractionError if _is_number(cell) else ValueError
        raise kind(f"{cell!r:.60} is not a whole number{cure_missing(cell)}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{cell!r:.60} does not fit into 64 bits")
    return value


def _is_number(cell: Any) -> bool:
    if isinstance(cell, float):
        return math.isfinite(cell)
    return isinstance(cell, str) and NUMBER.fullmatch(cell.strip()) is not None


def _integer_in(cell: Any) -> int | None:
    if isinstance(cell, int):
        return int(cell)  # also for a boolean
    if isinstance(cell, float):
        return int(cell) if cell.is_integer() else None
    if not isinstance(cell, str):
        return None
    text = cell.strip().lower()
    if text in ("true", "false"):
        return int(text == "true")
    return int(text.partition(".")[0]) if _INTEGER.fullmatch(text) else None


def to_float(cell: Any) -> float:
    """Converts a cell to a 32-bit float.

    Raises:
        ValueError: the cell holds no such number.
    """
    if isinstance(cell, bool) or not isinstance(cell, (int, float, str)):
        raise ValueError(f"{cell!r:.60} is not a number")
    if isinstance(cell, str) and not NUMBER.fullmatch(cell.strip()):
        raise ValueError(f"{cell!r:.60} is not a number{cure_missing(cell)}")
    try:
        value = float(cell)
    except OverflowError:
        value = math.inf
    if abs(value) >= _MAX_FLOAT and not _means_infinity(cell, value):
        raise ValueError(f"{cell!r:.60} does not fit into 32 bits")
    return value


def _means_infinity(cell: int | float | str, value: float) -> bool:
    return math.isinf(value) and "inf" in str(cell).lower()


def cure_missing(cell: Any) -> str:
    """Returns what to do about a cell that looks like a missing value, or "" for other cells."""
    if not isinstance(cell, str) or not _MISSING_WORD.fullmatch(cell.strip()):
        return ""
    return f"; {spell_option('na_values', cell)} treats such cells as empty"


def to_finite(cell: Any) -> float:
    """Converts a cell to a coordinate, which is a finite number.

    Raises:
        ValueError: the cell holds no such number.
    """
    value = to_float(cell)
    if not math.isfinite(value):
        raise ValueError(f"{cell!r:.60} is not a coordinate in an image")
    return value


def to_bytes(cell: Any) -> bytes:
    """Converts a cell to a string in UTF-8; objects and lists become JSON.

    Raises:
        ValueError: the cell holds no string.
    """
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, AS_TEXT):
        cell = str(cell)
    elif isinstance(cell, (dict, list)):
        cell = json.dumps(cell, ensure_ascii=False, sort_keys=True, default=str)
    if not isinstance(cell, str):
        raise ValueError(f"{cell!r:.60} is not text")
    try:
        return cell.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{cell!r:.60} cannot be encoded in UTF-8") from None


CONVERTERS: dict[str, Callable[[Any], int | float | bytes]] = {
    "int64": to_integer,
    "float": to_float,
    "bytes": to_bytes,
}
