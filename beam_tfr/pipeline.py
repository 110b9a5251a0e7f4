"""Composes the steps as in the drawing of docs/architecture.md.

globs ──MatchImages──▶ ImageRef ──PlanShards──▶ (shard, [ImageRef])       (tables: ReadTable)
    ──ReadImages──▶ Item(bytes) ──ResizeImages──▶ Item(Image) ──BuildExamples──▶ Item(Record)
    ──WriteShards──▶ ShardInfo ──WriteManifest──▶ manifest.json
"""

import dataclasses
import functools
import uuid
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, PBegin, PCollection

from beam_tfr.console.display import Progress
from beam_tfr.dataset.base import BaseDataset, planned_shards, read_unchanged_manifest
from beam_tfr.dataset.history import Update
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.images.boxes import place_boxes
from beam_tfr.inputs.parquet import is_in_parquet
from beam_tfr.inputs.reading import ReadAhead, measure_sample
from beam_tfr.layouts.folders import check_split_folders, find_nested_classes
from beam_tfr.options import ConvertOptions, ImageOptions
from beam_tfr.options.tabular import TableOptions
from beam_tfr.output import attempts, claim, codec_versions, publish, removed
from beam_tfr.output.known import KnownRecords
from beam_tfr.planning import drafts
from beam_tfr.planning.drafts import PlanSettings
from beam_tfr.planning.survey import Survey
from beam_tfr.records.shard_file import gzip_level
from beam_tfr.schema.columns import typed
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.features import companions_of, features_of, has_boxes, names_in
from beam_tfr.schema.items import ShardWork
from beam_tfr.schema.plan import Plan, ShardInfo, Unfinished
from beam_tfr.sources import Input, open_source
from beam_tfr.storage import work_path
from beam_tfr.tables.datasets import read_embedded
from beam_tfr.tables.rows import Tables, file_of
from beam_tfr.transforms import references, values, writing
from beam_tfr.transforms.counting import FunctionDoFn, count
from beam_tfr.transforms.plans import PlanShards, Target
from beam_tfr.transforms.reading import ReadImages


def make_plan(survey: Survey, record_bytes: float, settings: PlanSettings) -> Plan:
    """The plan of a conversion without its cuts.

    Args:
        survey: survey of all references.
        record_bytes: mean size of a record, from the sample.
        settings: `Input.plan`.
    """
    options = settings.options
    plan = drafts.draft_plan(
        survey, record_bytes, settings, codecs=codec_versions.used_versions(options)
    )
    stored = not gzip_level(options["compression"], options["gzip_level"], options["encoding"])
    num_bytes = round(plan.matched * (record_bytes + drafts.FRAME_BYTES)) if stored else 0
    copied = [ref.size_bytes for ref in survey.sample_refs() if is_in_parquet(ref.place)]
    return dataclasses.replace(
        plan, num_bytes=num_bytes + plan.matched * sum(copied) // max(1, len(copied))
    )


