"""Parses layouts such as `{split}/{label}/*`, reads paths by them, and finds those that they read
in several ways."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Collection, Mapping

from beam_tfr.console.terminal import counted
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.naming import NAME

DEFAULT_LAYOUT = "{label}/*"
SPLIT_RULE = f"letters, digits and _ only, and not {NO_SPLIT}"  # for messages
# A value takes as few characters as it can, * as many as it can.
_NAMED = ("{label}", "{split}", "{group}")
PIECES = {name: f"(?P<{name[1:-1]}>[^/]*?)" for name in _NAMED}
PIECES |= {"{number}": "[0-9]+", "*": "[^/]*"}
_VALUES = {*PIECES} - {"{number}"}  # what may be any text
_PIECE = re.compile(r"\{[^{}]*\}|[*{}]|[^*{}]+")


def is_split_name(name: str) -> bool:
    """True for a name that a split may have: it is part of file names, and `none` is reserved."""
    return NAME.fullmatch(name) is not None and name != NO_SPLIT


@dataclasses.dataclass(frozen=True)
class Layout:
    """How to read the last parts of a key; made by `parse_layout`."""

    parts: tuple[str, ...]

    @functools.cached_property
    def _regex(self) -> re.Pattern[str]:
        return self._compile(PIECES)

    @functools.cached_property
    def longest(self) -> dict[str, re.Pattern[str]]:
        """Value that ends within a name -> the regular expression that makes it as long as
        possible.

        Empty if a key fits in one way only.
        """
        others = {"{number}": "(?<![0-9])[0-9]+(?![0-9])", "*": "[^/]*?"}
        within = [
            name for name in _NAMED if any(name in part.removesuffix(name) for part in self.parts)
        ]
        return {
            name[1:-1]: self._compile(PIECES | others | {name: f"(?P<{name[1:-1]}>[^/]*)"})
            for name in within
        }

    def _compile(self, regexes: Mapping[str, str]) -> re.Pattern[str]:
        pieces = _PIECE.findall("/".join(self.parts))
        return re.compile(
            "(?:.*/)?" + "".join(regexes.get(piece, re.escape(piece)) for piece in pieces),
            re.DOTALL,
        )

    def read(self, key: str) -> dict[str, str] | None:
        """Returns the "label", "split" and "group" that the layout names, or None for a key that
        does not fit it."""
        found = self._regex.fullmatch(key)
        return None if found is None else found.groupdict()

    def longer(self, key: str) -> tuple[str, str, str] | None:
        """Returns a value that could be longer, as ("label", "t", "t-shirt"); None if the key fits
        in one way only.

        What a * before a value takes could belong to the value too, unless there are digits in it.
        """
        taken = self._regex.fullmatch(key) if self.longest else None
        for name, regex in self.longest.items() if taken else ():
            found = regex.fullmatch(key)
            if (
                found
                and taken
                and found[name] != taken[name]
                and (name != "split" or is_split_name(found[name]))
            ):
                before = key[found.start(name) : taken.start(name)]
                if not any(char.isdigit() for char in before):
                    return name, taken[name], found[name]
        return None

    def describe_ambiguity(self, keys: Collection[str]) -> str:
        """A message about the keys that fit in several ways: their number, and an example; empty
        without any."""
        found = sorted((key, longer) for key in keys if (longer := self.longer(key)))
        if not found:
            return ""
        key, (name, taken, other) = found[0]
        return (
            f"{len(found):,} of {counted(len(keys), 'file')} fit the layout in more than one way, such as {key}: "
            f"{{{name}}} takes {taken!r}, not {other!r}; if that is wrong, use {{number}} for digits, as in "
            "`layout='{label}_{number}.*'`, rename the files, or give their classes in a `table=`"
        )


def parse_layout(text: str) -> Layout:
    """Parses a layout such as `{split}/{label}/*` or `{label}_*`.

    Raises:
        UsageError: a part is unknown or repeated, two of them touch, or the last part does not end
            in `*`.
    """
    parts = tuple(text.strip("/").split("/"))
    example = "such as {label}/* or {split}/{label}/*"
    fail = functools.partial(UsageError, option="layout", value=text)
    for part in parts:
        pieces = _PIECE.findall(part)
        unknown = next((piece for piece in pieces if piece[0] in "{}" and piece not in PIECES), "")
        if unknown or (part != "*" and "{" not in part):
            raise fail(
                f"{unknown or part!r} is not one of {', '.join(PIECES)}; separate parts with /, {example}"
            )
        for piece, other in itertools.pairwise(pieces):
            if piece in _VALUES and other in _VALUES:
                raise fail(
                    f"{piece} and {other} are adjacent: nothing says where one ends; put a separator between"
                )
    for value in (name for name in _VALUES if name != "*" and text.count(name) > 1):
        raise fail(f"has {value} twice")
    if not parts[-1].endswith("*"):
        raise fail(f"the last part is the file and must end in *, {example}")
    return Layout(parts)
