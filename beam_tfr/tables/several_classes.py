"""Warns of cells that seem to name several classes, each of which is read as one.

Such are lists as programs write them in CSV, and texts of classes with a separator.
"""

import collections
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.features.cells import parse_list
from beam_tfr.options import ConvertOptions

_SEPARATORS = ("|", ";", ",", "/", "+", " ")
_MOST_NAMES = 1_000  # different ones, each of which is compared with others
_MOST_CHARACTERS = 1_000  # of a name that is compared
_LIKE_LIST = re.compile(r"\s*(?:\[.*\]|\(\s*['\"].*\)|\{\s*['\"].*\})\s*", re.DOTALL)

_Parts = frozenset[str]


def warn_of_several_classes(options: ConvertOptions, names: Iterable[Any]) -> Iterator[str]:
    """Yields a warning about classes that seem to be several.

    Args:
        options: those of the conversion.
        names: the classes of the first rows, as they are read.
    """
    texts = [*dict.fromkeys(name for name in names if isinstance(name, str))]
    lists = [*filter(_LIKE_LIST.fullmatch, texts)]
    if lists:
        yield _describe_list(options, min(lists))
        return
    if options.label_separator or options.classes:
        return
    for separator in _SEPARATORS:
        compound = _find_compound(texts, separator)
        if compound:
            yield (
                f"column {options.label_column!r}: {compound!r:.100} is one class, but its parts "
                f"are classes of other rows too: `label_separator={separator!r}` reads them as "
                "several"
            )
            return


def _describe_list(options: ConvertOptions, text: str) -> str:
    """The message about a class that is written like a list."""
    start = f"column {options.label_column!r}: {text!r:.100} looks like a list, but is one class"
    if not options.label_separator and _is_list(text):
        return f"{start}: `label_separator='|'` reads lists as several classes"
    return f'{start}: write lists as JSON, such as ["cat", "dog"], with `label_separator=\'|\'`'


def _is_list(text: str) -> bool:
    try:
        return parse_list(text) is not None
    except ValueError:
        return False


def _find_compound(texts: Sequence[str], separator: str) -> str:
    """The first text whose parts are those of other, shorter texts; empty if there is none.

    Such as `Mass|Nodule` beside `Mass` and `Nodule`.
    """
    short = [text for text in texts[:_MOST_NAMES] if len(text) <= _MOST_CHARACTERS]
    parts_of = dict[str, _Parts]()
    for text in short:
        parts = [part.strip() for part in text.split(separator)]
        parts_of[text] = frozenset(filter(None, parts))
    texts_with = _group_by_part(parts_of.values())
    for text, own_parts in parts_of.items():
        if len(own_parts) > 1 and _is_union(own_parts, texts_with):
            return text
    return ""


def _group_by_part(groups: Iterable[_Parts]) -> Mapping[str, set[_Parts]]:
    """Part -> the parts of each text that has it."""
    groups_with = collections.defaultdict[str, set[_Parts]](set)
    for parts in groups:
        for part in parts:
            groups_with[part].add(parts)
    return groups_with


def _is_union(parts: _Parts, groups_with: Mapping[str, set[_Parts]]) -> bool:
    """Whether other groups, each a part of these, have all of them together."""
    together = set[str]()
    for part in parts:
        for group in groups_with[part]:
            if group < parts:
                together |= group
    return together == parts
