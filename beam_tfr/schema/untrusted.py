"""Quotes untrusted values in messages, and parses untrusted JSON."""

import json
import math
import reprlib
import sys
from typing import Any

_MOST_CHARACTERS = 100
_repr = reprlib.Repr()
_repr.maxstring = _MOST_CHARACTERS
_repr.maxother = _MOST_CHARACTERS


def _parse_float(text: str) -> float | str:
    value = float(text)
    return text if math.isinf(value) else value


_DECODER = json.JSONDecoder(parse_float=_parse_float)  # `json.loads` would make one per call


def quote(value: Any) -> str:
    """Quotes a value for a message: short, on one line, without control characters."""
    if isinstance(value, bytes):
        value = value[: 2 * _MOST_CHARACTERS].decode("utf-8", "replace")
    try:
        return _repr.repr(value)
    except Exception:  # noqa: BLE001 - a number with thousands of digits, for example
        return f"<{type(value).__name__}>"


def parse_json(data: str | bytes) -> Any:
    """Parses JSON from an untrusted source.

    Numbers that are too large for a float, such as 1e400, become strings: Python would return
    infinity.

    Raises:
        ValueError: the input is not JSON, or holds values that Python does not accept; the message
            is for users.
    """
    try:
        if isinstance(data, str) and not data.startswith("\ufeff"):
            return _DECODER.decode(data)
        return json.loads(data, parse_float=_parse_float)
    except (ValueError, RecursionError) as error:
        problem = describe_parse_error(error)
        if problem == str(error):
            raise
        raise ValueError(problem) from None


def check_json_size(data: bytes, *, most_containers: int, most_values: int) -> None:
    """Checks how much memory JSON may take, without parsing it.

    Each object or list takes 250 bytes, each other value 60.

    Raises:
        ValueError: it has more objects and lists, or more values, than are allowed.
    """
    num_containers = data.count(b"{") + data.count(b"[")
    if num_containers > most_containers or data.count(b",") > most_values:
        raise ValueError(
            f"it has more than {most_containers} objects and lists, or {most_values} values"
        )


def describe_parse_error(error: ValueError | RecursionError) -> str:
    """Describes an error in JSON or TOML, from the exception that its parser raised."""
    if isinstance(error, RecursionError):
        return "its lists and objects are nested too deeply"
    if "sys.set_int_max_str_digits" in str(error):  # advice for programmers, not for users
        return f"a whole number has more than {sys.get_int_max_str_digits():,} digits"
    return str(error)
