"""Suggests split names for other values in columns of splits."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from beam_tfr.layouts.parsing import is_split_name

_MOST_VALUES = 10  # values in a suggested line
_TRUE = frozenset({"1", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "f", "false", "n", "no"})
_NUMBERS = frozenset("0123")
# Part of a column's name -> the split of rows for which the column is true; the first match counts.
_MEANINGS = (("train", "train"), ("val", "val"), ("dev", "val"), ("test", "test"), ("hold", "test"))
_NAMES = {
    2: ("train", "test"),
    3: ("train", "val", "test"),
}  # number of values -> their splits, in order
_WHOLE = re.compile(r"([0-9]+)(?:\.0*)?")


def are_flags(values: Iterable[str]) -> bool:
    """Whether a column has booleans or small numbers, and at least two different values."""
    texts = {_plain(value) for value in values}
    return len(texts) > 1 and (texts <= _TRUE | _FALSE or texts <= _NUMBERS)


def suggest_names(column: str, values: Iterable[str]) -> str:
    """Returns a line of pandas code that replaces the values of a column with split names.

    Returns an empty string if all values are split names, or if there is no suggestion.

    Args:
        column: the name of the column.
        values: the values of the column, as strings.
    """
    all_values = sorted({*values})
    name_of = _name_flags(column, all_values) if are_flags(all_values) else _rename(all_values)
    if not name_of or len(name_of) > _MOST_VALUES or not all(map(is_split_name, name_of.values())):
        return ""
    pairs = ", ".join(f"{_spell(value)}: {json.dumps(name)}" for value, name in name_of.items())
    return f'table["split"] = table[{json.dumps(column)}].replace({{{pairs}}})'


def _name_flags(column: str, values: Sequence[str]) -> Mapping[str, str]:
    """Returns value -> the split that a flag may mean, or an empty mapping for too many values."""
    split = _meaning_of(column)
    if split and {_plain(value) for value in values} <= _TRUE | _FALSE:
        other = "test" if split == "train" else "train"
        return {value: split if _plain(value) in _TRUE else other for value in values}
    names = () if "fold" in column.lower() else _NAMES.get(len(values), ())
    return dict(zip(values, names, strict=False))


def _meaning_of(column: str) -> str:
    """Returns the split that a true value means, from the name of the column, or an empty string.

    For example, this is `test` for `is_test`, and an empty string for `train_test`.
    """
    text = column.lower().replace("eval", "test")
    splits = {split for word, split in _MEANINGS if word in text}
    return splits.pop() if len(splits) == 1 else ""


def _rename(values: Iterable[str]) -> Mapping[str, str]:
    """Returns value -> a similar split name, except for split names: `train` for `train set`."""
    others = [value for value in values if not is_split_name(value)]
    plain = {value: re.sub(r"[^A-Za-z0-9]+", "_", value).strip("_") for value in others}
    short = {value: re.sub(r"_(?:set|data|images)$", "", name) for value, name in plain.items()}
    names_stay_apart = len({*short.values()}) == len(short)
    return short if names_stay_apart else plain


def _plain(value: str) -> str:
    """Returns a value in lower case, or a whole number without its decimal point."""
    match = _WHOLE.fullmatch(value)
    return match[1] if match else value.lower()


def _spell(value: str) -> str:
    """Spells a value of a table in Python, as pandas would read it."""
    match = _WHOLE.fullmatch(value)
    if match:
        return str(int(match[1]))
    if value.lower() in ("true", "false"):
        return value.capitalize()
    return json.dumps(value, ensure_ascii=False)
