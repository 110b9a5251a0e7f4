"""Describes the differences between two plans, calls or sets of options."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST_SHOWN = 10
MOST_CHARACTERS = 60  # of a value


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The differences between JSON objects, one indented line each, for the end of a message."""
    lines = join_texts([*_lines(old, new)], MOST_SHOWN, "\n  ")
    return lines and f"\n  {lines}"


def describe_id_changes(old: Sequence[str], new: Sequence[str]) -> str:
    """How label ids differ: "cat 0 -> 1, dog 1 -> 2, new: bird"; empty if they do not.

    Args:
        old, new: class names in the order of their ids.
    """
    before = set(old)
    after = {name: number for number, name in enumerate(new)}
    groups = {
        "": [
            f"{name} {number} -> {after[name]}"
            for number, name in enumerate(old)
            if after.get(name, number) != number
        ],
        "new: ": [name for name in new if name not in before],
        "gone: ": [name for name in old if name not in after],
    }
    return ", ".join(
        title + join_texts(names, MOST_SHOWN, ", ") for title, names in groups.items() if names
    )


def describe_change(old: Any, new: Any) -> str:
    """How a value differs: "3 -> 4"; long ones shortened to where they do."""
    return " -> ".join(_short(_text(old), _text(new)))


def join_texts(texts: Sequence[str], most: int = 20, separator: str = "; ") -> str:
    """The first of some texts and how many more there are: "a; b; and 2 more"."""
    more = [f"and {len(texts) - most:,} more"] if len(texts) > most else []
    return separator.join([*texts[:most], *more])


def _lines(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before = old.get(name)
        after = new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _lines(before, after, f"{prefix}{name}.")
        elif before != after:
            separator = "x" if name == "image_size" else ","  # as on the command line
            texts = _short(_text(before, separator), _text(after, separator))
            yield "{}{}: {} there, {} now".format(prefix, name, *texts)


def _text(value: Any, separator: str = ",") -> str:
    if value is None:  # or absent, which means the same
        return "not given"
    several = isinstance(value, Sequence) and not isinstance(value, str)
    return (separator.join(map(str, value)) if several else str(value)) or "nothing"


def _short(*texts: str) -> Iterator[str]:
    """About 60 characters of each, from shortly before where they differ."""
    shared = itertools.takewhile(lambda chars: len(set(chars)) == 1, zip(*texts, strict=False))
    start = max(0, len([*shared]) - 20) if max(map(len, texts)) > MOST_CHARACTERS else 0
    end = start + MOST_CHARACTERS
    for text in texts:
        yield "..." * (start > 0) + text[start:end] + "..." * (len(text) > end)
