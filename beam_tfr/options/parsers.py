"""Parsers of command-line values: text -> value, or a ValueError that says what is allowed.

In Python, options take the parsed values too.
"""

from __future__ import annotations

import re
from fractions import Fraction


def integer(text: str) -> int:
    """Parses a whole number."""
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        raise ValueError("must be a whole number")
    return int(text)


def number(text: str) -> float:
    """Parses a decimal number from 0, without an exponent."""
    if not re.fullmatch(r"[0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20}", text):
        raise ValueError("must be a number, such as 2 or 2.5")
    return float(text)


def share_or_number(text: str) -> int | float:
    """Parses a share with a decimal point to a float, or a whole number to an int."""
    if re.fullmatch(r"[0-9]{1,20}", text):
        return int(text)
    if not re.fullmatch(r"[0-9]{0,20}\.[0-9]{1,20}|[0-9]{1,20}\.", text):
        raise ValueError("must be a share with a decimal point, 0.0 to 1.0, or a whole number")
    return float(text)


def number_of_bytes(text: str) -> int:
    """Parses `100MiB`, `100MB` or `104857600` to a number of bytes."""
    match = re.fullmatch(r"([0-9]{1,20})\s*([KMG]i?B?)?", text, re.IGNORECASE)
    if not match:
        raise ValueError("must be a number of bytes, such as 104857600 or 100MiB")
    unit = (match[2] or "").upper()
    power = {"": 0, "K": 1, "M": 2, "G": 3}[unit[:1]]
    return int(int(match[1]) * (1000 if unit.endswith("B") and "I" not in unit else 1024) ** power)


def boolean(text: str) -> bool:
    """Parses `true` or `false`, in any case."""
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false; the flag without a value means true")
    return text.lower() == "true"


def image_size(text: str) -> tuple[int, int]:
    """Parses `224x256` or `224` to (height, width)."""
    match = re.fullmatch(r"([0-9]{1,9})(?:x([0-9]{1,9}))?", text.lower())
    if not match:
        raise ValueError("must be HEIGHTxWIDTH in pixels, such as 224x224, or one number for both")
    return int(match[1]), int(match[2] or match[1])


def color(text: str) -> tuple[int, int, int]:
    """Parses `#7f7f7f` or a name to (red, green, blue)."""
    if text.lower() in _COLORS:
        return _COLORS[text.lower()]
    match = re.fullmatch(r"#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})", text.lower())
    if not match:
        raise ValueError(f"must be #RRGGBB, such as #7f7f7f, or one of: {', '.join(_COLORS)}")
    red, green, blue = (int(part, 16) for part in match.groups())
    return red, green, blue


_COLORS = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}


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


def shares(text: str) -> dict[str, Fraction]:
    """Parses `train=0.8,test=0.2` to split -> share."""
    example = "train=0.8,validation=0.1,test=0.1"
    pairs = _pairs(text, "NAME=SHARE", example)
    for name, share in pairs.items():
        if not re.fullmatch(r"[0-9]{0,20}\.?[0-9]{1,20}|[0-9]{1,20}\.", share):
            raise ValueError(f"the share of {name} must be a number from 0 to 1, such as {example}")
    return {name: Fraction(share) for name, share in pairs.items()}


def num_shards(text: str) -> int | dict[str, int]:
    """Parses `16`, or `train=16,test=2` to split -> number."""
    if re.fullmatch(r"[0-9]{1,20}", text):
        return int(text)
    if "=" not in text:
        raise ValueError("must be a whole number, or NAME=N pairs, such as train=16,test=2")
    counts = _pairs(text, "NAME=N", "train=16,test=2")
    for name, count in counts.items():
        if not re.fullmatch(r"[0-9]{1,20}", count):
            raise ValueError(f"the number for {name} must be a whole number")
    return {name: int(count) for name, count in counts.items()}
