"""Chooses some records of each class, based on the contents of a dataset."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.dataset.lookup import read_all_contents
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.schema.feature_names import OBJECT_LABEL

Rows = NDArray[np.int64]
NO_CLASS = -1


def mix(records: Rows) -> NDArray[np.uint64]:
    """Hashes the numbers of records; sorting by hash puts the records in a fixed random order.

    Source: the finalizer of SplitMix64, https://prng.di.unimi.it/splitmix64.c.
    """
    mixed = records.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class ClassSamples:
    """A fixed random sample of the records of each class.

    Args:
        number: number of records to keep for each class.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._labels = np.zeros(0, np.int64)
        self._records = np.zeros(0, np.int64)

    def add(self, labels: Rows, records: Rows) -> None:
        """Adds records and the class id of each."""
        all_labels = np.concatenate([self._labels, labels])
        all_records = np.concatenate([self._records, records])
        order = np.lexsort((mix(all_records), all_labels))
        all_labels = all_labels[order]
        begins = np.searchsorted(all_labels, all_labels)
        ranks = np.arange(len(all_labels)) - begins
        kept = ranks < self._number
        self._labels = all_labels[kept]
        self._records = all_records[order][kept]

    def of_class(self, label: int, most: int) -> Sequence[int]:
        """Returns at most `most` of the records kept for a class."""
        begin, end = np.searchsorted(self._labels, [label, label + 1])
        records: list[int] = self._records[begin:end].tolist()
        return records[:most]


def choose_of_each_class(
    dataset: Manifest, shards: Sequence[ShardEntry], most: int
) -> dict[int, list[int]]:
    """Chooses records of each class: always the same, and equally many of each class if possible.

    If there are more classes than records, chooses the first class, the last, and evenly spaced
    classes between them.

    Args:
        dataset: the dataset.
        shards: the shards to choose from.
        most: the maximum number of records.

    Returns:
        Class id or `NO_CLASS` -> numbers of the chosen records, counted from 0 across the shards.
        A record with several classes is listed only once.

    Raises:
        DataError: contents are missing or damaged.
    """
    samples = ClassSamples(most)
    labels_seen = set[int]()
    number = 0
    for labels, rows, size in _list_classes(dataset, shards):
        samples.add(labels, number + rows)
        labels_seen.update(labels.tolist())
        number += size
    labels_chosen = _spread(sorted(labels_seen), most)
    chosen: dict[int, list[int]] = {label: [] for label in labels_chosen}
    known = set[int]()
    for rank in range(most):
        for label in labels_chosen:
            records = samples.of_class(label, rank + 1)[rank:]
            if records and records[0] not in known and len(known) < most:
                known.add(records[0])
                chosen[label].append(records[0])
    return chosen


def _list_classes(
    dataset: Manifest, shards: Sequence[ShardEntry]
) -> Iterator[tuple[Rows, Rows, int]]:
    """Yields the result of `find_classes` for each shard, and the shard's number of records."""
    columns = label_columns(dataset)
    if columns:
        for table in read_all_contents(dataset, columns, shards):
            yield *find_classes(dataset, table), len(table)
        return
    for shard in shards:
        number = shard.num_examples
        yield np.full(number, NO_CLASS), np.arange(number), number


def _spread(labels: Sequence[int], most: int) -> list[int]:
    """Returns at most `most` labels, evenly spaced from the first to the last."""
    places = np.linspace(0, len(labels) - 1, min(most, len(labels))).astype(int)
    return [labels[place] for place in places.tolist()]


def label_columns(dataset: Manifest) -> list[str]:
    """Returns [the column of the contents that holds classes], or [] if there is no such column."""
    columns = {feature: column.name for feature, column in dataset.contents_columns.items()}
    names = (dataset.names.label, OBJECT_LABEL)
    return [columns[name] for name in names if name in columns][:1]


def find_classes(dataset: Manifest, table: Any) -> tuple[Rows, Rows]:
    """Returns the class and the row of each record, with an entry for each class of a record.

    If there are no labels, the classes are those of the boxes; if there are no boxes either, they
    are `NO_CLASS`.
    """
    everything = np.arange(len(table))
    columns = label_columns(dataset)
    if not columns:
        return np.full(len(table), NO_CLASS), everything
    values = table.column(columns[0]).combine_chunks()
    if need_pyarrow().types.is_list(values.type):
        return _unnest_classes(values)
    labels = values.fill_null(NO_CLASS).to_numpy(zero_copy_only=False)
    return labels.astype(np.int64), everything


def _unnest_classes(lists: Any) -> tuple[Rows, Rows]:
    """Returns the distinct classes in each row, or `NO_CLASS` if there are none, and the rows."""
    need_pyarrow()
    from pyarrow import compute

    labels = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
    rows = compute.list_parent_indices(lists).to_numpy().astype(np.int64)
    lengths = compute.list_value_length(lists).fill_null(0).to_numpy()
    bare = np.flatnonzero(lengths == 0)
    pairs = np.stack(
        [
            np.concatenate([labels, np.full(len(bare), NO_CLASS)]),
            np.concatenate([rows, bare]),
        ]
    )
    unique = np.unique(pairs, axis=1)
    return unique[0], unique[1]
