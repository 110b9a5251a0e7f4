"""Finds the TFRecord files that a path names, reads their records, and describes the values in
them."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr import storage
from beam_tfr.dataset.conditions import features_named, value_text
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.images import formats
from beam_tfr.images.source import Source
from beam_tfr.inputs.listing import list_files
from beam_tfr.inputs.patterns import WILDCARD
from beam_tfr.records.examples import TooManyValuesError, parse_example
from beam_tfr.records.tensors import STRING, parse_tensor
from beam_tfr.records.tfrecords import RecordError, RecordFile, max_record_bytes_in
from beam_tfr.schema.dataset import MANIFEST_FILE, sort_splits
from beam_tfr.schema.errors import DataError, NotFoundError, RejectError, UsageError
from beam_tfr.schema.feature_names import ARRAY_RAW, RAW

Values = dict[str, list[Any]]  # feature -> values: bytes, int or float


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


def find_files(path: str, split: str | None = None) -> tuple[Manifest | None, list[ShardPart], str]:
    """The manifest of the dataset in a folder, and its files in order; or the files that a path or
    pattern names.

    Returns:
        The manifest or None, the files (without one, the number of their records is 0, as only
        reading them tells), and why the folder holds no complete dataset, if it holds part of one.

    Raises:
        NotFoundError: there is nothing at the path.
        DataError: the folder holds neither a dataset nor TFRecord files.
        UsageError: the pattern matches nothing, or the dataset has no such split.
    """
    entry = storage.find(path)
    if entry:
        return None, [_file(entry)], ""
    try:
        dataset = read_manifest(path)
    except NotFoundError:
        if not WILDCARD.search(path):
            raise NotFoundError(f"{path}: there is no such file or folder") from None
        return None, [_file(entry) for entry in sorted(list_files([(path, ())], option="path"))], ""
    except DataError as error:
        files = [_file(entry) for entry in storage.list_files(path) if "tfrecord" in entry.name]
        if not files:
            raise
        is_part = storage.list_folder(storage.work_path(path, "")) or storage.find(
            storage.join(path, MANIFEST_FILE)
        )
        return None, files, str(error) if is_part else ""
    known = [name for name in sort_splits(dataset.splits) if dataset.splits[name].shards]
    if split is not None and split not in known:
        raise UsageError(
            f"is not in {path}; there are: {', '.join(known)}", option="split", value=split
        )
    shards = [
        shard for name in ([split] if split else known) for shard in dataset.splits[name].shards
    ]
    sizes = [
        (storage.join(path, shard.file), shard.num_examples, shard.num_bytes) for shard in shards
    ]
    return (
        dataset,
        [ShardPart(file, number, 0, number, num_bytes) for file, number, num_bytes in sizes],
        "",
    )


def _file(entry: storage.Entry) -> ShardPart:
    return ShardPart(entry.path, 0, 0, 0, entry.size_bytes)


def read(files: Sequence[ShardPart], start: int) -> Iterator[tuple[int, StoredRecord]]:
    """Yields the records of some files in order, each with the index of its file, of a dataset from
    `start` on.

    Args:
        files: the files. One whose number of records is known is not opened if it ends before
            `start`.
        start: number of the first record; of files without a manifest, all records are read.

    Raises:
        RecordError: a file is damaged.
        OSError: a file cannot be read.
    """
    before = 0
    for index, file in enumerate(files):
        skip = min(max(start - before, 0), file.records)
        if not file.records or skip < file.records:
            records = RecordFile(
                file.file, max_record_bytes=max_record_bytes_in(file.num_bytes), skip=skip
            )
            for data in records:
                yield index, StoredRecord(before + records.record, file.file, records.offset, data)
        before += file.records or records.record


MAX_VALUES = 8  # shown of a list
MAX_TEXT = 80  # characters shown of a text
_TENSORS = (RAW, ARRAY_RAW)


def describe_record(record: StoredRecord) -> Iterator[tuple[str, str]]:
    """Yields the features of a record, each with its values in a printable line."""
    if not record.values:
        yield "", f"not a tf.train.Example: {describe('', [record.data])}"
    for name, values in sorted(record.values.items()):
        yield name, describe(name, values)


def describe(name: str, values: Sequence[Any]) -> str:
    """The values of a feature in one printable line: "png image, height 20, width 30, 99 bytes",
    "'hat'", "1, 2"."""
    shown = ", ".join(_describe_value(name, value) for value in values[:MAX_VALUES])
    return (
        f"{shown}, … {len(values):,} values" if len(values) > MAX_VALUES else shown or "no values"
    )


def _describe_value(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if not isinstance(value, bytes):
        return str(value)
    size = f"{len(value):,} bytes"
    if name in _TENSORS and (array := tensor_of(value)) is not None:
        return f"{array.dtype.name} tensor {[*array.shape]}, {size}"
    image = open_image(value)
    if image:
        return f"{image.format} image, height {image.height}, width {image.width}, {size}"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{size}: {value[:8].hex(' ')}{' …' if len(value) > 8 else ''}"
    return repr(text[:MAX_TEXT]) + (f" … {size}" if len(text) > MAX_TEXT else "")


def open_image(data: bytes) -> Source | None:
    """An image whose header was read; None if it is not an image."""
    with contextlib.suppress(RejectError):
        return formats.FORMATS[formats.identify(data)].open(data)
    return None


def tensor_of(data: bytes) -> NDArray[Any] | None:
    """The array of a serialized tensor of numbers; None for anything else."""
    parsed = parse_tensor(data)
    if (
        parsed is None or parsed[0] == STRING or len(parsed[1]) > 32
    ):  # NumPy 1 has no more dimensions
        return None
    dtype, shape, content = parsed
    array: NDArray[Any] = np.frombuffer(content, dtype).reshape(shape)  # type: ignore[arg-type]
    return array


def label_of(values: Values) -> str:
    """The class of a record as text, or its labels as numbers; empty if it names none."""
    names = sorted(features_named(values, "label"), key=lambda name: not name.endswith("text"))
    return next((", ".join(map(value_text, values[name])) for name in names if values[name]), "")
