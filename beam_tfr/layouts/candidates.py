"""Finds layouts that read labels from the names of files, by the tokens that the names have in common."""

from __future__ import annotations

import collections
import itertools
import posixpath
import re
import shlex
import zlib
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.folders import looks_like_split
from beam_tfr.layouts.parsing import Layout, parse_layout
from beam_tfr.schema import UsageError

MAX_NAMES = 10_000  # names that candidates are compared by
_FEW_NAMES = 300  # names that candidates are made from
_MOST_TOKENS = 8  # before or after a label
_MOST_SHOWN = 5
_FIT = 0.9  # share of the names that a candidate must fit
_COMMON = 0.95  # share of the names in which a word occurs that is no part of a label
_SEPARATORS, _DIGITS = "_. ()-", "0123456789"
_TOKEN = re.compile(rf"[0-9]+|[{_SEPARATORS}]|[^0-9{_SEPARATORS}]+")


class KeySample:
    """The `MAX_NAMES` keys with the smallest hashes, which are the same in any order."""

    def __init__(self) -> None:
        self._found: list[tuple[int, str]] = []
        self.total = 0

    def add(self, key: str) -> None:
        """Adds a key."""
        self.total += 1
        self._keep([(zlib.crc32(key.encode("utf-8", "surrogateescape")), key)])

    def merge(self, other: KeySample) -> None:
        """Adds the keys of another listing."""
        self.total += other.total
        self._keep(other._found)

    def _keep(self, entries: Sequence[tuple[int, str]]) -> None:
        self._found += entries
        if len(self._found) >= 2 * MAX_NAMES:
            self._found = sorted(self._found)[:MAX_NAMES]

    def keys(self) -> list[str]:
        """The keys, in the order of their hashes."""
        return [key for _, key in sorted(self._found)[:MAX_NAMES]]


class Candidate(NamedTuple):
    """A layout, and the labels that it reads from some names.

    Attributes:
        layout: the layout as text.
        labels: label -> names.
        read: the label of each name, or None where the layout does not fit.
    """

    layout: str
    labels: collections.Counter[str]
    read: tuple[str | None, ...]

    @property
    def rank(self) -> tuple[object, ...]:
        """Smaller is better: no numbers in labels, all names fit, no word is lost, splits are read, few classes."""
        fits, numbered = self.labels.total(), sum(n for label, n in self.labels.items() if re.search("[0-9]", label))
        part = posixpath.basename(self.layout)
        lost = not part.endswith(".*") or "*" in part.removesuffix(".*")
        return (
            numbered > fits // 10,
            -fits,
            lost,
            "{split}" not in part,
            len(self.labels),
            -part.count("{number}"),
            part,
        )

    def row(self, given: str = "") -> str:
        """One line: the layout to type, the number of classes, and three of them."""
        few = sorted(self.labels, key=lambda label: (-self.labels[label], label))[:3]
        more = ", …" if len(self.labels) > len(few) else ""
        chosen = "   (given)" if self.layout == given else ""
        return f"`layout={shlex.quote(self.layout)}`   {_classes(len(self.labels))}   {', '.join(few)}{more}{chosen}"


def _classes(number: int) -> str:
    return f"{number:,} class{'' if number == 1 else 'es'}"


def find_candidates(keys: Sequence[str], *, folders: Sequence[str] = (), given: str = "") -> list[Candidate]:
    """The layouts that read a label from the names of most files, the best first.

    A name is a row of tokens: words, numbers and separators. A label begins and ends with a word. What comes before and
    after it must be alike in all names, so numbers, splits and words that all names share; or anything up to a
    separator.

    Args:
        keys: keys of files.
        folders: parts of the layout before the name.
        given: a layout to be among them.
    """
    few = [posixpath.splitext(posixpath.basename(key))[0] for key in keys[:_FEW_NAMES]]
    names = [_TOKEN.findall(name) for name in few]
    counts = collections.Counter(word for name in names for word in {*name})
    common = {word for word, number in counts.items() if number >= _COMMON * len(names)}
    with_split = not any("{split}" in part for part in folders)
    texts = collections.Counter(
        "/".join((*folders, text)) for name in names for text in {*_layouts_of(name, common, with_split)}
    )
    tried = [Candidate(given, *_read(given, keys))] if given else []
    for text, number in texts.items():
        if number >= _FIT * len(names) / 2:  # `_FIT` may come of several spellings
            try:
                tried.append(Candidate(text, *_read(text, keys[:_FEW_NAMES])))
            except UsageError:  # two values touch
                continue
    found: dict[tuple[str | None, ...], Candidate] = {}
    for candidate in sorted(tried, key=lambda candidate: (candidate.layout != given, candidate.rank)):
        full = candidate if candidate.layout == given else Candidate(candidate.layout, *_read(candidate.layout, keys))
        enough = (
            full.labels.total() >= _FIT * len(keys)
            and 1 < sum(not looks_like_split(label) for label in full.labels) < full.labels.total()
        )
        if full.read not in found and (enough or full.layout == given):
            found[full.read] = full
    return sorted(found.values(), key=lambda candidate: candidate.rank)


