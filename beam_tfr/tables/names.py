"""Reads names in the cells of tables: classes, splits, groups and keys.

Names do not depend on the table's format. Numbers are spelled as in CSV, and booleans as `True` or
`False`, as pandas writes them. A whole number with a decimal point, as pandas writes it in columns
with missing values, loses the decimal point: 2.0 becomes 2. A float32 keeps only the digits that
distinguish it from other numbers: 0.1, not 0.10000000149011612. Spaces around a name are removed,
except in keys.
"""

import dataclasses
import enum
import math
import re
from collections.abc import Collection, Iterable, Iterator, Set
from typing import Any

import numpy as np

from beam_tfr.features.cells import AS_TEXT, is_missing
from beam_tfr.schema.dataset import MOST_CLASS_LETTERS, is_class_name
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.paths import read_text

# Does not match 00 and 007, which are strings.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?")
_POINT = re.compile("[.eE]")
_BOOLEANS = {"true", "false"}
_MOST_DIGITS = 9  # digits that a float32 needs
# Strings that other programs write for a missing value.
_NO_VALUES = {
    *("nan", "null", "none", "na", "n/a", "<na>", "nat"),
    *("#n/a", "#ref!", "#div/0!", "#value!", "#name?", "#null!", "#num!"),  # Excel errors
}
# Marks that people write for a missing value; they are never read as a missing value.
_MARKS = {"?", "-"}


def read_name(cell: Any) -> str:
    """Returns the name in a cell; numbers, dates and booleans are spelled as in pandas's CSV.

    Raises:
        ValueError: the cell is empty, or holds anything else.
    """
    if isinstance(cell, float):
        if not math.isfinite(cell):
            raise ValueError(f"{cell!r} is not a name")
        return _spell_float(cell)
    if isinstance(cell, (int, *AS_TEXT)):
        return str(cell)
    return read_text(cell, "text or number")


def _spell_float(number: float) -> str:
    """Returns a number as a string, with few digits for a float32 from Parquet or TFRecords."""
    text = repr(number)
    if len(text) <= _MOST_DIGITS or number.is_integer():
        return text
    with np.errstate(over="ignore"):
        narrow = np.float32(number)
    return str(narrow) if float(narrow) == number else text


def read_single_name(cell: Any) -> str:
    """Returns the name in a cell, regardless of other cells; raises the errors of `read_name`.

    Only a string with a decimal point counts as a number, since 1e5 may be a hash.
    """
    name = _strip(read_name(cell))
    return _shorten_number(name) if "." in name else _spell_boolean(name)


def _strip(name: str) -> str:
    """Returns a name without the spaces around it.

    Raises:
        ValueError: the name consists of spaces.
    """
    stripped = name.strip()
    if not stripped:
        raise ValueError("has no value")
    return stripped


def list_class_names(names: Iterable[str]) -> list[str]:
    """Lists the class names that a file declares, in order, without repeats, spelled as in cells.

    Raises:
        ValueError: a name cannot be a class name.
    """
    stripped = [name.strip() for name in names]
    for number, name in enumerate(stripped):
        if not is_class_name(name):
            raise ValueError(
                f"class {number} is named {name!r:.60}, which labels.txt cannot hold: a name is "
                f"one line of at most {MOST_CLASS_LETTERS:,} characters, without control characters"
            )
    return [*dict.fromkeys(stripped)]


def describe_spaces(column: str, cells: Iterable[Any]) -> str:
    """Returns the message about spaces around names in cells, or an empty string."""
    texts = [cell for cell in list_distinct(cells) if isinstance(cell, str)]
    spaced = [text for text in texts if text.strip() not in ("", text)]
    if not spaced:
        return ""
    return f"column {column!r}: spaces around names are ignored, such as in {min(spaced)!r:.60}"


def _shorten_number(name: str) -> str:
    """Returns a name; a whole number loses its decimal point."""
    if not _POINT.search(name) or not _NUMBER.fullmatch(name):
        return name
    number = float(name)
    return str(int(number)) if number.is_integer() else name


def _spell_boolean(name: str) -> str:
    """Returns a name; a boolean is spelled as pandas writes it."""
    return name.capitalize() if name.lower() in _BOOLEANS else name


class _Kind(enum.Enum):
    """The kind of the first names in a column."""

    TEXTS = enum.auto()
    BOOLEANS = enum.auto()
    INTEGERS = enum.auto()
    # Whole numbers, some with a decimal point. All names must be whole numbers; nan and the like
    # are missing values.
    POINTED = enum.auto()


