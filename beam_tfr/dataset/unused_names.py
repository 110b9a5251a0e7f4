"""Describes options that name a class or split that does not exist."""

import difflib
from collections.abc import Collection, Container, Iterator, Mapping

from beam_tfr.schema.spelling import spell_option

# Comparing two names takes time proportional to the product of their lengths.
_MOST_LETTERS = 60
_MOST_COMPARED = 1_000  # names that one name is compared with


def describe_unused_renames(
    renames: Mapping[str, str], used: Container[str], classes: Collection[str]
) -> Iterator[str]:
    """Yields messages about renames that change nothing.

    Args:
        renames: class -> its new name.
        used: the classes that were renamed, and those in `classes=`.
        classes: the classes of the dataset, with their new names.
    """
    for old, new in renames.items():
        if old not in used:
            yield (
                f"{spell_option('rename', f'{old}={new}')} changes nothing: there is no class "
                f"{old!r}{_suggest_name(old, {*classes} - {new})}"
            )


def describe_unused_allowances(
    names: Collection[str], splits: Collection[str], classes: Collection[str]
) -> Iterator[str]:
    """Yields messages about names in `allow_empty=` that have no effect.

    Args:
        names: the names in the option.
        splits, classes: names of the dataset's splits and classes.
    """
    present = {*splits, *classes}
    for name in names:
        if name not in present:
            yield (
                f"{spell_option('allow_empty', name)} allows nothing: there is no class or split "
                f"{name!r}{_suggest_name(name, present)}"
            )


def _suggest_name(name: str, present: Collection[str]) -> str:
    """Returns a hint at a similar existing name, or an empty string if none was found."""
    if len(name) > _MOST_LETTERS:
        return ""
    others = [other for other in sorted(present) if len(other) <= _MOST_LETTERS]
    similar = difflib.get_close_matches(name, others[:_MOST_COMPARED], n=1)
    return f"; did you mean {similar[0]!r}?" if similar else ""
