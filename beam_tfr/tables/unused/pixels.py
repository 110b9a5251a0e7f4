"""Finds columns that may hold pixels, as in Kaggle's Digit Recognizer and FER2013."""

import collections
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.tables.content import TableContent
from beam_tfr.tables.unused.suggestions import Suggestion, read_first_cells

_LEAST_PIXELS = 64  # in an image, as in scikit-learn's digits; fewer values may be anything
_MOST_VALUES = 100_000  # in a list, or columns with one name; more are not inspected
_FIRST_CELLS = 20  # of a column, which are inspected
_CHANNELS = (1, 3, 4)
_DIGITS = re.compile("[0-9]+")
_WHOLE = re.compile(r"[0-9]{1,3}(?:\.0*)?")
_LIST = re.compile(r"[\[\s]*+[0-9]{1,3}(?:[\[\]\s,;|]++[0-9]{1,3})*+[\]\s]*+")


class _Pixels(NamedTuple):
    """Columns with pixels.

    Attributes:
        columns: one column for each value of an image, or one column with all values.
        number: the number of values per image.
    """

    columns: Sequence[str]
    number: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Height and width of a square image, and channels if it has several; () if none fits."""
        for channels in _CHANNELS:
            side = math.isqrt(self.number // channels)
            if side * side * channels == self.number:
                return (side, side) if channels == 1 else (side, side, channels)
        return ()

    def describe(self) -> str:
        """Returns the name of the columns for messages."""
        if len(self.columns) == 1:
            return f"column {self.columns[0]!r:.60}"
        return f"{len(self.columns):,} columns, {self.columns[0]:.60} to {self.columns[-1]:.60}"

    def suggest(self) -> str:
        """Says what to do about the columns."""
        cure = (
            "if they are the pixels of images, write each image to a file, and its path into a "
            "column for `uri_column=`"
        )
        if self.shape:
            sides = ", ".join(map(str, self.shape))
            code = f'Image.fromarray(np.array(pixels, "uint8").reshape({sides})).save("1.png")'
            cure += f"; with NumPy and Pillow: {code}"
        return cure


def find_pixels(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds columns that may hold pixels and are not stored."""
    if content.read_rows:  # a dataset has images
        return None
    candidates = _find_series(columns) or [*filter(_is_named_so, columns)]
    pixels = _find_pixels(read_first_cells(content, candidates)) if candidates else None
    if pixels is None:
        return None
    message = f"no values of {pixels.describe()} are stored: {pixels.suggest()}"
    return Suggestion(pixels.columns, message)


def warn_of_pixels(content: TableContent, sample: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields a warning about columns of pixels that become features, unless an option chose them.

    Args:
        content: the findings about the tables.
        sample: column -> its cells in the first rows.
    """
    options = content.options
    if content.read_rows or options.uri_column or options.feature_columns is not None:
        return
    others = {name: cells for name, cells in sample.items() if name not in options.roles}
    pixels = _find_pixels(others)
    if pixels:
        yield f"numbers become features instead of images ({pixels.describe()}): {pixels.suggest()}"


def _find_pixels(cells_of: Mapping[str, Sequence[Any]]) -> _Pixels | None:
    """Selects the columns that may hold pixels; None if there are none."""
    series = _find_series(cells_of)
    if series:
        first = [cell for name in series for cell in cells_of[name][:_FIRST_CELLS]]
        if _is_named_so(series[0]) or _are_bytes(first):
            return _Pixels(series, len(series))
    for name, cells in cells_of.items():
        number = _count_pixels(cells)
        if number:
            return _Pixels([name], number)
    return None


def _find_series(columns: Collection[str]) -> list[str]:
    """Returns the columns whose names differ only in numbers, if there is one for each pixel."""
    if not _LEAST_PIXELS <= len(columns) <= _MOST_VALUES:
        return []
    alike = collections.defaultdict[str, list[str]](list)
    for name in columns:
        alike[_DIGITS.sub("0", name)].append(name)
    longest = max(alike.values(), key=len)
    return longest if len(longest) >= _LEAST_PIXELS else []


def _is_named_so(column: str) -> bool:
    """Whether a column is named like pixels, and not like run lengths of masks."""
    name = column.lower()
    return "pixel" in name and "encoded" not in name


def _count_pixels(cells: Sequence[Any]) -> int:
    """Counts the pixels in each of the first cells of a column; returns 0 for other content."""
    lists = [_list_numbers(cell) for cell in cells[:_FIRST_CELLS]]
    sizes = {len(values) for values in lists}
    if len(sizes) != 1 or min(sizes) < _LEAST_PIXELS:
        return 0
    values = [value for values in lists for value in values]
    return min(sizes) if _are_bytes(values) else 0


def _list_numbers(cell: Any) -> list[str]:
    """Returns the whole numbers in a list or a string of numbers; an empty list for other cells."""
    if not isinstance(cell, str | list) or len(cell) > _MOST_VALUES:
        return []
    text = str(cell)
    return _DIGITS.findall(text) if _LIST.fullmatch(text) else []


def _are_bytes(cells: Sequence[Any]) -> bool:
    """Whether cells hold whole numbers up to 255, and not just 0 and 1."""
    texts = {str(cell) for cell in cells}
    if not all(map(_WHOLE.fullmatch, texts)):
        return False
    return 1 < max(map(float, texts), default=0) <= 255
