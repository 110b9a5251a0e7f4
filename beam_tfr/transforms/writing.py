"""Writes items to the files of shards."""

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import google_crc32c
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.pvalue import PCollection

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.output import lock, shards, sidecars
from beam_tfr.output.known import find_equal_shard
from beam_tfr.records.contents import (
    RecordPlaces,
    contents_columns,
    contents_row,
    contents_schema,
    join_rows,
    with_places,
)
from beam_tfr.records.contents_file import contents_bytes
from beam_tfr.records.examples import parse_example
from beam_tfr.records.shard_file import open_shard_file
from beam_tfr.records.tfrecords import FRAME_BYTES, HEADER_BYTES, frame, unframe_records
from beam_tfr.schema.dataset import (
    CONTENTS_FOLDER,
    NO_SPLIT,
    RecordsDigest,
    sha256_hex,
)
from beam_tfr.schema.encoded_ref import label_ids_of
from beam_tfr.schema.feature_names import FILENAME
from beam_tfr.schema.items import (
    Change,
    CopiedRecords,
    CopiedRow,
    ImageRef,
    Item,
    MadeValues,
    Record,
    Reject,
)
from beam_tfr.schema.naming import contents_name, file_name
from beam_tfr.schema.palettes import Palette, add_palette
from beam_tfr.schema.plan import Counts, Shard, ShardInfo, Unfinished, WrittenFile
from beam_tfr.transforms.counting import CloudDoFn, count, count_shard, count_waits


@dataclasses.dataclass(eq=False, repr=False)
class WriteShards(beam.io.WriteToTFRecord):
    """Writes lists of items to files that are framed and named like Beam's.

    Shards and order follow the plan. Beam itself assigns records to shards at random and renames
    all files at the end, where a retry can lose some files. Here, once its last item has arrived, a
    file appears in the work folder under a unique name, followed by its sidecar; `WriteManifest`
    checks the files and moves them to their final places.

    Attributes:
        output: folder of the dataset.
        name: prefix of the files.
        suffix: suffix of the files.
        level: level of gzip, 0 to 9; None for no compression.
        features: features of a record; by default the features of images with labels.
        run_id: id of the run, which must still hold the folder's lock; an empty string if no lock
            is needed.
        expected: to repair a published dataset: file name -> required SHA-256. None to build files
            for `WriteManifest`.
        base: for an update: the dataset in the output. Its files stay if they would not change.

    Output: `ShardInfo`, one per planned shard; `Unfinished` for a shard that was given up, perhaps
    temporarily.
    """

    output: str
    _: dataclasses.KW_ONLY
    name: str
    suffix: str
    level: int | None
    features: FeaturesDict = FeaturesDict.from_options({"encoding": "jpeg"}, labelled=True)
    run_id: str = ""
    expected: Mapping[str, str] | None = None
    base: BaseDataset | None = None

    def __post_init__(self) -> None:
        prefix = storage.join(self.output, self.name)
        super().__init__(
            prefix, file_name_suffix=self.suffix, compression_type=CompressionTypes.UNCOMPRESSED
        )

    def expand(self, items: PCollection[list[Item]]) -> PCollection[ShardInfo | Unfinished]:
        return items | "Write" >> beam.ParDo(_Write(self))


class _Write(CloudDoFn):
    def __init__(self, step: WriteShards) -> None:
        self._step = step
        self._writer: _ShardWriter | None = None  # for the open shard

    def start_bundle(self) -> None:
        self._abort()  # leftovers of a failed attempt
        self._sequence = shards.Sequencer()

    def process(self, items: list[Item]) -> Iterator[ShardInfo | Unfinished]:
        # Images are counted even before their shard is complete: see `launch.progress`.
        count("images", sum(item.images for item in items))
        written = [item.images for item in items if isinstance(item.value, (Record, CopiedRecords))]
        count("written", sum(written))
        for item in items:
            if isinstance(item.value, ShardInfo):
                count("resumed-shards")
                count("resumed-images", item.value.shard.total)
                yield item.value
            elif isinstance(item.value, Unfinished):
                self.start_bundle()  # if another shard is open, the next item raises
                yield item.value
            else:
                yield from self._write(item)

    def _write(self, item: Item) -> Iterator[ShardInfo | Unfinished]:
        """Writes the next item of a shard; yields the shard after its last item."""
        self._sequence.check_order(item)
        writer = self._writer or self._open_writer(item.shard)
        self._writer = writer
        writer.add(item)
        if self._sequence.advance(item):
            yield writer.commit()
            self._writer = None

    def _open_writer(self, shard: Shard) -> "_ShardWriter":
        if shard.split == NO_SPLIT:
            return _ShardWriter(self._step, shard)
        return _FileWriter(self._step, shard)

    def finish_bundle(self) -> None:
        self._sequence.check_closed()

    def teardown(self) -> None:
        self._abort()

    def _abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()
            self._writer = None


