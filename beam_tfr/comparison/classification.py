"""Pairs the rows of two tables of contents that belong together, and finds how they differ.

Columns are compared by numbers that stand for their values: see `Codes`.
"""

import enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.comparison.compared_contents import LOOKS, TABLE_PREFIX
from beam_tfr.records.contents import need_pyarrow

Numbers = NDArray[np.int64]
_NULL = -1  # the code of a cell without a value


class DifferenceKind(enum.StrEnum):
    """How a record differs; a record that is in both datasets can differ in several ways."""

    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    CHANGED = "changed"
    RELABELLED = "relabelled"
    SPLIT = "split"
    COLUMNS = "columns"
    PIXELS = "pixels"


class RowPairs(NamedTuple):
    """The numbers of the rows that belong together in the old and the new table.

    Both arrays are int64 [n]. For records that are in only one dataset, the array of the other
    dataset is empty.
    """

    old: Numbers
    new: Numbers


NO_ROWS = np.array([], np.int64)
NO_PAIRS = RowPairs(NO_ROWS, NO_ROWS)


class Codes(NamedTuple):
    """Numbers that stand for the values in a column: int64 [rows] for each table.

    Equal values have equal numbers in both tables; the number of null is `_NULL`.
    """

    old: Numbers
    new: Numbers

    def select(self, pairs: RowPairs) -> "Codes":
        """Returns the codes of some rows."""
        return Codes(self.old[pairs.old], self.new[pairs.new])


def classify_rows(old: Any, new: Any) -> tuple[dict[DifferenceKind, RowPairs], int]:
    """Sorts the rows of two tables by how they differ.

    Rows of the two tables are matched by key or, failing that, by the checksum of the source.

    Args:
        old, new: results of `read_compared_contents`.

    Returns:
        The rows for each kind of difference, in the order of the new table, and the number of rows
        that do not differ.
    """
    sources = encode_column(old, new, "source_sha256")
    identities = _replace_null(encode_column(old, new, "key"), sources)
    pairs = _pair_rows(identities, sources)
    masks = _compare_pairs(old, new, pairs, sources.select(pairs))
    masks[DifferenceKind.RENAMED] = np.not_equal(*identities.select(pairs))
    rows = {kind: RowPairs(pairs.old[mask], pairs.new[mask]) for kind, mask in masks.items()}
    rows[DifferenceKind.ADDED] = RowPairs(NO_ROWS, np.delete(np.arange(len(new)), pairs.new))
    rows[DifferenceKind.REMOVED] = RowPairs(np.delete(np.arange(len(old)), pairs.old), NO_ROWS)
    is_different = np.logical_or.reduce([*masks.values()])
    return rows, int(np.count_nonzero(~is_different))


def _replace_null(keys: Codes, sources: Codes) -> Codes:
    """Replaces the codes of missing keys with the codes of their sources.

    Contents leave out keys that are too long.
    """
    highest = max(keys.old.max(initial=_NULL), keys.new.max(initial=_NULL))

    def replace(key: Numbers, source: Numbers) -> Numbers:
        source_identity = highest + 1 + (source - _NULL)
        return np.where(key == _NULL, source_identity, key)

    return Codes(replace(keys.old, sources.old), replace(keys.new, sources.new))


def _pair_rows(identities: Codes, sources: Codes) -> RowPairs:
    """Returns the rows of records that are in both tables, in the order of the new table."""
    same_key = match_values(identities.old, identities.new)
    old_rest = _find_values(sources.old, without=same_key.old)
    new_rest = _find_values(sources.new, without=same_key.new)
    moved = match_values(sources.old[old_rest], sources.new[new_rest])
    old_rows = np.concatenate([same_key.old, old_rest[moved.old]])
    new_rows = np.concatenate([same_key.new, new_rest[moved.new]])
    order = np.argsort(new_rows)
    return RowPairs(old_rows[order], new_rows[order])


def _find_values(codes: Numbers, *, without: Numbers) -> Numbers:
    """Returns the rows that have a value, except the rows `without`."""
    return np.setdiff1d(np.flatnonzero(codes != _NULL), without)


def _compare_pairs(
    old: Any, new: Any, pairs: RowPairs, sources: Codes
) -> dict[DifferenceKind, NDArray[np.bool_]]:
    """Returns kind of difference -> for each pair, whether its rows differ in this respect.

    Args:
        sources: the codes of the sources of the pairs.
    """
    are_known = (sources.old != _NULL) & (sources.new != _NULL)
    is_changed = are_known & (sources.old != sources.new)

    def differ(*names: str) -> NDArray[np.bool_]:
        """Returns whether the rows of each pair differ in any of these columns."""
        differs = np.zeros(len(pairs.new), bool)
        for name in names:
            differs |= np.not_equal(*encode_column(old, new, name).select(pairs))
        return differs

    return {
        DifferenceKind.CHANGED: is_changed,
        DifferenceKind.RELABELLED: differ("class"),
        DifferenceKind.SPLIT: differ("split"),
        DifferenceKind.COLUMNS: differ(*table_columns(old, new)),
        DifferenceKind.PIXELS: ~is_changed & differ("bytes", *LOOKS),
    }


def table_columns(old: Any, new: Any) -> list[str]:
    """Returns the names of those columns from tables that are in both datasets."""
    names = [name for name in new.column_names if name.startswith(TABLE_PREFIX)]
    return [name for name in names if name in old.column_names]


def encode_column(old: Any, new: Any, name: str) -> Codes:
    """Returns the codes for a column in two tables.

    Lists, and values of different types, are compared as strings.
    """
    pa = need_pyarrow()
    before = old.column(name)
    after = new.column(name)
    chunks = before.chunks + after.chunks
    value_type = before.type
    if pa.types.is_nested(value_type) or value_type != after.type:
        value_type = pa.string()
        chunks = [_as_texts(chunk) for chunk in chunks]
    encoded = pa.chunked_array(chunks, value_type).dictionary_encode()
    indices = [chunk.indices.fill_null(_NULL).to_numpy() for chunk in encoded.chunks]
    codes = np.concatenate([NO_ROWS, *indices])
    return Codes(codes[: len(old)], codes[len(old) :])


def _as_texts(chunk: Any) -> Any:
    """Returns the values of an Arrow array as strings; null stays null."""
    pa = need_pyarrow()
    texts = [None if value is None else repr(value) for value in chunk.to_pylist()]
    return pa.array(texts, pa.string())


def match_values(old: Numbers, new: Numbers) -> RowPairs:
    """Pairs rows with equal values.

    Each row is in at most one pair: for repeated values, the first row is paired with the first,
    the second with the second, and so on.
    """
    old_rows = np.argsort(old, kind="stable")
    new_rows = np.argsort(new, kind="stable")
    old_sorted = old[old_rows]
    new_sorted = new[new_rows]
    number_of_equal = np.arange(len(old)) - np.searchsorted(old_sorted, old_sorted)
    positions = np.searchsorted(new_sorted, old_sorted) + number_of_equal
    is_there = positions < np.searchsorted(new_sorted, old_sorted, side="right")
    return RowPairs(old_rows[is_there], new_rows[positions[is_there]])
