"""MatchImages, second half: reads the label, split and group of an image from its path."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from beam_tfr import storage
from beam_tfr.naming import NAME, two_spellings
from beam_tfr.schema import NO_SPLIT, ImageRef, UsageError, is_class_name
from beam_tfr.terminal import counted

# A value takes as few characters as it can, * as many as it can.
_NAMED = ("{label}", "{split}", "{group}")
PIECES = {name: f"(?P<{name[1:-1]}>[^/]*?)" for name in _NAMED}
PIECES |= {"{number}": "[0-9]+", "*": "[^/]*"}
_VALUES = {*PIECES} - {"{number}"}  # what may be any text
_PIECE = re.compile(r"\{[^{}]*\}|[*{}]|[^*{}]+")
DEFAULT_SPLIT = "train"
LABEL_RULE = "it must be one line of UTF-8 text, without control characters or spaces at either end"
SPLIT_RULE = f"letters, digits and _ only, and not {NO_SPLIT}"
_is_class_name = functools.lru_cache(is_class_name)  # images of a class follow each other


def is_split_name(name: str) -> bool:
    """True for a name that a split may have: it is part of file names, and `none` is reserved."""
    return NAME.fullmatch(name) is not None and name != NO_SPLIT


@dataclasses.dataclass(frozen=True)
class Layout:
    """How to read the last parts of a key; made by `parse_layout`."""

    parts: tuple[str, ...]

    @property
    def has_labels(self) -> bool:
        return any("{label}" in part for part in self.parts)

    @property
    def may_be_ambiguous(self) -> bool:
        """True if a key may fit in several ways: a value ends within a name."""
        return bool(self._longest)

    @functools.cached_property
    def _regex(self) -> re.Pattern[str]:
        return self._compile(PIECES)

    @functools.cached_property
    def _longest(self) -> dict[str, re.Pattern[str]]:
        """Value that ends within a name -> what gives it as many characters as it can, and no digits of a {number}."""
        number = {"{number}": "(?<![0-9])[0-9]+(?![0-9])"}
        within = [name for name in _NAMED if any(name in part.removesuffix(name) for part in self.parts)]
        return {name[1:-1]: self._compile(PIECES | number | {name: f"(?P<{name[1:-1]}>[^/]*)"}) for name in within}

    def _compile(self, regexes: Mapping[str, str]) -> re.Pattern[str]:
        pieces = (
            "".join(regexes.get(piece, re.escape(piece)) for piece in _PIECE.findall(part)) for part in self.parts
        )
        return re.compile("(?:.*/)?" + "/".join(pieces), re.DOTALL)

    def read(self, key: str) -> dict[str, str] | None:
        """Returns the "label", "split" and "group" that the layout names, or None for a key that does not fit it."""
        found = self._regex.fullmatch(key)
        return None if found is None else found.groupdict()

    def longer(self, key: str) -> tuple[str, str, str] | None:
        """Returns a value that could be longer, as ("label", "t", "t-shirt"); None if the key fits in one way only."""
        taken = self.read(key) if self._longest else None
        for name, regex in self._longest.items() if taken else ():
            found = regex.fullmatch(key)
            if found and taken and found[name] != taken[name] and (name != "split" or is_split_name(found[name])):
                return name, taken[name], found[name]
        return None


class Ambiguities:
    """Counts the keys that fit a layout in several ways."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._keys, self._number, self._example = layout, 0, 0, ""

    def add(self, key: str) -> None:
        """Counts a key."""
        self._keys += 1
        if self._layout.longer(key):
            self._number += 1
            self._example = min(self._example or key, key)

    def tell(self) -> Iterator[str]:
        """A message with their number, an example, and what to write instead; empty without any."""
        if not (longer := self._layout.longer(self._example)):
            return
        (name, taken, other), layout = longer, self._layout
        numbered = Layout((*layout.parts[:-1], f"{layout.parts[-1][:-1]}{{number}}.*"))
        cure = "separate the values by what they do not contain"
        if (read := numbered.read(self._example)) and not numbered.longer(self._example):
            cure = f"`layout={shlex.quote('/'.join(numbered.parts))}` reads {read[name]!r}"
        yield (
            f"{self._number:,} of {counted(self._keys, 'file')} fit the layout in more than one way, such as "
            f"{self._example}: {{{name}}} takes the shortest match, {taken!r}, not {other!r}; {cure}"
        )


