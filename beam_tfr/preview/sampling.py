"""Lists the input of a conversion, and converts a sample of it."""

import collections
import contextlib
import dataclasses
import itertools
import operator
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from beam_tfr.console.display import Progress
from beam_tfr.copies.images import SampledImage
from beam_tfr.dataset.base import planned_shards
from beam_tfr.dataset.groups import LargestGroup
from beam_tfr.dataset.manifest import find_manifest
from beam_tfr.dataset.split_notes import HASH_BYTES, SourceHashes
from beam_tfr.features.box_counts import box_statistics
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.features.mask_counts import mask_statistics
from beam_tfr.inputs.empty_folders import EmptyFolders
from beam_tfr.inputs.input_lists import read_input_list
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.listing import LIST_BATCH, match_files, order_parts
from beam_tfr.inputs.measuring import make_record
from beam_tfr.inputs.parquet import end_sample
from beam_tfr.inputs.read_ahead import read_refs
from beam_tfr.inputs.skipped import GuessedNames, PackedLabels, RepeatedFolders, SkippedFiles
from beam_tfr.layouts.mask_names import MaskNames
from beam_tfr.options import ConvertOptions
from beam_tfr.output.known import read_sources
from beam_tfr.pipeline import Convert
from beam_tfr.planning.survey import Survey, order_key
from beam_tfr.records.examples import parse_example
from beam_tfr.records.repeats import RepeatedKeys
from beam_tfr.records.shard_file import gzip_level
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.encoded_ref import to_bytes
from beam_tfr.schema.encodings import RecordNames, names_of
from beam_tfr.schema.errors import DataError, RejectError
from beam_tfr.schema.items import ImageRef, MadeValues, Record
from beam_tfr.schema.palettes import Palette, add_palette
from beam_tfr.schema.plan import Counts
from beam_tfr.sources import Input
from beam_tfr.tables.repeats import RowKeys, merge_repeated
from beam_tfr.tables.rows import Tables

MAX_SAMPLE_BYTES = 256 << 20  # 256 MiB of files


@dataclasses.dataclass
class Listing:
    """The result of a listing.

    Attributes:
        num_bytes: size of all files in bytes.
        reasons: reason -> number of references that will be rejected.
        details: reason -> an example: its key, and the problem.
        skipped: kind of name -> number of files that are not converted; see `SkippedFiles`.
        annotations: skipped files that may hold annotations; see `SkippedFiles`.
        repeats: links to folders that are already listed under another path.
        guessed_names: images in zips whose name encoding is uncertain.
        packed_labels: files in archives that may hold labels.
        empty: folders without images next to folders with images.
        used_exclusions: patterns of `exclude` that match a file; see `SkippedFiles`.
        masks: files that are named like masks of files next to them.
        num_known: number of references that are also in the result of `hash_known_files`.
        num_kept: number of references with the keys of records in the existing dataset.
        largest_group: the largest group of images that `stratify` keeps together, if any.
        num_removed: number of images that are not listed, because they were removed earlier.
        row_keys: the keys of table rows.
        renamed: the classes that `rename=` renames.
        num_repeated_keys: number of keys shared by several rows.
    """

    num_bytes: int = 0
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    details: dict[str, str] = dataclasses.field(default_factory=dict)
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, list[str]] = dataclasses.field(default_factory=dict)
    repeats: RepeatedFolders = dataclasses.field(default_factory=RepeatedFolders)
    guessed_names: GuessedNames = dataclasses.field(default_factory=GuessedNames)
    packed_labels: PackedLabels = dataclasses.field(default_factory=PackedLabels)
    empty: EmptyFolders = dataclasses.field(default_factory=EmptyFolders)
    used_exclusions: Set[int] = frozenset()
    masks: MaskNames = dataclasses.field(default_factory=MaskNames)
    num_known: int = 0
    num_kept: int = 0
    largest_group: LargestGroup | None = None
    num_removed: int = 0
    row_keys: RowKeys = dataclasses.field(default_factory=RowKeys)
    renamed: set[str] = dataclasses.field(default_factory=set)
    num_repeated_keys: int = 0

    def add(self, ref: ImageRef) -> None:
        """Counts a reference."""
        self.num_bytes += ref.size_bytes
        if ref.reason:
            self.reasons[ref.reason] += 1
            example = f"{ref.key} ({ref.detail})"
            self.details[ref.reason] = min(example, self.details.get(ref.reason, example))


class KnownFiles(NamedTuple):
    """The files that a dataset was made from.

    Attributes:
        refs: hashes of the references as they were listed for the dataset.
        keys: hashes of the keys of the dataset's records.
    """

    refs: Set[int] = frozenset()
    keys: Set[int] = frozenset()


_NOTHING_KNOWN = KnownFiles()


