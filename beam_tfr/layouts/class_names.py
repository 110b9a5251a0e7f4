"""Reports classes whose names contain more than a class: a split or a separator."""

import collections
import re
from collections.abc import Iterable, Iterator, Sequence

from beam_tfr.layouts.parsing import DEFAULT_LAYOUT
from beam_tfr.layouts.split_names import DEFAULT_SPLIT, is_split_word_or_short
from beam_tfr.schema.spelling import spell_option

_SEPARATORS = "-_ ."
_BEGIN = re.compile(r"(?P<split>[A-Za-z]+)(?P<mark>[-_ .])(?P<rest>.+)", re.DOTALL)


def describe_class_names(
    classes: Sequence[str], splits: Iterable[str], layout: str
) -> Iterator[str]:
    """Yields messages about classes whose names contain more than a class.

    Args:
        classes: all classes.
        splits: splits of the dataset.
        layout: the value of the option; an empty string for tables.
    """
    if len({*splits}) == 1:
        yield from _describe_splits_in_names(classes, layout)
    if layout and layout != DEFAULT_LAYOUT:
        yield from _describe_separators(classes)


def find_split_mark(classes: Iterable[str]) -> str:
    """Returns the separator between split and class in all names: - in Tr-cat and Te-cat.

    Returns an empty string if a name lacks a split or a class, or if no class is in several splits.
    """
    begins = [_BEGIN.fullmatch(name) for name in classes]
    matches = [begin for begin in begins if begin]
    marks = {begin["mark"] for begin in matches}
    if len(matches) < len(begins) or len(marks) != 1:
        return ""
    splits_of = collections.defaultdict[str, set[str]](set)
    for begin in matches:
        if not is_split_word_or_short(begin["split"]):
            return ""
        splits_of[begin["rest"]].add(begin["split"])
    return min(marks) if any(len(splits) > 1 for splits in splits_of.values()) else ""


def _describe_splits_in_names(classes: Sequence[str], layout: str) -> Iterator[str]:
    """Yields the message about classes that begin with a split, such as Tr-cat and Te-cat."""
    mark = find_split_mark(classes)
    if not mark:
        return
    cure = "write the split of each image into a column `split` of a `table=`"
    if layout.count("{label}") == 1 and "{split}" not in layout:
        with_split = layout.replace("{label}", f"{{split}}{mark}{{label}}")
        cure = f"{spell_option('layout', with_split)} reads it"
    first = classes[0]
    rest = first.partition(mark)[2]
    twin = next((name for name in classes[1:] if name.partition(mark)[2] == rest), classes[-1])
    yield (
        f"classes such as {first} and {twin} seem to begin with a split, but all images go to "
        f"{DEFAULT_SPLIT}: {cure}"
    )


def _describe_separators(classes: Iterable[str]) -> Iterator[str]:
    """Yields the message about classes that end in a separator, such as `obj1_` in obj1__0.png."""
    named = [name for name in classes if len(name) > 1 and name[-1] in _SEPARATORS]
    if not named:
        return
    name = named[0]
    others = f"{len(named):,} classes end" if len(named) > 1 else "a class ends"
    stem = name.rstrip(_SEPARATORS)
    mark = name.removeprefix(stem)
    yield (
        f"{others} in a separator, {name!r}: if the class is {stem!r}, write {mark!r} after "
        "{label} in the `layout=`, or rename files that are named differently"
    )
