"""Kinds of option values: what they look like as text and in Python, and in the form of the Flex
Template.

The text of a value is matched with a pattern and parsed; a value, also one from Python, is checked
and normalized.
"""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from beam_tfr.layouts.parsing import SPLIT_RULE, is_split_name
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.errors import check_whole_number


def _check_text(value: object) -> str:
    """Text, or the text of a path."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ValueError("must be text")
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of option values.

    Attributes:
        check: value -> value, normalized. Numbers are checked with the range of their option.
        parse: text that matches `pattern` -> value; None if text is a value.
        expected: what errors about other texts say: "must be" and this.
        pattern: regular expression of the texts that are allowed, so that a form shows at once what
            is wrong.
        metavar: placeholder for the value in --help.
        many: takes several values, as a tuple; the rest is about each of them.
        place: is a path, which becomes absolute.
    """

    check: Callable[..., Any] = _check_text
    parse: Callable[[str], Any] | None = None
    expected: str = ""
    pattern: str = ""
    metavar: str = ""
    many: bool = False
    place: bool = False

    def read(self, value: Any, *limits: float) -> Any:
        """A value, as text or in Python, normalized.

        Raises:
            ValueError: it is not allowed.
        """
        if self.many:
            if not isinstance(value, (tuple, list)):
                raise ValueError("must be a tuple of texts")
            return tuple(
                dataclasses.replace(self, many=False).read(item, *limits) for item in value
            )
        if self.parse and isinstance(value, str):
            if not re.fullmatch(self.pattern, value):
                raise ValueError(f"must be {self.expected}")
            value = self.parse(value)
        return self.check(value, *limits)


TEXT = Kind()
FILE = Kind(metavar="FILE", place=True)
FOLDER = Kind(metavar="DIR", place=True)


