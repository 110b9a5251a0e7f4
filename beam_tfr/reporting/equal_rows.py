"""Finds table rows that are equal in all columns: copies of data without files."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.records.contents import need_pyarrow
from beam_tfr.reporting.finding import MOST_EVIDENCE
from beam_tfr.reporting.histograms import Rows

MOST_ROWS = 200_000
_HASH_BYTES = 8
_NOTHING = 0  # the hash of a value that is missing

Hashes = NDArray[np.uint64]


class EqualRows(NamedTuple):
    """Rows that are equal in all columns, except in columns where no two rows have the same value.

    Attributes:
        number: number of rows that equal other rows.
        across_splits: number of distinct rows that are in several splits.
        across_classes: number of distinct rows that have several classes.
        split_pairs: pairs of records whose rows are equal but in different splits.
        class_pairs: pairs of records whose rows are equal but have different classes.
    """

    number: int
    across_splits: int
    across_classes: int
    split_pairs: list[tuple[int, int]]
    class_pairs: list[tuple[int, int]]


class RowComparison:
    """Compares rows by the hashes of their values; uses 8 bytes of memory per value."""

    def __init__(self) -> None:
        self._columns = dict[str, list[Hashes]]()
        self._splits = list[NDArray[np.str_]]()
        self._labels = list[Rows]()

    def add(self, columns: Mapping[str, Any], labels: Rows, splits: NDArray[np.str_]) -> None:
        """Adds rows: columns as `pyarrow.ChunkedArray`, classes, and splits."""
        for name, values in columns.items():
            self._columns.setdefault(name, []).append(_hash_values(values.combine_chunks()))
        self._labels.append(labels)
        self._splits.append(splits)

    def find(self) -> EqualRows:
        """Finds equal rows among all rows that were added."""
        if not self._columns:
            return EqualRows(0, 0, 0, [], [])
        labels = np.concatenate(self._labels)
        splits = np.concatenate(self._splits)
        combined = np.zeros(len(labels), np.uint64)
        for parts in self._columns.values():
            hashes = np.concatenate(parts)
            if len(np.unique(hashes)) < len(hashes):  # otherwise the column numbers the rows
                combined = (combined ^ hashes) * np.uint64(0x9E3779B97F4A7C15)
        order = np.argsort(combined, kind="stable")
        is_same = combined[order[1:]] == combined[order[:-1]]
        first = order[:-1][is_same]
        second = order[1:][is_same]
        if not len(first) or len(first) > len(labels) / 2:  # columns hardly tell rows apart
            return EqualRows(0, 0, 0, [], [])
        number = len(np.union1d(first, second))
        across_splits = _take_groups(combined, first, second, splits[first] != splits[second])
        across_classes = _take_groups(combined, first, second, labels[first] != labels[second])
        return EqualRows(
            number,
            len(across_splits),
            len(across_classes),
            across_splits[:MOST_EVIDENCE],
            across_classes[:MOST_EVIDENCE],
        )


def _take_groups(
    hashes: Hashes, first: Rows, second: Rows, differs: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Returns, in order, one differing pair from each group of equal rows that has such a pair.

    Args:
        hashes: a hash for each row.
        first, second: the rows of each pair.
        differs: whether the rows of each pair differ in split or class.
    """
    places = np.flatnonzero(differs)
    _, chosen = np.unique(hashes[first[places]], return_index=True)
    places = places[chosen]
    return sorted(zip(first[places].tolist(), second[places].tolist(), strict=True))


def _hash_values(values: Any) -> Hashes:
    """Hashes each value; equal values have equal hashes."""
    pa = need_pyarrow()
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        bits: Hashes = np.where(numbers == 0, 0.0, numbers).view(np.uint64)
        return bits * np.uint64(0xBF58476D1CE4E5B9)
    encoded = values.dictionary_encode()
    hashes = np.array([_NOTHING, *map(_hash_value, encoded.dictionary.to_pylist())], np.uint64)
    places: Rows = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return hashes[places + 1]


def _hash_value(value: object) -> int:
    text = str(value).encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=_HASH_BYTES).digest(), "little")
