"""WriteShards and WriteManifest: write items to files, and their counts to the manifest."""

import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.pvalue import AsIter, PCollection

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.history import Update
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.output import claim, lock, publish, rejects, shard_totals, shards, sidecars, switch
from beam_tfr.output.known import find_equal_shard
from beam_tfr.records.box_counts import add_boxes
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
from beam_tfr.records.shard_file import ShardFile
from beam_tfr.records.tfrecords import FRAME_BYTES, HEADER_BYTES, frame, unframe_records
from beam_tfr.schema.dataset import (
    CONTENTS_FOLDER,
    NO_SPLIT,
    REJECTS_FILE,
    RecordsDigest,
    sha256_hex,
)
from beam_tfr.schema.encoded_ref import label_ids_of
from beam_tfr.schema.encodings import FEATURES, LABEL_FEATURES
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.schema.feature_names import FILENAME, SIDES, FeatureSpec
from beam_tfr.schema.features import Names, names_of
from beam_tfr.schema.items import CopiedRecords, ImageRef, Item, Record, Reject
from beam_tfr.schema.naming import contents_name, file_name
from beam_tfr.schema.plan import Counts, Plan, Shard, ShardInfo, Unfinished, WrittenFile, sum_counts
from beam_tfr.transforms.counting import CloudDoFn, FunctionDoFn, count, count_shard, count_waits


