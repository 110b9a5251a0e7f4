"""Finds records whose class differs from that of nearly all others like them.

Names of folders and files often contain the class too: `cat/17.jpg` with the class dog, among
hundreds of cats, is probably not a dog; neither is `dog/cat_17.jpg` with the class dog.
"""

import collections
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from beam_tfr.dataset.lookup import read_all_contents
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.reporting.histograms import Rows

_LEAST_IMAGES = 20  # in a group with a usual class
_USUAL_SHARE = 0.9  # fraction of a group that has its usual class
_MOST_GROUPS = 20_000  # if there are more, groups are not classes
MOST_SHOWN = 24
# What to cut off a key: the rest is its folder, or the beginning of the file name.
_NAME = r"[^/]*$"
_FOLDER_AND_NUMBER = r"^.*/|[-_ .]*[0-9]*\.[^./]*$"


class OddLabel(NamedTuple):
    """A record whose class differs from that of the records around it.

    Attributes:
        record: number of the record, in the order of the manifest.
        label: number of its class.
        usual: number of the class that the others have.
        group: the folder of the records, or the common beginning of their file names.
    """

    record: int
    label: int
    usual: int
    group: str


class OddLabels(NamedTuple):
    """Records whose class differs from that of the records around them.

    Attributes:
        number: total number of such records.
        shown: the first `MOST_SHOWN`.
    """

    number: int
    shown: list[OddLabel]


def find_odd_labels(dataset: Manifest) -> OddLabels:
    """Finds odd labels in the contents of a dataset, if no record can have several classes.

    Raises the errors of `measuring.measure`.
    """
    label = dataset.feature_kinds.label
    if label is None or label.is_list or len(dataset.class_names) < 2:
        return OddLabels(0, [])
    cuts = [_NAME, _FOLDER_AND_NUMBER]
    if "layout" in dataset.options:
        cuts.remove(_NAME)  # the folder is the class
    for cut in cuts:
        usual = _find_usual_classes(dataset, cut)
        if usual:
            return _list_odd(dataset, cut, usual)
    return OddLabels(0, [])


def _find_usual_classes(dataset: Manifest, cut: str) -> dict[str, int]:
    """Maps each group to the class of nearly all its records, if some of them have another class.

    The result is empty if nearly all groups have only one class, as folders of classes do, or if
    there are too many groups for classes.
    """
    counts = collections.defaultdict[str, collections.Counter[int]](collections.Counter)
    for _, groups, names, labels in _read_groups(dataset, cut):
        pairs, numbers = np.unique(np.stack([groups, labels]), axis=1, return_counts=True)
        for (group, label), number in zip(pairs.T.tolist(), numbers.tolist(), strict=True):
            counts[names[group]][label] += number
        if len(counts) > _MOST_GROUPS:
            return {}
    usual = {}
    for name, of_group in counts.items():
        (label, most), *_ = of_group.most_common(1)
        total = of_group.total()
        if total >= _LEAST_IMAGES and _USUAL_SHARE * total <= most < total:
            usual[name] = label
    return usual


def _list_odd(dataset: Manifest, cut: str, usual: dict[str, int]) -> OddLabels:
    number = 0
    shown = list[OddLabel]()
    for first, groups, names, labels in _read_groups(dataset, cut):
        expected = np.array([usual.get(name, -1) for name in names], np.int64)[groups]
        rows = np.flatnonzero((expected >= 0) & (labels != expected))
        number += len(rows)
        for row in rows[: MOST_SHOWN - len(shown)].tolist():
            group = names[groups[row]]
            shown.append(OddLabel(first + row, int(labels[row]), int(expected[row]), group))
    return OddLabels(number, shown)


def _read_groups(dataset: Manifest, cut: str) -> Iterator[tuple[int, Rows, list[str], Rows]]:
    """Yields each shard's first record, its records' groups, the names of groups, and labels."""
    need_pyarrow()
    from pyarrow import compute

    first = 0
    for table in read_all_contents(dataset, ["key", "label"]):
        keys = table.column("key").combine_chunks().fill_null("")
        groups = compute.replace_substring_regex(keys, cut, "").dictionary_encode()
        labels = table.column("label").combine_chunks().fill_null(-1)
        yield (
            first,
            groups.indices.to_numpy(zero_copy_only=False).astype(np.int64),
            groups.dictionary.to_pylist(),
            labels.to_numpy(zero_copy_only=False).astype(np.int64),
        )
        first += len(table)