class _ShardWriter:
    """Writes the sidecar of a shard that has only rejects, and therefore no file of records.

    Args:
        step: the settings.
        shard: the shard.
    """

    def __init__(self, step: WriteShards, shard: Shard) -> None:
        self._step = step
        self._shard = shard
        self._has_images = bool(step.features.names.sha256)
        self._refs = list[bytes]()
        self._sums = list[bytes]()
        self._rejects = list[Reject]()

    def add(self, item: Item) -> None:
        """Adds the next item."""
        if item.ref is None:  # the item of an empty shard
            return
        if not isinstance(item.value, Reject):
            kind = type(item.value).__name__
            raise TypeError(f"{item.uri}: WriteShards takes a Record or a Reject, got {kind}")
        self._add_refs([item.ref.encode()])
        self._rejects.append(item.value)
        count("rejected")
        count(f"rejected-{item.value.reason}")

    def commit(self) -> ShardInfo | Unfinished:
        """Commits the shard after its last item."""
        self._check_lock()
        return self._write_sidecar(ShardInfo(shard=self._shard))

    def abort(self) -> None:
        """Discards everything that is not committed."""

    def _add_refs(self, refs: Sequence[bytes]) -> None:
        """Keeps references for the sidecar, or only fingerprints if there are no images."""
        self._refs += refs if self._has_images else map(sidecars.fingerprint_ref, refs)

    def _check_lock(self) -> None:
        if self._step.run_id:
            lock.check_lock(self._step.output, self._step.run_id)

    def _write_sidecar(self, info: ShardInfo) -> ShardInfo:
        info.rejected = dict(collections.Counter(reject.reason for reject in self._rejects))
        lines = [reject.to_json() for reject in self._rejects]
        output = self._step.output
        info = sidecars.write_sidecar(output, info, lines, refs=self._refs, sums=self._sums)
        count_shard(info)
        count_waits()
        return info


def _find_change(item: Item, record: Record) -> Change:
    """Returns how the new record of an item differs from the one in the dataset being updated."""
    if item.change is Change.CHANGED and item.earlier is not None:
        is_equal = google_crc32c.value(record.serialized) == item.earlier
        return Change.KEPT if is_equal else Change.CHANGED
    return item.change


