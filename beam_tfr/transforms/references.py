"""MatchImages and ReadTable turn patterns or tables into references; TakeFirst takes the first of them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PBegin, PCollection
from apache_beam.typehints import with_input_types, with_output_types

from beam_tfr import interrupt, storage
from beam_tfr.inputs.listing import Part, divide_part, list_parts
from beam_tfr.inputs.passed import Passed
from beam_tfr.inputs.patterns import common_root, exclusion, order_patterns, read_input_list
from beam_tfr.labels import Labeler
from beam_tfr.planning import packing
from beam_tfr.planning.survey import order_key
from beam_tfr.repeats import HASH_BYTES, Place, find_repeats, hash_key, parts_of, rows_of
from beam_tfr.schema import DataError, ImageRef
from beam_tfr.tables.rows import Tables
from beam_tfr.transforms.counting import ShownFunction, count, counted

BATCHES = 64  # of patterns, each listed by one worker
LIMITS = {"": 20_000, "Ranges": 1_000_000, "Rest": None}  # names of a part, before the rest is divided
RANGES = 50  # at least, that all patterns or a large range are divided into; often ten times as many
HASHES_AT_A_TIME = 1 << 16  # of keys of a table
RANGES_AT_A_TIME = 4  # or more, listed by one worker, which waits for many answers at a time


@with_output_types(bytes)
class MatchImages(beam.PTransform):
    """Lists the files that match patterns, each once, as references with label and split.

    Args:
        patterns: local or gs://.
        labeler: reads labels and splits from paths.
        root: folder that keys are relative to, if `common_root` has found it already.
        input_list: file with more patterns, read by a worker, since a pipeline cannot hold millions of them.
        exclude: patterns of files to skip.

    Output: encoded `ImageRef`s, as `packing.pack_some` packs them.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        labeler: Labeler,
        *,
        root: str | None = None,
        input_list: str | None = None,
        exclude: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._patterns, self._input_list = tuple(patterns), input_list
        self._labeler = labeler
        self._root = root or common_root([*patterns, *read_input_list(input_list)])
        self._exclude = exclusion(exclude, self._root)

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        parts = begin | beam.Create([None]) | "Patterns" >> beam.ParDo(self._begin())
        refs, ranges = [], 1 if self._input_list else -(-RANGES // len(self._patterns))
        for of, limit in (LIMITS if storage.is_gcs(self._root) else {"": None}).items():
            listed = (
                parts
                | f"Spread{of or 'Patterns'}" >> beam.Reshuffle()
                | f"List{of}"
                >> beam.FlatMap(_list, self._patterns, exclude=self._exclude, limit=limit).with_outputs(
                    _REST, main="files"
                )
            )
            refs.append(listed.files | f"Label{of}" >> beam.FlatMap(self._references).with_output_types(bytes))
            if limit is not None:
                parts, ranges = listed[_REST] | f"Divide{of}" >> beam.FlatMap(_divide, ranges), RANGES
        return refs | beam.Flatten()

    def _begin(self) -> ShownFunction:
        begin = functools.partial(_batches, patterns=self._patterns, input_list=self._input_list)
        excluded = self._exclude and self._exclude.pattern
        return ShownFunction(begin, input=", ".join(self._patterns), input_list=self._input_list, exclude=excluded)

    def _references(self, entries: Sequence[storage.Entry]) -> Iterator[bytes]:
        interrupt.check()
        keys = (entry.path.removeprefix(self._root) for entry in entries)
        return packing.pack_some(self._labeler.label(*one).encode() for one in zip(entries, keys, strict=True))


_REST = "rest"


def _batches(_: None, patterns: Sequence[str], input_list: str | None) -> Iterator[str]:
    ordered = order_patterns([*patterns, *read_input_list(input_list)])
    for i in range(min(BATCHES, len(ordered))):
        yield json.dumps(ordered[i::BATCHES])  # Beam's coder for text fails for names that are not UTF-8


def _list(batch: str, patterns: Sequence[str], exclude: re.Pattern[str] | None, limit: int | None) -> Iterator[Any]:
    passed = Passed(patterns, exclude)
    parts = [Part(*one) for one in json.loads(batch)]
    for found in list_parts(parts, exclude=exclude, limit=limit, passed=passed):
        files = [one for one in found if isinstance(one, storage.Entry)]
        count("listed", len(files))
        yield files
        for rest in (one for one in found if isinstance(one, Part)):
            yield beam.pvalue.TaggedOutput(_REST, json.dumps(rest))
    for what, kinds in passed.counts.items():
        for kind, number in kinds.items():
            count(f"{what} {kind}", number)


def _divide(rest: str, ranges: int) -> Iterator[str]:
    parts = divide_part(Part(*json.loads(rest)), ranges)
    batches = count_batches(len(parts))
    for i in range(batches):
        yield json.dumps(parts[i::batches])


def count_batches(ranges: int) -> int:
    """How many elements list so many ranges; if possible a multiple of four, so that two or four workers end as one."""
    return ranges // RANGES_AT_A_TIME // 4 * 4 or -(-ranges // RANGES_AT_A_TIME)


class ReadTable(beam.PTransform):
    """Reads tables to references: one per row, with labels, split and columns.

    Args:
        opened: result of `open_tables`.

    Output: (encoded `ImageRef`s, as `packing.pack_some` packs them; a PCollection of one None, once all keys are known
    to be different).
    """

    def __init__(self, opened: Tables) -> None:
        super().__init__()
        self._opened = opened

    def expand(self, begin: PBegin) -> tuple[PCollection[bytes], PCollection[None]]:
        read = (
            begin
            | "Tables" >> beam.Create([*enumerate(self._opened.files)])
            | "SpreadTables" >> beam.Reshuffle()
            | "ReadRows"
            >> beam.FlatMap(_read_rows, self._opened).with_output_types(bytes).with_outputs("keys", main="refs")
        )
        distinct = (
            read.keys
            | "GroupKeys" >> beam.GroupByKey()
            | "FindRepeats" >> beam.Map(_find_repeats)
            | beam.combiners.ToList()
            | "RefuseRepeats" >> beam.Map(_refuse_repeats, self._opened)
        )
        return read.refs, distinct


def _read_rows(table: tuple[int, str], opened: Tables) -> Iterator[Any]:
    number, path = table
    hashes, first = bytearray(), 1

    def read() -> Iterator[bytes]:
        for _, ref in counted(opened.read(path), "listed"):
            interrupt.check()
            yield ref.encode()
            if opened.roles.uri or opened.roles.key:  # others are numbers, which cannot repeat
                hashes.extend(hash_key(ref.key.encode("utf-8", "surrogateescape")))

    def keys() -> Iterator[beam.pvalue.TaggedOutput]:
        return (beam.pvalue.TaggedOutput("keys", part) for part in parts_of(rows_of(number, hashes, first)))

    for packed in packing.pack_some(read()):
        yield packed
        if len(hashes) >= HASHES_AT_A_TIME * HASH_BYTES:
            yield from keys()
            first += len(hashes) // HASH_BYTES
            hashes.clear()
    yield from keys()


def _find_repeats(part: tuple[int, Iterable[bytes]]) -> tuple[int, list[tuple[Place, Place]]]:
    repeats = find_repeats(b"".join(part[1]))
    return len(repeats), repeats[:1]


def _refuse_repeats(found: Sequence[tuple[int, list[tuple[Place, Place]]]], opened: Tables) -> None:
    if number := sum(number for number, _ in found):
        first = min(repeat for _, repeats in found for repeat in repeats)
        raise DataError(opened.describe_repeats(number, *first))


@with_input_types(bytes)
@with_output_types(bytes)
class TakeFirst(beam.PTransform):
    """Takes the first references of the order, or all if there are fewer; the others cost one hash each.

    Args:
        limit: maximum number; a worker holds as many order keys of 16 bytes.
        seed: seed for the order.

    Output: as its input, encoded `ImageRef`s as `packing.pack_some` packs them.
    """

    def __init__(self, limit: int, *, seed: int) -> None:
        super().__init__()
        self._limit, self._seed = limit, seed

    def expand(self, refs: PCollection[bytes]) -> PCollection[bytes]:
        last = (
            refs
            | "OrderKeys" >> beam.FlatMap(_orders, self._seed)
            | beam.combiners.Top.Smallest(self._limit)
            | "Last" >> beam.Map(lambda first: first[-1:])
        )
        return refs | "UpToLast" >> beam.FlatMap(_up_to, self._seed, AsSingleton(last)).with_output_types(bytes)


def _orders(packed: bytes, seed: int) -> list[bytes]:
    return [order_key(seed, ImageRef.decode(ref).key) for ref in packing.unpack(packed)]


def _up_to(packed: bytes, seed: int, last: list[bytes]) -> Iterator[bytes]:
    refs = zip(packing.unpack(packed), _orders(packed, seed), strict=True)
    return packing.pack_some(ref for ref, order in refs if order <= last[0])
