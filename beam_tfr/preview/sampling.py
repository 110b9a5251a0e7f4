"""Lists the input of a conversion, and converts a sample of it."""

import collections
import dataclasses
import itertools
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.console.display import Progress
from beam_tfr.dataset.base import planned_shards
from beam_tfr.dataset.manifest import find_manifest
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.measuring import make_record
from beam_tfr.inputs.patterns import compile_exclusion, order_patterns, read_input_list
from beam_tfr.inputs.read_ahead import read_refs
from beam_tfr.inputs.skipped import SkippedFiles
from beam_tfr.options import ConvertOptions
from beam_tfr.output.known import read_sources
from beam_tfr.pipeline import Convert
from beam_tfr.planning.survey import Survey
from beam_tfr.records import box_counts
from beam_tfr.records.examples import parse_example
from beam_tfr.records.shard_file import gzip_level
from beam_tfr.schema.errors import DataError, RejectError
from beam_tfr.schema.features import has_boxes
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.plan import Counts
from beam_tfr.sources import Input
from beam_tfr.tables.rows import Tables

MAX_SAMPLE_BYTES = 256 << 20  # 256 MiB of files


@dataclasses.dataclass
class Listed:
    """The result of a listing.

    Attributes:
        num_bytes: bytes of all files.
        reasons: reason -> references that will be rejected.
        details: reason -> an example: its key, and what is wrong.
        skipped: kind of name -> files that are not converted; see `SkippedFiles`.
        known: references that `known_files` has.
    """

    num_bytes: int = 0
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    details: dict[str, str] = dataclasses.field(default_factory=dict)
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    known: int = 0


def survey_listing(
    refs: Iterable[ImageRef],
    survey: Survey,
    known: Collection[int] = (),
    progress: Callable[[Progress], object] = lambda _: None,
) -> Listed:
    """Surveys the references in one pass, and counts those of `known_files`; memory does not grow
    with them."""
    listed = Listed()
    for number, ref in enumerate(refs, start=1):
        if number % 1000 == 0:
            progress(Progress("listing", number))
        survey.add([ref.encode()])
        listed.num_bytes += ref.size_bytes
        if ref.reason:
            listed.reasons[ref.reason] += 1
            example = f"{ref.key} ({ref.detail})"
            listed.details[ref.reason] = min(example, listed.details.get(ref.reason, example))
        listed.known += _hash_of(ref) in known
    return listed


def known_files(folder: str) -> set[int]:
    """Hashes of the references of a dataset as they were listed for it; none without all its
    sidecars."""
    try:
        dataset = find_manifest(folder)
    except DataError:
        dataset = None
    sources = (
        [read_sources(dataset.folder, shard) for shard in planned_shards(dataset)]
        if dataset
        else [None]
    )
    if None in sources:
        return set()
    return {_hash_of(ImageRef.decode(source.ref)) for shard in sources for source in shard or ()}


def _hash_of(ref: ImageRef) -> int:
    return hash((ref.key, ref.size_bytes, ref.crc32c or ref.generation))


def list_references(
    options: ConvertOptions, source: Input, skipped: SkippedFiles
) -> Iterator[ImageRef]:
    """All references of a conversion, in any order; `skipped` counts skipped files.

    Raises:
        UsageError: a pattern matches nothing or cannot be listed, or a row names a file elsewhere.
        DataError: a table is damaged.
    """
    if isinstance(source.origin, Tables):
        for path in source.origin.files:
            yield from source.origin.read(path)
        return
    patterns = order_patterns([*source.input, *read_input_list(options.input_list)])
    for entry in match_files(
        patterns, exclude=compile_exclusion(source.exclude, source.root), skipped=skipped
    ):
        if isinstance(source.origin, Labeler):  # `plan` takes no dataset
            yield source.origin.label(entry, entry.path.removeprefix(source.root))


@dataclasses.dataclass
class Sampled:
    """The result of converting a sample.

    Attributes:
        sizes: key -> bytes of its record, or None for a reject; not of files that may be readable
            later.
        tried: number of references.
        written: number of records.
        num_bytes: bytes of all records, compressed.
        cpu_s: CPU seconds to convert them, and to compress them.
        read_s: seconds to read one file.
        reasons: reason -> rejects.
        details: reason -> an example: its key, and what is wrong.
        adjusted: name of an adjustment -> images.
        boxes: their statistics, as in a manifest; empty if there are none.
    """

    sizes: dict[str, int | None] = dataclasses.field(default_factory=dict, repr=False)
    tried: int = 0
    written: int = 0
    num_bytes: int = 0
    cpu_s: float = 0.0
    read_s: float = 0.0
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    details: dict[str, str] = dataclasses.field(default_factory=dict)
    adjusted: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    boxes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def convert_sample(
    refs: Sequence[ImageRef],
    step: Convert,
    *,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Sampled:
    """Reads and converts a sample like `step`; writes nothing."""
    options = step.options
    sampled = Sampled()
    counts = Counts()
    steps = step.record_functions()
    shard = zlib.compressobj(
        gzip_level(**options.stored_compression, encoding=options.encoding) or 0
    )
    sizes = itertools.accumulate(ref.size_bytes for ref in refs)
    refs = [ref for ref, size in zip(refs, sizes, strict=True) if size <= MAX_SAMPLE_BYTES] or refs[
        :1
    ]
    started = time.perf_counter()
    for ref, content in read_refs(step.read.root, refs, step.read.ahead):
        sampled.read_s += (time.perf_counter() - started) / len(refs)
        sampled.tried += 1
        progress(Progress("sampling", sampled.tried, len(refs)))
        cpu_s = time.thread_time()
        try:
            record = make_record(content, ref, steps)
        except RejectError as error:
            sampled.reasons[error.reason] += 1
            sampled.details.setdefault(error.reason, f"{ref.key} ({error.detail})")
            if not error.may_pass:
                sampled.sizes[ref.key] = None
        else:
            sampled.num_bytes += len(shard.compress(record.serialized))
            sampled.cpu_s += time.thread_time() - cpu_s
            sampled.written += 1
            sampled.sizes[ref.key] = len(record.serialized)
            if record.image is not None:
                sampled.adjusted.update(record.image.adjusted)
            if has_boxes(step.source.plan.options):
                box_counts.add_boxes(counts, parse_example(record.serialized), ref.columns)
        started = time.perf_counter()
    sampled.num_bytes += len(shard.flush())
    sampled.boxes = box_counts.statistics(counts) if counts.box_numbers else {}
    return sampled
