"""Defines and checks options, adds their flags, and parses their values from text or Python."""

import argparse
import dataclasses
import difflib
import functools
import math
import os
from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from typing import Any, NoReturn, TypeVar

from beam_tfr import storage
from beam_tfr.options import kinds
from beam_tfr.options.kinds import Kind
from beam_tfr.schema.encodings import OTHER_ENCODINGS
from beam_tfr.schema.errors import UsageError

DESTRUCTIVE = "--overwrite"  # never suggested for a flag that is misspelled
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
    """All about one option, beside its field of an options object.

    Attributes:
        help: help text, for --help and the template.
        kind: kind of its values.
        metavar: placeholder for the value in --help; by default that of its kind.
        low, high: range of a number, including both.
        choices: the allowed values; empty for any.
        only_with: other option -> its values beside which this one has an effect; no values stand
            for any but none.
        excludes: other option -> why both cannot be given.
        images_only: has no effect on other files than images.
        group: heading in --help, one of `GROUPS`.
        changes_data: can change a record, a shard or a reject, and is therefore part of the options
            digest.
        implied: `options` of plans and manifests leave it out while it has its default, which can
            never change then. So must every option that is added after 0.1, or else all older
            datasets and plans would differ from it.
        show: the default as --help shows it, where it differs from the default itself.
        template: is also a parameter of the Flex Template.
    """

    help: str
    kind: Kind
    metavar: str = ""
    low: float | None = None
    high: float = math.inf
    choices: tuple[str, ...] = ()
    only_with: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    excludes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    images_only: bool = False
    group: str
    changes_data: bool = True
    implied: bool = False
    show: str = ""
    template: bool = True

    def read(self, value: Any) -> Any:
        """A value, as text or in Python, normalized.

        Raises:
            ValueError: it is not allowed.
        """
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"must be one of: {', '.join(self.choices)}")
            return value
        return self.kind.read(value, *([] if self.low is None else [self.low, self.high]))


def option(default: Any = dataclasses.MISSING, kind: Kind | None = None, **about: Any) -> Any:
    """Returns a dataclass field with its `Option`, whose kind is by default that of its default."""
    if kind is None:
        of_types = {bool: kinds.BOOLEAN, int: kinds.INTEGER, float: kinds.NUMBER}
        kind = of_types.get(type(default), kinds.TEXT)
    return dataclasses.field(default=default, metadata={"option": Option(kind=kind, **about)})


def options_of(kind: type) -> dict[str, Option]:
    """Name -> `Option` of each field of an options class."""
    return {field.name: field.metadata["option"] for field in dataclasses.fields(kind)}


_Options = TypeVar("_Options")


class Checked:
    """Base of the option classes, whose objects are valid: making one raises a UsageError for a
    wrong value."""

    encoding: str  # of classes with options for images only

    def __post_init__(self) -> None:
        for name, about in options_of(type(self)).items():
            if self.is_given(name):
                self._check_value(name, about)
        self.complete()
        for name, about in options_of(type(self)).items():
            if self.is_given(name):
                self._check_beside_others(name, about)
        self.check()

    def complete(self) -> None:
        """Sets the options that follow from others."""

    def check(self) -> None:
        """Checks what the table of options cannot say.

        Raises:
            UsageError: something is not allowed.
        """

    def is_given(self, name: str) -> bool:
        """True if an option has another value than its default."""
        value = getattr(self, name)
        default = type(self).__dataclass_fields__[name].default  # type: ignore[attr-defined]
        return type(value) is not type(default) or value != default

    def part(self, kind: type[_Options]) -> _Options:
        """The options of another class, of an object that has more: what leaves with a job has no
        paths in it."""
        return kind(**{name: getattr(self, name) for name in options_of(kind)})

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raises the UsageError for an option, with its value as it is typed on the command
        line."""
        raise UsageError(why, option=name, value=_as_typed(getattr(self, name)))

    def refuse_beside(self, name: str, other: str, why: str) -> NoReturn:
        """Raises the UsageError for an option without effect beside the value of another one."""
        raise UsageError(f"`{name}=` has no effect with `{other}={getattr(self, other)}`: {why}")

    def normalize(self, name: str, value: object) -> None:
        """Sets an option."""
        object.__setattr__(self, name, value)

    def _check_value(self, name: str, about: Option) -> None:
        given = getattr(self, name)
        try:
            value = about.read(given)
        except UsageError:
            raise
        except ValueError as error:
            raise UsageError(
                str(error), option=name, value=_as_typed(given) if about.kind.many else given
            ) from None
        if about.kind.place:
            check = functools.partial(storage.check_path, option=name)
            value = tuple(map(check, value)) if about.kind.many else check(value)
        self.normalize(name, value)

    def _check_beside_others(self, name: str, about: Option) -> None:
        if about.images_only and self.encoding in OTHER_ENCODINGS:
            self.refuse_beside(name, "encoding", "it applies to images only")
        for other, values in about.only_with.items():
            if not values and not self.is_given(other):
                raise UsageError(f"`{name}=` has no effect without `{other}=`")
            if values and getattr(self, other) not in values:
                self.refuse_beside(name, other, f"it applies to {', '.join(values)}")
        for other, why in about.excludes.items():
            if self.is_given(other):
                raise UsageError(f"`{name}=` and `{other}=` cannot be combined: {why}")


def _as_typed(value: Any) -> Any:
    if isinstance(value, Mapping):
        ends = [
            f"={float(item):g}" if isinstance(item, Real) else f":{item}" * bool(item)
            for item in value.values()
        ]
        return ",".join(map("{}{}".format, value, ends))
    if isinstance(value, (tuple, list)):
        return ("x" if value and isinstance(value[0], int) else " ").join(map(str, value))
    return value


def shown_default(field: dataclasses.Field[Any]) -> str:
    """The default of an option as help and documentation show it; empty for one that means "not
    given"."""
    if field.default is False or field.default in (None, "", ()):
        return ""
    return field.metadata["option"].show or str(field.default)


