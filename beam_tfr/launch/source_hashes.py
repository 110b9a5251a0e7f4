"""Reads the hashes of the sources of a dataset's records from its contents."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.dataset.split_notes import (
    HASH_BYTES,
    SourceHashes,
    describe_contradictions,
    describe_overlaps,
    find_overlaps,
)
from beam_tfr.inputs.archives import RangeReader
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.naming import contents_name

MOST_REMOTE_RECORDS = 5_000_000  # on gs://, where 40 bytes are read for each
_COLUMN = "source_sha256"
_LABEL = "label"
_SHA256_BYTES = 32
_THREADS = 32  # read contents; on gs://, each makes two requests


def describe_shared_sources(dataset: Manifest) -> Iterator[str]:
    """Yields sentences about images that have the same bytes in several splits or classes."""
    splits = {name: split for name, split in dataset.splits.items() if name != NO_SPLIT}
    label = dataset.feature_kinds.label
    has_label = label is not None and not label.is_list
    if not dataset.names.sha256 or (len(splits) < 2 and not has_label):
        return
    num_records = sum(split.num_examples for split in splits.values())
    if storage.is_remote(dataset.folder) and num_records > MOST_REMOTE_RECORDS:
        yield (
            f"{num_records:,} records are too many to check here whether several splits or "
            "classes contain the same image: run `beam-tfr verify`"
        )
        return
    shards = [(name, shard) for name, split in splits.items() for shard in split.shards]

    def read(split_and_shard: tuple[str, ShardEntry]) -> SourceHashes:
        split, shard = split_and_shard
        return _read_hashes(dataset, split, shard, has_label=has_label)

    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            hashes = [*pool.map(read, shards)]
    except (DataError, OSError) as error:
        yield f"could not check whether several splits or classes contain the same image: {error}"
        return
    entries = [shard for _, shard in shards]
    yield from describe_overlaps(dataset, entries, find_overlaps(hashes))
    yield from describe_contradictions(dataset, entries, hashes)


def _read_hashes(
    dataset: Manifest, split: str, shard: ShardEntry, *, has_label: bool
) -> SourceHashes:
    """Reads the hashes of a shard's sources, and the class of each record if it has just one."""
    path = storage.join(dataset.folder, contents_name(shard.file))
    file = storage.find(path)
    if file is None:
        raise DataError(f"{path} is missing")
    columns = [_COLUMN, _LABEL] if has_label else [_COLUMN]
    parts = []
    labels = []
    for batch in _read_batches(file, columns):
        if has_label:
            labels.append(np.asarray(batch.column(_LABEL).fill_null(-1)).astype("<i8").tobytes())
        column = batch.column(_COLUMN).fill_null(bytes(_SHA256_BYTES))
        _, data = column.buffers()
        digests = np.frombuffer(data, np.uint8).reshape(-1, _SHA256_BYTES)
        begin = column.offset
        parts.append(digests[begin : begin + len(column), :HASH_BYTES].tobytes())
    return SourceHashes(split, b"".join(parts), b"".join(labels))


def _read_batches(file: storage.Entry, columns: list[str]) -> Iterator[Any]:
    """Yields batches of the given columns of contents that this run has written or checked.

    On gs://, reads no other column of a file.

    Raises:
        DataError: the contents have been damaged since.
    """
    pa = need_pyarrow()
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(RangeReader(file), pre_buffer=False) as opened:
            yield from opened.iter_batches(columns=columns, use_threads=False)
    except pa.ArrowException as error:
        raise DataError(f"{file.path} is damaged: {error}") from None
