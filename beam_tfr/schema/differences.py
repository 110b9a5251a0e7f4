"""Describes the differences between two plans, calls or sets of options."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

ABSENT = "none"  # the version of a library that is not installed
MOST_SHOWN = 10
MOST_CHARACTERS = 60  # most characters shown of a value
_SHARED_CHARACTERS = 20  # characters shown before the first difference
_Items = TypeVar("_Items", str, list[str])


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Describes how JSON objects differ, in indented lines for the end of a message."""
    lines = [*_describe_fields(old, new)]
    more = len(lines) - MOST_SHOWN
    shown = [*lines[:MOST_SHOWN], f"and {more:,} more"] if more > 0 else lines
    return [f"  {line}" for line in shown]


def find_other_versions(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Returns name -> old version of each library whose version in `new` differs."""
    return {name: old[name] for name in new if old.get(name, new[name]) != new[name]}


def find_other_codecs(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Returns name -> old version of each codec whose version in `new` differs.

    A codec that was not installed has made no record, so it does not differ.

    Args:
        old: the codecs that made a dataset, as in a plan.
        new: the codecs that would continue the dataset.
    """
    others = find_other_versions(old, new)
    return {name: version for name, version in others.items() if version != ABSENT}


def find_new_codecs(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Lists the codecs in `new` that `old` lacks, which may be able to read rejected images."""
    return [name for name, version in new.items() if old.get(name) == ABSENT != version]


def describe_lost_splits(old: Mapping[str, int], new: Collection[str]) -> str:
    """Returns a message about splits that a dataset no longer has, or "" if there are none.

    Args:
        old: split that the dataset had -> its number of images.
        new: the splits that the dataset has.
    """
    gone = {split: number for split, number in old.items() if number and split not in new}
    lost = [f"{split} ({number:,})" for split, number in gone.items()]
    return (
        f"splits that no longer exist, with their numbers of images: {join_texts(lost)}"
        if lost
        else ""
    )


def describe_id_changes(old: Sequence[str], new: Sequence[str]) -> str:
    """Returns how label ids differ, as "cat 0 -> 1, dog 1 -> 2, new: bird", or "" if none differ.

    Args:
        old, new: class names in the order of their ids.
    """
    before = set(old)
    after = {name: label_id for label_id, name in enumerate(new)}
    moved = [
        f"{name} {label_id} -> {after[name]}"
        for label_id, name in enumerate(old)
        if after.get(name, label_id) != label_id
    ]
    groups = {
        "": moved,
        "new: ": [name for name in new if name not in before],
        "gone: ": [name for name in old if name not in after],
    }
    texts = [
        title + join_texts(names, MOST_SHOWN, ", ") for title, names in groups.items() if names
    ]
    return ", ".join(texts)


def describe_change(old: Any, new: Any) -> str:
    """Describes how a value changes, as in "3 -> 4"; cuts long values to where they differ."""
    before, after = _shorten(_to_text(old), _to_text(new))
    return f"{before} -> {after}"


def join_texts(texts: Sequence[str], most: int = 20, separator: str = "; ") -> str:
    """Joins the first strings, and says how many more there are: "a; b; and 2 more"."""
    if len(texts) <= most:
        return separator.join(texts)
    rest = f"{len(texts) - most:,} more"
    if not separator.endswith(" and "):
        rest = f"and {rest}"
    return separator.join([*texts[:most], rest])


def join_names(names: Sequence[str]) -> str:
    """Joins the first three names, and says how many more there are: "a, b, c, and 2 more"."""
    return join_texts(names, most=3, separator=", ")


def _describe_fields(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """Yields a description of each field that differs, including fields of nested objects."""
    for name in sorted(old.keys() | new.keys()):
        before = old.get(name)
        after = new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _describe_fields(before, after, f"{prefix}{name}.")
        elif before != after:
            separator = "x" if name == "image_size" else ","  # as on the command line
            earlier, now = _shorten(_to_text(before, separator), _to_text(after, separator))
            yield f"{prefix}{name}: {earlier} before, {now} now"


def _to_text(value: Any, separator: str = ",") -> str:
    if value is None:  # absent values mean the same
        return "not given"
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = separator.join(map(str, value))
    return str(value) or "nothing"


def _shorten(old: str, new: str) -> tuple[str, str]:
    """Cuts two strings to about 60 characters each, starting shortly before they differ."""
    start = 0
    if max(len(old), len(new)) > MOST_CHARACTERS:
        shared = common_start([old, new])
        start = max(0, len(shared) - _SHARED_CHARACTERS)
    return _cut(old, start), _cut(new, start)


def common_start(sequences: Sequence[_Items]) -> _Items:
    """Returns the longest common beginning of strings, or of lists of names."""
    length = len(os.path.commonprefix(sequences))  # noqa: RUF071 - these are not paths
    return sequences[0][:length]


def _cut(text: str, start: int) -> str:
    """Cuts `MOST_CHARACTERS` characters out of a string; dots stand for the characters left out."""
    end = start + MOST_CHARACTERS
    before = "..." if start else ""
    after = "..." if end < len(text) else ""
    return f"{before}{text[start:end]}{after}"