def add_arguments(
    parser: argparse.ArgumentParser,
    kind: type,
    names: Collection[str] | None = None,
    *,
    switches: bool = False,
) -> None:
    """Adds a flag for each option, or for some; values stay text until `from_arguments` parses
    them.

    With `switches`, flags of booleans take no value, which could be an argument that follows.
    """
    groups = {group: parser.add_argument_group(group) for group in GROUPS}
    fields = [field for field in dataclasses.fields(kind) if names is None or field.name in names]
    for field in sorted(fields, key=lambda field: GROUPS.index(field.metadata["option"].group)):
        option: Option = field.metadata["option"]
        about = option.help
        if field.default is dataclasses.MISSING:
            about += " (required)"
        elif default := shown_default(field):
            about += f" (default: {default})"
        choices = "{" + ",".join(option.choices) + "}" if option.choices else ""
        extra: dict[str, Any] = {"metavar": option.metavar or option.kind.metavar or choices}
        if option.kind.many:
            extra |= {"nargs": "+", "action": "extend"}
        elif option.kind is kinds.BOOLEAN and switches:
            extra = {"action": "store_true"}
        elif option.kind is kinds.BOOLEAN:
            extra |= {"nargs": "?", "const": "true", "metavar": "true|false"}
        groups[option.group].add_argument(f"--{field.name}", help=about.replace("%", "%%"), **extra)


def from_arguments(arguments: argparse.Namespace, kind: type[_Options]) -> _Options:
    """Makes an options object from parsed flags; an empty value, as from a form, counts as not
    given.

    Raises:
        UsageError: a required flag is missing, or a value is not allowed.
    """
    given = {name: getattr(arguments, name, None) for name in options_of(kind)}
    for name, value in given.items():
        if isinstance(value, list):
            given[name] = [*filter(None, value)]
    return from_values(
        {name: value for name, value in given.items() if value not in ("", [])}, kind
    )


def from_values(values: Mapping[str, Any], kind: type[_Options]) -> _Options:
    """Makes an options object from Python values; text is parsed as on the command line, None
    counts as not given.

    Raises:
        UsageError: there is no such option, a required one is missing, or a value is not allowed.
    """
    known = options_of(kind)
    given = {name: value for name, value in values.items() if value is not None}
    for name, value in given.items():
        if name not in known:
            hint = suggest_flag(f"--{name}", [f"--{other}" for other in known]).replace("--", "")
            hint = hint or "docs/options.md lists all"
            raise UsageError(
                f"unknown option; {hint}; Beam's own go into `beam_flags=`", option=name, value=""
            )
        if known[name].kind.many and isinstance(value, (str, os.PathLike)):
            given[name] = (value,)
        elif known[name].kind.many and isinstance(value, Iterable):
            given[name] = tuple(value)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in given:
            raise UsageError(f"`{field.name}=` is required: {known[field.name].help}")
    return kind(**given)


def suggest_flag(flag: str, known: Iterable[str]) -> str:
    """What to say about an unknown flag: "did you mean --encoding?"; empty if none is spelled
    similarly."""
    names = {
        name.lstrip("-"): name for name in {*known} - {DESTRUCTIVE}
    }  # dashes alone would make short flags alike
    near = difflib.get_close_matches(flag.lstrip("-"), names, n=1, cutoff=0.7)
    return f"did you mean {names[near[0]]}?" if near else ""
