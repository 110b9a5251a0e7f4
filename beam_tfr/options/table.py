"""Defines options, adds their flags, and parses their values from text or Python."""

from __future__ import annotations

import argparse
import dataclasses
import numbers
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from beam_tfr.options.hints import meant, nearest
from beam_tfr.options.parsers import boolean
from beam_tfr.schema import UsageError

MIB = 1 << 20
NO_DRY_RUN = "`beam-tfr plan` shows what convert would do, and `limit=` converts a few images"
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
        implied: `options` of plans and manifests leave it out while it has its default, which can never change then.
            So must every option that is added after 0.1, or else all older datasets and plans would differ from it.
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
    implied: bool = False
    show: str = ""
    template: bool = True
    example: str = ""


def option(default: Any = dataclasses.MISSING, **about: Any) -> Any:
    """Returns a dataclass field with its `Option`; one that is False by default is boolean."""
    if default is False:
        about["parse"] = boolean
    return dataclasses.field(default=default, metadata={"option": Option(**about)})


class Checked:
    """Base of the option classes; `check_texts` and `check_kinds` raise a UsageError for a wrong value."""

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raises the UsageError for an option of this value."""
        raise UsageError(why, option=name, value=getattr(self, name))

    def normalize(self, name: str, value: object) -> None:
        """Sets an option."""
        object.__setattr__(self, name, value)

    def check_kinds(self) -> None:
        """Checks the options that have a closed set of values and those that are booleans."""
        for name, about in options_of(type(self)).items():
            value = getattr(self, name)
            if about.choices and value not in about.choices:
                near = nearest(str(value), about.choices)
                hint = near and f". Did you mean {near}?"
                if name == "resize" and re.match("[0-9(]", str(value)):
                    hint = "; a size is given by `image_size=`"
                self.refuse(name, f"must be one of: {', '.join(about.choices)}{hint}")
            if about.parse is boolean and not isinstance(value, bool):
                self.refuse(name, "must be true or false")

    def check_texts(self) -> None:
        """Converts paths to text and several values to a tuple, and checks options that are text."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            name, about, given = field.name, field.metadata["option"], getattr(self, field.name)
            value: Any
            if about.many:
                value = tuple(map(_as_text, given)) if isinstance(given, (tuple, list)) else (None,)
                if None in value:
                    paths = "paths or patterns, such as ('photos/**/*.jpg',)"
                    what = "names, such as ('test',)" if about.metavar == "NAME" else paths
                    self.refuse(name, f"must be a tuple of {what}")
            elif about.parse is str and not about.choices and given != field.default:
                value = _as_text(given)
                if value is None:
                    what = {"FILE": "the path of a file", "DIR": "the path of a folder"}.get(about.metavar, "text")
                    self.refuse(name, f"must be {what}")
            else:
                continue
            self.normalize(name, value)


def options_of(of: type) -> dict[str, Option]:
    """Name -> `Option` of each field of an options class."""
    return {field.name: field.metadata["option"] for field in dataclasses.fields(of)}


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
    """True if a value is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """True if a value is an int or a float, and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
    known = options_of(of)
    given = {name: _plain(value) for name, value in values.items() if value is not None}
    for name, value in given.items():
        if name not in known:
            told = meant(name, [f"--{one}" for one in known]).replace("--", "")
            hint = f". {told[:1].upper()}{told[1:]}" if told.endswith("?") else ". docs/options.md lists all."
            if name == "dry_run":
                hint = f": {NO_DRY_RUN}."
            raise UsageError(f"unknown option{hint} Beam's own go into `beam_flags=`", option=name, value="")
        if known[name].many and isinstance(value, (str, os.PathLike)):
            given[name] = (value,)
        elif known[name].many and isinstance(value, Iterable):
            given[name] = tuple(value)
        elif isinstance(value, str):
            given[name] = _parsed(name, value, known[name])
    for field in dataclasses.fields(of):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in given:
            raise UsageError(f"`{field.name}=` is required: {known[field.name].help}")
    return of(**given)


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python."""
    return value.item() if isinstance(value, numbers.Number) and hasattr(value, "item") else value


def _parsed(name: str, text: str, option: Option) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise UsageError(str(error), option=name, value=text) from None