def _check_boolean(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("must be true or false; the flag without a value means true")
    return value


BOOLEAN = Kind(check=_check_boolean)
INTEGER = Kind(
    check=check_whole_number,
    parse=int,
    expected="a whole number",
    pattern=r"[+-]?[0-9]{1,20}",
    metavar="N",
)


def _parse_bytes(text: str) -> int:
    digits, unit = re.fullmatch("([0-9]+) *(.*)", text.upper()).groups()  # type: ignore[union-attr]
    power = {"": 0, "K": 1, "M": 2, "G": 3}[unit[:1]]
    return int(int(digits) * (1000 if unit.endswith("B") and "I" not in unit else 1024) ** power)


BYTES = Kind(
    check=check_whole_number,
    parse=_parse_bytes,
    expected="a number of bytes, such as 104857600 or 100MiB",
    pattern=r"[0-9]{1,20} ?([kKmMgG][iI]?[bB]?)?",
    metavar="BYTES",
)


def is_number(value: object) -> bool:
    """True if a value is a real number, also one of NumPy, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_number(value: Any, low: float, high: float) -> float:
    if not is_number(value) or not low <= value <= high or value == math.inf:
        allowed = f", {low:g} or more" if high == math.inf else f" from {low:g} to {high:g}"
        raise ValueError(f"must be a number{allowed}")
    return float(value)


NUMBER = Kind(
    check=_check_number,
    parse=float,
    expected="a number, such as 2 or 2.5",
    pattern=r"[0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20}",
)


def _check_share_or_count(value: Any) -> int | float:
    whole = isinstance(value, Integral)
    if not is_number(value) or not 0 <= value <= (math.inf if whole else 1):
        raise ValueError(
            "must be a share from 0.0 to 1.0, or a whole number without a decimal point"
        )
    return int(value) if whole else float(value)


SHARE_OR_COUNT = Kind(
    check=_check_share_or_count,
    parse=lambda text: float(text) if "." in text else int(text),
    expected="a share with a decimal point, 0.0 to 1.0, or a whole number",
    pattern=r"[0-9]{1,20}|[0-9]{0,20}\.[0-9]{1,20}|[0-9]{1,20}\.",
    metavar="N",
)


def _check_integers(
    values: Any, number: int, low: int, high: int, expected: str
) -> tuple[int, ...]:
    try:
        found = tuple(check_whole_number(value, low, high) for value in values)
    except (TypeError, ValueError):
        found = ()
    if len(found) != number:
        raise ValueError(expected)
    return found


def _check_size(value: Any, low: int, high: int) -> tuple[int, ...]:
    expected = f"must be height x width, each from {low} to {high} pixels, such as 224x224"
    return _check_integers(
        (value, value) if isinstance(value, Integral) else value, 2, low, high, expected
    )


SIZE = Kind(
    check=_check_size,
    parse=lambda text: int(text) if text.isdigit() else tuple(map(int, text.lower().split("x"))),
    expected="HEIGHTxWIDTH in pixels, such as 224x224, or one number for both",
    pattern=r"[0-9]{1,9}([xX][0-9]{1,9})?",
    metavar="HxW",
)
_COLORS = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}


COLOR = Kind(
    check=lambda value: _check_integers(
        value, 3, 0, 255, "must be red, green and blue, each from 0 to 255"
    ),
    parse=lambda text: _COLORS.get(text.lower()) or tuple(bytes.fromhex(text[1:])),
    expected=f"#RRGGBB, such as #7f7f7f, or one of: {', '.join(_COLORS)}",
    pattern=r"#[0-9a-fA-F]{6}|(?i:white|black|gray)",
    metavar="COLOR",
)


def _pairs(text: str) -> dict[str, str]:
    """Parses "train=0.9, test=0.1"."""
    pairs: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in pairs:
            raise ValueError(f"names {name} twice")
        pairs[name] = value
    return pairs


def _check_shares(value: Any) -> dict[str, Fraction]:
    if not isinstance(value, Mapping):
        raise ValueError('must map names of splits to shares, such as {"train": 0.9, "test": 0.1}')
    try:
        shares = {name: Fraction(str(share)) for name, share in value.items()}
    except (ValueError, ZeroDivisionError):
        shares = dict.fromkeys(value, Fraction())
    wrong = [name for name in shares if not isinstance(name, str) or not is_split_name(name)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} cannot be a split: {SPLIT_RULE}")
    if min(shares.values(), default=1) <= 0:
        raise ValueError("each share must be a number above 0; leave out splits without images")
    if abs((total := sum(shares.values(), Fraction())) - 1) > Fraction(1, 10**6):
        raise ValueError(f"the shares must add up to 1, not {float(total):g}")
    return {name: shares[name] for name in sort_splits(shares)}  # a manifest keeps no order


SHARES = Kind(
    check=_check_shares,
    parse=_pairs,
    expected="NAME=SHARE pairs separated by commas, such as train=0.8,validation=0.1,test=0.1",
    pattern=r" *[A-Za-z0-9_]+ *= *[0-9.]{1,20} *(, *[A-Za-z0-9_]+ *= *[0-9.]{1,20} *)*",
    metavar="SHARES",
)


def _check_counts(value: Any, low: int, high: int) -> int | dict[str, int]:
    counts = value if isinstance(value, dict) else {"": value}
    try:
        counts = {split: check_whole_number(count, low, high) for split, count in counts.items()}
    except ValueError as error:
        raise ValueError(
            f'each number {error}; give one, or a dict such as {{"train": 16, "test": 2}}'
        ) from None
    return counts if isinstance(value, dict) else counts[""]


COUNTS = Kind(
    check=_check_counts,
    parse=lambda text: (
        {name: int(count) for name, count in _pairs(text).items()} if "=" in text else int(text)
    ),
    expected="a whole number, or NAME=N pairs, such as train=16,test=2",
    pattern=r"[0-9]{1,20}| *[A-Za-z0-9_]+ *= *[0-9]{1,20} *(, *[A-Za-z0-9_]+ *= *[0-9]{1,20} *)*",
    metavar="N",
)
