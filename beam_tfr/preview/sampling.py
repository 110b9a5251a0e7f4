"""Lists the input of a conversion, and converts a sample of it."""

import bisect
import collections
import dataclasses
import heapq
import itertools
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.console.display import Progress
from beam_tfr.dataset import manifest
from beam_tfr.dataset.base import shards_of
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.listing import list_all
from beam_tfr.inputs.patterns import exclusion, order_patterns, read_input_list
from beam_tfr.inputs.reading import make_record, read_refs
from beam_tfr.inputs.skipped import Skipped
from beam_tfr.layouts.parsing import Ambiguities
from beam_tfr.options import ConvertOptions
from beam_tfr.output.known import sources_of
from beam_tfr.pipeline import Convert
from beam_tfr.planning.drafts import FRAME_BYTES
from beam_tfr.planning.survey import Survey, order_key
from beam_tfr.records import box_counts
from beam_tfr.records.examples import parse_example
from beam_tfr.records.shard_file import gzip_level
from beam_tfr.schema.errors import DataError, RejectError
from beam_tfr.schema.features import has_boxes
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.plan import Counts
from beam_tfr.sources import Input
from beam_tfr.tables.rows import Tables

FIRST = 5  # keys to show
MAX_SAMPLE_BYTES = 256 << 20  # 256 MiB of files


@dataclasses.dataclass
class Listed:
    """The result of a listing.

    Attributes:
        survey: counts by split and class, as in the conversion.
        sample: the references that come first in the order of the dataset's seed.
        first: the references with the smallest keys.
        num_bytes: bytes of all files.
        reasons: reason -> references that will be rejected.
        details: reason -> an example: its key, and what is wrong.
        skipped: kind of name -> files that are not converted; see `Skipped`.
    """

    survey: Survey = dataclasses.field(repr=False)
    sample: list[ImageRef] = dataclasses.field(default_factory=list, repr=False)
    first: list[ImageRef] = dataclasses.field(default_factory=list)
    num_bytes: int = 0
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    details: dict[str, str] = dataclasses.field(default_factory=dict)
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)


def survey_listing(
    refs: Iterator[ImageRef], *, seed: int, sample_size: int, progress: Callable[[Progress], object] = lambda _: None
) -> Listed:
    """Surveys the references in one pass; memory does not grow with them."""
    listed = Listed(Survey(seed))

    def usable() -> Iterator[ImageRef]:
        for number, ref in enumerate(refs, start=1):
            if number % 1000 == 0:
                progress(Progress("listing", number))
            listed.survey.add([ref.encode()])
            listed.num_bytes += ref.size_bytes
            bisect.insort(listed.first, ref)
            del listed.first[FIRST:]
            if ref.reason:
                listed.reasons[ref.reason] += 1
                example = f"{ref.key} ({ref.detail})"
                listed.details[ref.reason] = min(example, listed.details.get(ref.reason, example))
                continue
            yield ref

    listed.sample = heapq.nsmallest(sample_size, usable(), key=lambda ref: order_key(seed, ref.key))
    return listed


def list_references(
    options: ConvertOptions, source: Input, skipped: Skipped, ambiguous: Ambiguities
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
    for entry in list_all(patterns, exclude=exclusion(source.exclude, source.root), skipped=skipped):
        key = entry.path.removeprefix(source.root)
        ambiguous.add(key)
        if isinstance(source.origin, Labeler):  # `plan` takes no dataset
            yield source.origin.label(entry, key)


@dataclasses.dataclass
class Sampled:
    """The result of converting a sample.

    Attributes:
        tried: number of references.
        record_bytes: framed size of each record.
        cpu_s: CPU seconds to convert each, and to compress it.
        packed: compressed size of the records, relative to their own.
        read_s: seconds to read one file.
        reasons: reason -> rejects.
        details: reason -> an example: its key, and what is wrong.
        adjusted: name of an adjustment -> images.
        boxes: only the counts of boxes.
    """

    tried: int = 0
    record_bytes: list[float] = dataclasses.field(default_factory=list, repr=False)
    cpu_s: list[float] = dataclasses.field(default_factory=list, repr=False)
    packed: float = 1.0
    read_s: float = 0.0
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    details: dict[str, str] = dataclasses.field(default_factory=dict)
    adjusted: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    boxes: Counts = dataclasses.field(default_factory=Counts)

    @property
    def of_boxes(self) -> dict[str, Any] | None:
        """The statistics of boxes, if there are any."""
        return box_counts.statistics(self.boxes) if self.boxes.box_numbers else None


def convert_sample(
    refs: Sequence[ImageRef], step: Convert, *, progress: Callable[[Progress], object] = lambda _: None
) -> Sampled:
    """Reads and converts a sample like `step`; writes nothing."""
    options, sampled = step.options, Sampled()
    counts_boxes = has_boxes(step.source.plan.options)
    steps = [part.fn for part in step.make]
    shard = zlib.compressobj(gzip_level(**options.stored_compression, encoding=options.encoding) or 0)
    packed = 0
    sizes = itertools.accumulate(ref.size_bytes for ref in refs)
    refs = [ref for ref, size in zip(refs, sizes, strict=True) if size <= MAX_SAMPLE_BYTES] or refs[:1]
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
        else:
            packed += len(shard.compress(record.serialized))
            sampled.cpu_s.append(time.thread_time() - cpu_s)
            sampled.record_bytes.append(len(record.serialized) + FRAME_BYTES)
            if record.image is not None:
                sampled.adjusted.update(record.image.adjusted)
            if counts_boxes:
                box_counts.add_boxes(sampled.boxes, parse_example(record.serialized), ref.columns)
        started = time.perf_counter()
    if step.read.ahead is not None:
        step.read.ahead.close()
    if sampled.record_bytes:
        sampled.packed = (packed + len(shard.flush())) / sum(sampled.record_bytes)
    return sampled


class Comparison:
    """Counts the references of a listing that a dataset has; takes about 200 bytes of memory for each of its images.

    Args:
        folder: folder of the dataset.

    Attributes:
        there: whether there is a dataset, with all of its sidecars.
        new, changed, kept: references so far.
    """

    def __init__(self, folder: str | None) -> None:
        self.new = self.changed = self.kept = 0
        self._files = dict[int, int]()  # hash of a key -> hash of its file, which take less memory than they do
        try:
            dataset = manifest.find(folder) if folder else None
        except DataError:
            dataset = None
        found = [sources_of(dataset.folder, shard) for shard in shards_of(dataset)] if dataset else [None]
        self.there = None not in found
        for source in (source for sources in found for source in sources or ()):
            ref = ImageRef.decode(source.ref)
            self._files[hash(ref.key)] = _hash_of_file(ref)

    def watch(self, refs: Iterable[ImageRef]) -> Iterator[ImageRef]:
        """Yields references, and counts them."""
        for ref in refs:
            known = self._files.get(hash(ref.key))
            self.new += known is None
            self.kept += known == _hash_of_file(ref)
            self.changed += known not in (None, _hash_of_file(ref))
            yield ref

    def __str__(self) -> str:
        """What `update` would do, if no option changes all images."""
        removed = len(self._files) - self.kept - self.changed
        plan = f"add {self.new:,}, drop {removed:,}, look at {self.changed:,} that seem changed, and copy {self.kept:,}"
        return f"would {plan}"


def _hash_of_file(ref: ImageRef) -> int:
    return hash((ref.size_bytes, ref.crc32c or ref.generation))
