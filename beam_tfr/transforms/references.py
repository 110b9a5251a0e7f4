"""MatchImages, ReadTable and `read_dataset_refs` make references; `take_first` and `drop_removed` drop
some.

`read_known` adds what an update knows about them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PBegin, PCollection
from apache_beam.typehints import with_output_types

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset, PlannedShard, planned_shards
from beam_tfr.engine import interrupt
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.listing import PatternPart, divide_part, list_parts
from beam_tfr.inputs.patterns import common_root, compile_exclusion, order_patterns, read_input_list
from beam_tfr.inputs.skipped import SkippedFiles, describe_kinds
from beam_tfr.output import known
from beam_tfr.output.known import Source
from beam_tfr.output.removed import Removed
from beam_tfr.planning import packing
from beam_tfr.planning.survey import order_keys
from beam_tfr.records.repeats import (
    HASH_BYTES,
    KeyPosition,
    divide_by_hash,
    find_repeats,
    hash_key,
    number_keys,
)
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.encoded_ref import key_of, to_bytes
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import ImageRef, group_values
from beam_tfr.tables.rows import Tables
from beam_tfr.transforms.counting import FunctionDoFn, count

BATCHES = 64  # of patterns, each listed by one worker
LIMITS = {
    "": 20_000,
    "Ranges": 1_000_000,
    "Rest": None,
}  # names of a part, before the rest is divided
RANGES = (
    50  # at least, that all patterns or a large range are divided into; often ten times as many
)
ARCHIVES_AT_A_TIME = 16  # listed by one worker, each in a thread
HASHES_AT_A_TIME = 1 << 16  # of keys of a table
SHARDS_AT_A_TIME = 8  # of a dataset
RANGES_AT_A_TIME = 4  # or more, listed by one worker, which waits for many answers at a time


@with_output_types(bytes)
@dataclasses.dataclass(eq=False, repr=False)
class MatchImages(beam.PTransform):
    """Lists the files that match patterns, each once, as references with label and split.

    Attributes:
        patterns: local or gs://.
        labeler: reads labels and splits from paths.
        root: folder that keys are relative to, with a trailing slash; empty for the one that all
            patterns share.
        input_list: file with more patterns, read by a worker, since a pipeline cannot hold millions
            of them.
        exclude: patterns of files to skip.

    Output: encoded `ImageRef`s, as `packing.pack_batches` packs them.
    """

    patterns: Sequence[str]
    labeler: Labeler
    _: dataclasses.KW_ONLY
    root: str = ""
    input_list: str | None = None
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.root = self.root or common_root([*self.patterns, *read_input_list(self.input_list)])

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        excluded = compile_exclusion(self.exclude, self.root)
        parts = begin | beam.Create([None]) | "Patterns" >> beam.ParDo(FunctionDoFn(self._batches))
        refs = []
        ranges = 1 if self.input_list else -(-RANGES // len(self.patterns))
        for name, limit in (LIMITS if storage.is_gcs(self.root) else {"": None}).items():
            listing = FunctionDoFn(functools.partial(self._list, exclude=excluded, limit=limit))
            listed = (
                parts
                | f"Spread{name or 'Patterns'}" >> beam.Reshuffle()
                | f"List{name}"
                >> beam.ParDo(listing).with_output_types(bytes).with_outputs(_REST, main="refs")
            )
            refs.append(listed.refs)
            if limit is not None:
                dividing = FunctionDoFn(functools.partial(_divide, ranges=ranges))
                parts = listed[_REST] | f"Divide{name}" >> beam.ParDo(dividing)
                ranges = RANGES
        return refs | beam.Flatten()

    def _batches(self, _: None) -> Iterator[str]:
        ordered = order_patterns([*self.patterns, *read_input_list(self.input_list)])
        for i in range(min(BATCHES, len(ordered))):
            yield json.dumps(
                ordered[i::BATCHES]
            )  # Beam's coder for text fails for names that are not UTF-8

    def _list(self, batch: str, *, exclude: re.Pattern[str], limit: int | None) -> Iterator[Any]:
        skipped = SkippedFiles(self.patterns, exclude)
        parts = [PatternPart(*part) for part in json.loads(batch)]
        for found in list_parts(parts, exclude=exclude, limit=limit, skipped=skipped):
            interrupt.check()
            files = [entry for entry in found if isinstance(entry, storage.Entry)]
            count("listed", len(files))
            labelled = (
                self.labeler.label(entry, entry.path.removeprefix(self.root)) for entry in files
            )
            yield from packing.pack_batches(ref.encode() for ref in labelled)
            rest = (
                [] if limit is None else [part for part in found if isinstance(part, PatternPart)]
            )
            in_files = [part for part in rest if part.archive]
            groups = [[part] for part in rest if not part.archive]
            groups += [
                in_files[i : i + ARCHIVES_AT_A_TIME]
                for i in range(0, len(in_files), ARCHIVES_AT_A_TIME)
            ]
            for group in groups:
                yield beam.pvalue.TaggedOutput(_REST, json.dumps(group))
        missed = describe_kinds(skipped.kinds, images=True)[0]
        count("skipped", skipped.kinds.total() - missed)
        count("missed", missed)


_REST = "rest"


def _divide(rest: str, *, ranges: int) -> Iterator[str]:
    parts = [PatternPart(*part) for part in json.loads(rest)]
    batches = 1
    if not parts[0].archive:
        parts = divide_part(parts[0], ranges)
        batches = count_batches(len(parts))
    for i in range(batches):
        yield json.dumps(parts[i::batches])


def count_batches(ranges: int) -> int:
    """The number of elements for so many ranges, if possible a multiple of four: two or four
    workers end as one."""
    return ranges // RANGES_AT_A_TIME // 4 * 4 or -(-ranges // RANGES_AT_A_TIME)


@dataclasses.dataclass(eq=False, repr=False)
class ReadTable(beam.PTransform):
    """Reads tables to references: one per row, with labels, split and columns.

    Attributes:
        opened: result of `open_tables`.

    Output: (encoded `ImageRef`s, as `packing.pack_batches` packs them; a PCollection of one empty
    dict, once all keys are known to be different).
    """

    opened: Tables

    def expand(self, begin: PBegin) -> tuple[PCollection[bytes], PCollection[Mapping[str, int]]]:
        read = (
            begin
            | "Tables" >> beam.Create([*enumerate(self.opened.files)])
            | "SpreadTables" >> beam.Reshuffle()
            | "ReadRows"
            >> beam.ParDo(FunctionDoFn(self._read_rows))
            .with_output_types(bytes)
            .with_outputs("keys", main="refs")
        )
        distinct = (
            read.keys
            | "GroupKeys" >> beam.GroupByKey()
            | "FindRepeats" >> beam.Map(_find_repeats)
            | beam.combiners.ToList()
            | "RefuseRepeats" >> beam.Map(self._refuse_repeats)
        )
        return read.refs, distinct

    def _read_rows(self, table: tuple[int, str]) -> Iterator[Any]:
        number, path = table
        hashes = bytearray()
        first = 1

        def read() -> Iterator[bytes]:
            for ref in self.opened.read(path):
                interrupt.check()
                yield ref.encode()
                hashes.extend(hash_key(to_bytes(ref.key)))

        def keys() -> Iterator[beam.pvalue.TaggedOutput]:
            return (
                beam.pvalue.TaggedOutput("keys", part)
                for part in divide_by_hash(number_keys(number, hashes, first))
            )

        for refs in group_values(read(), len, packing.PACK_REFS, packing.PACK_BYTES):
            count("listed", len(refs))
            yield packing.pack_values(refs)
            if len(hashes) >= HASHES_AT_A_TIME * HASH_BYTES:
                yield from keys()
                first += len(hashes) // HASH_BYTES
                hashes.clear()
        yield from keys()

    def _refuse_repeats(
        self, found: Sequence[tuple[int, list[tuple[KeyPosition, KeyPosition]]]]
    ) -> dict[str, int]:
        number = sum(number for number, _ in found)
        if number:
            first = min(repeat for _, repeats in found for repeat in repeats)
            raise DataError(self.opened.describe_repeats(number, *first))
        return {}


def _find_repeats(
    part: tuple[int, Iterable[bytes]],
) -> tuple[int, list[tuple[KeyPosition, KeyPosition]]]:
    repeats = find_repeats(b"".join(part[1]))
    return len(repeats), repeats[:1]


def take_first(refs: PCollection[bytes], limit: int, *, seed: int) -> PCollection[bytes]:
    """Takes the first references of the order, or all if there are fewer; the others cost one hash
    each.

    Args:
        refs: encoded `ImageRef`s, as `packing.pack_batches` packs them; so are those that are
            returned.
        limit: maximum number; a worker holds as many order keys of 16 bytes.
        seed: seed for the order.
    """

    def orders_of(refs: Sequence[bytes]) -> list[bytes]:
        return order_keys(seed, map(key_of, refs))

    def up_to(packed: bytes, last: list[bytes]) -> Iterator[bytes]:
        unpacked = packing.unpack_values(packed)
        orders = zip(unpacked, orders_of(unpacked), strict=True)
        return packing.pack_batches(ref for ref, order in orders if order <= last[0])

    last = (
        refs
        | "OrderKeys" >> beam.FlatMap(lambda packed: orders_of(packing.unpack_values(packed)))
        | beam.combiners.Top.Smallest(limit)
        | "Last" >> beam.Map(lambda first: first[-1:])
    )
    return refs | "UpToLast" >> beam.FlatMap(up_to, AsSingleton(last)).with_output_types(bytes)


def drop_removed(refs: PCollection[bytes], removed: Removed) -> PCollection[bytes]:
    """Drops references of images that were taken down, by their keys.

    Args:
        refs: encoded `ImageRef`s, as `packing.pack_batches` packs them; so are those that are
            returned.
        removed: what was taken down.
    """

    def others(packed: bytes) -> Iterator[bytes]:
        unpacked = packing.unpack_values(packed)
        kept = [ref for ref in unpacked if sha256_hex(key_of(ref)) not in removed.keys]
        count("left-out", len(unpacked) - len(kept))
        yield from packing.pack_batches(kept)

    return refs | "LeaveOut" >> beam.ParDo(FunctionDoFn(others)).with_output_types(bytes)


def read_known(begin: PBegin, base: BaseDataset, *, splits_stay: bool) -> PCollection[bytes]:
    """Reads what a dataset knows about its images: packed (split or nothing, NUL, `known.encode_source` of
    an image).

    Args:
        begin: the beginning of the pipeline.
        base: the dataset.
        splits_stay: whether an image that is still there is in the same split.
    """

    def stays(source: Source) -> bool:  # or its name rejects it, which the listing decides
        return not source.reject or (base.with_rejects and not ImageRef.decode(source.ref).reason)

    def read(shard: PlannedShard) -> Iterator[bytes]:
        name = shard.split if splits_stay else ""
        usable = filter(stays, known.read_sources(base.folder, shard) or [])
        return packing.pack_batches(
            f"{name}\0".encode() + known.encode_source(source) for source in usable
        )

    return _read_shards(begin, base, "Known", read)


def read_dataset_refs(begin: PBegin, base: BaseDataset) -> PCollection[bytes]:
    """Reads the references of a dataset's images, as if their sources were listed; the output is
    `MatchImages`'."""

    def read(shard: PlannedShard) -> Iterator[bytes]:
        sources = known.require_sources(base.folder, shard)
        count("listed", len(sources))
        return packing.pack_batches(source.ref for source in sources)

    return _read_shards(begin, base, "Dataset", read)


def _read_shards(
    begin: PBegin, base: BaseDataset, name: str, read: Callable[[PlannedShard], Iterator[bytes]]
) -> PCollection[bytes]:
    """What a function gives for each shard of a dataset; an element has the numbers of some."""
    numbers = range(len(planned_shards(base.read_manifest())))
    parts = [[*numbers[first : first + SHARDS_AT_A_TIME]] for first in numbers[::SHARDS_AT_A_TIME]]
    spread = (
        begin | f"{name}Shards" >> beam.Create(parts) | f"Spread{name}Shards" >> beam.Reshuffle()
    )

    def read_some(numbers: list[int]) -> Iterator[bytes]:
        shards = planned_shards(base.read_manifest())
        for number in numbers:
            interrupt.check()
            yield from read(shards[number])

    return spread | f"Read{name}" >> beam.ParDo(FunctionDoFn(read_some)).with_output_types(bytes)
