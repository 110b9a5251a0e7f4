"""diff: compares two datasets by their manifests and contents, without reading a shard.

    found = beam_tfr.diff("/data/v1", "/data/v2")
    print(found)
    lost = [record["key"] for record in found.records("removed")]

The contents stay in Arrow's memory, 150 bytes for each record. They are compared column by column,
by numbers that stand for values, which takes 250 bytes more for each record while it lasts. Two
datasets of 1,000,000 records each take 7 s of CPU time and 0.8 GB.
"""

import collections
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import Printable, counted
from beam_tfr.dataset.lookup import read_contents
from beam_tfr.dataset.manifest import Manifest, ShardEntry, check_not_replaced, read_manifest
from beam_tfr.dataset.reader_arguments import check_choice
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.schema import differences
from beam_tfr.schema.errors import without_traceback
from beam_tfr.schema.feature_names import OBJECT_MASK, SIDES

KINDS = ("added", "removed", "renamed", "changed", "relabelled", "split", "columns", "pixels")
_OF_TABLE = "table "  # before the names of a table's columns
_LOOKS = ("mean", "std", "phash")
_OWN = ("key", "class", "split", "source_sha256", "bytes", *_LOOKS)
_THREADS = 32  # that read contents, on gs:// with a request each
Numbers = NDArray[np.int64]  # of rows, or of values
Pairs = tuple[Numbers, Numbers]  # those in the old table, and those in the new one
_NONE = np.array([], np.int64)
_SLICE = 1 << 12  # rows that are Python objects at a time
_VALUES = {
    "renamed": ["key"],
    "relabelled": ["class"],
    "split": ["split"],
}  # kind -> the columns that are compared


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Difference(Printable):
    """The differences between two datasets; `str()` makes the text that `beam-tfr diff` prints.

    Attributes:
        old, new: manifests of the datasets.
        unchanged: number of records without a difference.
    """

    old: Manifest
    new: Manifest
    unchanged: int
    _pairs: Mapping[str, Pairs]  # kind -> rows
    _tables: tuple[Any, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Kind of difference -> number of records: "added", "removed", "renamed", …; a record can
        be of several."""
        return {kind: max(map(len, self._pairs[kind])) for kind in KINDS}

    @property
    def equal(self) -> bool:
        """True if both have the same records, labels, counts and options."""
        return (
            self.old.dataset_digest == self.new.dataset_digest
            and self.old.options == self.new.options
        )

    def records(self, kind: str, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Yields the first `most` records of a kind, or all, in the order of the new dataset
        (removed ones: the old).

        Each is {"kind", "key"}, with "old" and "new", column -> value, of the values that differ if
        it was renamed, relabelled, in another split, or has other columns. Keys and texts of more
        than 1,000 characters are None.

        Raises:
            UsageError: there is no such kind.
        """
        check_choice("kind", kind, KINDS)
        if not self.counts[kind]:
            return
        names = _of_table(*self._tables) if kind == "columns" else _VALUES.get(kind, [])
        tables = [table.select(sorted({"key", *names})) for table in self._tables]
        numbers = [rows[:most] for rows in self._pairs[kind]]
        for begin in range(0, max(map(len, numbers)), _SLICE):
            parts = [
                table.take(rows[begin : begin + _SLICE])
                for table, rows in zip(tables, numbers, strict=True)
            ]
            for old, new in itertools.zip_longest(*(part.to_pylist() for part in parts)):
                record = {"kind": kind, "key": (new or old)["key"]}
                differ = [name for name in names if repr(old[name]) != repr(new[name])]
                for side, row in (("old", old), ("new", new)) if differ else ():
                    record[side] = {name.removeprefix(_OF_TABLE): row[name] for name in differ}
                yield record

    def as_json(self, most: int = 10) -> dict[str, Any]:
        """What is equal, how many records differ, and at most so many of each kind, as a JSON
        object."""
        old = self.old
        new = self.new
        return {
            "old": old.folder,
            "new": new.folder,
            "equal": self.equal,
            "digest": [old.dataset_digest, new.dataset_digest],
            "records": {**self.counts, "unchanged": self.unchanged},
            "differing": [record for kind in KINDS for record in self.records(kind, most)],
        }

    def lines(self, most: int = 10) -> Iterator[str]:
        """Yields the lines of the text, with at most so many records of a kind."""
        for key, dataset in (("old", self.old), ("new", self.new)):
            digest = dataset.dataset_digest[:16]
            yield f"{key}: {dataset.folder}: {counted(dataset.counts['written'], 'record')}, digest {digest}"
        if self.equal:
            yield "equal: the same records, made with the same options"
            return
        different = differences.describe_changes(
            {"options": self.old.options}, {"options": self.new.options}
        )
        after = _numbers(self.new)
        for name, before in _numbers(self.old).items():
            zeros = dict.fromkeys([*before, *after[name]], 0)
            different += differences.describe_changes(
                {name: {**zeros, **before}}, {name: {**zeros, **after[name]}}
            )
        of_boxes = [dataset.statistics.get("boxes") for dataset in (self.old, self.new)]
        if all(of_boxes):  # earlier versions counted none
            different += differences.describe_changes(*({"boxes": boxes} for boxes in of_boxes))
        ids = differences.describe_id_changes(self.old.class_names, self.new.class_names)
        if ids:
            different += f"\n  class ids: {ids}"
        yield from different.split("\n")[1:]
        for kind, count in self.counts.items():
            if count:
                yield f"{kind}: {counted(count, 'record')}"
                yield from (f"  {_line(record)}" for record in self.records(kind, most))
                if 0 < most < count:
                    yield f"  and {count - most:,} more"
        yield f"unchanged: {counted(self.unchanged, 'record')}"
        if not different and not any(self.counts.values()):
            yield "the digests differ by what contents do not hold: bytes of records, their order, statistics"


@without_traceback
def diff(
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    progress: Callable[[Progress], object] | None = None,
) -> Difference:
    """Compares two datasets by their manifests and, if their digests differ, by their contents.
    Reads no shard.

    Args:
        old, new: folders that `convert` wrote, local or gs://.
        progress: called with a `Progress` for each shard; it counts the records of both.

    Raises:
        UsageError: a path is malformed.
        NotFoundError: there is no such folder.
        DataError: a folder holds no complete dataset, or one without contents, or with damaged
            ones.
        NotInstalledError: pyarrow is missing.
    """
    before, after = (read_manifest(storage.check_path(path)) for path in (old, new))
    if before.dataset_digest == after.dataset_digest:
        same = dict.fromkeys(KINDS, (_NONE, _NONE))
        return Difference(
            old=before, new=after, unchanged=before.counts["written"], _pairs=same, _tables=()
        )
    done = 0
    total = before.counts["written"] + after.counts["written"]

    def tell(records: int) -> None:
        nonlocal done
        done += records
        if progress:
            progress(Progress("comparing", done, total))

    tables = _read(before, tell), _read(after, tell)
    pairs, unchanged = classify(*tables)
    return Difference(old=before, new=after, unchanged=unchanged, _pairs=pairs, _tables=tables)


def _read(dataset: Manifest, done: Callable[[int], object]) -> Any:
    """The contents of a dataset, as far as they are compared, as a `pyarrow.Table`.

    Args:
        dataset: its manifest.
        done: called with the number of records of each shard.

    Raises:
        DataError: contents are missing or damaged, or another dataset has replaced this one.
        NotInstalledError: pyarrow is missing.
    """
    pa = need_pyarrow()
    columns = dataset.contents_columns
    schema = dataset.contents_schema()
    wanted = {name: name for name in _OWN if name in schema.names}
    of_boxes = (*SIDES, OBJECT_MASK, *itertools.chain(*dataset.points.values()))
    beside = (companion.feature for companion in dataset.names.companions)
    own = (*(dataset.options.get("feature_columns") or ()), *of_boxes, *beside)
    wanted |= {_OF_TABLE + name: columns[name].name for name in own if name in columns}
    names = [*wanted.values()]

    def read(shard: ShardEntry) -> Any:
        table = read_contents(dataset, shard.file, shard.num_examples, shard.num_bytes, names)
        return table.select(names)

    tables = [schema.empty_table().select(names)]
    with ThreadPoolExecutor(_THREADS) as pool:
        for table in pool.map(
            read, [shard for _, split in sorted(dataset.splits.items()) for shard in split.shards]
        ):
            tables.append(table)
            done(len(table))
    check_not_replaced(dataset)
    joined = pa.concat_tables(tables).rename_columns([*wanted])
    for name in [name for name in _OWN if name not in wanted]:
        joined = joined.append_column(name, pa.nulls(len(joined)))
    return joined.set_column(
        0, "key", joined.column("key").cast(pa.large_string())
    )  # they may have more than 2 GiB


def classify(old: Any, new: Any) -> tuple[dict[str, Pairs], int]:
    """The rows of each of the `KINDS`, in the order of the new table, and the number of rows of
    none.

    A row is found again by its key, else by the checksum of its source.
    """
    sources = _values(old, new, "source_sha256")
    keys = [
        np.where(key < 0, -2 - source, key)
        for key, source in zip(_values(old, new, "key"), sources, strict=True)
    ]
    kept = match(*keys)
    rest = [
        np.setdiff1d(np.flatnonzero(source >= 0), rows)
        for source, rows in zip(sources, kept, strict=True)
    ]
    moved = match(*(source[rows] for source, rows in zip(sources, rest, strict=True)))
    old_rows, new_rows = (np.concatenate([kept[side], rest[side][moved[side]]]) for side in (0, 1))
    order = np.argsort(new_rows)
    old_rows = old_rows[order]
    new_rows = new_rows[order]

    def compared(name: str) -> Pairs:
        before, after = _values(old, new, name)
        return before[old_rows], after[new_rows]

    def differ(*names: str) -> Any:  # bool, for each record that is in both
        return np.logical_or.reduce(
            [np.zeros(len(new_rows), bool), *(np.not_equal(*compared(name)) for name in names)]
        )

    old_source = sources[0][old_rows]
    new_source = sources[1][new_rows]
    changed = (old_source != new_source) & (old_source >= 0) & (new_source >= 0)
    masks = {
        "renamed": keys[0][old_rows] != keys[1][new_rows],
        "changed": changed,
        "relabelled": differ("class"),
        "split": differ("split"),
        "columns": differ(*_of_table(old, new)),
        "pixels": ~changed & differ("bytes", *_LOOKS),
    }
    pairs = {
        "added": (_NONE, np.delete(np.arange(len(new)), new_rows)),
        "removed": (np.delete(np.arange(len(old)), old_rows), _NONE),
        **{kind: (old_rows[mask], new_rows[mask]) for kind, mask in masks.items()},
    }
    return pairs, int((~np.logical_or.reduce([*masks.values()])).sum())


def _of_table(old: Any, new: Any) -> list[str]:
    """The names of the columns that are a table's in both."""
    return [
        name for name in new.column_names if name.startswith(_OF_TABLE) and name in old.column_names
    ]


def _values(old: Any, new: Any, name: str) -> Pairs:
    """Numbers for the values of a column, equal for equal values in both tables; -1 for null."""
    pa = need_pyarrow()
    columns = [table.column(name) for table in (old, new)]
    kind = columns[0].type
    chunks = [chunk for column in columns for chunk in column.chunks]
    if hasattr(kind, "value_type") or kind != columns[1].type:  # no dictionary may have lists
        kind = pa.string()
        cells = (chunk.to_pylist() for chunk in chunks)
        chunks = [
            pa.array([cell if cell is None else repr(cell) for cell in part], kind)
            for part in cells
        ]
    encoded = pa.chunked_array(chunks, kind).dictionary_encode()
    values = np.concatenate(
        [_NONE, *(chunk.indices.fill_null(-1).to_numpy() for chunk in encoded.chunks)]
    )
    return values[: len(old)], values[len(old) :]


def match(old: NDArray[Any], new: NDArray[Any]) -> Pairs:
    """Where equal values are in both, each place once: of those that repeat, the first with the
    first."""
    old_rows = np.argsort(old, kind="stable")
    new_rows = np.argsort(new, kind="stable")
    old = old[old_rows]
    new = new[new_rows]
    positions = np.searchsorted(new, old) + np.arange(len(old)) - np.searchsorted(old, old)
    found = positions < np.searchsorted(new, old, side="right")
    return old_rows[found], new_rows[positions[found]]


def _numbers(dataset: Manifest) -> dict[str, Mapping[str, int]]:
    """What is counted -> name -> number."""
    splits = dataset.splits.items()
    return {
        "splits": {name: split.num_examples for name, split in splits},
        "classes": sum(
            (collections.Counter(split.class_counts) for _, split in splits), collections.Counter()
        ),
        "rejected": dataset.counts["rejected"],
        "adjusted": dataset.counts["adjusted"],
    }


def _line(record: Mapping[str, Any]) -> str:
    """A record that differs as text."""
    old = record.get("old", {})
    new = record.get("new", {})
    changes = ", ".join(
        f"{name} {differences.describe_change(old[name], new[name])}" for name in old
    )
    text = f"{record['key']}{changes and f': {changes}'}"
    if record["kind"] == "renamed":
        text = f"{old['key']} -> {new['key']}"
    return text.replace("\n", "\\n")