@dataclasses.dataclass(eq=False, repr=False)
class WriteShards(beam.io.WriteToTFRecord):
    """Writes lists of items to files, framed and named like Beam's.

    Shards and order are those of the plan. Beam itself assigns records to shards at random and
    renames all files at the end, where a retry can lose some. Here a file appears in the work
    folder when its last item has arrived, under a name of its own, followed by its sidecar;
    `WriteManifest` moves the files that it has checked to their places.

    Attributes:
        output: folder of the dataset.
        name: prefix of the files.
        suffix: suffix of the files.
        level: level of gzip, 0 to 9; None for no compression.
        features: name -> (dtype, shape) of the features of a record, as
            `schema.features.features_of` returns them: by default those of images with labels.
        names: those of the key and label features.
        run_id: id of the run, which must still hold the folder's lock; empty to hold none.
        expected: to repair a published dataset: file name -> required SHA-256. None to build files
            for `WriteManifest`.
        base: with an update: the dataset in the output. Its files that would not change stay.

    Output: `ShardInfo`, one per planned shard; `Unfinished` for a shard that was given up, perhaps
    temporarily.
    """

    output: str
    _: dataclasses.KW_ONLY
    name: str
    suffix: str
    level: int | None
    features: Mapping[str, FeatureSpec] = dataclasses.field(
        default_factory=lambda: FEATURES | LABEL_FEATURES
    )
    names: Names = names_of("jpeg")
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
        self._columns = contents_columns(step.features, step.names)
        self._pending: storage.PendingFile | None = None

    def start_bundle(self) -> None:
        self._abort()  # what a failed attempt left open
        self._sequence = shards.Sequencer()

    def process(self, items: list[Item]) -> Iterator[ShardInfo | Unfinished]:
        # Before their shard is whole: see `launch.progress`.
        count("images", sum(item.images for item in items))
        count(
            "written",
            sum(item.images for item in items if isinstance(item.value, (Record, CopiedRecords))),
        )
        for item in items:
            if isinstance(item.value, ShardInfo):
                count("resumed-shards")
                count("resumed-images", item.value.shard.total)
                yield item.value
            elif isinstance(item.value, Unfinished):
                self.start_bundle()  # of another shard that is open, the next item raises
                yield item.value
            elif self._write(item):
                yield self._commit()

    def _write(self, item: Item) -> bool:
        """Writes the next item of a shard; returns whether it was the last."""
        last = self._sequence.take(item, self._begin)
        copied = item.value if isinstance(item.value, CopiedRecords) else None
        for ref in copied.refs if copied else [item.ref.encode()] if item.ref else ():
            self._refs.append(ref if self._step.names.sha256 else sidecars.fingerprint_ref(ref))
        if copied:
            self._rows.append(with_places(copied.rows, self._put(copied.frames, copied.sizes)))
            self._sums += copied.sums
            self._label_ids.update(itertools.chain.from_iterable(map(label_ids_of, copied.refs)))
            self._before[item.change] += item.images
        elif isinstance(item.value, Record) and item.ref is not None:
            record = item.value
            self._rows.append(self._row(record, item.ref))
            self._sums.append(record.sums or sidecars.encode_sums(record.image))
            self._label_ids.update(
                (item.ref.label_ids if record.label_ids is None else record.label_ids) or ()
            )
            self._before[item.change] += 1
        elif isinstance(item.value, Reject):
            self._rejects.append(item.value)
            count("rejected")
            count(f"rejected-{item.value.reason}")
        elif item.ref is not None:
            raise TypeError(
                f"{item.uri}: WriteShards takes a Record or a Reject, got {type(item.value).__name__}"
            )
        return last

    def _put(self, frames: bytes, sizes: Sequence[int]) -> RecordPlaces:
        """Writes the frames of records, which have these sizes; returns where the records are."""
        for record in unframe_records(frames, sizes):
            self._digest.add(record)
        begins = itertools.accumulate(sizes[:-1], initial=self._file.length + HEADER_BYTES)
        return RecordPlaces(
            [*begins],
            [size - FRAME_BYTES for size in sizes],
            self._file.write_records(frames, sizes),
        )

    def _row(self, record: Record, ref: ImageRef) -> dict[str, Any]:
        """Writes a record, and counts its boxes; returns its row of the contents."""
        framed = frame(record.serialized)
        place = {
            name: values[0] for name, values in self._put(framed, [len(framed)])._asdict().items()
        }
        values = dict[str, Any](record.values or {})
        has_boxes = SIDES[0] in self._step.features
        with contextlib.suppress(
            ValueError
        ):  # a step of one's own may make records that are no Examples
            values |= parse_example(
                record.serialized if has_boxes or record.values is None else ref.columns or b""
            )
            if has_boxes:
                add_boxes(self._boxes, values, ref.columns)
        cells = {} if record.values == {} else contents_row(values, self._columns)
        return {**cells, **record.made, **place}

    def _begin(self, shard: Shard) -> None:
        self._shard = shard
        self._refs = list[bytes]()
        self._rows = list[Any]()
        self._sums = list[bytes]()
        self._rejects = list[Reject]()
        self._label_ids = collections.Counter[int]()
        self._before = collections.Counter[str]()
        self._boxes = Counts()
        if shard.split != NO_SPLIT:
            self._file_name = file_name(self._step.name, shard.name, self._step.suffix)
            work_folder = storage.work_path(self._step.output, "")
            repairs = self._step.expected is not None
            self._built = "" if repairs else sidecars.unique_name(shard.name)
            path = sidecars.locate_file(self._step.output, self._file_name, self._built)
            self._pending = storage.create(path, scratch=work_folder, replace=repairs)
            self._file = ShardFile(self._pending.write, self._step.level)
            self._digest = RecordsDigest()

    def _commit(self) -> ShardInfo | Unfinished:
        if self._step.run_id:
            lock.check_lock(self._step.output, self._step.run_id)
        info = ShardInfo(
            shard=self._shard,
            rejected=dict(collections.Counter(found.reason for found in self._rejects)),
        )
        if self._pending is not None:
            self._file.close()
            schema = contents_schema(self._step.features, self._step.names)
            contents = join_rows(
                self._rows, schema, split=self._shard.split, shard=self._shard.number
            )
            if self._step.names.key == FILENAME:  # of images
                info.add(shards.count_images(contents, self._columns, self._sums))
                info.add(self._boxes)
            info.num_examples = len(contents)
            info.num_bytes = self._file.num_bytes
            info.class_counts = {
                label_id: number for label_id, number in self._label_ids.items() if label_id >= 0
            }
            info.before = {before: number for before, number in self._before.items() if before}
            info.file = self._file_name
            info.sha256 = self._file.sha256
            info.records_sha256 = self._digest.hexdigest()
            if (
                self._step.expected is not None
                and info.sha256 != self._step.expected[self._file_name]
            ):
                self._abort()
                total = self._shard.total
                return Unfinished(
                    shard=self._shard,
                    causes={},
                    images=total,
                    example=self._file_name,
                    differs=True,
                )
            stands = find_equal_shard(self._step.base, info) if self._step.base else None
            if stands:
                self._abort()
                info.generation = stands.generation
            else:
                info.built = self._built
                info.generation = self._pending.commit()
                self._pending = None
            data = contents_bytes(contents)
            if stands and stands.contents and stands.contents.sha256 == sha256_hex(data):
                info.contents = stands.contents
            else:
                info.contents = self._commit_contents(data)
        lines = [reject.to_json() for reject in self._rejects]
        info = sidecars.write_sidecar(
            self._step.output, info, lines, refs=self._refs, sums=self._sums
        )
        count_shard(info)
        count_waits()
        return info

    def _commit_contents(self, data: bytes) -> WrittenFile:
        name = contents_name(self._file_name)
        work_folder = storage.work_path(self._step.output, "")
        built = sidecars.unique_name(self._shard.name, sidecars.CONTENTS) if self._built else ""
        if not built:
            storage.make_folder(storage.join(self._step.output, CONTENTS_FOLDER))
        path = sidecars.locate_file(self._step.output, name, built)
        with storage.create(path, scratch=work_folder, replace=not built) as file:
            file.write(data)
            return WrittenFile(built, len(data), sha256_hex(data), file.commit())

    def finish_bundle(self) -> None:
        self._sequence.check_closed()

    def teardown(self) -> None:
        self._abort()

    def _abort(self) -> None:
        if self._pending is not None:
            self._pending.abort()
            self._pending = None


