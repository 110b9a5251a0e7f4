"""Reads from the contents of a dataset which sources its records were made from."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.dataset.split_notes import (
    HASH_BYTES,
    SourceHashes,
    describe_overlaps,
    find_overlaps,
)
from beam_tfr.inputs.archives import RangeReader
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.naming import contents_name

MOST_REMOTE_RECORDS = 5_000_000  # on gs://, of each of which 32 bytes are read
_COLUMN = "source_sha256"
_SHA256_BYTES = 32
_THREADS = 32  # that read contents, on gs:// with two requests each


def describe_shared_sources(dataset: Manifest) -> Iterator[str]:
    """Yields sentences about images that have the same bytes in several splits."""
    splits = {name: split for name, split in dataset.splits.items() if name != NO_SPLIT}
    if len(splits) < 2 or not dataset.names.sha256:
        return
    num_records = sum(split.num_examples for split in splits.values())
    if storage.is_remote(dataset.folder) and num_records > MOST_REMOTE_RECORDS:
        yield (
            f"{num_records:,} records are too many to look for the same bytes in several splits "
            "here; `beam-tfr verify` does"
        )
        return
    shards = [(name, shard) for name, split in splits.items() for shard in split.shards]

    def read(split_and_shard: tuple[str, ShardEntry]) -> SourceHashes:
        split, shard = split_and_shard
        return SourceHashes(split, _read_hashes(dataset, shard))

    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            hashes = [*pool.map(read, shards)]
    except (DataError, OSError) as error:
        yield f"the same bytes in several splits were not looked for: {error}"
        return
    overlaps = find_overlaps(hashes)
    yield from describe_overlaps(dataset, [shard for _, shard in shards], overlaps)


def _read_hashes(dataset: Manifest, shard: ShardEntry) -> bytes:
    """The first `HASH_BYTES` of the SHA-256 of the source of each record."""
    path = storage.join(dataset.folder, contents_name(shard.file))
    file = storage.find(path)
    if file is None:
        raise DataError(f"{path} is missing")
    parts = []
    for batch in _read_batches(file):
        column = batch.column(0).fill_null(bytes(_SHA256_BYTES))
        _, data = column.buffers()
        digests = np.frombuffer(data, np.uint8).reshape(-1, _SHA256_BYTES)
        begin = column.offset
        parts.append(digests[begin : begin + len(column), :HASH_BYTES].tobytes())
    return b"".join(parts)


def _read_batches(file: storage.Entry) -> Iterator[Any]:
    """Yields batches of the column of SHA-256, of contents that this run has written or checked.

    Of a file on gs://, it reads no other column.

    Raises:
        DataError: they are damaged meanwhile.
    """
    pa = need_pyarrow()
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(RangeReader(file), pre_buffer=False) as opened:
            yield from opened.iter_batches(columns=[_COLUMN], use_threads=False)
    except pa.ArrowException as error:
        raise DataError(f"{file.path} is damaged: {error}") from None