def parse_layout(text: str) -> Layout:
    """Parses a layout such as `{split}/{label}/*` or `{label}_*`.

    Raises:
        UsageError: a part is unknown or repeated, two of them touch, or the last part does not end in `*`.
    """
    parts = tuple(text.strip("/").split("/"))
    example, fail = "such as {label}/* or {split}/{label}/*", functools.partial(UsageError, option="layout", value=text)
    for part in parts:
        pieces = _PIECE.findall(part)
        unknown = next((piece for piece in pieces if piece[0] in "{}" and piece not in PIECES), "")
        if unknown or (part != "*" and "{" not in part):
            raise fail(f"{unknown or part!r} is not one of {', '.join(PIECES)}; separate parts with /, {example}")
        for one, other in itertools.pairwise(pieces):
            if one in _VALUES and other in _VALUES:
                raise fail(f"{one} and {other} are adjacent: nothing says where one ends; put a separator between them")
    for value in (name for name in _VALUES if name != "*" and text.count(name) > 1):
        raise fail(f"has {value} twice")
    if not parts[-1].endswith("*"):
        raise fail(f"the last part is the file and must end in *, {example}")
    return Layout(parts)


def read_classes(path: str) -> tuple[str, ...]:
    """Reads the class names of a file, one per line, in order.

    Raises:
        UsageError: the file cannot be read, is not UTF-8, or has empty or repeated lines.
    """
    checked = storage.check_path(path, option="classes")
    try:
        return _class_names(storage.read_bytes(checked).decode("utf-8-sig"))
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 text: {error.reason} at byte {error.start}"
    except ValueError as error:
        message = str(error)
    raise UsageError(message, option="classes", value=path)


def _class_names(text: str) -> tuple[str, ...]:
    names: dict[str, int] = {}  # name -> line
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        name = line.strip()
        if not name:
            raise ValueError(f"line {number} is empty; write one class per line")
        if not is_class_name(name):
            raise ValueError(f"line {number}, {name!r}, cannot be a class: {LABEL_RULE}")
        if name in names:
            raise ValueError(f"class {name!r} is on line {names[name]} and again on line {number}; remove one")
        names[name] = number
    if pair := two_spellings(names):
        lines = " and ".join(map(str, sorted(names[name] for name in pair)))
        raise ValueError(
            f"lines {lines} are the same name in two Unicode spellings, {pair[0]!a} and {pair[1]!a}; remove one"
        )
    return tuple(names)


@dataclasses.dataclass(frozen=True)
class Labeler:
    """Assigns split and label to a listed image.

    Attributes:
        layout: how to read keys.
        splits: split -> share, if the layout names no split; None puts all images into train.
        classes: the allowed classes, or None for any.
    """

    layout: Layout
    splits: Mapping[str, Fraction] | None = None
    classes: frozenset[str] | None = None

    def label(self, entry: storage.Entry, key: str) -> ImageRef:
        """Returns the reference of an image; one that cannot be used carries the reason of its reject."""
        ref = functools.partial(ImageRef, key, entry.size_bytes, entry.generation)
        found = self.layout.read(key)
        if found is None:
            wanted = "/".join(self.layout.parts)
            short = key.count("/") + 1 < len(self.layout.parts)
            detail = f"{'has fewer parts than' if short else 'does not match'} {wanted}"
            return ref(NO_SPLIT, reason="layout-mismatch", detail=detail)
        split = found.get("split")
        if split is None:
            split = choose_split(found.get("group", key), self.splits) if self.splits else DEFAULT_SPLIT
        elif not is_split_name(split):
            return ref(NO_SPLIT, reason="layout-mismatch", detail=f"{split!r} cannot be a split: {SPLIT_RULE}")
        label = found.get("label")
        if label is None:
            return ref(split)
        if not _is_class_name(label):
            return ref(NO_SPLIT, reason="layout-mismatch", detail=f"{label!r} cannot be a class: {LABEL_RULE}")
        if self.classes is not None and label not in self.classes:
            detail = f"class {label!r} is not in the file of --classes"
            return ref(split, (label,), reason="unknown-class", detail=detail)
        return ref(split, (label,))


def choose_split(text: str, splits: Mapping[str, Fraction]) -> str:
    """Chooses the split of a key or group by its SHA-256, which places it on the unit interval that the shares divide.

    The same text always goes to the same split, regardless of the rest of the dataset and of the seed. If the last
    share grows, it takes only from the one before it.
    """
    digest = hashlib.sha256(b"beam_tfr split\0" + text.encode("utf-8", "surrogateescape")).digest()
    place = Fraction(int.from_bytes(digest[:8], "big"), 1 << 64)
    names: Sequence[str] = list(splits)
    ends = list(itertools.accumulate(splits.values()))
    return names[min(bisect.bisect_right(ends, place), len(names) - 1)]