class Convert(beam.PTransform):
    """The whole conversion as a PTransform; `ReadRejects` turns its output into the rejects.

    Args:
        options: checked options.
        source: result of `open_source(options)`, if it is open already.
        run_id: a unique id, under which the run holds the folder's lock.
        base: the dataset to update: the records of images that are in it are copied.

    Attributes:
        read: the step that reads the files of a shard.
        make: the steps from the bytes of files to records; each maps lists of `Item` to lists of
            `Item`.
        removed: what was taken down from the dataset in the output, and is left out.
        update: what the history records about an update.

    Output: the `Manifest`, once the dataset is complete.
    """

    def __init__(
        self,
        options: ConvertOptions,
        source: Input | None = None,
        *,
        run_id: str = "",
        base: BaseDataset | None = None,
    ) -> None:
        super().__init__()
        self.options = options
        self.run_id = run_id or uuid.uuid4().hex
        self.update: Update | None = None
        self.source = source or open_source(options)
        self.read, self.make = _by_encoding(options, self.source)
        self.removed = removed.Removed()
        self.base = self.read.base = base

    def leave_out(self, hashes: removed.Removed) -> None:
        """Leaves out what was taken down."""
        self.removed = hashes
        if hashes.sources:
            self.make.append(values.RejectRemoved(hashes, self.options.encoding))

    def expand(self, begin: PBegin) -> PCollection[Manifest]:
        plan, work = self._plan(begin)  # Plan, ShardWork(shard, [ImageRef])
        return self._write(work) | writing.WriteManifest(  # ShardInfo, Manifest
            self.options.output,
            plan=plan,
            run_id=self.run_id,
            max_rejects=self.options.max_rejects,
            allow_empty=self.options.allow_empty,
            update=self.update,
        )

    def progress(self) -> Progress | None:
        """The progress according to the output; None before there is a plan."""
        return claim.read_progress(self.options.output)

    def end(self, published: Manifest) -> Progress:
        """The progress at the end, when all is finished."""
        shards = sum(len(split.shards) for split in published.splits.values())
        images = published.counts["matched"]
        return Progress("publishing", images, images, shards, shards)

    def _write(
        self, work: PCollection[ShardWork], expected: Mapping[str, str] | None = None
    ) -> PCollection[ShardInfo | Unfinished]:
        options = self.options
        read = self.read
        if read.ahead:
            copying = functools.partial(read_embedded, copies=work_path(options.output, ""))
            ahead = dataclasses.replace(read.ahead, read_embedded=copying)
            read = dataclasses.replace(read, ahead=ahead)
        items = work | read  # ReadImages: Item(bytes)
        for step in self.make:  # ResizeImages: Item(Image), BuildExamples: Item(Record)
            items = items | step
        level = gzip_level(**options.stored_compression, encoding=options.encoding)
        return items | writing.WriteShards(
            options.output,
            name=options.name,
            suffix=options.suffix,
            level=level,
            features=features_of(self.source.plan.options, labelled=self.source.plan.labelled),
            names=names_in(self.source.plan.options),
            run_id=self.run_id,
            expected=expected,
            base=self.base,
        )

    def _plan(self, begin: PBegin) -> tuple[PCollection[Plan], PCollection[ShardWork]]:
        options = self.options
        source = self.source
        if not isinstance(begin, PBegin):
            raise UsageError(
                "Convert lists its own input: apply it to the pipeline itself, not to a PCollection"
            )
        distinct = None
        if isinstance(source.origin, BaseDataset):
            refs = references.read_dataset(begin, source.origin)
        elif isinstance(source.origin, Tables):
            refs, distinct = begin | references.ReadTable(source.origin)  # ImageRef
        else:
            refs = begin | references.MatchImages(
                source.input,
                source.origin,
                root=source.root,
                input_list=options.input_list,
                exclude=source.exclude,
            )
        if self.removed.keys:
            refs = references.leave_out(refs, self.removed)
        if options.limit is not None and not isinstance(source.origin, BaseDataset):
            refs = references.take_first(refs, options.limit, seed=options.seed)
        planning = self.plan_shards(distinct)
        if self.base:
            planning.known = references.read_known(begin, self.base, splits_stay=self.splits_stay)
        return refs | planning  # type: ignore[no-any-return]

    @property
    def splits_stay(self) -> bool:
        """Whether an image that a dataset has and the input still has is in the same split."""
        now = self.source.plan.options
        before = self.base.read_manifest().options if self.base else {}
        return "layout" in now and all(
            before.get(name) == now.get(name) for name in ("layout", "splits")
        )

    def plan_shards(self, distinct: PCollection[Any] | None = None) -> PlanShards:
        """The step that plans the shards; for `distinct` see `PlanShards`."""
        options = self.options
        settings = self.source.plan
        measure = functools.partial(measure_sample, root=self.read.root, ahead=self.read.ahead)
        mapped = [step for step in self.make if isinstance(step, values.MapImages)]
        plain = [step.fn for step in mapped]
        guarded = [step.guarded or step.fn for step in mapped]
        mark = self.read.output and work_path(self.read.output, attempts.SAMPLE_MARK)
        always = self.read.guarded
        # Not all options, since paths must not leave with a job.
        accept = options.accept_unreadable
        splits = options.splits
        default_layout = not options.layout
        base = self.base
        origin = self.source.origin
        layout = self.source.layout

        def draft(survey: Survey) -> Plan:
            if default_layout:
                check_split_folders(survey.folders, splits)
            count("nested", sum(find_nested_classes(survey.folders, layout).values()))
            refs = survey.sample_refs()
            sizes = (
                KnownRecords(origin).find_sizes([ref.key for ref in refs])
                if isinstance(origin, BaseDataset)
                else {}
            )
            with attempts.mark_attempt(mark) as crashed:
                record_bytes, whole = measure(
                    refs, steps=guarded if crashed or always else plain, known=sizes
                )
            plan = make_plan(survey, record_bytes, settings)
            if base:
                base.check_codecs(plan.codecs)
            return dataclasses.replace(plan, provisional=not (whole or accept))

        target = Target(options.output, self.run_id, options.overwrite, accept, base)
        return PlanShards(target, draft=draft, seed=options.seed, distinct=distinct)