def survey_listing(
    refs: Iterable[ImageRef],
    survey: Survey,
    known_files: KnownFiles = _NOTHING_KNOWN,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Listing:
    """Surveys the references in one pass, in memory that does not grow with their number.

    Args:
        refs: the references.
        survey: the survey to add them to.
        known_files: result of `hash_known_files` for a dataset; references among these are counted.
        progress: called while files are listed.
    """
    listing = Listing()
    for number, ref in enumerate(refs, start=1):
        if number % 1000 == 0:
            progress(Progress("listing", number))
        survey.add([ref.encode()])
        listing.add(ref)
        listing.num_known += _hash_of(ref) in known_files.refs
        listing.num_kept += hash(ref.key) in known_files.keys
    return listing


def hash_known_files(folder: str) -> KnownFiles:
    """Hashes the references and keys that a dataset was made from.

    The result is empty if there is no dataset, or if a sidecar is missing.
    """
    dataset = None
    with contextlib.suppress(DataError):
        dataset = find_manifest(folder)
    if dataset is None or dataset.options["encoding"] == "row":  # its rows are read anyway
        return KnownFiles()
    refs = set[int]()
    keys = set[int]()
    for shard in planned_shards(dataset):
        sources = read_sources(dataset.folder, shard)
        if sources is None:
            return KnownFiles()
        for source in sources:
            ref = ImageRef.decode(source.ref)
            refs.add(_hash_of(ref))
            if source.reject is None:
                keys.add(hash(ref.key))
    return KnownFiles(refs, keys)


def _hash_of(ref: ImageRef) -> int:
    return hash((ref.key, ref.size_bytes, ref.crc32c or ref.generation))


def list_references(
    options: ConvertOptions,
    source: Input,
    skipped: SkippedFiles,
    masks: MaskNames,
    row_keys: RowKeys,
    repeated: RepeatedKeys,
) -> Iterator[ImageRef]:
    """Lists all references of a conversion, in no particular order.

    Args:
        options, source: those of the conversion.
        skipped: counts skipped files.
        masks: counts files that are named like masks.
        row_keys: records the keys of rows.
        repeated: keys shared by several rows; such rows are merged.

    Raises:
        UsageError: a pattern matches nothing or cannot be listed.
        DataError: a table is damaged.
    """
    match source.origin:
        case Tables() as tables:
            read = (row_keys.note_rows(tables.read(path, skipped)) for path in tables.files)
            refs = itertools.chain.from_iterable(read)
            yield from merge_repeated(tables, refs, repeated) if repeated else refs
        case Labeler() as labeler:
            parts = order_parts(source.input, read_input_list(options.input_list))
            exclude = source.exclusion
            entries = match_files(
                parts, exclude=exclude, skipped=skipped, keep_damaged=options.allows_rejects
            )
            while batch := [*itertools.islice(entries, LIST_BATCH)]:
                keys = [entry.path.removeprefix(source.root) for entry in batch]
                masks.look_at(keys)
                skipped.empty.fill(entry.path for entry in batch)
                yield from map(labeler.label, batch, keys)


class RemovedImages:
    """A filter that leaves out images that were taken down, and counts them.

    Args:
        hashes: SHA-256 of their keys, in hex.

    Attributes:
        number: number of images left out so far.
    """

    def __init__(self, hashes: Set[str]) -> None:
        self.number = 0
        self._hashes = hashes

    def leave_out(self, refs: Iterable[ImageRef]) -> Iterator[ImageRef]:
        """Yields the references to all other images."""
        for ref in refs:
            if sha256_hex(to_bytes(ref.key)) in self._hashes:
                self.number += 1
            else:
                yield ref


class FirstRecord(NamedTuple):
    """The first record of a split, so far.

    Attributes:
        order: its `order_key`.
        ref: its reference.
        serialized: the record.
    """

    order: bytes
    ref: ImageRef
    serialized: bytes


@dataclasses.dataclass
class ConvertedSample:
    """The result of converting a sample.

    Attributes:
        sizes: key -> size of its record in bytes, or None for a reject; lacks files that may become
            readable.
        tried: number of references.
        written: number of records.
        num_bytes: size of all records in bytes, compressed.
        cpu_s: CPU seconds to convert and compress the records.
        read_s: seconds to read one file.
        reasons: reason -> number of rejects.
        details: reason -> an example: its key, and the problem.
        bad_values: the problem of each reject that has a bad value.
        adjusted: name of an adjustment -> number of images.
        boxes, masks: statistics of boxes and masks, as in a manifest; empty if there are none.
        written_refs: the references of the records.
        palettes: the palettes of masks, as `add_palette` keeps them.
        sources: the sources of the records; empty if no files are read.
        images: the records, if they are images.
        first: split -> its first record in the order of the dataset.
    """

    sizes: dict[str, int | None] = dataclasses.field(default_factory=dict, repr=False)
    tried: int = 0
    written: int = 0
    num_bytes: int = 0
    cpu_s: float = 0.0
    read_s: float = 0.0
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    details: dict[str, str] = dataclasses.field(default_factory=dict)
    bad_values: list[str] = dataclasses.field(default_factory=list, repr=False)
    adjusted: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    boxes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    masks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    written_refs: list[ImageRef] = dataclasses.field(default_factory=list, repr=False)
    palettes: list[Palette] = dataclasses.field(default_factory=list, repr=False)
    sources: list[SourceHashes] = dataclasses.field(default_factory=list, repr=False)
    images: list[SampledImage] = dataclasses.field(default_factory=list, repr=False)
    first: dict[str, FirstRecord] = dataclasses.field(default_factory=dict, repr=False)

    def add_reject(self, ref: ImageRef, error: RejectError) -> None:
        """Counts a rejected file."""
        self.reasons[error.reason] += 1
        self.details.setdefault(error.reason, f"{ref.key} ({error.detail})")
        if error.reason == "bad-value":
            self.bad_values.append(error.detail)
        if not error.may_pass:
            self.sizes[ref.key] = None

    def add_record(self, ref: ImageRef, record: Record, sha256: str) -> None:
        """Counts a record; `sha256` is the hash of its source, if the record has a source."""
        self.written += 1
        if sha256:
            self.written_refs.append(ref)
            source = bytes.fromhex(sha256[: 2 * HASH_BYTES])
            self.sources.append(SourceHashes(ref.split, source))
        self.sizes[ref.key] = len(record.serialized)
        image = record.image
        if image is not None and image.appearance:
            pixels = image.source_height * image.source_width
            sampled = SampledImage(
                ref.key, ref.split, ref.labels, pixels, image.source_sha256, image.appearance
            )
            self.images.append(sampled)
        if record.image is not None:
            self.adjusted.update(record.image.adjusted)
            if record.image.palette:
                add_palette(self.palettes, record.image.palette)

    def note_first(self, ref: ImageRef, record: Record, order: bytes) -> None:
        """Keeps a record if it comes before the others of its split."""
        first = self.first.get(ref.split)
        if first is None or order < first.order:
            self.first[ref.split] = FirstRecord(order, ref, record.serialized)


def convert_sample(
    refs: Sequence[ImageRef],
    step: Convert,
    *,
    progress: Callable[[Progress], object] = lambda _: None,
) -> ConvertedSample:
    """Converts a sample as the pipeline does, and measures it; writes nothing.

    Args:
        refs: references in the sample; those beyond `MAX_SAMPLE_BYTES` are left out.
        step: the conversion.
        progress: called before each image is converted.
    """
    options = step.options
    functions = step.record_functions()
    names = names_of(step.source.encoding)
    features = FeaturesDict.from_options(step.source.plan.options)
    level = gzip_level(**options.stored_compression, encoding=step.source.encoding)
    shard = zlib.compressobj(level or 0)
    counts = Counts()
    sample = ConvertedSample()
    refs = sorted(_up_to_bytes(refs, MAX_SAMPLE_BYTES), key=operator.attrgetter("key"))
    reading_since = time.perf_counter()
    for ref, content in read_refs(step.read.root, refs, step.read.ahead):
        sample.read_s += (time.perf_counter() - reading_since) / len(refs)
        sample.tried += 1
        progress(Progress("sampling", sample.tried, len(refs)))
        cpu_began_s = time.thread_time()
        try:
            record = make_record(content, ref, functions)
        except RejectError as error:
            sample.add_reject(ref, error)
        else:
            sample.num_bytes += len(shard.compress(record.serialized))
            sample.cpu_s += time.thread_time() - cpu_began_s
            sample.add_record(ref, record, _sha256_of(record, names))
            sample.note_first(ref, record, order_key(options.seed, ref.key))
            if features.is_counted:
                columns = parse_example(ref.columns or b"")
                features.count(counts, parse_example(record.serialized), columns)
        reading_since = time.perf_counter()
    end_sample()
    sample.num_bytes += len(shard.flush())
    if counts.box_numbers:
        sample.boxes = box_statistics(counts)
    if counts.mask_numbers:
        sample.masks = mask_statistics(counts)
    return sample


def _sha256_of(record: Record, names: RecordNames) -> str:
    """Returns the SHA-256 of a record's source, in hex, or "" if the record states none."""
    if not names.sha256 or not isinstance(record.values, MadeValues):
        return ""
    (sha256,) = record.values.values[names.sha256]
    return str(sha256.decode())


def _up_to_bytes(refs: Sequence[ImageRef], max_bytes: int) -> Sequence[ImageRef]:
    """Returns the first references with at most `max_bytes` bytes of files, but at least one."""
    total = 0
    for number, ref in enumerate(refs):
        total += ref.size_bytes
        if total > max_bytes:
            return refs[: max(number, 1)]
    return refs