class _FileWriter(_ShardWriter):
    """Writes the records of a shard to its file, and the values in them to its contents."""

    def __init__(self, step: WriteShards, shard: Shard) -> None:
        super().__init__(step, shard)
        self._columns = contents_columns(step.features.specs, step.features.names)
        self._rows = list[Any]()
        self._label_ids = collections.Counter[int]()
        self._changes = collections.Counter[Change]()
        self._counts = Counts()
        self._palettes = list[Palette]()
        self._digest = RecordsDigest()
        self._is_repair = step.expected is not None
        self._file_name = file_name(step.name, shard.name, step.suffix)
        self._built_name = "" if self._is_repair else sidecars.unique_name(shard.name)
        self._pending = self._create(self._file_name, self._built_name)
        self._file = open_shard_file(self._pending.write, step.level)

    def add(self, item: Item) -> None:
        """Writes the next item."""
        if isinstance(item.value, CopiedRecords):
            self._add_copies(item.value)
            self._changes[item.change] += item.images
        elif isinstance(item.value, Record) and item.ref is not None:
            self._add_record(item.value, item.ref)
            self._changes[_find_change(item, item.value)] += 1
        else:
            super().add(item)

    def commit(self) -> ShardInfo | Unfinished:
        """Commits the shard after its last item.

        Returns:
            `Unfinished` if a repair expects different bytes in the file.
        """
        self._check_lock()
        info = ShardInfo(shard=self._shard)
        contents = self._finish(info)
        expected = self._step.expected
        if expected is not None and info.sha256 != expected[info.file]:
            self.abort()
            return Unfinished(
                shard=self._shard,
                causes={},
                images=self._shard.total,
                example=info.file,
                differs=True,
            )
        self._commit_files(info, contents)
        return self._write_sidecar(info)

    def abort(self) -> None:
        """Discards the file, unless it was committed."""
        self._pending.abort()

    def _add_record(self, record: Record, ref: ImageRef) -> None:
        """Writes a record."""
        framed = frame(record.serialized)
        places = self._write(framed, [len(framed)])
        place = {name: values[0] for name, values in places._asdict().items()}
        self._rows.append({**self._read_cells(record, ref), **record.made, **place})
        if record.image and record.image.palette:
            add_palette(self._palettes, record.image.palette)
        self._add_refs([ref.encode()])
        self._sums.append(record.sums or sidecars.encode_sums(record.image))
        label_ids = ref.label_ids if record.label_ids is None else record.label_ids
        self._label_ids.update(label_ids or ())

    def _add_copies(self, copied: CopiedRecords) -> None:
        """Writes several records copied from the dataset being updated."""
        places = self._write(copied.frames, copied.sizes)
        self._rows.append(with_places(copied.rows, places))
        self._add_refs(copied.refs)
        self._sums += copied.sums
        self._label_ids.update(itertools.chain.from_iterable(map(label_ids_of, copied.refs)))

    def _finish(self, info: ShardInfo) -> Any:
        """Ends the file, adds the counts, and returns the contents as a `pyarrow.Table`."""
        step = self._step
        self._file.close()
        schema = contents_schema(step.features.specs, step.features.names)
        contents = join_rows(self._rows, schema, split=self._shard.split, shard=self._shard.number)
        if step.features.names.key == FILENAME:  # the records are images
            info.add(shards.count_images(contents, self._columns, self._sums))
            info.add(self._counts)
        del self._label_ids[-1]  # for rows without a label
        del self._changes[Change.NEW]
        info.num_examples = len(contents)
        info.num_bytes = self._file.num_bytes
        info.class_counts = dict(self._label_ids)
        info.before = {change.value: number for change, number in self._changes.items()}
        info.file = self._file_name
        info.sha256 = self._file.sha256
        info.palettes = self._palettes
        info.records_sha256 = self._digest.hexdigest()
        return contents

    def _commit_files(self, info: ShardInfo, contents: Any) -> None:
        """Commits the file and its contents.

        Files that the dataset being updated already has stay as they are.
        """
        standing = None
        if self._step.base:
            standing = find_equal_shard(self._step.base, info)
        if standing:
            self.abort()
            info.generation = standing.generation
        else:
            info.generation = self._pending.commit()
            info.built = self._built_name
        data = contents_bytes(contents)
        if standing and standing.contents and standing.contents.sha256 == sha256_hex(data):
            info.contents = standing.contents
        else:
            info.contents = self._commit_contents(data)

    def _create(self, name: str, built_name: str) -> storage.PendingFile:
        """Begins a file of the dataset; a repair replaces the existing file."""
        path = sidecars.locate_file(self._step.output, name, built_name)
        scratch = storage.work_path(self._step.output, "")
        return storage.create(path, scratch=scratch, replace=self._is_repair)

    def _write(self, frames: bytes, sizes: Sequence[int]) -> RecordPlaces:
        """Writes the frames of records; returns where the records are.

        Args:
            frames: the frames, joined.
            sizes: the size of each frame, in bytes.
        """
        for record in unframe_records(frames, sizes):
            self._digest.add(record)
        begins = itertools.accumulate(sizes[:-1], initial=self._file.length + HEADER_BYTES)
        lengths = [size - FRAME_BYTES for size in sizes]
        return RecordPlaces([*begins], lengths, self._file.write_records(frames, sizes))

    def _read_cells(self, record: Record, ref: ImageRef) -> dict[str, Any]:
        """Reads the cells of the contents that come from a record, and counts its boxes."""
        values: Mapping[str, Any] = {}
        with contextlib.suppress(ValueError):  # a user's step may make other bytes
            values = self._read_values(record, ref)
            if self._step.features.is_counted:
                source = None if ref.columns is None else parse_example(ref.columns)
                self._step.features.count(self._counts, values, source)
        if isinstance(record.values, CopiedRow):
            return {**record.values.cells}
        return contents_row(values, self._columns)

    def _read_values(self, record: Record, ref: ImageRef) -> Mapping[str, Any]:
        """Reads the values of a record; may omit values that are not needed.

        Raises:
            ValueError: the bytes are not a tf.train.Example.
        """
        if self._step.features.is_counted or record.values is None:
            return parse_example(record.serialized)
        if isinstance(record.values, MadeValues):
            return {**parse_example(ref.columns or b""), **record.values.values}
        return {}

    def _commit_contents(self, data: bytes) -> WrittenFile:
        built_name = ""
        if self._is_repair:
            storage.make_folder(storage.join(self._step.output, CONTENTS_FOLDER))
        else:
            built_name = sidecars.unique_name(self._shard.name, sidecars.CONTENTS)
        with self._create(contents_name(self._file_name), built_name) as file:
            file.write(data)
            return WrittenFile(built_name, len(data), sha256_hex(data), file.commit())