class Repair(Convert):
    """Rebuilds some shards of a dataset from the same sources, with exactly the bytes that they
    had.

    Args:
        options: options of the dataset.
        source: result of `open_source(options)`.
        dataset: the dataset's manifest.
        wanted: names of the shards.

    Output: a PCollection of one None, if all of them are rebuilt.
    """

    def __init__(
        self, options: ConvertOptions, source: Input, *, dataset: Manifest, wanted: set[str]
    ) -> None:
        super().__init__(options, source)
        self._wanted = wanted
        self._expected = {
            shard.file: shard.sha256 for split in dataset.splits.values() for shard in split.shards
        }
        self._dataset = dataset

    def expand(self, begin: PBegin) -> PCollection[None]:
        wanted = self._wanted  # lost ones are found when the dataset is read again
        plan, work = self._plan(begin)
        broken = work | "KeepBroken" >> beam.Filter(lambda work: work.shard.name in wanted)
        check = functools.partial(publish.check_repaired, folder=self.options.output)
        infos = AsIter(self._write(broken, self._expected))
        return plan | "Check" >> beam.ParDo(FunctionDoFn(check), infos)

    def progress(self) -> Progress:
        """The progress of the shards that are rebuilt, before any is."""
        images = sum(
            shard.images for shard in planned_shards(self._dataset) if shard.name in self._wanted
        )
        return Progress("converting", 0, images, 0, len(self._wanted))

    def end(self, published: Manifest) -> Progress:
        """The progress at the end, when the wanted shards are finished."""
        progress = self.progress()
        return progress._replace(
            stage="publishing", done=progress.total, shards=progress.num_shards
        )

    def plan_shards(self, distinct: PCollection[Any] | None = None) -> PlanShards:
        """The step that plans the same shards as before; it needs no sample, since their number is
        known.

        Running it raises a DataError if the input, or the classes in it, have changed.
        """
        splits = self._dataset.splits
        labels = [*self._dataset.class_names]
        options = dict(self._dataset.options)
        digest = self._dataset.fields["input_digest"]
        num_shards = {name: len(split.shards) for name, split in splits.items() if split.shards}
        settings = dataclasses.replace(
            self.source.plan, first=labels, options={**options, "num_shards": num_shards}
        )

        def draft(survey: Survey) -> Plan:
            read_unchanged_manifest(
                self._dataset.folder, self._dataset.fields["manifest_digest"]
            )  # the folder is held only now
            if f"{survey.digest:064x}" != digest:
                problem = "the input has changed since the dataset was made: keys or sizes differ"
                cure = "restore it, or bring the dataset up to date with `beam-tfr update`"
                tool = "`beam-tfr verify` with `sources=` names what changed"
                raise DataError(f"{problem} ({survey.counts.total():,} keys now). {tool}; {cure}")
            plan = drafts.draft_plan(
                survey, 0.0, settings, codecs=codec_versions.used_versions(options)
            )
            return dataclasses.replace(plan, options=options)

        return PlanShards(None, draft=draft, seed=self.options.seed, distinct=distinct)


def _by_encoding(
    options: ConvertOptions, source: Input
) -> tuple[ReadImages, list[beam.PTransform]]:
    """The step that reads, and the steps that turn its output into records."""
    if options.encoding == "row":  # all in the references
        return ReadImages(source.root, ahead=None), [values.BuildExamples("row")]
    columns = typed(source.plan.options.get("feature_columns"))
    companions = companions_of(source.plan.options)
    files = {
        companion: functools.partial(file_of, root=source.root, companion=companion)
        for companion in companions
    }
    ahead = ReadAhead(
        options.max_file_bytes,
        images=options.read_ahead,
        companions=files,
        read_embedded=read_embedded,
    )
    place = None
    if has_boxes(source.plan.options):
        place = functools.partial(
            place_boxes,
            columns=columns,
            options=options.part(TableOptions),
            memory=options.max_decode_bytes,
        )
    steps: list[beam.PTransform] = [values.BuildExamples(options.encoding, place=place)]
    if options.encoding == "array":
        steps.insert(0, values.ParseArrays())
    elif options.encoding in IMAGE_ENCODINGS:
        steps.insert(0, values.ResizeImages(options.part(ImageOptions)))
    marked = options.output if options.encoding in IMAGE_ENCODINGS else ""
    return ReadImages(
        source.root, ahead=ahead, accept_unreadable=options.accept_unreadable, output=marked
    ), steps
