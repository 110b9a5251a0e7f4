"""Defines and checks options, adds their flags, and parses their values."""

import argparse
import dataclasses
import difflib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from beam_tfr.options import kinds
from beam_tfr.options.groups import GROUPS, Group
from beam_tfr.options.kinds import Kind
from beam_tfr.schema.encodings import OTHER_ENCODINGS
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.spelling import spell_option

DESTRUCTIVE = "overwrite"  # never suggested for a misspelled flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """The properties of an option, apart from its field in an options class.

    Attributes:
        help: help text, for --help-all, docs/options.md and the template.
        brief: help text for --help; empty unless the option is essential, because --help shows no
            other options.
        kind: kind of its values.
        metavar: placeholder for the value in help; by default that of its kind.
        low, high: range of a number, including both ends.
        choices: the allowed values; empty if all are allowed.
        only_with: other option -> its values that give this option an effect; empty if all do.
        excludes: other option -> why the two cannot be combined.
        images_only: whether the option has no effect on files other than images.
        group: the group that the option is shown in, one of `GROUPS`.
        changes_data: whether the option can change a record, a shard or a reject, and is therefore
            part of the options digest.
        implied: whether the `options` of plans and manifests omit this option while it has its
            default, which can then never change. Every option added after 0.1 must be implied;
            otherwise, all older plans and manifests would differ from new ones.
        show: the default as help shows it, if it differs from the default itself.
        template: whether the option is also a parameter of the Flex Template.
    """

    help: str
    brief: str = ""
    kind: Kind
    metavar: str = ""
    low: float | None = None
    high: float = math.inf
    choices: tuple[str, ...] = ()
    only_with: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    excludes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    images_only: bool = False
    group: Group
    changes_data: bool = True
    implied: bool = False
    show: str = ""
    template: bool = True

    def parse_value(self, value: Any) -> Any:
        """Normalizes a value, or one of several values, which may be text or a Python object.

        Raises:
            ValueError: the value is not allowed.
        """
        if self.choices:
            if not isinstance(value, str) or value not in self.choices:
                raise ValueError(f"must be one of: {', '.join(self.choices)}")
            return value
        if self.low is None:
            return self.kind.parse_value(value)
        return self.kind.parse_value(value, self.low, self.high)

    def spell(self, value: Any) -> str:
        """Spells a value as on the command line."""
        if self.kind.many:
            return " ".join(self.kind.spell(item) for item in value)
        return self.kind.spell(value)

    @property
    def argument(self) -> dict[str, Any]:
        """The arguments of `argparse.ArgumentParser.add_argument` for its flag."""
        if self.kind is kinds.BOOLEAN:
            return {"nargs": "?", "const": "true", "metavar": "true|false"}
        metavar = self.metavar or self.kind.metavar or "{" + ",".join(self.choices) + "}"
        if self.kind.many:
            return {"nargs": "+", "action": "extend", "metavar": metavar}
        return {"metavar": metavar}


def option(default: Any = dataclasses.MISSING, kind: Kind | None = None, **about: Any) -> Any:
    """Returns a field of an options class, with its `Option`.

    By default, the kind follows from the type of the default.
    """
    if kind is None:
        kinds_of_types = {bool: kinds.BOOLEAN, int: kinds.INTEGER, float: kinds.NUMBER}
        kind = kinds_of_types.get(type(default), kinds.TEXT)
    return dataclasses.field(default=default, metadata={"option": Option(kind=kind, **about)})


def option_of(field: dataclasses.Field[Any]) -> Option:
    """Returns the `Option` of a field of an options class."""
    about: Option = field.metadata["option"]
    return about


def options_of(kind: type) -> dict[str, Option]:
    """Returns name -> `Option` for each field of an options class."""
    return {field.name: option_of(field) for field in dataclasses.fields(kind)}


_Options = TypeVar("_Options")


class Checked:
    """The base of the option classes, whose objects are always valid.

    Creating an object raises a UsageError if a value is wrong.
    """

    encoding: str  # only in classes with options for images

    def __post_init__(self) -> None:
        for name, about in self._given_options():
            self._parse_option(name, about)
        self.complete_options()
        for name, about in self._given_options():
            if not (about.images_only and self.may_become_images):
                self._check_beside_others(name, about)
        self.check_combination()

    @property
    def may_become_images(self) -> bool:
        """Whether the input may contain images, depending on content that has not been read yet.

        If so, call `check_image_options` after reading it.
        """
        return False

    def check_image_options(self) -> None:
        """Checks that options for images have an effect.

        Raises:
            UsageError: an option has no effect.
        """
        for name, about in self._given_options():
            if about.images_only:
                self._check_beside_others(name, about)

    def complete_options(self) -> None:
        """Sets the options that follow from other options."""

    def check_combination(self) -> None:
        """Checks rules that the table of options cannot express.

        Raises:
            UsageError: a rule is broken.
        """

    def describe_images_only(self) -> str:
        """Says why an option for images has no effect on other files."""
        return "it applies to images only"

    def _given_options(self) -> Iterator[tuple[str, Option]]:
        for name, about in options_of(type(self)).items():
            if self.is_given(name):
                yield name, about

    def is_given(self, name: str) -> bool:
        """Whether the value of an option differs from its default."""
        value = getattr(self, name)
        default = type(self).__dataclass_fields__[name].default  # type: ignore[attr-defined]
        return type(value) is not type(default) or value != default

    def restricted_to(self, kind: type[_Options], **others: Any) -> _Options:
        """Returns an object of another options class, with this object's values except `others`.

        This keeps paths out of the data sent with a job.
        """
        values = {name: getattr(self, name) for name in options_of(kind)}
        return kind(**(values | others))

    def refuse(self, name: str, reason: str) -> NoReturn:
        """Raises the UsageError for an option, with its value as on the command line."""
        about = options_of(type(self))[name]
        raise UsageError(reason, option=name, value=about.spell(getattr(self, name)))

    def refuse_beside(self, name: str, other: str, reason: str) -> NoReturn:
        """Raises the UsageError for an option that has no effect together with another option."""
        raise UsageError(
            f"`{name}=` has no effect with {spell_option(other, getattr(self, other))}: {reason}"
        )

    def set_option(self, name: str, value: object) -> None:
        """Sets an option."""
        object.__setattr__(self, name, value)

    def _parse_option(self, name: str, about: Option) -> None:
        """Checks and normalizes the value of an option."""
        value = getattr(self, name)
        if not about.kind.many:
            self.set_option(name, _parse_value(name, about, value))
        elif isinstance(value, (tuple, list)):
            self.set_option(name, tuple(_parse_value(name, about, item) for item in value))
        else:
            raise UsageError("must be a tuple of strings", option=name, value=value)

    def _check_beside_others(self, name: str, about: Option) -> None:
        if about.images_only and self.encoding in OTHER_ENCODINGS:
            self.refuse_beside(name, "encoding", self.describe_images_only())
        for other, values in about.only_with.items():
            self._check_has_effect(name, other, values)
        for other, reason in about.excludes.items():
            if self.is_given(other):
                raise UsageError(f"`{name}=` and `{other}=` cannot be combined: {reason}")

    def _check_has_effect(self, name: str, other: str, values: tuple[str, ...]) -> None:
        """Checks that an option has an effect together with another option.

        The other option must have one of `values` or, if `values` is empty, must be set.
        """
        if values:
            if not getattr(self, other):
                raise UsageError(
                    f"`{name}=` has no effect without `{other}=`: it applies to {', '.join(values)}"
                )
            if getattr(self, other) not in values:
                self.refuse_beside(name, other, f"it applies to {', '.join(values)}")
        elif not self.is_given(other):
            raise UsageError(f"`{name}=` has no effect without `{other}=`")


def _parse_value(name: str, about: Option, value: Any) -> Any:
    try:
        return about.parse_value(value)
    except UsageError:  # the error already names the option
        raise
    except ValueError as error:
        raise UsageError(str(error), option=name, value=value) from None


def shown_default(field: dataclasses.Field[Any]) -> str:
    """Returns the default of an option as help and documentation show it.

    Returns an empty string if the default means "not set".
    """
    if field.default is False or field.default in (None, "", ()):
        return ""
    return option_of(field).show or str(field.default)


def add_arguments(
    parser: argparse.ArgumentParser,
    kind: type,
    names: Collection[str] | None = None,
    *,
    switches: bool = False,
) -> None:
    """Adds a flag for each option, or for some of them.

    Values remain text until `from_arguments` parses them.

    Args:
        parser: the parser to add flags to.
        kind: the options class.
        names: the options to add; None for all.
        switches: whether boolean flags accept no value, because the next argument could be
            mistaken for one.
    """
    headings = {heading.title: heading for heading in parser._action_groups}
    fields = sorted(
        dataclasses.fields(kind), key=lambda field: GROUPS.index(option_of(field).group)
    )
    for field in fields:
        if names is not None and field.name not in names:
            continue
        about = option_of(field)
        settings = about.argument
        if about.kind is kinds.BOOLEAN and switches:
            settings = {"action": "store_true"}
        text = _help_of(field).replace("%", "%%")
        group = about.group
        if group.title not in headings:
            headings[group.title] = parser.add_argument_group(group.title, group.when)
        headings[group.title].add_argument(f"--{field.name}", help=text, **settings)


def _help_of(field: dataclasses.Field[Any]) -> str:
    text = option_of(field).help
    if field.default is dataclasses.MISSING:
        return f"{text} (required)"
    default = shown_default(field)
    return f"{text} (default: {default})" if default else text


def from_arguments(arguments: argparse.Namespace, kind: type[_Options]) -> _Options:
    """Makes an options object from parsed flags.

    An empty value, as from a form, counts as not set.

    Raises:
        UsageError: a required flag is missing, or a value is not allowed.
    """
    values = {}
    for name in options_of(kind):
        value = getattr(arguments, name, None)
        if isinstance(value, list):
            value = [item for item in value if item]
        if value not in ("", []):
            values[name] = value
    return from_values(values, kind)


def from_values(values: Mapping[str, Any], kind: type[_Options]) -> _Options:
    """Makes an options object from Python values.

    Text is parsed as on the command line, and None counts as not set.

    Raises:
        UsageError: there is no such option, a required option is missing, or a value is not
            allowed.
    """
    options = options_of(kind)
    arguments = {}
    for name, value in values.items():
        if value is None:
            continue
        if name not in options:
            hint = suggest_name(name, options) or "docs/options.md lists all"
            message = f"unknown option; {hint}; Beam's own options go into `beam_flags=`"
            raise UsageError(message, option=name, value="")
        option_kind = options[name].kind
        arguments[name] = option_kind.list_values(value) if option_kind.many else value
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in arguments:
            raise UsageError(f"`{field.name}=` is required: {options[field.name].help}")
    return kind(**arguments)


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Returns a hint about an unknown flag or option: "did you mean --encoding?".

    The hint is empty if no name is spelled similarly. Leading dashes are ignored,
    because they make short flags look alike.
    """
    choices = {other.lstrip("-"): other for other in names}
    choices.pop(DESTRUCTIVE, None)
    near = difflib.get_close_matches(name.lstrip("-"), choices, n=1, cutoff=0.7)
    return f"did you mean {choices[near[0]]}?" if near else ""
