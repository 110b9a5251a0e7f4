"""Finds rows whose class differs from that of their neighbors, in data where this is rare."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.reporting.histograms import Floats, Rows

MOST_COMPARED = 4_000  # rows, each compared with all others
_NEIGHBORS = 8
_LEAST_ALIKE = 7  # neighbors that share one other class
_NEAR = 4  # rank of the neighbor whose distance counts: mistakes may resemble each other
_FAR = 2  # times as far from its own class as usual
_LEAST_DISTANCE = 1e-6
_FARTHEST = 1e3
_LEAST_ROWS = 50
_TRUSTED = 0.9  # fraction of rows with the class of most neighbors; below this, these mean little
_MOST_FOUND = 0.05  # fraction of rows; if more differ, these are not mistakes
_ROWS_AT_A_TIME = 256
_MOST_ROWS = 2 * MOST_COMPARED  # leaves room for more rows than expected


class _Neighbors(NamedTuple):
    """The neighbors of some rows.

    Attributes:
        votes: number of nearest rows that have each class: int8 [rows, classes].
        own_distances: distance from each row to the near rows of its own class: float64 [rows].
    """

    votes: NDArray[np.int8]
    own_distances: Floats


class Contradicted(NamedTuple):
    """Rows whose neighbors have another class.

    Attributes:
        rows: numbers of the rows.
        expected: the class of their neighbors.
    """

    rows: Rows
    expected: Rows


def find_contradicted(values: Floats, labels: Rows) -> Contradicted:
    """Finds rows far from their own class whose neighbors nearly all have one other class.

    The farthest rows come first. Finds no rows if neighbors do not predict the class, that is, if
    fewer than 90% of all rows have the class of most of their neighbors.

    Args:
        values: the columns that define distance [rows, columns]; NaN counts as the median.
        labels: the class of each row [rows]. If there are very many rows, only some are compared.
    """
    step = 1 + len(labels) // _MOST_ROWS
    rows, expected = _find_among_few(values[::step], labels[::step])
    return Contradicted(rows * step, expected)


def _find_among_few(values: Floats, labels: Rows) -> Contradicted:
    """Finds rows as `find_contradicted` does, by comparing each row with all others."""
    nothing = Contradicted(np.zeros(0, np.int64), np.zeros(0, np.int64))
    if len(labels) < _LEAST_ROWS or not values.shape[1] or len(np.unique(labels)) < 2:
        return nothing
    classes, numbers = np.unique(labels, return_inverse=True)
    neighbors = _find_neighbors(_scale(values), numbers)
    usual = neighbors.votes.argmax(axis=1)
    is_other = usual != numbers
    if is_other.mean() > 1 - _TRUSTED:
        return nothing
    is_agreed = neighbors.votes.max(axis=1) >= _LEAST_ALIKE
    times_as_far = neighbors.own_distances / _usual_distances(neighbors.own_distances, numbers)
    contradicted = np.flatnonzero(is_other & is_agreed & (times_as_far > _FAR))
    if len(contradicted) > _MOST_FOUND * len(labels):
        return nothing
    rows = contradicted[np.argsort(-times_as_far[contradicted], kind="stable")]
    return Contradicted(rows, classes[usual[rows]])


def _usual_distances(distances: Floats, numbers: Rows) -> Floats:
    """Returns the median distance in the class of each row."""
    medians = [np.median(distances[numbers == number]) for number in range(numbers.max() + 1)]
    return np.maximum(medians, _LEAST_DISTANCE)[numbers]


def _scale(values: Floats) -> Floats:
    """Shifts and scales columns so that the middle half is centered on 0 with a width of 1."""
    low, middle, high = np.nanpercentile(values, [25, 50, 75], axis=0)
    width = np.where(high > low, high - low, 1)
    scaled: Floats = np.nan_to_num((values - middle) / width, nan=0)
    return np.clip(scaled, -10, 10)  # limits the influence of a single far value


def _find_neighbors(values: Floats, numbers: Rows) -> _Neighbors:
    """Finds the neighbors of each row.

    Args:
        values: scaled columns [rows, columns].
        numbers: numbers of the rows' classes, from 0: [rows].
    """
    squares = (values**2).sum(axis=1)
    votes = np.zeros((len(values), numbers.max() + 1), np.int8)
    own_distances = np.zeros(len(values), np.float64)
    for begin in range(0, len(values), _ROWS_AT_A_TIME):
        rows = np.arange(begin, min(begin + _ROWS_AT_A_TIME, len(values)))
        distances = squares[rows, np.newaxis] + squares - 2 * values[rows] @ values.T
        distances[np.arange(len(rows)), rows] = np.inf
        nearest = np.argpartition(distances, _NEIGHBORS, axis=1)[:, :_NEIGHBORS]
        np.add.at(votes, (np.repeat(rows, _NEIGHBORS), numbers[nearest].ravel()), 1)
        distances[numbers[rows, np.newaxis] != numbers] = np.inf
        near = np.partition(distances, _NEAR - 1, axis=1)[:, _NEAR - 1]
        own_distances[rows] = np.sqrt(np.clip(near, 0, _FARTHEST**2))
    return _Neighbors(votes, own_distances)
