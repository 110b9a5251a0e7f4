"""Infers the declaration of a table column from its cells."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from beam_tfr.features.cells import NUMBER, BadCell, is_missing, parse_list

# Other digits, such as 00501, are names: numbers would lose the zeros.
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_SIGNED_DIGITS = re.compile(r"[+-]?[0-9]+")
_NOUNS: dict[type, str] = {
    str: "texts",
    bytes: "texts",
    bool: "booleans",
    int: "integers",
    float: "numbers",
    dict: "objects",
    list: "lists in lists",
    type(None): "lists with holes",
}
_IN_LISTS = {"texts", "booleans", "integers", "numbers"}  # kinds that members of a list may have
# Declarations, the narrowest first, each with the kinds of values that its column may have.
_DECLARATIONS = (
    ("bytes", {"texts"}),
    ("int64", {"booleans"}),
    ("int64", {"integers"}),
    ("float", {"integers", "numbers"}),
)


def infer_declaration(cells: Iterable[Any], *, typed: bool) -> str:
    """Returns the narrowest declaration that matches all cells of a column, such as `int64[]`.

    Ignores cells without a value. In CSV, a list in the notation of JSON, Python or NumPy is a
    list, unless other cells of the column are strings.

    Args:
        cells: cells of one column.
        typed: whether a string is always a string (JSON, Parquet), or may stand for a number or a
            list (CSV).

    Raises:
        ValueError: no declaration matches, as for objects, or for numbers mixed with strings.
    """
    nouns = _collect_nouns(cells if typed else map(_read_text, cells))
    if not typed and "texts" in nouns.values:
        return "bytes"
    found = nouns.values | nouns.members
    for declaration, allowed in _DECLARATIONS:
        if found <= allowed:
            return f"{declaration}[]" if nouns.is_list else declaration
    if not typed and not nouns.is_list:
        return "bytes"
    where = " in lists" if nouns.is_list and found <= _IN_LISTS else ""
    raise ValueError(f"holds {' and '.join(sorted(found))}{where}")


class _Nouns(NamedTuple):
    """The kinds of values in the cells of a column, without empty cells.

    Attributes:
        values: nouns of the values that are not lists.
        members: nouns of the members of lists.
        is_list: whether there is a list, which may be empty.
    """

    values: set[str]
    members: set[str]
    is_list: bool


def _collect_nouns(cells: Iterable[Any]) -> _Nouns:
    values = set[str]()
    members = set[str]()
    is_list = False
    for cell in cells:
        if isinstance(cell, list):
            is_list = True
            members.update(map(_noun_of, cell))
        elif not is_missing(cell) and not isinstance(cell, BadCell):
            values.add(_noun_of(cell))
    return _Nouns(values, members, is_list)


def _noun_of(value: Any) -> str:
    return _NOUNS.get(type(value), f"values of the type {type(value).__name__}")


def _read_text(cell: Any) -> Any:
    """Returns the list or number that a string cell represents, or any other cell unchanged."""
    if not isinstance(cell, str):
        return cell
    try:
        members = parse_list(cell)
    except ValueError as error:
        return BadCell(str(error))
    if members is not None:
        return members
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    if not NUMBER.fullmatch(cell):
        return cell
    if not _SIGNED_DIGITS.fullmatch(cell):
        return float(cell)
    return int(cell) if _is_integer(cell) else cell  # as a number, the cell would change


def _is_integer(text: str) -> bool:
    """Whether a string is a 64-bit integer as Python writes it."""
    if not _PLAIN_INTEGER.fullmatch(text) or len(text) > 20:
        return False
    return -(1 << 63) <= int(text) < 1 << 63
