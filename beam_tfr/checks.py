"""The checks of arguments that several functions share."""

from __future__ import annotations

import operator
import os
from collections.abc import Collection
from typing import Any

from beam_tfr import storage
from beam_tfr.schema import UsageError

REMAINDERS = (None, "keep", "drop", "pad")
MAX_SKIPPED = 100


def integer(name: str, value: Any, at_least: int, *, bits: int = 31) -> int:
    """
    Raises:
        UsageError: it is no whole number from `at_least` to 2^bits - 1.
    """
    try:
        number = operator.index(value)  # NumPy's integers too
    except TypeError:
        number = -1
    if isinstance(value, bool) or not at_least <= number < 1 << bits:
        raise UsageError(f"{name} must be a whole number from {at_least} to {(1 << bits) - 1}, not {value!r}")
    return number


def boolean(name: str, value: Any, hint: str = "") -> bool:
    """
    Raises:
        UsageError: it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {value!r}{hint and f': {hint}'}")
    return value


def choice(name: str, value: Any, allowed: Collection[str | None]) -> Any:
    """
    Raises:
        UsageError: it is none of those.
    """
    if not (value is None or isinstance(value, str)) or value not in allowed:
        known = [f'"{one}"' if one else "None" for one in allowed]
        raise UsageError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, not {value!r}")
    return value


def skippable(on_error: Any, max_skipped: Any) -> int | None:
    """How many examples that cannot be read may be skipped; None with on_error="raise".

    Raises:
        UsageError: `on_error` is neither "raise" nor "skip", or `max_skipped` no whole number, or has no effect.
    """
    if choice("on_error", on_error, ("raise", "skip")) == "skip":
        return MAX_SKIPPED if max_skipped is None else integer("max_skipped", max_skipped, 0)
    if max_skipped is not None:
        raise UsageError('max_skipped has no effect without on_error="skip"')
    return None


def num_epochs(repeat: Any) -> int | None:
    """How many epochs `repeat` asks for; None for ever.

    Raises:
        UsageError: it is neither True, False nor a whole number from 1.
    """
    if isinstance(repeat, bool):
        return None if repeat else 1
    try:
        return integer("repeat", repeat, 1)
    except UsageError as error:
        raise UsageError(f"{error}; or True, for ever, or False") from None


def folder(path: Any) -> str:
    """
    Raises:
        UsageError: it is no path of a folder.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(name := os.fspath(path), str):
        raise UsageError(f"path must be a folder that convert wrote, not {path!r}")
    return storage.check_path(name, option="path")
