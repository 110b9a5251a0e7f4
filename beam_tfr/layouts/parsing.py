"""Parses layouts such as `{split}/{label}/*`, and reads paths by them.

A layout that ends in `**` reads a whole key; other layouts read the end of a key. Also finds keys
that match a layout in several ways.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.naming import NAME

DEFAULT_LAYOUT = "{label}/*"
SPLIT_RULE = f"letters, digits and _ only, and not {NO_SPLIT}"  # for messages
_DEEP = "**"  # the last part of a layout: the file, in any folders below
_EXAMPLE = "such as {label}/* or {split}/{label}/**"
# Each piece of a layout -> its regex. A value matches as little as possible, * as much.
_VALUES = ("{label}", "{split}", "{group}")
_REGEXES = {value: f"(?P<{value[1:-1]}>[^/]*?)" for value in _VALUES}
_REGEXES |= {"{number}": "[0-9]+", "*": "[^/]*", _DEEP: ".*"}
# Regexes of pieces other than values, when values are to be as long as possible.
_REGEXES_BESIDE = {"{number}": "(?<![0-9])[0-9]+(?![0-9])", "*": "[^/]*?"}
_ANY_TEXT = {*_VALUES, "*"}
_PIECE = re.compile(r"\{[^{}]*\}|\*\*|[*{}]|[^*{}]+")


def is_split_name(name: str) -> bool:
    """Whether a name is valid for a split.

    Names of splits become part of file names, and `none` is reserved.
    """
    return NAME.fullmatch(name) is not None and name != NO_SPLIT


class LongerValue(NamedTuple):
    """A value that could also be longer, such as the label "t-shirt" instead of "t"."""

    name: str
    value: str
    longer: str


@dataclasses.dataclass(frozen=True)
class Layout:
    """A rule for reading the last parts of a key, or the whole key; made by `parse_layout`.

    `{label}/**` reads a whole key: the class is the first folder, whatever is below it.
    """

    parts: tuple[str, ...]

    @property
    def deep(self) -> "Layout":
        """The layout with ** as its last part."""
        return Layout((*self.parts[:-1], _DEEP))

    def below(self, levels: int) -> "Layout":
        """Returns the layout for keys with `levels` more folders before the first part."""
        return Layout((*["*"] * levels, *self.parts))

    def __str__(self) -> str:
        return "/".join(self.parts)

    @functools.cached_property
    def _regex(self) -> re.Pattern[str]:
        return self._compile(_REGEXES)

    @functools.cached_property
    def longest(self) -> dict[str, re.Pattern[str]]:
        """Each value that ends within a name -> a pattern that matches as much as possible of it.

        The dict is empty if a key can match in one way only.
        """
        path = f"{self}/"
        regexes = {}
        for value in _VALUES:
            if value in path and f"{value}/" not in path:
                name = value[1:-1]
                longest = {value: f"(?P<{name}>[^/]*)"}
                regexes[name] = self._compile(_REGEXES | _REGEXES_BESIDE | longest)
        return regexes

    def _compile(self, regexes: Mapping[str, str]) -> re.Pattern[str]:
        pieces = _PIECE.findall(str(self))
        pattern = "".join(regexes.get(piece, re.escape(piece)) for piece in pieces)
        above = "" if self.parts[-1] == _DEEP else "(?:.*/)?"
        return re.compile(above + pattern, re.DOTALL)

    def parse_key(self, key: str) -> dict[str, str] | None:
        """Returns the "label", "split" and "group" that the layout reads, or None for no match."""
        match = self._regex.fullmatch(key)
        return match.groupdict() if match else None

    def place_of(self, value: str) -> str:
        """Returns the part of a key that holds a value such as "label", or an empty string."""
        field = f"{{{value}}}"
        if field in self.parts[-1]:
            return "file name"
        return "folder" if field in str(self) else ""

    def group_of(self, key: str) -> str | None:
        """Returns the "group" that the layout reads from a key; None if there is no group."""
        return (self.parse_key(key) or {}).get("group")

    def may_hide_folders(self, key: str) -> bool:
        r"""Whether a backslash in a matching key may separate folders, as on Windows.

        A value would then be wrong: it would contain the backslash, or the folder above a\b.jpg
        would be mistaken for the class.
        """
        if "\\" not in key:
            return False
        number = len(self.parts)
        parts = key.split("/")
        read_parts = parts[:number] if self.parts[-1] == _DEEP else parts[-number:]
        takes_folders = number > 1 and self.parts[-1] in ("*", _DEEP)
        if takes_folders and any("\\" in part for part in read_parts):
            return True
        values = self.parse_key(key) or {}
        return any("\\" in value for value in values.values())

    def find_longer_value(self, key: str) -> LongerValue | None:
        """Finds a value that could be longer; None if the key matches in one way only.

        Text before a value that matches a * could also belong to the value, unless the text has
        digits.
        """
        if not self.longest:
            return None
        match = self._regex.fullmatch(key)
        if match is None:
            return None
        for name, regex in self.longest.items():
            longer = regex.fullmatch(key)
            if longer is None or longer[name] == match[name]:
                continue
            if name == "split" and not is_split_name(longer[name]):
                continue
            before = key[longer.start(name) : match.start(name)]
            if not any(map(str.isdigit, before)):
                return LongerValue(name, match[name], longer[name])
        return None

    def describe_ambiguity(self, keys: Collection[str]) -> str:
        """Returns a message about the keys that match in several ways, or an empty string."""
        longer_values = {}
        for key in keys:
            longer_value = self.find_longer_value(key)
            if longer_value:
                longer_values[key] = longer_value
        if not longer_values:
            return ""
        example = min(longer_values)
        name, value, longer = longer_values[example]
        return (
            f"{len(longer_values):,} of {counted(len(keys), 'file')} match the layout in more than "
            f"one way, such as {example}: {{{name}}} is {value!r}, not {longer!r}; if that is "
            "wrong, use {number} for digits, as in `layout='{label}_{number}.*'`, rename the "
            "files, or name their classes in a `table=`"
        )


def parse_layout(text: str) -> Layout:
    """Parses a layout such as `{split}/{label}/*` or `{label}_*`.

    Raises:
        UsageError: a piece is unknown or repeated, two pieces touch, or the last part does not end
            in `*`.
    """
    parts = tuple(text.strip("/").split("/"))
    try:
        for part in parts[:-1]:
            _check_part(part)
        if parts[-1] != _DEEP:
            _check_part(parts[-1])
        for value in _VALUES:
            if text.count(value) > 1:
                raise ValueError(f"has {value} twice")
        if not parts[-1].endswith("*"):
            raise ValueError(f"the last part is the file and must end in *, {_EXAMPLE}")
    except ValueError as error:
        raise UsageError(str(error), option="layout", value=text) from None
    return Layout(parts)


def _check_part(part: str) -> None:
    """Checks a part of a layout between slashes.

    Raises:
        ValueError: the part has an unknown piece, no piece at all, or two pieces that touch.
    """
    if "{" not in part and part != "*":
        raise _unknown_piece(part)
    pieces = _PIECE.findall(part)
    for piece in pieces:
        is_unknown = piece[0] in "{}" and piece not in _REGEXES
        if is_unknown or piece == _DEEP:
            raise _unknown_piece(piece)
    for piece, following in itertools.pairwise(pieces):
        if {piece, following} <= _ANY_TEXT:
            raise ValueError(
                f"{piece} and {following} are adjacent: nothing says where one ends; "
                "put a separator between them"
            )


def _unknown_piece(text: str) -> ValueError:
    pieces = ", ".join([*_VALUES, "{number}", "*"])
    return ValueError(
        f"{text!r} is not one of {pieces}; separate parts with /, and only the last part may be "
        f"**, {_EXAMPLE}"
    )
