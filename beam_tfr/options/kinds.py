"""Kinds of option values: what they look like as text and in Python, and in the form of the Flex Template.

A reader takes a value of an option, as text or in Python, and returns it normalized. If it is wrong, it raises a
ValueError that says what is allowed, with the part of the value to show as its second argument, if it is not all.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from beam_tfr.inputs.labels import SPLIT_RULE
from beam_tfr.layouts.parsing import is_split_name
from beam_tfr.schema import in_order, whole_number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of option values.

    Attributes:
        read: text or value from Python -> value, normalized. Numbers are read with the range of their option.
        metavar: placeholder for the value in --help.
        form: type of the Flex Template's parameter.
        pattern: regular expression of the texts that are allowed, so that the form shows at once what is wrong.
        many: takes several values.
        place: is a path, which becomes absolute.
    """

    read: Callable[..., Any]
    metavar: str = ""
    form: str = "TEXT"
    pattern: str = ""
    many: bool = False
    place: bool = False


def text(what: str = "text", **about: Any) -> Kind:
    """Text, or a path; `what` is what errors call it."""

    def read(value: object) -> str:
        if (found := _as_text(value)) is None:
            raise ValueError(f"must be {what}")
        return found

    return Kind(read=read, **about)


def texts(what: str, **about: Any) -> Kind:
    """A tuple of texts, or of paths; `what` is what errors call them."""

    def read(value: object) -> tuple[str, ...]:
        found = tuple(map(_as_text, value)) if isinstance(value, (tuple, list)) else (None,)
        if None in found:
            raise ValueError(f"must be a tuple of {what}")
        return found  # type: ignore[return-value]

    return Kind(read=read, many=True, **about)


def _as_text(value: object) -> str | None:
    """Text, or the text of a path; None for anything else."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    return text if isinstance(text, str) else None


ON_GCS = "gs://.+"
PATHS = "paths or patterns, such as ('photos/**/*.jpg',)"
TEXT = text()
FILE = text("the path of a file", metavar="FILE", form="GCS_READ_FILE", pattern=ON_GCS, place=True)


def _read_boolean(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("must be true or false; the flag without a value means true")
    return value


BOOLEAN = Kind(read=_read_boolean, form="BOOLEAN")


def _read_integer(value: Any, low: int, high: int) -> int:
    if isinstance(value, str):
        if not re.fullmatch(INTEGER.pattern, value):
            raise ValueError("must be a whole number")
        value = int(value)
    try:
        return whole_number(value, low, high)
    except ValueError as error:
        raise ValueError(f"the value {error}", value) from None


INTEGER = Kind(read=_read_integer, metavar="N", form="NUMBER", pattern=r"[+-]?[0-9]{1,20}")


def _read_bytes(value: Any, low: int, high: int) -> int:
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,20})\s*([KMG]i?B?)?", value, re.IGNORECASE)
        if not match:
            raise ValueError("must be a number of bytes, such as 104857600 or 100MiB")
        unit = (match[2] or "").upper()
        power = {"": 0, "K": 1, "M": 2, "G": 3}[unit[:1]]
        value = int(int(match[1]) * (1000 if unit.endswith("B") and "I" not in unit else 1024) ** power)
    return _read_integer(value, low, high)


BYTES = Kind(read=_read_bytes, metavar="BYTES", pattern=r"[0-9]{1,20} ?([kKmMgG][iI]?[bB]?)?")


def is_number(value: object) -> bool:
    """True if a value is a real number, also one of NumPy, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _read_number(value: Any, low: float, high: float) -> float:
    if isinstance(value, str):
        if not re.fullmatch(NUMBER.pattern, value):
            raise ValueError("must be a number, such as 2 or 2.5")
        value = float(value)
    if not is_number(value) or not low <= value <= high or value == math.inf:
        allowed = f", {low:g} or more" if high == math.inf else f" from {low:g} to {high:g}"
        raise ValueError(f"must be a number{allowed}")
    return float(value)


NUMBER = Kind(read=_read_number, form="NUMBER", pattern=r"[0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20}")


def _read_share_or_count(value: Any) -> int | float:
    if isinstance(value, str):
        if not re.fullmatch(r"[0-9]{0,20}\.[0-9]{1,20}|[0-9]{1,20}\.?", value):
            raise ValueError("must be a share with a decimal point, 0.0 to 1.0, or a whole number")
        value = float(value) if "." in value else int(value)
    whole = isinstance(value, Integral)
    if not is_number(value) or not 0 <= value <= (math.inf if whole else 1):
        raise ValueError("must be a share from 0.0 to 1.0, or a whole number without a decimal point")
    return int(value) if whole else float(value)


SHARE_OR_COUNT = Kind(
    read=_read_share_or_count, metavar="N", pattern=r"[0-9]{1,20}|[0-9]{0,20}\.[0-9]{1,20}|[0-9]{1,20}\."
)


def _integers(values: Any, count: int, low: int, high: int) -> tuple[int, ...] | None:
    """So many whole numbers in a range; None if there are others.

    Raises:
        ValueError: `values` is no tuple.
    """
    if not isinstance(values, (tuple, list)):
        raise ValueError("must be a tuple of whole numbers, or text as on the command line")
    try:
        found = tuple(whole_number(value, low, high) for value in values)
    except ValueError:
        return None
    return found if len(found) == count else None