@dataclasses.dataclass(frozen=True)
class NameColumn:
    """A reader of the names in a column, chosen by the first rows.

    Attributes:
        kind: the kind of the names.
        strips: whether spaces around names are removed.
    """

    kind: _Kind = _Kind.TEXTS
    strips: bool = True

    @classmethod
    def infer(cls, cells: Iterable[Any], *, known: Collection[str] = ()) -> "NameColumn":
        """Infers the reader from the first cells.

        Args:
            cells: cells that each hold a name, or nothing.
            known: names that are correct as written.
        """
        names = {name.strip() for name in _read_names(cells)}
        return cls(_Kind.TEXTS if names & {*known} else _find_kind(names))

    @classmethod
    def infer_keys(cls, cells: Iterable[Any]) -> "NameColumn":
        """Infers the reader for a key column, which keeps spaces, from its first cells."""
        return cls(_find_kind(set(_read_names(cells))), strips=False)

    def is_missing(self, cell: Any) -> bool:
        """Whether a cell has no name."""
        if is_missing(cell) or cell != cell:  # NaN, pandas's missing value
            return True
        if self.strips and isinstance(cell, str) and cell.isspace():
            return True
        return self.kind is _Kind.POINTED and means_nothing(cell)

    def warn(self, column: str, cells: Iterable[Any]) -> Iterator[str]:
        """Yields doubts about the classes in cells.

        Such classes may stand for missing values, or look like numbers without being numbers.
        """
        texts = {cell for cell in cells if isinstance(cell, str)}
        if self.strips:
            yield from filter(None, [describe_spaces(column, texts)])
            texts = {text.strip() for text in texts}
        if self.kind is _Kind.POINTED:
            yield from _describe_pointed(column, texts)
        possible = {text for text in texts if means_nothing(text) or text in _MARKS}
        names = {text for text in possible if not self.is_missing(text)}
        if names:
            become = "becomes a class" if len(names) == 1 else "become classes"
            yield (
                f"column {column!r}: {', '.join(sorted(names))} {become}; if such cells have no "
                f"label, leave them empty, or give {spell_option('na_values', *sorted(names))}"
            )

    def read(self, cell: Any) -> str:
        """Returns the name in a cell.

        Raises:
            ValueError: the cell has no name, or its name is not a whole number although the first
                names are whole numbers.
        """
        name = read_name(cell)
        if self.strips:
            name = _strip(name)
        if self.kind is _Kind.TEXTS:
            return name
        if self.kind is _Kind.BOOLEANS:
            return _spell_boolean(name)
        name = _shorten_number(name)
        if self.kind is _Kind.POINTED and not _is_integer(name):
            raise ValueError(
                f"{name!r:.100} is not a whole number, but the names in the first rows are, such "
                "as 1.0; to keep names as written, list them in `classes=`"
            )
        return name


def _describe_pointed(column: str, texts: Iterable[str]) -> Iterator[str]:
    """Yields a line about classes that are whole numbers with a decimal point, such as 1.0."""
    pointed = [text for text in texts if _shorten_number(text) != text]
    if pointed:
        example = min(pointed)
        yield (
            f"column {column!r}: values such as {example} are whole numbers, here the class "
            f"{_shorten_number(example)}; to keep names as written, list them in `classes=`"
        )


def list_distinct(cells: Iterable[Any]) -> Collection[Any]:
    """Returns the distinct cells, or all cells if some are lists or objects."""
    all_cells = [*cells]
    try:
        return set(all_cells)
    except TypeError:
        return all_cells


def _read_names(cells: Iterable[Any]) -> Iterator[str]:
    """Yields the names in cells, skipping cells without a name."""
    for cell in list_distinct(cells):
        if is_missing(cell) or means_nothing(cell):
            continue
        try:
            yield read_name(cell)
        except ValueError:
            continue


def means_nothing(cell: Any) -> bool:
    """Whether a cell is a string such as nan, which programs write for a missing value."""
    return isinstance(cell, str) and cell.strip().lower() in _NO_VALUES


def _find_kind(names: Set[str]) -> _Kind:
    """Returns the kind of the names in a column."""
    if not names:
        return _Kind.TEXTS
    if all(name.lower() in _BOOLEANS for name in names):
        return _Kind.BOOLEANS
    numbers = {_shorten_number(name) for name in names}
    if not all(map(_is_integer, numbers)):
        return _Kind.TEXTS
    return _Kind.INTEGERS if numbers == names else _Kind.POINTED


def _is_integer(name: str) -> bool:
    return _NUMBER.fullmatch(name) is not None and not _POINT.search(name)
