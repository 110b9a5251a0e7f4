"""Validates untrusted JSON, with messages that say what is wrong and where."""

from __future__ import annotations

import json
import reprlib
from typing import Any

_EXPECTED = {
    int: "a whole number from 0 to 2^63 - 1",
    float: "a number",
    str: "text",
    dict: "an object",
    list: "a list",
}


def load_object(data: bytes) -> dict[str, Any]:
    """Parses the JSON object of a whole file.

    Raises:
        ValueError: the data is not a JSON object in UTF-8.
    """
    if not data:
        raise ValueError("the file is empty")
    try:
        value = json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno} is not JSON") from None
    except ValueError:  # Python converts at most 4,300 digits
        raise ValueError("a number in it is too long") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    check_kinds(value, {...: object})
    return value  # type: ignore[no-any-return]


def check_kinds(value: Any, kind: Any, where: str = "") -> None:
    """Checks that a parsed JSON value and everything in it has the right type.

    Args:
        value: from `json.loads`.
        kind: `int` (from 0, below 2^63), `float` (any number), `str`, `object` (anything), [kind] for a list, or
            {name: kind} for an object with exactly these names, where `...` stands for all other names.
        where: path of the value, such as "counts.written"; empty for the whole.

    Raises:
        ValueError: something has another type, is missing, or is not allowed.
    """
    if isinstance(kind, dict):
        _expect(isinstance(value, dict), value, dict, where)
        for name in sorted(kind.keys() - {...} - value.keys()):
            raise ValueError(f"{_inner(where, name)} is missing")
        for name, part in value.items():
            if name not in kind and ... not in kind:
                raise ValueError(f"{_inner(where, name)} is not allowed")
            check_kinds(part, kind.get(name, kind.get(...)), _inner(where, name))
    elif isinstance(kind, list):
        _expect(isinstance(value, list), value, list, where)
        for index, part in enumerate(value):
            check_kinds(part, kind[0], f"{where}[{index}]")
    elif kind is int:
        _expect(type(value) is int and 0 <= value < 1 << 63, value, int, where)  # True is an int too
    elif kind is float:
        _expect(type(value) in (int, float), value, float, where)
    else:
        _expect(isinstance(value, kind), value, kind, where)


def _inner(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _expect(holds: bool, value: Any, kind: type, where: str) -> None:
    if not holds:
        raise ValueError(f"{where or 'the whole'} is {reprlib.repr(value)}, expected {_EXPECTED[kind]}")
