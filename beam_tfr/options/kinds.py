"""Checks, parses and spells the values of options, by their kinds.

A value may be text from the command line or the Flex Template, or a Python object. Text is matched
against a pattern and parsed; then every value is checked and normalized.
"""

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from beam_tfr import storage
from beam_tfr.layouts.parsing import SPLIT_RULE, is_split_name
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.errors import UsageError, check_text, check_whole_number


def _check_text(value: object) -> str:
    """Returns a string, or a path as a string."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ValueError("must be text")
    return check_text(text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of option values.

    Attributes:
        check: value -> normalized value. Numbers are checked against the range of their option.
        parse: text that matches `pattern` -> value; None if the text is the value.
        spell: value -> text, as on the command line.
        expected: the allowed values, as errors list them after "must be".
        pattern: regular expression for allowed texts, which lets a form show at once what is
            wrong.
        metavar: placeholder for the value in help.
        many: whether an option accepts several values, as a tuple; all other attributes apply to
            each value.
        has_names: whether each of several values is NAME=VALUE, so that a dict is accepted too.
    """

    check: Callable[..., Any] = _check_text
    parse: Callable[[str], Any] | None = None
    spell: Callable[[Any], str] = str
    expected: str = ""
    pattern: str = ""
    metavar: str = ""
    many: bool = False
    has_names: bool = False

    def list_values(self, value: Any) -> Any:
        """Returns one or several values as a tuple; returns any other object as it is.

        Raises:
            UsageError: the value is a DataFrame.
        """
        if isinstance(value, (str, os.PathLike)):
            return (value,)
        if isinstance(value, Mapping):
            if not self.has_names:
                return value
            return tuple(f"{name}={text}" for name, text in value.items())
        if hasattr(value, "to_parquet"):  # iterating over a DataFrame would yield its column names
            raise UsageError(
                "a DataFrame is not a file: write one with frame.to_parquet('table.parquet'), "
                "and use its path"
            )
        try:
            return tuple(value)
        except TypeError:
            return value

    def parse_value(self, value: Any, *limits: float) -> Any:
        """Normalizes a value, or one of several values, which may be text or a Python object.

        Raises:
            ValueError: the value is not allowed.
        """
        if self.parse and isinstance(value, str):
            if not re.fullmatch(self.pattern, value):
                raise ValueError(f"must be {self.expected}")
            value = self.parse(value)
        return self.check(value, *limits)


def check_path(value: object) -> str:
    """Returns a path, local or on gs://, made absolute."""
    path = _check_text(value)
    return storage.backend_of(path).complete_path(path)


def _check_class_file(value: object) -> str:
    """Returns the path of a file with classes."""
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError(
            "must be the path of a file with one class per line, or of a dataset: write the names "
            "into a file"
        )
    return _check_text(value)


def _check_unicode(value: object) -> str:
    """Returns a string after checking that it is valid in UTF-8, which not all file names are."""
    text = _check_text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be UTF-8 text") from None
    return text


TEXT = Kind()
UNICODE = Kind(check=_check_unicode)
CLASSES = Kind(check=_check_class_file, metavar="FILE")
FILE = Kind(check=check_path, metavar="FILE")
FOLDER = Kind(check=check_path, metavar="DIR")


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


_POWERS = {"": 0, "K": 1, "M": 2, "G": 3}


def _parse_bytes(text: str) -> int:
    digits, unit = re.fullmatch("([0-9]+) *(.*)", text.upper()).groups()  # type: ignore[union-attr]
    base = 1000 if unit in ("KB", "MB", "GB") else 1024
    return int(int(digits) * base ** _POWERS[unit[:1]])


BYTES = Kind(
    check=check_whole_number,
    parse=_parse_bytes,
    expected="a number of bytes, such as 104857600 or 100MiB",
    pattern=r"[0-9]{1,20} ?([kKmMgG][iI]?[bB]?)?",
    metavar="BYTES",
)


def is_number(value: object) -> bool:
    """Whether a value is a real number, including NumPy numbers but not bools."""
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
    if is_number(value) and value >= 0:
        if isinstance(value, Integral):
            return int(value)
        if value <= 1:
            return float(value)
    raise ValueError(
        "must be a fraction from 0.0 to 1.0, or a whole number without a decimal point"
    )


def _parse_share_or_count(text: str) -> int | float:
    return float(text) if "." in text else int(text)


SHARE_OR_COUNT = Kind(
    check=_check_share_or_count,
    parse=_parse_share_or_count,
    expected="a fraction with a decimal point, 0.0 to 1.0, or a whole number",
    pattern=r"[0-9]{1,20}|[0-9]{0,20}\.[0-9]{1,20}|[0-9]{1,20}\.",
    metavar="N",
)


