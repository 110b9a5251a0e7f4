"""Finds the TFRecord files that a path names, and reads their records."""

import dataclasses
from collections.abc import Iterator, Sequence

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.splits import choose_splits
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.no_match import find_records
from beam_tfr.inspection.records import InspectedRecord
from beam_tfr.records.tfrecords import RecordFile, max_record_bytes_in
from beam_tfr.schema.dataset import MANIFEST_FILE, sort_splits
from beam_tfr.schema.errors import DataError, NotFoundError
from beam_tfr.schema.wildcards import WILDCARD

MAX_FOREIGN_BYTES = 512 << 20  # 512 MiB for a record in a file without a manifest


@dataclasses.dataclass(frozen=True)
class InspectedFile:
    """A TFRecord file.

    Attributes:
        path: local or gs://.
        num_bytes: size of the file.
        num_records: number of records according to the manifest; None without a manifest, when only
            reading the file shows the number.
    """

    path: str
    num_bytes: int
    num_records: int | None = None


@dataclasses.dataclass(frozen=True)
class InspectedFiles:
    """The TFRecord files at a path, in order.

    Attributes:
        files: the files.
        manifest: manifest of the dataset that the files belong to; None if there is none.
        problem: why the folder holds only part of a dataset; otherwise empty.
    """

    files: Sequence[InspectedFile]
    manifest: Manifest | None = None
    problem: str = ""

    @property
    def num_records(self) -> int:
        """The number of records according to the manifest; 0 without a manifest."""
        return sum(file.num_records or 0 for file in self.files)


def find_files(path: str, split: str | None = None) -> InspectedFiles:
    """Finds the dataset in a folder, or the files that a path or pattern names.

    Args:
        path: path of a folder or file, or a pattern.
        split: only this split of a dataset; None for all.

    Raises:
        NotFoundError: there is nothing at the path.
        DataError: the folder holds neither a dataset nor TFRecord files.
        UsageError: the pattern matches nothing, or the dataset has no such split.
    """
    file = storage.find(path)
    if file:
        return InspectedFiles(_without_manifest([file]))
    try:
        dataset = read_manifest(path)
    except NotFoundError:
        if not WILDCARD.search(path):
            raise NotFoundError(f"{path}: there is no such file or folder") from None
        matching = sorted(match_files([(path, ())], option="path"))
        return InspectedFiles(_without_manifest(matching))
    except DataError as error:
        files = _find_record_files(path)
        if not files:
            raise
        problem = str(error) if _is_unfinished(path) else ""
        return InspectedFiles(_without_manifest(files), problem=problem)
    return InspectedFiles(_list_shards(dataset, split), dataset)


def _find_record_files(folder: str) -> list[storage.Entry]:
    """Finds the TFRecord files in a folder by name, or otherwise by content."""
    files = storage.list_files(folder)
    named = [file for file in files if "tfrecord" in file.name]
    return named or [file for file in files if find_records([file.path])]


def _without_manifest(files: Sequence[storage.Entry]) -> list[InspectedFile]:
    return [InspectedFile(file.path, file.size_bytes) for file in files]


def _is_unfinished(folder: str) -> bool:
    """Whether a folder has a damaged manifest, or a work folder."""
    if storage.find(storage.join(folder, MANIFEST_FILE)):
        return True
    return bool(storage.list_folder(storage.work_path(folder, "")))


def _list_shards(dataset: Manifest, split: str | None) -> list[InspectedFile]:
    """Lists the files of one split of a dataset, or of all splits in their usual order.

    Raises:
        UsageError: there is no such split, or it has no records.
    """
    names = [name for name in sort_splits(dataset.splits) if dataset.splits[name].shards]
    files = []
    for name in choose_splits(dataset, split, names):
        for shard in dataset.splits[name].shards:
            path = storage.join(dataset.folder, shard.file)
            files.append(InspectedFile(path, shard.num_bytes, shard.num_examples))
    return files


def read_records(
    files: Sequence[InspectedFile], start: int
) -> Iterator[tuple[int, InspectedRecord]]:
    """Yields the records of the given files in order, each with the index of its file.

    Files in a dataset are read from record `start` on.

    Args:
        files: the files. If the number of records in a file is known, the file is opened only if it
            has records from `start` on.
        start: number of the first record; files without a manifest are always read from their
            first record.

    Raises:
        RecordError: a file is damaged.
        OSError: a file cannot be read.
    """
    first = 0  # number of the first record of the file
    for index, file in enumerate(files):
        skip = 0
        if file.num_records is not None:
            skip = max(start - first, 0)
            if skip >= file.num_records:
                first += file.num_records
                continue
        longest = MAX_FOREIGN_BYTES
        if file.num_records is not None:
            longest = max_record_bytes_in(file.num_bytes)
        records = RecordFile(file.path, max_record_bytes=longest, skip=skip)
        for data in records:
            yield index, InspectedRecord(first + records.record, file.path, records.offset, data)
        if file.num_records is None:
            first += records.record
        else:
            first += file.num_records
