"""Shows the differences between two datasets as Python objects, JSON and text."""

import collections
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.comparison.classification import (
    NO_PAIRS,
    DifferenceKind,
    Numbers,
    RowPairs,
    classify_rows,
    table_columns,
)
from beam_tfr.comparison.compared_contents import TABLE_PREFIX, read_compared_contents
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import Printable, counted
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.reader_arguments import check_choice, check_integer
from beam_tfr.schema.arguments import public
from beam_tfr.schema.differences import describe_change, describe_changes, describe_id_changes

_SLICE = 1 << 12  # rows converted to Python objects at a time
_COMPARED_COLUMNS = {
    DifferenceKind.RENAMED: ["key"],
    DifferenceKind.RELABELLED: ["class"],
    DifferenceKind.SPLIT: ["split"],
}


class _Contents(NamedTuple):
    """The compared contents of both datasets, as `pyarrow.Table`s."""

    old: Any
    new: Any


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Difference(Printable):
    """The differences between two datasets.

    `str()` returns the text that `beam-tfr diff` prints.

    Attributes:
        old, new: manifests of the datasets.
        unchanged: number of records without a difference.
    """

    old: Manifest
    new: Manifest
    unchanged: int
    _rows: Mapping[DifferenceKind, RowPairs]  # empty if no records differ
    _contents: _Contents | None = None  # None if no records differ

    @property
    def counts(self) -> dict[str, int]:
        """The number of records for each kind of difference: "added", "removed", "renamed", ….

        A record can be of several kinds.
        """
        return {kind.value: self._count(kind) for kind in DifferenceKind}

    def _count(self, kind: DifferenceKind) -> int:
        rows = self._rows.get(kind, NO_PAIRS)
        return max(len(rows.old), len(rows.new))

    @property
    def equal(self) -> bool:
        """Whether both datasets have the same records, labels, counts and options."""
        have_equal_records = self.old.dataset_digest == self.new.dataset_digest
        return have_equal_records and self.old.options == self.new.options

    def records(self, kind: str, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Yields the records of a kind: the first `most`, or all.

        The records are in the order of the new dataset; removed records are in the order of the old
        dataset.

        Each record is a dict with "kind" and "key". If the record was renamed or relabelled, is in
        another split or has other columns, "old" and "new" hold the values that differ, as
        column -> value. Keys and strings of more than 1,000 characters are None.

        Raises:
            UsageError: there is no such kind.
        """
        check_choice("kind", kind, [*DifferenceKind])
        if most is not None:
            check_integer("most", most, 0)
        if self._contents is None:
            return
        names = self._compared_columns(DifferenceKind(kind), self._contents)
        columns = sorted({"key", *names})
        rows = self._rows[DifferenceKind(kind)]
        old_rows = _read_rows(self._contents.old.select(columns), rows.old[:most])
        new_rows = _read_rows(self._contents.new.select(columns), rows.new[:most])
        for old, new in itertools.zip_longest(old_rows, new_rows):
            record = {"kind": str(kind), "key": (new or old)["key"]}
            yield record | _differing_values(names, old, new)

    def _compared_columns(self, kind: DifferenceKind, contents: _Contents) -> list[str]:
        """Returns the columns whose values are shown for records of a kind."""
        if kind is DifferenceKind.COLUMNS:
            return table_columns(*contents)
        return _COMPARED_COLUMNS.get(kind, [])

    def as_json(self, most: int = 10) -> dict[str, Any]:
        """Returns the differences as a JSON object: equality, counts, and some records.

        Args:
            most: maximum number of records per kind.
        """
        check_integer("most", most, 0)
        differing = [self.records(kind, most) for kind in DifferenceKind]
        return {
            "old": self.old.folder,
            "new": self.new.folder,
            "equal": self.equal,
            "digest": [self.old.dataset_digest, self.new.dataset_digest],
            "records": {**self.counts, "unchanged": self.unchanged},
            "differing": [*itertools.chain.from_iterable(differing)],
        }

    def lines(self, most: int = 10) -> Iterator[str]:
        """Yields the lines of the text.

        Args:
            most: maximum number of records per kind.
        """
        check_integer("most", most, 0)
        yield _headline("old", self.old)
        yield _headline("new", self.new)
        if self.equal:
            yield "equal: the same records, made with the same options"
            return
        changes = _describe_manifest_changes(self.old, self.new)
        yield from changes
        for kind in DifferenceKind:
            yield from self._record_lines(kind, most)
        yield f"unchanged: {counted(self.unchanged, 'record')}"
        if not changes and not any(self.counts.values()):
            yield (
                "the digests differ because of data that contents do not hold: the bytes or the "
                "order of records, or statistics"
            )

    def _record_lines(self, kind: DifferenceKind, most: int) -> Iterator[str]:
        number = self._count(kind)
        if not number:
            return
        yield f"{kind}: {counted(number, 'record')}"
        for record in self.records(kind, most):
            yield f"  {_describe_record(record)}"
        if 0 < most < number:
            yield f"  and {number - most:,} more"


@public
def diff(
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    progress: Callable[[Progress], object] | None = None,
) -> Difference:
    """Compares two datasets by their manifests and contents.

    Contents are only compared if the digests differ. No shard is read.

    Args:
        old, new: folders of datasets, local or gs://.
        progress: called for each shard with a `Progress`, which counts the records in both
            datasets.

    Raises:
        UsageError: a path is malformed.
        NotFoundError: there is no such folder.
        DataError: a folder holds no complete dataset, or its contents are missing or damaged.
        NotInstalledError: pyarrow is missing.
    """
    before = read_manifest(storage.check_path(old))
    after = read_manifest(storage.check_path(new))
    if before.dataset_digest == after.dataset_digest:
        return Difference(old=before, new=after, unchanged=before.counts["written"], _rows={})
    num_read = 0
    total = before.counts["written"] + after.counts["written"]

    def on_records(number: int) -> None:
        nonlocal num_read
        num_read += number
        if progress:
            progress(Progress("comparing", num_read, total))

    old_contents = read_compared_contents(before, on_records)
    new_contents = read_compared_contents(after, on_records)
    rows, unchanged = classify_rows(old_contents, new_contents)
    contents = _Contents(old_contents, new_contents)
    return Difference(old=before, new=after, unchanged=unchanged, _rows=rows, _contents=contents)


def _read_rows(table: Any, rows: Numbers) -> Iterator[dict[str, Any]]:
    """Yields some rows of a table, each as column -> value."""
    for begin in range(0, len(rows), _SLICE):
        yield from table.take(rows[begin : begin + _SLICE]).to_pylist()


def _differing_values(
    names: Sequence[str], old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """Returns the values that differ between two rows: {"old": {column: value}, "new": {…}}.

    The result is empty if no value differs, or if a row is missing.
    """
    if old is None or new is None:
        return {}
    differing = [name for name in names if repr(old[name]) != repr(new[name])]
    if not differing:
        return {}
    return {"old": _select_values(old, differing), "new": _select_values(new, differing)}


def _select_values(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name.removeprefix(TABLE_PREFIX): row[name] for name in names}


def _headline(title: str, dataset: Manifest) -> str:
    records = counted(dataset.counts["written"], "record")
    return f"{title}: {dataset.folder}: {records}, digest {dataset.dataset_digest[:16]}"


def _describe_manifest_changes(old: Manifest, new: Manifest) -> list[str]:
    """Returns a line for each difference in options, counts, boxes, masks and class ids."""
    lines = describe_changes({"options": old.options}, {"options": new.options})
    after = _count_images(new)
    for field, before in _count_images(old).items():
        zeros = dict.fromkeys([*before, *after[field]], 0)
        lines += describe_changes({field: zeros | before}, {field: zeros | after[field]})
    for name in ("boxes", "masks"):
        before_statistics = old.statistics.get(name)
        after_statistics = new.statistics.get(name)
        if before_statistics and after_statistics:
            lines += describe_changes({name: before_statistics}, {name: after_statistics})
    ids = describe_id_changes(old.class_names, new.class_names)
    if ids:
        lines.append(f"  class ids: {ids}")
    return lines


def _count_images(dataset: Manifest) -> dict[str, dict[str, int]]:
    """Returns the numbers of images that are compared: kind of number -> name -> number."""
    classes = collections.Counter[str]()
    for split in dataset.splits.values():
        classes.update(split.class_counts)
    return {
        "splits": {name: split.num_examples for name, split in dataset.splits.items()},
        "classes": dict(classes),
        "rejected": dict(dataset.counts["rejected"]),
        "adjusted": dict(dataset.counts["adjusted"]),
    }


def _describe_record(record: Mapping[str, Any]) -> str:
    """Describes a record that differs, as a line of text."""
    old = record.get("old", {})
    new = record.get("new", {})
    text = str(record["key"])
    if record["kind"] == DifferenceKind.RENAMED:
        text = f"{old['key']} -> {new['key']}"
    elif old:
        changes = [f"{name} {describe_change(old[name], new[name])}" for name in old]
        text += f": {', '.join(changes)}"
    return text
