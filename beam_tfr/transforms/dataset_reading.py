"""Reads the known facts about the images of a dataset, several shards at a time."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PBegin, PCollection

from beam_tfr.dataset.base import BaseDataset, PlannedShard, planned_shards
from beam_tfr.dataset.lookup import read_shard_contents
from beam_tfr.engine import interrupt
from beam_tfr.output import known
from beam_tfr.output.known import KnownSource
from beam_tfr.planning import packing
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.encoded_ref import EncodedRef, key_of, to_bytes
from beam_tfr.schema.errors import DataError
from beam_tfr.transforms.counting import FunctionDoFn, count

SHARDS_AT_A_TIME = 8  # number of shards that a worker reads for one element


def read_known(begin: PBegin, base: BaseDataset, *, splits_stay: bool) -> PCollection[bytes]:
    """Reads the known facts about the images of a dataset.

    Args:
        begin: the beginning of the pipeline.
        base: the dataset.
        splits_stay: whether images that still exist stay in their split.

    Returns:
        For each image, packed: its split (an empty string if the split may change), a NUL, and the
        result of `known.encode_source`.
    """
    read = functools.partial(_read_known, base=base, splits_stay=splits_stay)
    return read_shards(begin, base, "Known", read)


def _read_known(shard: PlannedShard, *, base: BaseDataset, splits_stay: bool) -> Iterator[bytes]:
    split = shard.split.encode() if splits_stay else b""
    sources = known.read_sources(base.folder, shard) or []
    encoded = (known.encode_source(source) for source in sources if _is_usable(source, base))
    return packing.pack_batches(split + b"\0" + image for image in encoded)


def _is_usable(source: KnownSource, base: BaseDataset) -> bool:
    """Whether knowing an image helps, because it has a record, or a reject that may stay.

    Whether an image is rejected for its name is decided by the listing alone.
    """
    if not source.reject:
        return True
    return base.with_rejects and not EncodedRef.parse(source.ref).reason


def read_splits(begin: PBegin, base: BaseDataset) -> PCollection[bytes]:
    """Reads the split of each image of a dataset, whether the image is a record or a reject.

    Returns:
        For each image, packed: its key, a NUL, and its split.
    """
    return read_shards(begin, base, "Splits", functools.partial(_read_split, base=base))


def read_splits_of_records(begin: PBegin, base: BaseDataset) -> PCollection[bytes]:
    """Reads the split of each record, except records of table rows; see `read_splits`."""
    read = functools.partial(_read_split_of_records, base=base)
    return read_shards(begin, base, "RecordSplits", read)


def _read_split_of_records(shard: PlannedShard, *, base: BaseDataset) -> Iterator[bytes]:
    split = shard.split.encode()
    sources = known.require_sources(base.folder, shard)
    keys = (key_of(source.ref) for source in sources if source.reject is None)
    return packing.pack_batches(key + b"\0" + split for key in keys)


def _read_split(shard: PlannedShard, *, base: BaseDataset) -> Iterator[bytes]:
    """Reads the keys of a shard's images, each with the shard's split; no keys if it has no split.

    Raises:
        DataError: the sidecar of the shard is missing.
    """
    if shard.split == NO_SPLIT:
        return iter(())
    keys = _read_keys(shard, base)
    if keys is None:
        raise DataError(
            f"{base.folder}: .sources lacks {shard.name}, so the splits of its images are unknown. "
            "Restore that folder, or divide all images again with `beam-tfr update`, `input=` and "
            "`resplit=`"
        )
    split = shard.split.encode()
    return packing.pack_batches(key + b"\0" + split for key in keys)


def _read_keys(shard: PlannedShard, base: BaseDataset) -> list[bytes] | None:
    """Reads the keys of a shard's images; returns None if the sidecar of the shard is missing.

    Sidecars of rows have no keys, but their contents have the keys of records.
    """
    if base.read_manifest().options["encoding"] == "row":
        return _read_keys_of_records(shard, base)
    sources = known.read_sources(base.folder, shard)
    return None if sources is None else [key_of(source.ref) for source in sources]


def read_earlier_splits(begin: PBegin, base: BaseDataset) -> PCollection[bytes]:
    """Reads the split in which each image of a dataset has its record.

    Contents that cannot be read are skipped: their images are not counted as moved.

    Returns:
        For each record, packed: a NUL, its key, a NUL, and its split.
    """
    read = functools.partial(_read_earlier_split, base=base)
    return read_shards(begin, base, "Earlier", read)


def _read_earlier_split(shard: PlannedShard, *, base: BaseDataset) -> Iterator[bytes]:
    keys = list[bytes]()
    with contextlib.suppress(DataError, OSError):  # the update may repair the contents
        keys = _read_keys_of_records(shard, base)
    split = shard.split.encode()
    return packing.pack_batches(b"\0" + key + b"\0" + split for key in keys)


def _read_keys_of_records(shard: PlannedShard, base: BaseDataset) -> list[bytes]:
    """Reads the keys of a shard's records, except keys that are too long for contents."""
    dataset = base.read_manifest()
    entry = shard.entry
    if entry is None or not entry.num_examples:
        return []
    table = read_shard_contents(dataset, entry, ["key"])
    return [to_bytes(key) for key in table.column("key").to_pylist() if key is not None]


def read_dataset_refs(begin: PBegin, base: BaseDataset) -> PCollection[bytes]:
    """Reads references to the images of a dataset, as if their sources were listed.

    The output is like that of `MatchImages`.
    """
    return read_shards(begin, base, "Dataset", functools.partial(_read_refs, base=base))


def _read_refs(shard: PlannedShard, *, base: BaseDataset) -> Iterator[bytes]:
    sources = known.require_sources(base.folder, shard)
    count("listed", len(sources))
    return packing.pack_batches(source.ref for source in sources)


def read_shards(
    begin: PBegin,
    base: BaseDataset,
    name: str,
    read: Callable[[PlannedShard], Iterator[Any]],
    output_type: Any = bytes,
) -> PCollection[Any]:
    """Applies a function to each shard of a dataset.

    Each element of the pipeline holds the numbers of several shards.

    Args:
        begin: the beginning of the pipeline.
        base: the dataset.
        name: a name for what is read, used in the labels of the steps.
        read: yields values from a shard.
        output_type: the type of these values.
    """
    number_of_shards = len(planned_shards(base.read_manifest()))
    numbers = [*range(number_of_shards)]
    firsts = numbers[::SHARDS_AT_A_TIME]
    parts = [numbers[first : first + SHARDS_AT_A_TIME] for first in firsts]
    reading = beam.ParDo(FunctionDoFn(functools.partial(_read_some, base=base, read=read)))
    listed = begin | f"{name}Shards" >> beam.Create(parts)
    spread = listed | f"Spread{name}Shards" >> beam.Reshuffle()
    return spread | f"Read{name}" >> reading.with_output_types(output_type)


def _read_some(
    numbers: Sequence[int],
    *,
    base: BaseDataset,
    read: Callable[[PlannedShard], Iterator[Any]],
) -> Iterator[Any]:
    shards = planned_shards(base.read_manifest())
    for number in numbers:
        interrupt.check_interrupt()
        yield from read(shards[number])