def _layouts_of(tokens: Sequence[str], common: Set[str], with_split: bool) -> Iterator[str]:
    """The layouts of a name, each with a label of one or more of its tokens."""
    befores = [("", 0), *_fixed(tokens, common, with_split)]
    afters = [(".*", 0), *((f"{text}.*", used) for text, used in _fixed(tokens, common, False, step=-1))]
    words = [place for place, token in enumerate(tokens) if _is_word(token)]
    separators = {token for token in tokens if token in _SEPARATORS}
    for (before, start), (after, end) in itertools.product(befores, afters):
        if start in words and len(tokens) - end - 1 in words and start + end < len(tokens):
            yield f"{before}{{label}}{after}"
    for separator in separators:
        yield from (f"{before}{{label}}{separator}*" for before, start in befores if start in words)
        yield from (f"*{separator}{{label}}{after}" for after, end in afters if len(tokens) - end - 1 in words)


def _fixed(tokens: Sequence[str], common: Set[str], with_split: bool, step: int = 1) -> Iterator[tuple[str, int]]:
    """The layouts of the first tokens of a name, or of the last ones, up to a word that may be one of a label."""
    text, seen = "", not with_split
    for used, token in enumerate(tokens[::step][:_MOST_TOKENS], start=1):
        if token[0] in _DIGITS:
            piece = "{number}"
        elif not seen and looks_like_split(token):
            piece, seen = "{split}", True
        elif token in _SEPARATORS or (token in common and not {*"{}*`"} & {*token}):
            piece = token
        else:
            return
        text = text + piece if step > 0 else piece + text
        yield text, used


def _is_word(token: str) -> bool:
    return token[0] not in _SEPARATORS + _DIGITS


def _read(layout: str, keys: Sequence[str]) -> tuple[collections.Counter[str], tuple[str | None, ...]]:
    found = map(parse_layout(layout).read, keys)
    read = tuple(values["label"] if values else None for values in found)
    return collections.Counter(filter(None, read)), read


def tell_candidates(names: KeySample, *, folders: Sequence[str] = (), given: str = "") -> str:
    """The best candidates, one per line, after a line end; empty if there is none but the given layout."""
    keys = names.keys()
    found = find_candidates(keys, folders=folders, given=given)
    if all(candidate.layout == given for candidate in found):
        return ""
    shown = [candidate for at, candidate in enumerate(found) if at < _MOST_SHOWN or candidate.layout == given]
    some = f" (in {len(keys):,} of {names.total:,} names)" if len(keys) < names.total else ""
    return f"; layouts that fit, with their classes{some}:" + "".join(
        f"\n  {candidate.row(given)}" for candidate in shown
    )


class Ambiguities:
    """Counts the keys that fit a layout in several ways."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._names, self._number, self._example = layout, KeySample(), 0, ""

    def add(self, key: str) -> None:
        """Counts a key."""
        if self._layout.may_be_ambiguous:
            self._names.add(key)
            if self._layout.longer(key):
                self._number += 1
                self._example = min(self._example or key, key)

    def tell(self) -> Iterator[str]:
        """A message with their number, an example, and the layouts that fit; empty without any."""
        if not (longer := self._layout.longer(self._example)):
            return
        (name, taken, other), parts = longer, self._layout.parts
        others = ""
        if "{label}" in parts[-1]:
            others = tell_candidates(self._names, folders=parts[:-1], given="/".join(parts))
        yield (
            f"{self._number:,} of {counted(self._names.total, 'file')} fit the layout in more than one way, such as "
            f"{self._example}: {{{name}}} takes {taken!r}, not {other!r}"
            + (others or "; if that is wrong, rename the files or give their classes in a `table=`")
        )
