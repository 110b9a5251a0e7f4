"""Untrusted values in messages."""

import reprlib
from typing import Any

_MOST_CHARACTERS = 100
_repr = reprlib.Repr()
_repr.maxstring = _MOST_CHARACTERS
_repr.maxother = _MOST_CHARACTERS


def quote(value: Any) -> str:
    """A value for a message: short, on one line, without control characters."""
    if isinstance(value, bytes):
        value = value[: 2 * _MOST_CHARACTERS].decode("utf-8", "replace")
    try:
        return _repr.repr(value)
    except Exception:  # noqa: BLE001 - of a number of thousands of digits, for example
        return f"<{type(value).__name__}>"
