"""Warns about numbers that 32-bit floats change, such as timestamps, and versions like 1.10."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import ColumnKind
from beam_tfr.features.cells import NUMBER, members_of, parse_list
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import KNOWN
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.spelling import spell_option

_SMALL_CHANGE = 1e-3  # unless values are close to each other
_SMALL_SHARE = 1e-6  # fraction of the difference between the greatest and the least value
_SHORT_DECIMAL = re.compile("[0-9]{1,6}[.][0-9]{1,3}")
_MOST_DECIMALS = 15
_HUGE_EXPONENT = re.compile(r"[eE][-+]?[0-9]{4}")  # beyond any float; its cell is rejected
_LONGEST = 400  # characters of a number that a float holds
_MOST_NUMBERS = 10_000  # numbers of a column that are examined
_MAX_EXACT = 1 << 53  # whole numbers up to this are exact in pandas' floats


class Rounding(NamedTuple):
    """A number that a 32-bit float changes.

    Attributes:
        text: the number, as spelled in its cell.
        stored: the 32-bit float.
        factor: the power of 10 that turns the column's numbers into whole numbers; 0 if those need
            more than 53 bits.
    """

    text: str
    stored: float
    factor: int


def warn_of_rounded_numbers(
    options: ConvertOptions,
    features: Sequence[ColumnKind],
    declarations: Mapping[str, str],
    sample: Mapping[str, Sequence[Any]],
    *,
    typed: bool,
) -> Iterator[str]:
    """Yields a warning about columns of inferred types whose numbers a 32-bit float changes.

    Args:
        options: the options of the conversion.
        features: the features that the columns become.
        declarations: column -> declaration, or an empty string if the cells determine the type.
        sample: column -> its cells in the first rows.
        typed: whether the format has types for text and lists.
    """
    roundings = dict[str, Rounding]()
    kinds = dict[str, str]()
    for feature in features:
        is_inferred = not declarations[feature.name] and feature.text.startswith("float")
        rounding = find_rounding(sample[feature.name]) if is_inferred else None
        if rounding is not None:
            roundings[feature.name] = rounding
            kinds[feature.name] = feature.text
    if not roundings:
        return
    name, rounding = next(iter(roundings.items()))
    cures = list[str]()
    if not typed:
        cures.append(_suggest_texts(options, kinds))
    if rounding.factor and kinds[name] == "float":
        cures.append(_suggest_integers(name, rounding.factor))
    yield (
        f"numbers in {join_names([*roundings])} need more than the 32 bits of a float: "
        f"{rounding.text} in {name!r} becomes {rounding.stored:.15g}; text and whole numbers are "
        f"stored exactly{': ' if cures else ''}{', or '.join(cures)}"
    )


def warn_of_equal_numbers(
    options: ConvertOptions,
    features: Sequence[ColumnKind],
    declarations: Mapping[str, str],
    sample: Mapping[str, Sequence[Any]],
) -> Iterator[str]:
    """Yields a warning about columns of text files in which 1.1 and 1.10 become the same number.

    For the arguments, see `warn_of_rounded_numbers`.
    """
    for feature in features:
        if declarations[feature.name] or feature.text != "float":
            continue
        pair = _find_equal({cell for cell in sample[feature.name] if isinstance(cell, str)})
        if pair:
            yield (
                f"column {feature.name!r} has {' and '.join(pair)}, which become the same number; "
                f"if they are versions or ids, {_suggest_texts(options, {feature.name: 'float'})}"
            )


def _find_equal(texts: Set[str]) -> tuple[str, str] | None:
    """Finds two numbers that differ only in trailing zeros, such as 1.1 and 1.10."""
    for text in sorted(filter(_SHORT_DECIMAL.fullmatch, texts)):
        if f"{text}0" in texts:
            return text, f"{text}0"
    return None


def _suggest_texts(options: ConvertOptions, kinds: Mapping[str, str]) -> str:
    """Returns the option that stores columns as text.

    Args:
        options: the options of the conversion.
        kinds: column -> its inferred type, such as float[].
    """
    as_text = {name: kind.replace("float", "bytes") for name, kind in kinds.items()}
    columns = {**(options.feature_columns or {KNOWN: ""}), **as_text}
    declared = [f"{name}:{kind}" if kind else name for name, kind in columns.items()]
    return f"{spell_option('feature_columns', ','.join(declared))} stores text"


def _suggest_integers(name: str, factor: int) -> str:
    """Returns a line of pandas that turns a column into whole numbers.

    Args:
        name: the name of the column.
        factor: the power of 10 by which its numbers are multiplied.
    """
    column = f"table[{name!r}]"
    scaled = column if factor == 1 else f"({column} * {factor})"
    return f'with pandas, {column} = {scaled}.round().astype("Int64") makes whole numbers'


def find_rounding(cells: Sequence[Any]) -> Rounding | None:
    """Finds a number that a 32-bit float changes; None if all changes are small.

    A change is small if all digits of the text are kept, or if the number changes by less than
    0.001, and also by less than a millionth of the difference between the greatest and the least
    number.

    Args:
        cells: the cells of a column of numbers, or of lists of numbers.
    """
    texts = _list_numbers(cells)
    values = np.array([float(text) for text in texts])
    values = np.where(np.abs(values) <= np.finfo(np.float32).max, values, np.nan)
    changes = np.abs(values - values.astype(np.float32))
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    small_change = min(_SMALL_CHANGE, _SMALL_SHARE * (finite.max() - finite.min()))
    for number in np.flatnonzero(changes > small_change):
        text = texts[number]
        stored = np.float32(text)
        if Decimal(str(stored)) != Decimal(text):
            return Rounding(text, float(stored), _find_factor(texts, finite))
    return None


def _list_numbers(cells: Sequence[Any]) -> list[str]:
    """Returns the first numbers in cells, which may be lists, as strings."""
    return [*itertools.islice(_read_numbers(cells), _MOST_NUMBERS)]


def _read_numbers(cells: Sequence[Any]) -> Iterator[str]:
    for cell in cells:
        members = parse_list(cell) if isinstance(cell, str) else None
        for member in members_of(cell) if members is None else members:
            for value in members_of(member):
                text = str(value).strip()
                is_number = len(text) <= _LONGEST and NUMBER.fullmatch(text)
                if is_number and not _HUGE_EXPONENT.search(text):
                    yield text


def _find_factor(texts: Sequence[str], values: NDArray[np.float64]) -> int:
    """Returns the power of 10 that makes numbers whole; 0 if those need more than 53 bits.

    Args:
        texts: the numbers as strings, including numbers that are not finite.
        values: the finite numbers.
    """
    exponents = [Decimal(text).normalize().as_tuple().exponent for text in texts]
    decimals = [-exponent for exponent in exponents if isinstance(exponent, int)]
    factor = 10 ** min(max(*decimals, 0, 0), _MOST_DECIMALS)
    return factor if np.abs(values).max() * factor < _MAX_EXACT else 0
