"""Parses and combines renames of classes, which change no id: `rename=OLD=NEW`."""

from collections.abc import Iterable, Mapping

from beam_tfr.schema.dataset import MOST_CLASS_LETTERS, is_class_name


def parse_rename(text: str) -> tuple[str, str]:
    """Parses the old and the new name of a class.

    Raises:
        ValueError: a name is missing, or cannot be a class name.
    """
    old, mark, new = text.partition("=")
    if not mark or not old or not new:
        raise ValueError("must be OLD=NEW, such as n01440764=tench")
    if old == new:
        raise ValueError(f"gives {old} the name that it already has")
    if not is_class_name(new):
        raise ValueError(
            f"{new!r:.1000} cannot be a class: it has control characters, spaces at its ends or "
            f"more than {MOST_CLASS_LETTERS:,} characters"
        )
    return old, new


def parse_renames(texts: Iterable[str]) -> dict[str, str]:
    """Returns old -> new name of each renamed class.

    Raises:
        ValueError: a class gets two names, or a rename is wrong.
    """
    renames = dict[str, str]()
    for text in texts:
        old, new = parse_rename(text)
        if renames.get(old, new) != new:
            raise ValueError(f"gives {old} two names, {renames[old]} and {new}")
        renames[old] = new
    return renames


def compose_renames(before: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """Returns renames, as sorted strings, with the effect of `before` followed by `then`.

    A folder may already have the name that its class was given earlier, unless another class has
    that name now.
    """
    composed = {old: then.get(new, new) for old, new in before.items()}
    taken = {*before.values()} & {*then.values()}
    for old, new in then.items():
        if old not in before and old not in taken:
            composed[old] = new
    return sorted(f"{old}={new}" for old, new in composed.items() if old != new)


def original_names(names: Iterable[str], renames: Mapping[str, str]) -> dict[str, str]:
    """Returns class name -> its name before renaming; if there are several, the first in order."""
    olds = dict[str, str]()
    for old, new in sorted(renames.items(), reverse=True):
        olds[new] = old
    return {name: olds.get(name, name) for name in names}


def find_renamed(
    before: Mapping[str, str], after: Mapping[str, str], names: Iterable[str]
) -> dict[str, str]:
    """Finds the classes of a dataset whose names change when its renames change.

    Args:
        before, after: the renames, old -> new.
        names: names of the classes of the dataset.

    Returns:
        Name before -> name after.
    """
    renamed = dict[str, str]()
    for name, original in original_names(names, before).items():
        new = after.get(original, original)
        if new != name:
            renamed[name] = new
    return renamed
