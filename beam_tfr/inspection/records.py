"""Finds the TFRecord files that a path names, and reads their records."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.dataset import manifest
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inputs.listing import list_files
from beam_tfr.inputs.patterns import WILDCARD
from beam_tfr.records.examples import TooManyValuesError, parse_example
from beam_tfr.records.tfrecords import RecordError, RecordFile, longest_in
from beam_tfr.schema import MANIFEST_FILE, DataError, NotFoundError, UsageError, in_order

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
    files: Sequence[File], start: int, on_bytes: Callable[[bytes], object]
) -> Iterator[tuple[int, StoredRecord]]:
    """Yields the index of the file and the record for each record from number `start` on.

    Files of known length before it are not opened; `on_bytes` is called with what is read of the others.

    Raises:
        RecordError: a file is damaged.
        OSError: a file cannot be read.
    """
    before = 0
    for index, file in enumerate(files):
        if 0 <= file.num_records <= start - before:
            before += file.num_records
            continue
        longest = longest_in(file.num_bytes)
        records = RecordFile(file.path, max_record_bytes=longest, skip=max(0, start - before), on_bytes=on_bytes)
        for data in records:
            yield index, StoredRecord(before + records.record, file.path, records.offset, data)
        before += records.record


def features_of_name(values: Values, name: str) -> list[str]:
    """The features that a short name means: "label" is "image/class/label" and "image/class/text"."""
    ends = (f"/{name}", "class/text") if name == "label" else (f"/{name}",)
    return [feature for feature in values if feature == name or f"/{feature}".endswith(ends)]


def matches(values: Values, where: Mapping[str, str]) -> bool:
    """True if each feature has the given value, which is text."""
    return all(
        any(value in map(text_of, values[feature]) for feature in features_of_name(values, name))
        for name, value in where.items()
    )


def text_of(value: Any) -> str:
    """A value as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