@dataclasses.dataclass(eq=False, repr=False)
class WriteManifest(beam.PTransform):
    """Writes manifest.json from the counts of all shards, last, and only if they add up.

    Attributes:
        output: folder of the dataset.
        plan: the plan from `PlanShards`, a PCollection of one.
        run_id: id of the run, which must still hold the folder's lock.
        max_rejects: maximum share (float) or number (int) of rejects.
        allow_empty: splits and classes whose images may all be rejected.
        update: how the dataset in the output is updated, if it is.

    Output: the `Manifest`, once the dataset is complete.
    """

    output: str
    _: dataclasses.KW_ONLY
    plan: PCollection[Plan]
    run_id: str
    max_rejects: int | float
    allow_empty: Sequence[str] = ()
    update: Update | None = None

    def expand(self, infos: PCollection[ShardInfo | Unfinished]) -> PCollection[Manifest]:
        return self.plan | "Publish" >> beam.ParDo(FunctionDoFn(self._publish), AsIter(infos))

    def _publish(self, plan: Plan, infos: Iterable[ShardInfo | Unfinished]) -> Iterator[Manifest]:
        # A complete plan may have a work folder too, of a run that was killed at its end.
        published = read_manifest(self.output) if plan.complete else self._published(plan, infos)
        claim.remove_work_folder(self.output, self.run_id, plan.shards())
        yield published

    def _published(self, plan: Plan, infos: Iterable[ShardInfo | Unfinished]) -> Manifest:
        totals = shard_totals.add_up_shards(plan, infos)
        if plan.provisional:
            problem = "some of the files from which the number of shards is estimated could not be read at first"
            raise RunError(
                f"{problem}, but can be now. Nothing is published; run the same command again"
            )
        self._check_rejects(plan, totals)
        claimed = claim.find_claim(self.output, self.run_id)
        check_lock = functools.partial(lock.check_lock, self.output, self.run_id)
        if claimed is not None:
            check_lock()
            switch.complete_switch(self.output)  # which this step began before
        published = publish.find_published(
            self.output, plan, totals, claimed
        )  # by this step, run before
        return published or publish.publish_dataset(
            self.output, plan, totals, claimed, check_lock=check_lock, update=self.update
        )

    def _check_rejects(self, plan: Plan, totals: Mapping[str, shard_totals.SplitTotals]) -> None:
        counts = {split: total.counts for split, total in totals.items()}
        try:
            rejects.check_rejects(plan, counts, self.max_rejects, allow_empty=self.allow_empty)
        except DataError as error:
            if not (reasons := sum_counts(counts.values()).rejected):
                raise
            path = storage.work_path(self.output, REJECTS_FILE)
            rejects.write_rejects(path, self.output, shard_totals.reject_digests(totals))
            raise DataError(
                "\n".join([str(error), *rejects.describe_rejects(path, reasons)])
            ) from error


class ReadRejects(beam.PTransform):
    """Reads the rejects of complete datasets, given their `Manifest`.

    Output: `Reject`, as listed in rejects.jsonl.
    """

    def expand(self, manifests: PCollection[Manifest]) -> PCollection[Reject]:
        reading = FunctionDoFn(
            lambda dataset: rejects.read_rejects(storage.join(dataset.folder, REJECTS_FILE))
        )
        return manifests | "ReadRejects" >> beam.ParDo(reading)