def _read_size(value: Any, low: int, high: int) -> tuple[int, ...]:
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,9})(?:x([0-9]{1,9}))?", value.lower())
        if not match:
            raise ValueError("must be HEIGHTxWIDTH in pixels, such as 224x224, or one number for both")
        value = int(match[1]), int(match[2] or match[1])
    elif isinstance(value, Integral):
        value = value, value
    if not (found := _integers(value, 2, low, high)):
        allowed = f"must be height x width, each from {low} to {high} pixels, such as 224x224"
        raise ValueError(allowed, shown_size(value))
    return found


def shown_size(size: tuple[Any, ...]) -> str:
    """A size as on the command line, where one number stands for two equal ones."""
    return "x".join(map(str, size[:1] if size == size[:1] * 2 else size))


SIZE = Kind(read=_read_size, metavar="HxW", pattern=r"[0-9]{1,9}([xX][0-9]{1,9})?")
_COLORS = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}


def _read_color(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        if not re.fullmatch(COLOR.pattern, value):
            raise ValueError(f"must be #RRGGBB, such as #7f7f7f, or one of: {', '.join(_COLORS)}")
        value = _COLORS.get(value.lower()) or tuple(bytes.fromhex(value[1:]))
    if not (found := _integers(value, 3, 0, 255)):
        raise ValueError("must be red, green and blue, each from 0 to 255")
    return found


COLOR = Kind(read=_read_color, metavar="COLOR", pattern=r"#[0-9a-fA-F]{6}|(?i:white|black|gray)")


def _pairs(text: str, pattern: str, example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not (name and separator and value):
            raise ValueError(f"must be {pattern} pairs separated by commas, such as {example}")
        if name in pairs:
            raise ValueError(f"names {name} twice")
        pairs[name] = value
    return pairs


def _read_shares(value: Any) -> dict[str, Fraction]:
    if isinstance(value, str):
        example = "train=0.8,validation=0.1,test=0.1"
        value = _pairs(value, "NAME=SHARE", example)
        for name, share in value.items():
            if not re.fullmatch(r"[0-9]{0,20}\.?[0-9]{1,20}|[0-9]{1,20}\.", share):
                raise ValueError(f"the share of {name} must be a number from 0 to 1, such as {example}")
    if not isinstance(value, Mapping):
        raise ValueError('must map names of splits to shares, such as {"train": 0.9, "test": 0.1}')
    try:
        shares = {name: Fraction(str(share)) for name, share in value.items()}
    except (ValueError, ZeroDivisionError):
        raise ValueError("each share must be a number from 0 to 1") from None
    shown = shown_shares(shares)
    for name, share in shares.items():
        if not isinstance(name, str) or not is_split_name(name):
            raise ValueError(f"{name!r} cannot be a split: {SPLIT_RULE}", shown)
        if share <= 0:
            raise ValueError(f"the share of {name} must be above 0; leave the split out instead", shown)
    if abs((total := sum(shares.values(), Fraction())) - 1) > Fraction(1, 10**6):
        raise ValueError(f"the shares must add up to 1, not {float(total):g}", shown)
    return {name: shares[name] for name in in_order(shares)}  # a manifest keeps no order


def shown_shares(shares: Mapping[Any, Fraction]) -> str:
    """Shares as on the command line."""
    return ",".join(f"{name}={float(share):g}" for name, share in shares.items())


SHARES = Kind(
    read=_read_shares,
    metavar="SHARES",
    pattern=r"[A-Za-z0-9_]+ *= *[0-9.]{1,20}( *, *[A-Za-z0-9_]+ *= *[0-9.]{1,20})*",
)


def _read_counts(value: Any, low: int, high: int) -> int | dict[str, int]:
    if isinstance(value, str) and "=" in value:
        value = _pairs(value, "NAME=N", "train=16,test=2")
        for name, count in value.items():
            if not re.fullmatch(r"[0-9]{1,20}", count):
                raise ValueError(f"the number for {name} must be a whole number")
            value[name] = int(count)
    elif isinstance(value, str):
        if not re.fullmatch(r"[0-9]{1,20}", value):
            raise ValueError("must be a whole number, or NAME=N pairs, such as train=16,test=2")
        value = int(value)
    counts = value if isinstance(value, dict) else {"": value}
    for split, count in counts.items():
        of, other = (f" of {split}", "") if split else ("", ', or a dict such as {"train": 16, "test": 2}')
        try:
            counts = counts | {split: whole_number(count, low, high)}
        except ValueError as error:
            raise ValueError(f"the value{of} {error}{other}", count) from None
    return counts if isinstance(value, dict) else counts[""]


COUNTS = Kind(
    read=_read_counts,
    metavar="N",
    pattern=r"[0-9]{1,20}|[A-Za-z0-9_]+ *= *[0-9]{1,20}( *, *[A-Za-z0-9_]+ *= *[0-9]{1,20})*",
)
