"""Quotes untrusted values in messages, and parses untrusted JSON."""

import json
import math
import re
import reprlib
import sys
from typing import Any

_MOST_CHARACTERS = 100
_LARGE_EXPONENT = re.compile("[eE][+]?[0-9]{3}")
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

    Numbers in a string that are too large for a float, such as 1e400, stay strings: Python would
    return infinity.

    Raises:
        ValueError: the input is not JSON, or holds values that Python does not accept; the message
            is for users.
    """
    may_overflow = isinstance(data, str) and _LARGE_EXPONENT.search(data)
    try:
        return json.loads(data, parse_float=_parse_large if may_overflow else None)
    except (ValueError, RecursionError) as error:
        problem = describe_parse_error(error)
        if problem == str(error):
            raise
        raise ValueError(problem) from None


def _parse_large(text: str) -> float | str:
    value = float(text)
    return text if math.isinf(value) else value


def describe_parse_error(error: ValueError | RecursionError) -> str:
    """Describes an error in JSON or TOML, from the exception that its parser raised."""
    if isinstance(error, RecursionError):
        return "its lists and objects are nested too deeply"
    if "sys.set_int_max_str_digits" in str(error):  # advice for programmers, not for users
        return f"a whole number has more than {sys.get_int_max_str_digits():,} digits"
    return str(error)
