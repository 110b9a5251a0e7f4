"""Infers how a column of a table would be declared, from its cells."""

import re
from collections.abc import Iterable
from typing import Any

from beam_tfr.features.cells import NUMBER, BadCell, is_missing, parse_json_list

# Others, such as 00501, are names: a number would lose the zeros.
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
_IN_LISTS = {"texts", "booleans", "integers", "numbers"}  # what the members of a list may be
# The narrowest first: a declaration, and what all values of its column may be.
_DECLARATIONS = (
    ("bytes", {"texts"}),
    ("int64", {"booleans"}),
    ("int64", {"integers"}),
    ("float", {"integers", "numbers"}),
)


def infer_declaration(cells: Iterable[Any], *, typed: bool) -> str:
    """The narrowest declaration that all cells of a column fit, such as `int64[]`.

    Cells without a value are ignored. In CSV, a JSON list is a list, unless other cells of the
    column are text.

    Args:
        cells: cells of one column.
        typed: whether text is text (JSON, Parquet) or may be a number or a list (CSV).

    Raises:
        ValueError: there is none, as for numbers mixed with text, or objects.
    """
    nouns = set[str]()  # of values
    in_lists = set[str]()  # of members of lists
    is_list = False
    for cell in cells:
        value = cell if typed or not isinstance(cell, str) else _read_text(cell)
        if isinstance(value, list):
            is_list = True
            in_lists.update(map(_noun_of, value))
        elif not is_missing(value) and not isinstance(value, BadCell):
            nouns.add(_noun_of(value))
    if not typed and "texts" in nouns:
        return "bytes"
    nouns |= in_lists
    for declaration, allowed in _DECLARATIONS:
        if nouns <= allowed:
            return f"{declaration}[]" if is_list else declaration
    if not typed and not is_list:
        return "bytes"
    where = " in lists" if is_list and nouns <= _IN_LISTS else ""
    raise ValueError(f"holds {' and '.join(sorted(nouns))}{where}")


def _noun_of(value: Any) -> str:
    return _NOUNS.get(type(value), f"values of the type {type(value).__name__}")


def _read_text(text: str) -> Any:
    """What the text of a cell is: a list, a truth value or a number; else itself."""
    members = parse_json_list(text)
    if members is not None:
        return members
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not NUMBER.fullmatch(text):
        return text
    if not _SIGNED_DIGITS.fullmatch(text):
        return float(text)
    return int(text) if _is_integer(text) else text  # which a number would change


def _is_integer(text: str) -> bool:
    """Whether a text is an integer of 64 bits, as Python writes it."""
    if not _PLAIN_INTEGER.fullmatch(text) or len(text) > 20:
        return False
    return -(1 << 63) <= int(text) < 1 << 63
