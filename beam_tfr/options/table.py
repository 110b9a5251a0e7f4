"""The parts of the option tables: what an option is, and the parsers of command-line values."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from beam_tfr.schema import UsageError

MIB = 1 << 20
DESTRUCTIVE = ("overwrite",)  # never suggested for a flag that is misspelled
GROUPS = WHAT, TABLES, LOOK, LIMITS, FILES, RUN = (
    "input and output",
    "tables",
    "images",
    "limits",
    "files",
    "the run",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """The command-line and template side of one field of an options object.

    Attributes:
        help: help text, for --help and the template.
        metavar: placeholder for the value in --help.
        parse: text -> value; raises ValueError.
        choices: the allowed values; empty for any.
        group: heading in --help, one of `GROUPS`.
        many: takes several values.
        changes_data: can change a record, a shard or a reject, and is therefore part of the options digest.
        show: the default as --help shows it, where it differs from the default itself.
        template: is also a parameter of the Flex Template.
        example: a value; options with one are in --help, all others in --help_all only.
    """

    help: str
    metavar: str = ""
    parse: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    group: str
    many: bool = False
    changes_data: bool = True
    show: str = ""
    template: bool = True
    example: str = ""


def option(default: Any = dataclasses.MISSING, **about: Any) -> Any:
    """Returns a dataclass field with its `Option`; one that is False by default is boolean."""
    if default is False:
        about["parse"] = boolean
    return dataclasses.field(default=default, metadata={"option": Option(**about)})


def check_kinds(options: Any) -> None:
    """Checks the options that have a closed set of values and those that are booleans.

    Raises:
        UsageError: a value is not allowed.
    """
    for field in dataclasses.fields(options):
        about: Option = field.metadata["option"]
        value = getattr(options, field.name)
        if about.choices and value not in about.choices:
            near = nearest(str(value), about.choices)
            hint = f". Did you mean {near}?" if near else ""
            raise UsageError(f"must be one of: {', '.join(about.choices)}{hint}", option=field.name, value=value)
        if about.parse is boolean and not isinstance(value, bool):
            raise UsageError("must be true or false", option=field.name, value=value)


def check_texts(options: Any) -> None:
    """Makes text of paths and a tuple of several values, and checks the options that are text.

    Raises:
        UsageError: a value is of another type.
    """
    for field in dataclasses.fields(options):
        about: Option = field.metadata["option"]
        value = getattr(options, field.name)
        if about.many:
            given, allowed = value, "a tuple of paths or patterns, such as ('photos/**/*.jpg',)"
            value = tuple(map(_as_text, given)) if isinstance(given, (tuple, list)) else (None,)
            wrong = None in value
        elif about.parse is str and not about.choices and value != field.default:
            given, value = value, _as_text(value)
            allowed = {"FILE": "the path of a file", "DIR": "the path of a folder"}.get(about.metavar, "text")
            wrong = value is None
        else:
            continue
        if wrong:
            raise UsageError(f"must be {allowed}", option=field.name, value=given)
        object.__setattr__(options, field.name, value)


def _as_text(value: object) -> str | None:
    """Text, or the text of a path; None for anything else."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    return text if isinstance(text, str) else None


def check_range(option: str, value: object, low: int, high: int, of: str = "", other: str = "") -> None:
    """Checks that a value is a whole number in a range.

    Raises:
        UsageError: it is not.
    """
    if not is_int(value) or not low <= value <= high:  # type: ignore[operator]
        allowed = f"the value{of} must be a whole number from {low} to {high}{other}"
        raise UsageError(allowed, option=option, value=value)


def is_int(value: object) -> bool:
    """Whether a value is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is an int or a float, and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def nearest(text: str, known: Iterable[str]) -> str:
    """The known flag or value that `text` is nearly spelled like; empty if there is none."""
    names = {name.lstrip("-"): name for name in known}  # dashes alone would make short flags alike
    near = difflib.get_close_matches(text.lstrip("-"), names, n=1, cutoff=0.7)
    return names[near[0]] if near else ""


# Parsers of command-line values: text -> value, or a ValueError that says what is allowed. In Python, options take the
# parsed values.


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


_Options = TypeVar("_Options")


def shown_default(field: dataclasses.Field[Any]) -> str:
    """The default of an option as help and documentation show it; empty for one that means "not given"."""
    if field.default is False or field.default in (None, "", ()):
        return ""
    return field.metadata["option"].show or str(field.default)


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        for action in parser._actions:
            action.help = getattr(action, "full_help", action.help)
        parser.print_help()
        parser.exit()


def add_arguments(
    parser: argparse.ArgumentParser, of: type, names: Collection[str] | None = None, *, brief: bool = False
) -> None:
    """Adds a flag for each option, or for some; values stay text until `from_arguments` parses them.

    With `brief`, --help has the options that have an example, and --help_all has all.
    """
    if brief:
        parser.add_argument("--help_all", action=_HelpAll, nargs=0, help="show all options")
    groups = {group: parser.add_argument_group(group) for group in GROUPS}
    fields = [field for field in dataclasses.fields(of) if names is None or field.name in names]
    for field in sorted(fields, key=lambda field: GROUPS.index(field.metadata["option"].group)):
        option: Option = field.metadata["option"]
        about = option.help
        if field.default is dataclasses.MISSING:
            about += " (required)"
        elif default := shown_default(field):
            about += f" (default: {default})"
        extra: dict[str, Any] = {"metavar": "{" + ",".join(option.choices) + "}" if option.choices else option.metavar}
        if option.many:
            extra |= {"nargs": "+", "action": "extend"}
        elif option.parse is boolean:
            extra |= {"nargs": "?", "const": "true", "metavar": "true|false"}
        added = groups[option.group].add_argument(
            f"--{field.name}", default=None, help=about.replace("%", "%%"), **extra
        )
        if brief:
            added.full_help = added.help  # type: ignore[attr-defined]
            added.help = f"{added.help}; e.g. --{field.name} {option.example}" if option.example else argparse.SUPPRESS


def from_arguments(arguments: argparse.Namespace, of: type[_Options]) -> _Options:
    """Makes an options object from parsed flags; an empty value, as from a form, counts as not given.

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
            values[field.name] = given if option.many else _parsed(field.name, given, option)
        elif field.default is dataclasses.MISSING:
            raise UsageError(f"`{field.name}=` is required: {option.help}")
    return of(**values)


def from_values(values: Mapping[str, Any], of: type[_Options]) -> _Options:
    """Makes an options object from Python values; text is parsed as on the command line, None counts as not given.

    Raises:
        UsageError: there is no such option, or a value is not allowed.
    """
    known: dict[str, Option] = {field.name: field.metadata["option"] for field in dataclasses.fields(of)}  # type: ignore[arg-type]
    given = {name: value for name, value in values.items() if value is not None}
    for name, value in given.items():
        if name not in known:
            near = nearest(name, known.keys() - {*DESTRUCTIVE})
            hint = f". Did you mean {near}?" if near else ". docs/options.md lists all."
            raise UsageError(f"unknown option{hint} Beam's own go into `beam_flags=`", option=name, value="")
        if known[name].many and isinstance(value, (str, os.PathLike)):
            given[name] = (value,)
        elif known[name].many and isinstance(value, Iterable):
            given[name] = tuple(value)
        elif isinstance(value, str):
            given[name] = _parsed(name, value, known[name])
    return of(**given)


def _parsed(name: str, text: str, option: Option) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise UsageError(str(error), option=name, value=text) from None
