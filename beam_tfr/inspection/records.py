"""Finds the TFRecord files that a path names, and reads their records."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_tfr import storage
from beam_tfr.dataset import manifest
from beam_tfr.dataset.lookup import Lookup, features_in
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import Part
from beam_tfr.inputs.listing import list_files
from beam_tfr.inputs.patterns import WILDCARD
from beam_tfr.records import contents
from beam_tfr.records.examples import TooManyValuesError, parse_example
from beam_tfr.records.tfrecords import RecordError, RecordFile, longest_in
from beam_tfr.schema import MANIFEST_FILE, DataError, NotFoundError, NotInstalledError, UsageError, in_order

_AT_A_TIME = 4  # records that are read at a time: of 128 MiB at most
Values = dict[str, list[Any]]  # feature -> values: bytes, int or float


class File(NamedTuple):
    """A TFRecord file; `num_records` is -1 where only reading it tells."""

    path: str
    num_bytes: int
    num_records: int = -1


@dataclasses.dataclass(frozen=True)
class StoredRecord:
    """A record of a file.

    Attributes:
        number: from 0, over all files.
        file: its path.
        offset: where it begins in the uncompressed file, in bytes.
        data: as stored.
    """

    number: int
    file: str
    offset: int
    data: bytes = dataclasses.field(repr=False)

    @functools.cached_property
    def values(self) -> Values:
        """Feature -> its values, bytes, int or float; none if the record is not a tf.train.Example.

        Raises:
            RecordError: there are too many.
        """
        try:
            return parse_example(self.data)
        except TooManyValuesError as error:
            raise RecordError(self.file, self.number, self.offset, str(error)) from None
        except ValueError:
            return {}


def find_files(path: str, split: str | None = None) -> tuple[Manifest | None, list[File], str]:
    """The manifest of the dataset in a folder, and its files in order; or the files that a path or pattern names.

    Returns:
        The manifest or None, the files, and why the folder holds no complete dataset, if it holds part of one.

    Raises:
        NotFoundError: there is nothing at the path.
        DataError: the folder holds neither a dataset nor TFRecord files.
        UsageError: the pattern matches nothing, or the dataset has no such split.
    """
    if entry := storage.find(path):
        return None, [File(entry.path, entry.size_bytes)], ""
    problem = ""
    try:
        dataset = manifest.read(path)
    except DataError as error:
        if isinstance(error, NotFoundError) and WILDCARD.search(path):
            entries = sorted(list_files(path, option="path"))
        elif isinstance(error, NotFoundError):
            raise NotFoundError(f"{path}: there is no such file or folder") from None
        else:
            listed = sorted(storage.walk(path, lambda _: False, deep=False))
            entries = [entry for entry in listed if "tfrecord" in entry.path.rpartition("/")[2]]
            if storage.list_folder(storage.work_path(path, "")) or storage.find(storage.join(path, MANIFEST_FILE)):
                problem = str(error)
        if not entries:
            raise
        return None, [File(entry.path, entry.size_bytes) for entry in entries], problem
    known = [name for name in in_order(dataset.splits) if dataset.splits[name].shards]
    if split is not None and split not in known:
        raise UsageError(f"is not in {path}; there are: {', '.join(known)}", option="split", value=split)
    shards = [shard for name in ([split] if split else known) for shard in dataset.splits[name].shards]
    return dataset, [File(storage.join(path, shard.file), shard.num_bytes, shard.num_examples) for shard in shards], ""


def read_files(
    files: Sequence[File],
    chosen: Chosen | None,
    on_file: Callable[[int, int], object],
    on_bytes: Callable[[bytes], object],
) -> Iterator[tuple[int, StoredRecord]]:
    """Yields the index of the file and the record for each record of some files.

    Args:
        files: the files.
        chosen: of a dataset, which of its records may be wanted; None for all.
        on_file: called with the index of each file that is not read from its beginning, and the records before it.
        on_bytes: called with what is read of files from their beginning.

    Raises:
        RecordError: a file is damaged.
        DataError: another dataset has replaced this one.
        OSError: a file cannot be read.
    """
    before = 0
    for index, file in enumerate(files):
        first = max(0, chosen.start - before) if chosen else 0
        if 0 <= file.num_records <= first:
            before += file.num_records
            continue
        numbers = chosen.numbers(index, before) if chosen else None
        if chosen and numbers is not None:
            on_file(index, before)
            yield from ((index, record) for record in chosen.read(numbers))
            before += file.num_records
            continue
        records = RecordFile(file.path, max_record_bytes=longest_in(file.num_bytes), skip=first, on_bytes=on_bytes)
        for data in records:
            yield index, StoredRecord(before + records.record, file.path, records.offset, data)
        before += records.record


class Chosen:
    """The records of a dataset from number `start` on that may have some values, found by its contents.

    Args:
        dataset: the dataset.
        files: its files.
        start: number of the first record.
        where: feature -> value, as text.
    """

    def __init__(self, dataset: Manifest, files: Sequence[File], *, start: int, where: Mapping[str, str]) -> None:
        parts = [Part(file.path, file.num_records, 0, file.num_records, file.num_bytes) for file in files]
        self.start = start
        self._lookup = Lookup(dataset, parts)
        columns = contents.columns_of(features_in(dataset), dataset.names)
        known = (
            (value, [columns[one].name for one in features_of_name(columns, name)]) for name, value in where.items()
        )
        # The contents hold the length of a payload, and escape what is not UTF-8.
        self._known = [(value, names) for value, names in known if "bytes" not in names and "\ufffd" not in value]
        self._answers = bool(self._known) or not where

    def numbers(self, index: int, before: int) -> list[int] | None:
        """The records of a file; None if only reading it from its beginning tells, or is as good."""
        part = self._lookup.parts[index]
        first = max(0, self.start - before)
        if not self._answers or not (first or self._known):
            return None
        try:
            self._lookup.offset(before + first)
            table = self._lookup.table(part, sorted({name for _, names in self._known for name in names}))
        except (DataError, NotInstalledError):  # `verify` says what is wrong
            return None
        rows = np.ones(part.records, bool)
        for value, names in self._known:
            rows &= np.any(
                [[_may_be(cell, value) for cell in table.column(name).to_pylist()] for name in names], axis=0
            )
        return [before + row for row in np.flatnonzero(rows).tolist() if row >= first]

    def read(self, numbers: Sequence[int]) -> Iterator[StoredRecord]:
        """Yields the records of some numbers; raises as `read_files` does."""
        for begin in range(0, len(numbers), _AT_A_TIME):
            some = numbers[begin : begin + _AT_A_TIME]
            for number, data in zip(some, self._lookup.read_each(some), strict=True):
                if isinstance(data, RecordError):
                    raise data
                yield StoredRecord(number, self._lookup.locate(number)[0].file, self._lookup.offset(number), data)


def _may_be(cell: Any, value: str) -> bool:
    """True if a cell has a value, given as text, or is null, as one that is too long."""
    cells = cell if isinstance(cell, list) else [cell]
    return any(one is None or value == (one.hex() if isinstance(one, bytes) else str(one)) for one in cells)


def features_of_name(features: Iterable[str], name: str) -> list[str]:
    """The features that a short name means: "label" is "image/class/label" and "image/class/text"."""
    ends = (f"/{name}", "class/text") if name == "label" else (f"/{name}",)
    return [feature for feature in features if feature == name or f"/{feature}".endswith(ends)]


def matches(values: Values, where: Mapping[str, str]) -> bool:
    """True if each feature has the given value, which is text."""
    return all(
        any(value in map(text_of, values[feature]) for feature in features_of_name(values, name))
        for name, value in where.items()
    )


def text_of(value: Any) -> str:
    """A value as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
