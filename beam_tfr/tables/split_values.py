"""Values of columns that say splits but are no names of them, and names for these values."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from beam_tfr.layouts.parsing import is_split_name

_MOST_VALUES = 10  # that a line to copy has
_TRUE = frozenset({"1", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "f", "false", "n", "no"})
_NUMBERS = frozenset("0123")
# What the name of a column has -> the split of rows that are true there; the first that it has.
_MEANINGS = (("train", "train"), ("val", "val"), ("dev", "val"), ("test", "test"), ("hold", "test"))
_NAMES = {2: ("train", "test"), 3: ("train", "val", "test")}  # of so many numbers, in their order
_WHOLE = re.compile(r"([0-9]+)(?:\.0*)?")


def are_flags(values: Iterable[str]) -> bool:
    """Whether the values of a column are truth values or a few small numbers, and differ."""
    texts = {_plain(value) for value in values}
    return len(texts) > 1 and (texts <= _TRUE | _FALSE or texts <= _NUMBERS)


def suggest_names(column: str, values: Iterable[str]) -> str:
    """A line of pandas that makes names of splits from the values of a column.

    Empty if all values are names of splits already, or if no name is near.

    Args:
        column: its name.
        values: its values, as texts.
    """
    all_values = sorted({*values})
    name_of = _name_flags(column, all_values) if are_flags(all_values) else _rename(all_values)
    if not name_of or len(name_of) > _MOST_VALUES or not all(map(is_split_name, name_of.values())):
        return ""
    pairs = ", ".join(f"{_spell(value)}: {json.dumps(name)}" for value, name in name_of.items())
    return f'table["split"] = table[{json.dumps(column)}].replace({{{pairs}}})'


def _name_flags(column: str, values: Sequence[str]) -> Mapping[str, str]:
    """Truth value or number -> the split that it may mean; none if there are too many."""
    split = _meaning_of(column)
    if split and {_plain(value) for value in values} <= _TRUE | _FALSE:
        other = "test" if split == "train" else "train"
        return {value: split if _plain(value) in _TRUE else other for value in values}
    names = () if "fold" in column.lower() else _NAMES.get(len(values), ())
    return dict(zip(values, names, strict=False))


def _meaning_of(column: str) -> str:
    """The split of rows that are true in a column, by its name; empty if it says several, or none.

    Such as `test` of `is_test`; none of `train_test`.
    """
    text = column.lower().replace("eval", "test")
    splits = {split for word, split in _MEANINGS if word in text}
    return splits.pop() if len(splits) == 1 else ""


def _rename(values: Iterable[str]) -> Mapping[str, str]:
    """Value that is no name of a split -> a name like it, such as train of `train set`."""
    others = [value for value in values if not is_split_name(value)]
    plain = {value: re.sub(r"[^A-Za-z0-9]+", "_", value).strip("_") for value in others}
    short = {value: re.sub(r"_(?:set|data|images)$", "", name) for value, name in plain.items()}
    names_stay_apart = len({*short.values()}) == len(short)
    return short if names_stay_apart else plain


def _plain(value: str) -> str:
    """A value in lower case, and a whole number without its point."""
    match = _WHOLE.fullmatch(value)
    return match[1] if match else value.lower()


def _spell(value: str) -> str:
    """A value as Python writes it, given its text in a table, as pandas reads that."""
    match = _WHOLE.fullmatch(value)
    if match:
        return str(int(match[1]))
    if value.lower() in ("true", "false"):
        return value.capitalize()
    return json.dumps(value, ensure_ascii=False)
