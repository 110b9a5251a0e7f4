"""Quotes untrusted values in messages, and parses untrusted JSON."""

import json
import reprlib
import sys
from typing import Any

_MOST_CHARACTERS = 100
_repr = reprlib.Repr()
_repr.maxstring = _MOST_CHARACTERS
_repr.maxother = _MOST_CHARACTERS


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

    Raises:
        ValueError: the input is not JSON, or holds values that Python does not accept; the message
            is for users.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        problem = describe_parse_error(error)
        if problem == str(error):
            raise
        raise ValueError(problem) from None


def describe_parse_error(error: ValueError | RecursionError) -> str:
    """Describes an error in JSON or TOML, from the exception that its parser raised."""
    if isinstance(error, RecursionError):
        return "its lists and objects are nested too deeply"
    if "sys.set_int_max_str_digits" in str(error):  # advice for programmers, not for users
        return f"a whole number has more than {sys.get_int_max_str_digits():,} digits"
    return str(error)