def _check_integers(
    values: Any, number: int, low: int, high: int, expected: str
) -> tuple[int, ...]:
    try:
        integers = tuple(check_whole_number(value, low, high) for value in values)
    except (TypeError, ValueError):
        raise ValueError(expected) from None
    if len(integers) != number:
        raise ValueError(expected)
    return integers


def _check_size(value: Any, low: int, high: int) -> tuple[int, ...]:
    sides = (value, value) if isinstance(value, Integral) else value
    expected = f"must be height x width, each from {low} to {high} pixels, such as 224x224"
    return _check_integers(sides, 2, low, high, expected)


def _parse_size(text: str) -> tuple[int, int]:
    height, _, width = text.lower().partition("x")
    return int(height), int(width or height)


def _spell_size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


SIZE = Kind(
    check=_check_size,
    parse=_parse_size,
    spell=_spell_size,
    expected="HEIGHTxWIDTH in pixels, such as 224x224, or one number for both",
    pattern=r"[0-9]{1,9}([xX][0-9]{1,9})?",
    metavar="HxW",
)
_COLORS = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}


def _check_color(value: Any) -> tuple[int, ...]:
    return _check_integers(value, 3, 0, 255, "must be red, green and blue, each from 0 to 255")


def _parse_color(text: str) -> tuple[int, ...]:
    return _COLORS.get(text.lower()) or tuple(bytes.fromhex(text[1:]))


COLOR = Kind(
    check=_check_color,
    parse=_parse_color,
    expected=f"#RRGGBB, such as #7f7f7f, or one of: {', '.join(_COLORS)}",
    pattern=r"#[0-9a-fA-F]{6}|(?i:white|black|gray)",
    metavar="COLOR",
)


_ROUNDING = Fraction(1, 10**6)
# Converting other numbers, such as 1e-99999999, to a fraction may take all memory.
_SHARE = re.compile(
    r" *+(?:[0-9]{0,40}\.?[0-9]{0,40}(?:[eE][+-]?[0-9]{1,2})?|[0-9]{1,40}/[0-9]{1,40}) *"
)


def _parse_pairs(text: str) -> dict[str, str]:
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
        raise ValueError(
            'must map names of splits to fractions, such as {"train": 0.9, "test": 0.1}'
        )
    for name in value:
        if not isinstance(name, str) or not is_split_name(name):
            raise ValueError(f"{name!r} cannot be a split: {SPLIT_RULE}")
    shares = {name: _parse_share(share) for name, share in value.items()}
    total = sum(shares.values(), Fraction())
    if abs(total - 1) > _ROUNDING:
        raise ValueError(
            f"the fractions must add up to 1, not {float(total):g}{_suggest_share(shares)}"
        )
    # a manifest does not keep the order
    return {name: shares[name] for name in sort_splits(shares)}


def _suggest_share(shares: Mapping[str, Fraction]) -> str:
    """Suggests a last share that makes the sum 1; returns an empty string if there is none."""
    if not shares:
        return ""
    name, share = list(shares.items())[-1]
    rest = 1 - sum(shares.values(), Fraction()) + share
    return f"; with {name}={float(rest):g} they do" if rest > 0 else ""


def _parse_share(value: object) -> Fraction:
    with contextlib.suppress(ValueError, ZeroDivisionError):
        text = str(value)
        if _SHARE.fullmatch(text) and Fraction(text) > 0:
            return Fraction(text)
    raise ValueError("each fraction must be a number above 0; leave out splits without images")


def _spell_shares(shares: Mapping[str, Fraction]) -> str:
    return ",".join(f"{name}={float(share):g}" for name, share in shares.items())


SHARES = Kind(
    check=_check_shares,
    parse=_parse_pairs,
    spell=_spell_shares,
    expected="NAME=FRACTION pairs separated by commas, such as train=0.8,validation=0.1,test=0.1",
    pattern=r" *[A-Za-z0-9_]+ *= *[0-9.]{1,20} *(, *[A-Za-z0-9_]+ *= *[0-9.]{1,20} *)*",
    metavar="FRACTIONS",
)


def _check_counts(value: Any, low: int, high: int) -> int | dict[str, int]:
    try:
        if not isinstance(value, dict):
            return check_whole_number(value, low, high)
        return {split: check_whole_number(count, low, high) for split, count in value.items()}
    except ValueError as error:
        raise ValueError(
            f'each number {error}; use one number, or a dict such as {{"train": 16, "test": 2}}'
        ) from None


def _parse_counts(text: str) -> int | dict[str, int]:
    if "=" not in text:
        return int(text)
    return {split: int(count) for split, count in _parse_pairs(text).items()}


COUNTS = Kind(
    check=_check_counts,
    parse=_parse_counts,
    expected="a whole number, or NAME=N pairs, such as train=16,test=2",
    pattern=r"[0-9]{1,20}| *[A-Za-z0-9_]+ *= *[0-9]{1,20} *(, *[A-Za-z0-9_]+ *= *[0-9]{1,20} *)*",
    metavar="N",
)
