"""JSON that comes from elsewhere: nothing in it is believed, and what is wrong is said for a person."""

from __future__ import annotations

import json
import reprlib
from typing import Any

_EXPECTED = {
    int: "a whole number from 0 to 2^63 - 1",
    float: "a number",
    str: "a text",
    dict: "an object",
    list: "a list",
}


def load_object(data: bytes) -> dict[str, Any]:
    """
    Args:
        data: of a whole file.

    Raises:
        ValueError: it is no JSON object in UTF-8; the message says where.
    """
    if not data:
        raise ValueError("the file is empty")
    try:
        value = json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno} is not JSON") from None
    except ValueError:  # Python converts no more than 4,300 digits
        raise ValueError("a number in it is too long") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    check_kinds(value, {...: object})
    return value  # type: ignore[no-any-return]


def check_kinds(value: Any, kind: Any, where: str = "") -> None:
    """Whether a value has the kinds of things in it that its readers rely on.

    Args:
        value: from `json.loads`.
        kind: `int` (0 or more, less than 2^63), `float` (any number), `str`, `object` (anything), [kind] (a list of
            it), or {name: kind} (an object with exactly these names; `...` stands for every other name).
        where: it stands, such as "counts.written"; empty for the whole.

    Raises:
        ValueError: something is of another kind, missing, or too much; the message says what, and where.
    """
    if isinstance(kind, dict):
        _expect(isinstance(value, dict), value, dict, where)
        for name in sorted(kind.keys() - {...} - value.keys()):
            raise ValueError(f"{_inner(where, name)} is missing")
        for name, part in value.items():
            if name not in kind and ... not in kind:
                raise ValueError(f"{_inner(where, name)} is too much")
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
