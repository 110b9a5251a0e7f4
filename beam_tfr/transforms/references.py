"""Lists references from files and tables; also drops references, and renames classes in them.

`dataset_reading` lists the references of a dataset.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PBegin, PCollection
from apache_beam.typehints import with_output_types

from beam_tfr import storage
from beam_tfr.dataset.taken_down import Removed
from beam_tfr.engine import interrupt
from beam_tfr.inputs.input_lists import read_input_list
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.listing import PatternPart, divide_part, list_parts, order_parts
from beam_tfr.inputs.patterns import (
    NOTHING,
    common_root,
    compile_exclusion,
    compile_exclusions,
)
from beam_tfr.inputs.skipped import (
    SkippedFiles,
    count_archives,
    count_packed,
    count_raw,
    describe_kinds,
    without_images,
)
from beam_tfr.layouts.mask_names import MaskNames
from beam_tfr.planning import packing
from beam_tfr.planning.survey import order_keys
from beam_tfr.records.repeats import (
    HASH_BYTES,
    RepeatedKeys,
    divide_by_hash,
    find_repeated_keys,
    hash_key,
    merge_parts,
    number_keys,
)
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.encoded_ref import EncodedRef, key_of, split_labels, to_bytes
from beam_tfr.schema.items import ImageRef, group_values
from beam_tfr.tables.repeats import check_repeats, merge_rows
from beam_tfr.tables.rows import Tables
from beam_tfr.transforms.counting import FunctionDoFn, count, count_skipped

BATCHES = 64  # batches of patterns, each listed by one worker
RANGES = 50  # ranges into which all patterns or a large range are divided; often ten times as many
ARCHIVES_AT_A_TIME = 16  # archives that a worker lists for one element, each in a thread
HASHES_AT_A_TIME = 1 << 16  # hashes of a table's keys to pass on together
RANGES_AT_A_TIME = 4  # least number per worker, which waits for many answers at the same time
# Round -> how many names of a part on gs:// to list before the rest is divided.
LIMITS = {"": 20_000, "Ranges": 1_000_000, "Rest": None}
_NO_LIMIT = {"": None}
_REST = "rest"


@with_output_types(bytes)
@dataclasses.dataclass(eq=False, repr=False)
class MatchImages(beam.PTransform):
    """Lists the files that match patterns as references: each file once, with label and split.

    Attributes:
        patterns: local or gs://.
        labeler: reads labels and splits from paths.
        root: folder that keys are relative to, with a trailing slash; an empty string stands for
            the folder that all patterns share.
        input_list: file with additional patterns, read by a worker, since a pipeline cannot hold
            millions of patterns.
        exclude: patterns of files to skip.
        keep_damaged: whether a damaged archive becomes a reject.

    Output: encoded `ImageRef`s, packed by `packing.pack_batches`.
    """

    patterns: Sequence[str]
    labeler: Labeler
    _: dataclasses.KW_ONLY
    root: str = ""
    input_list: str | None = None
    exclude: Sequence[str] = ()
    keep_damaged: bool = False

    def __post_init__(self) -> None:
        if not self.root:
            self.root = common_root([*self.patterns, *read_input_list(self.input_list)])

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        exclude = compile_exclusion(self.exclude, self.root)
        exclusions = compile_exclusions(self.exclude, self.root)
        limits = LIMITS if storage.is_gcs(self.root) else _NO_LIMIT
        ranges = 1 if self.input_list else -(-RANGES // len(self.patterns))
        start = begin | beam.Create([None])
        parts = start | "Patterns" >> beam.ParDo(FunctionDoFn(self._batches))
        refs = []
        for label, limit in limits.items():
            list_batch = functools.partial(
                self._list, exclude=exclude, exclusions=exclusions, limit=limit
            )
            listing = beam.ParDo(FunctionDoFn(list_batch)).with_output_types(bytes)
            spread = parts | f"Spread{label or 'Patterns'}" >> beam.Reshuffle()
            listed = spread | f"List{label}" >> listing.with_outputs(_REST, main="refs")
            refs.append(listed.refs)
            if limit is not None:
                dividing = FunctionDoFn(functools.partial(_divide, ranges=ranges))
                parts = listed[_REST] | f"Divide{label}" >> beam.ParDo(dividing)
                ranges = RANGES
        return refs | beam.Flatten()

    def _batches(self, _: None) -> Iterator[str]:
        """Divides the patterns into batches.

        Elements are JSON, since Beam's coder for strings fails for names that are not UTF-8.
        """
        parts = order_parts(self.patterns, read_input_list(self.input_list))
        for i in range(min(BATCHES, len(parts))):
            yield json.dumps(parts[i::BATCHES])

    def _list(
        self,
        batch: str,
        *,
        exclude: re.Pattern[str],
        exclusions: Sequence[re.Pattern[str]],
        limit: int | None,
    ) -> Iterator[Any]:
        """Lists parts of patterns, each up to a limit; sends what is left to another output."""
        skipped = SkippedFiles(self.patterns, exclude, exclusions)
        masks = MaskNames()
        parts = [PatternPart(*part) for part in json.loads(batch)]
        batches = list_parts(
            parts,
            exclude=exclude,
            limit=limit,
            skipped=skipped,
            keep_damaged=self.keep_damaged,
        )
        for listed in batches:
            interrupt.check_interrupt()
            files, rest = _split_listing(listed)
            count("listed", len(files))
            paths = [file.path for file in files]
            masks.look_at(paths)
            skipped.empty.fill(paths)
            yield from packing.pack_batches(map(self._encode_ref, files))
            if limit is not None:
                for group in _group_rest(rest):
                    yield beam.pvalue.TaggedOutput(_REST, json.dumps(group))
        missed, _ = describe_kinds(skipped.kinds, images=True)
        count_skipped(without_images(skipped.kinds))
        count("archives", count_archives(skipped.kinds))
        count("packed-archives", count_packed(skipped.kinds))
        count("raw-photos", count_raw(skipped.kinds))
        count("missed", missed)
        count("repeated-folders", skipped.repeats.number)
        count("guessed-names", skipped.guessed_names.number)
        count("packed-labels", skipped.packed_labels.number)
        count("empty-folders", len(skipped.empty.find()))
        count("mask-names", masks.number)
        for number in skipped.used_exclusions:
            count(f"excluded-{number}")

    def _encode_ref(self, file: storage.Entry) -> bytes:
        return self.labeler.label(file, file.path.removeprefix(self.root)).encode()


def _split_listing(
    listed: Iterable[storage.Entry | PatternPart],
) -> tuple[list[storage.Entry], list[PatternPart]]:
    """Separates the listed files from the parts that have yet to be listed."""
    files = []
    rest = []
    for entry in listed:
        if isinstance(entry, PatternPart):
            rest.append(entry)
        else:
            files.append(entry)
    return files, rest


def _group_rest(rest: Sequence[PatternPart]) -> list[list[PatternPart]]:
    """Groups the parts that have yet to be listed: several archives, or one long part."""
    groups = []
    archives = []
    for part in rest:
        if part.archive:
            archives.append(part)
        else:
            groups.append([part])
    firsts = range(0, len(archives), ARCHIVES_AT_A_TIME)
    return groups + [archives[first : first + ARCHIVES_AT_A_TIME] for first in firsts]


def _divide(rest: str, *, ranges: int) -> Iterator[str]:
    """Divides a long part; passes on archives unchanged, since they are already divided."""
    parts = [PatternPart(*part) for part in json.loads(rest)]
    if parts[0].archive:
        yield rest
        return
    parts = divide_part(parts[0], ranges)
    batches = count_batches(len(parts))
    for i in range(batches):
        yield json.dumps(parts[i::batches])


def count_batches(ranges: int) -> int:
    """Computes the number of elements for a number of ranges.

    This is a multiple of four if possible, so that two or four workers finish at the same time.
    """
    return ranges // RANGES_AT_A_TIME // 4 * 4 or -(-ranges // RANGES_AT_A_TIME)


@with_output_types(bytes)
@dataclasses.dataclass(eq=False, repr=False)
class ReadTable(beam.PTransform):
    """Reads references from tables: one per row, with labels, split and columns.

    Attributes:
        opened: result of `open_tables`.

    Output: encoded `ImageRef`s, packed by `packing.pack_batches`, each with a different key: rows
    with the same key are merged.
    """

    opened: Tables

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        tables = begin | "Tables" >> beam.Create([*enumerate(self.opened.files)])
        spread = tables | "SpreadTables" >> beam.Reshuffle()
        reading = beam.ParDo(FunctionDoFn(self._read_rows)).with_output_types(bytes)
        read = spread | "ReadRows" >> reading.with_outputs("keys", main="refs")
        repeated = (
            read.keys
            | "GroupKeys" >> beam.GroupByKey()
            | "FindRepeats" >> beam.MapTuple(_find_repeated_keys)
            | beam.combiners.ToList()
            | "CheckRepeats" >> beam.Map(self._check_repeats)
        )
        setting_apart = beam.ParDo(FunctionDoFn(_set_apart), AsSingleton(repeated))
        setting_apart = setting_apart.with_output_types(bytes)
        refs = read.refs | "SetApart" >> setting_apart.with_outputs("repeated", main="others")
        merging = beam.ParDo(FunctionDoFn(self._merge_rows), AsSingleton(repeated))
        merged = (
            refs.repeated
            | "GroupRepeated" >> beam.GroupByKey()
            | "MergeRows" >> merging.with_output_types(bytes)
        )
        return (refs.others, merged) | beam.Flatten()

    def _read_rows(self, table: tuple[int, str]) -> Iterator[Any]:
        """Reads a table; sends the hashes of its keys to another output."""
        number, path = table
        hashes = _KeyHashes(number)
        skipped = SkippedFiles((), NOTHING)
        refs = self._encode_rows(path, hashes, skipped)
        for group in group_values(refs, len, packing.PACK_REFS, packing.PACK_BYTES):
            count("listed", len(group))
            yield packing.pack_values(group)
            if hashes.are_many:
                yield from hashes.take()
        yield from hashes.take()
        count_skipped(skipped.kinds)

    def _encode_rows(self, path: str, hashes: _KeyHashes, skipped: SkippedFiles) -> Iterator[bytes]:
        for ref in self.opened.read(path, skipped):
            interrupt.check_interrupt()
            yield ref.encode()
            hashes.add(ref.key)

    def _check_repeats(self, parts: Sequence[RepeatedKeys]) -> RepeatedKeys:
        """Merges the results of all parts: the keys that several rows have.

        Raises:
            DataError: the table must not have repeated keys.
        """
        repeated = merge_parts(parts)
        check_repeats(self.opened, repeated)
        return repeated

    def _merge_rows(
        self, rows_of_key: tuple[bytes, Iterable[bytes]], repeated: RepeatedKeys
    ) -> Iterator[bytes]:
        """Merges the rows with one key, which are encoded references."""
        key, rows = rows_of_key
        refs = [ImageRef.decode(row) for row in rows]
        count("repeated-rows")
        merged = merge_rows(self.opened, refs, repeated[hash_key(key)])
        yield packing.pack_values([merged.encode()])


class _KeyHashes:
    """The hashes of a table's keys, used to find repeated keys.

    Args:
        table: number of the table.
    """

    def __init__(self, table: int) -> None:
        self._table = table
        self._row = 1  # number of the row of the first hash
        self._hashes = bytearray()

    def add(self, key: str) -> None:
        """Adds the key of the next row."""
        self._hashes += hash_key(to_bytes(key))

    @property
    def are_many(self) -> bool:
        """Whether there are enough hashes to pass them on."""
        return len(self._hashes) >= HASHES_AT_A_TIME * HASH_BYTES

    def take(self) -> Iterator[beam.pvalue.TaggedOutput]:
        """Passes on the hashes added since the last call."""
        for part in divide_by_hash(number_keys(self._table, self._hashes, self._row)):
            yield beam.pvalue.TaggedOutput("keys", part)
        self._row += len(self._hashes) // HASH_BYTES
        self._hashes.clear()


def _find_repeated_keys(_: int, hashes: Iterable[bytes]) -> RepeatedKeys:
    return find_repeated_keys(b"".join(hashes))


def _set_apart(packed: bytes, repeated: RepeatedKeys) -> Iterator[Any]:
    """Emits packed references; sends references with repeated keys to another output, by key."""
    if not repeated:
        yield packed
        return
    others = []
    for ref in packing.unpack_values(packed):
        key = key_of(ref)
        if hash_key(key) in repeated:
            yield beam.pvalue.TaggedOutput("repeated", (key, ref))
        else:
            others.append(ref)
    if others:
        yield packing.pack_values(others)


def take_first(refs: PCollection[bytes], limit: int, *, seed: int) -> PCollection[bytes]:
    """Takes the first references in the order of the dataset, or all if there are fewer.

    A reference that is not taken costs only one hash.

    Args:
        refs: encoded `ImageRef`s, packed by `packing.pack_batches`; the output is packed in the
            same way.
        limit: maximum number; a worker holds this many order keys of 16 bytes.
        seed: seed for the order.
    """
    ordering = beam.FlatMap(functools.partial(_order_refs, seed=seed))
    orders = refs | "OrderKeys" >> ordering | beam.combiners.Top.Smallest(limit)
    last = orders | "Last" >> beam.Map(_last_of)
    # Beam passes no side inputs to a `functools.partial`.
    keeping = beam.FlatMap(_keep_up_to, AsSingleton(last), seed=seed)
    return refs | "UpToLast" >> keeping.with_output_types(bytes)


def _order_refs(packed: bytes, *, seed: int) -> list[bytes]:
    """Computes the order keys of packed references."""
    return order_keys(seed, map(key_of, packing.unpack_values(packed)))


def _last_of(orders: Sequence[bytes]) -> list[bytes]:
    """Returns a list with the last order key, or an empty list if there are no order keys."""
    return [*orders[-1:]]


def _keep_up_to(packed: bytes, last: Sequence[bytes], *, seed: int) -> Iterator[bytes]:
    """Keeps the packed references up to the last one to take."""
    refs = packing.unpack_values(packed)
    orders = _order_refs(packed, seed=seed)
    kept = [ref for ref, order in zip(refs, orders, strict=True) if order <= last[0]]
    return packing.pack_batches(kept)


def drop_removed(refs: PCollection[bytes], removed: Removed) -> PCollection[bytes]:
    """Drops references to images that were taken down, by their keys.

    Args:
        refs: encoded `ImageRef`s, packed by `packing.pack_batches`; the output is packed in the
            same way.
        removed: the images that were taken down.
    """
    drop = FunctionDoFn(functools.partial(_drop_keys, hashes=removed.keys))
    return refs | "LeaveOut" >> beam.ParDo(drop).with_output_types(bytes)


def _drop_keys(packed: bytes, *, hashes: Set[str]) -> Iterator[bytes]:
    refs = packing.unpack_values(packed)
    kept = [ref for ref in refs if sha256_hex(key_of(ref)) not in hashes]
    count("left-out", len(refs) - len(kept))
    yield from packing.pack_batches(kept)


def rename_classes(refs: PCollection[bytes], renames: Mapping[str, str]) -> PCollection[bytes]:
    """Renames classes in references.

    Args:
        refs: encoded `ImageRef`s, packed by `packing.pack_batches`; the output is packed in the
            same way.
        renames: name of a class -> its new name.
    """
    renaming = beam.Map(_rename_classes, renames=renames).with_output_types(bytes)
    return refs | "RenameClasses" >> renaming


def _rename_classes(packed: bytes, *, renames: Mapping[str, str]) -> bytes:
    renamed = []
    used = set[str]()
    for encoded in packing.unpack_values(packed):
        ref = EncodedRef.parse(encoded)
        labels = split_labels(ref.labels)
        if not renames.keys().isdisjoint(labels):
            used |= renames.keys() & {*labels}
            encoded = ref.encode_of(renames.get(label, label) for label in labels)
        renamed.append(encoded)
    for number, old in enumerate(renames, start=1):
        if old in used:
            count(f"renamed-{number}")
    return packing.pack_values(renamed)
