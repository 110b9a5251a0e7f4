"""Builds histograms, extremes and samples of numbers that arrive in parts.

The memory used does not depend on how many numbers there are.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

# Edges of bins.
SHADES = np.linspace(0, 256, 33)
SIDES = 2 ** np.arange(0, 18.25, 0.25)  # pixels
BYTES = 2 ** np.arange(4, 34.5, 0.5)
ASPECTS = 2 ** np.arange(-4, 4.25, 0.25)  # width by height
SHARES = np.linspace(0, 1, 21)
COUNTS = np.array([0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 101])


class Histogram:
    """The number of values in each bin.

    Attributes:
        edges: edges of the bins, ascending: float [bins + 1]. The outer bins also count values
            beyond the outer edges.
        counts: number of values in each bin: int64 [bins].
        number: total number of values.
        least, most: smallest and largest value; NaN before there are any.
    """

    def __init__(self, edges: Floats) -> None:
        self.edges = edges
        self.counts = np.zeros(len(edges) - 1, np.int64)
        self.number = 0
        self.least = np.nan
        self.most = np.nan

    def add(self, values: ArrayLike) -> None:
        """Adds values; ignores values that are not finite."""
        numbers = np.asarray(values, np.float64)
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers):
            return
        self.number += len(numbers)
        self.least = float(np.fmin(self.least, numbers.min()))
        self.most = float(np.fmax(self.most, numbers.max()))
        inside = np.clip(numbers, self.edges[0], self.edges[-1])
        counts, _ = np.histogram(inside, self.edges)
        self.counts += counts

    @property
    def is_constant(self) -> bool:
        return self.number > 0 and self.least == self.most


class Extremes:
    """The records with the lowest values.

    Args:
        number: number of records to keep.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._values = np.zeros(0, np.float64)
        self._records = np.zeros(0, np.int64)

    def add(self, values: ArrayLike, records: Rows) -> None:
        """Adds the values of records; ignores values that are not finite."""
        numbers = np.asarray(values, np.float64)
        known = np.isfinite(numbers)
        all_values = np.concatenate([self._values, numbers[known]])
        all_records = np.concatenate([self._records, records[known]])
        order = np.lexsort((all_records, all_values))[: self._number]
        self._values = all_values[order]
        self._records = all_records[order]

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Yields records with their values, the lowest first."""
        yield from zip(self._records.tolist(), self._values.tolist(), strict=True)


@dataclasses.dataclass
class HeatMap:
    """The number of points in each cell of a square that represents all images.

    Attributes:
        cells: number of rows and of columns.
        counts: int64 [cells, cells], by row from the top and column from the left.
    """

    cells: int = 20
    counts: Rows = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros((self.cells, self.cells), np.int64)

    def add(self, x: Floats, y: Floats) -> None:
        """Adds points, given as fractions of the width and height of their images."""
        known = np.isfinite(x) & np.isfinite(y)
        last = self.cells - 1
        columns = np.clip((x[known] * self.cells).astype(np.int64), 0, last)
        rows = np.clip((y[known] * self.cells).astype(np.int64), 0, last)
        np.add.at(self.counts, (rows, columns), 1)
