"""What an option is, how its text is read, and what its errors say: the parts that the tables are made of."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn, TypeVar

from beam_tfr.schema import UsageError

MIB = 1 << 20
GROUPS = WHAT, TABLES, LOOK, LIMITS, FILES, RUN = (
    "what is read and written",
    "tables",
    "images",
    "limits",
    "files",
    "the run",
)


def refuse(flag: str, value: object, allowed: str) -> NoReturn:
    """
    Raises:
        UsageError: always.
    """
    raise UsageError(allowed, option=flag, value=value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """How one field of an options object looks from outside.

    Attributes:
        help: what it does, for --help and the template.
        metavar: of its value.
        parse: (flag, text) -> value; raises UsageError.
        choices: a closed set of values, or empty.
        group: heading in --help, one of `GROUPS`.
        many: takes several values.
        changes_data: can change a record, a shard or a reject, and so belongs to the options digest.
        show: the default as --help shows it; empty: as it is.
        template: is a parameter of the Flex Template, too.
    """

    help: str
    metavar: str = ""
    parse: Callable[[str, str], Any] = lambda _, text: text
    choices: tuple[str, ...] = ()
    group: str
    many: bool = False
    changes_data: bool = True
    show: str = ""
    template: bool = True


def option(default: Any = dataclasses.MISSING, **about: Any) -> Any:
    """A dataclass field with its `Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(**about)})


def check_kinds(options: Any) -> None:
    """
    Raises:
        UsageError: a value that is not of its closed set, or no boolean where one belongs.
    """
    for field in dataclasses.fields(options):
        about: Option = field.metadata["option"]
        value = getattr(options, field.name)
        if about.choices and value not in about.choices:
            refuse(field.name, value, f"must be one of: {', '.join(about.choices)}{_nearest(value, about.choices)}")
        if about.parse is boolean and not isinstance(value, bool):
            refuse(field.name, value, "must be true or false")


def check_range(flag: str, value: object, low: int, high: int, of: str = "") -> None:
    """
    Raises:
        UsageError: not a whole number in the range.
    """
    if not is_int(value) or not low <= value <= high:  # type: ignore[operator]
        refuse(flag, value, f"the value{of} must be a whole number from {low} to {high}")


def is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _nearest(value: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(value), known, n=1)
    return f". Did you mean {near[0]}?" if near else ""


# Parsers from the text of a flag; an options object made in Python passes the parsed value instead.


def integer(flag: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        refuse(flag, text, "must be a whole number in digits")
    return int(text)


def image_size(flag: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,9})(?:x([0-9]{1,9}))?", text.lower())
    if not match:
        refuse(flag, text, "must be HEIGHTxWIDTH in pixels, such as 224x224, or one number for both")
    return int(match[1]), int(match[2] or match[1])


def colour(flag: str, text: str) -> tuple[int, int, int]:
    if text.lower() in _COLOURS:
        return _COLOURS[text.lower()]
    match = re.fullmatch(r"#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})", text.lower())
    if not match:
        refuse(flag, text, f"must be #RRGGBB, such as #7f7f7f, or one of: {', '.join(_COLOURS)}")
    red, green, blue = (int(part, 16) for part in match.groups())
    return red, green, blue


_COLOURS = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}


def number(flag: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20}", text):
        refuse(flag, text, "must be a number, such as 2 or 2.5")
    return float(text)


def number_of_bytes(flag: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,20})\s*([KMG]i?B?)?", text, re.IGNORECASE)
    if not match:
        refuse(flag, text, "must be a number of bytes, such as 104857600 or 100MiB")
    unit = (match[2] or "").upper()
    power = {"": 0, "K": 1, "M": 2, "G": 3}[unit[:1]]
    return int(int(match[1]) * (1000 if unit.endswith("B") and "I" not in unit else 1024) ** power)


def boolean(flag: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        refuse(flag, text, f"must be true or false; `{flag}=` alone means true")
    return text.lower() == "true"


def share_or_number(flag: str, text: str) -> int | float:
    if re.fullmatch(r"[0-9]{1,20}", text):
        return int(text)
    if not re.fullmatch(r"[0-9]{0,20}\.[0-9]{1,20}|[0-9]{1,20}\.", text):
        refuse(flag, text, "must be a share with a decimal point, 0.0 to 1.0, or a whole number")
    return float(text)


def _pairs(flag: str, text: str, example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not (name and separator and value):
            refuse(flag, text, f"must be NAME=VALUE pairs with commas between, such as {example}")
        if name in pairs:
            refuse(flag, text, f"names {name} twice")
        pairs[name] = value
    return pairs


def shares(flag: str, text: str) -> dict[str, Fraction]:
    example = "train=0.8,validation=0.1,test=0.1"
    shares = {}
    for name, share in _pairs(flag, text, example).items():
        if not re.fullmatch(r"[0-9]{0,20}\.?[0-9]{1,20}|[0-9]{1,20}\.", share):
            refuse(flag, text, f"the share of {name} must be a number from 0 to 1, such as {example}")
        shares[name] = Fraction(share)
    return shares


def num_shards(flag: str, text: str) -> int | dict[str, int]:
    if "=" not in text:
        return integer(flag, text)
    counts = _pairs(flag, text, "train=16,test=2")
    for name, count in counts.items():
        if not re.fullmatch(r"[0-9]{1,20}", count):
            refuse(flag, text, f"the number of {name} must be a whole number")
    return {name: int(count) for name, count in counts.items()}


_Options = TypeVar("_Options")


def add_arguments(parser: argparse.ArgumentParser, of: type) -> None:
    """Adds a flag for each option, in groups; values stay text until `from_arguments`."""
    groups = {group: parser.add_argument_group(group) for group in GROUPS}
    for field in sorted(dataclasses.fields(of), key=lambda field: GROUPS.index(field.metadata["option"].group)):
        option: Option = field.metadata["option"]
        required = field.default is dataclasses.MISSING
        about = option.help
        if required:
            about += " (required)"
        elif field.default not in (None, "", False, ()):
            about += f" (default: {option.show or field.default})"
        extra: dict[str, Any] = {"metavar": "{" + ",".join(option.choices) + "}" if option.choices else option.metavar}
        if option.many:
            extra |= {"nargs": "+", "action": "extend"}
        elif option.parse is boolean:
            extra |= {"nargs": "?", "const": "true", "metavar": "true|false"}
        groups[option.group].add_argument(f"--{field.name}", default=None, help=about.replace("%", "%%"), **extra)


def from_arguments(arguments: argparse.Namespace, of: type[_Options]) -> _Options:
    """The options object of parsed flags; an empty value means not given (a form's empty field).

    Raises:
        UsageError: a required flag is missing, or a value is not allowed.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(of):  # type: ignore[arg-type]
        option: Option = field.metadata["option"]
        given = getattr(arguments, field.name)
        if option.many:
            given = tuple(value for value in given or () if value)
        if given:
            values[field.name] = given if option.many else option.parse(field.name, given)
        elif field.default is dataclasses.MISSING:
            raise UsageError(f"`{field.name}=` is required: {option.help}")
    return of(**values)
