"""Composes the steps as in the drawing of docs/architecture.md.

globs ──MatchImages──▶ ImageRef ──PlanShards──▶ (shard, [ImageRef])       (tables: ReadTable)
    ──ReadImages──▶ Item(bytes) ──ResizeImages──▶ Item(Image) ──BuildExamples──▶ Item(Record)
    ──WriteShards──▶ ShardInfo ──WriteManifest──▶ manifest.json
"""

import dataclasses
import functools
import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, PBegin, PCollection

from beam_tfr.console.display import Progress
from beam_tfr.dataset.base import BaseDataset, planned_shards
from beam_tfr.dataset.history import Update
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.taken_down import Removed
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.images.columns import place_columns
from beam_tfr.inputs.read_ahead import ReadAhead
from beam_tfr.layouts.parsing import Layout, parse_layout
from beam_tfr.options import ConvertOptions, ImageOptions
from beam_tfr.output import claim, shard_totals
from beam_tfr.output.drop_limit import DropLimit
from beam_tfr.planning.survey import Survey
from beam_tfr.records.shard_file import gzip_level
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.items import DUPLICATE, ImageRef, ShardWork
from beam_tfr.schema.plan import Plan, ShardInfo, Unfinished
from beam_tfr.sources import Input, open_source
from beam_tfr.storage import work_path
from beam_tfr.tables.datasets import read_embedded
from beam_tfr.tables.rows import Tables, file_of
from beam_tfr.transforms import dataset_reading, publishing, references, values, writing
from beam_tfr.transforms.copies import FollowCopies, ReadDroppedCopies, reject_copies
from beam_tfr.transforms.counting import FunctionDoFn
from beam_tfr.transforms.drafting import DraftAgain, DraftFromSample
from beam_tfr.transforms.plans import PlanShards, Target
from beam_tfr.transforms.reading import ReadImages
from beam_tfr.transforms.splitting import ChooseSplits

_NOTHING = Removed()


class Convert(beam.PTransform):
    """The whole conversion as a PTransform; `ReadRejects` turns its output into the rejects.

    Args:
        options: checked options.
        source: result of `open_source(options)`, if it is already open.
        run_id: a unique id, under which the run holds the folder's lock.
        base: the dataset to update, from which the records of unchanged images are copied.
        update: what the history records about an update.
        removed: images that were taken down from the dataset in the output, and are left out.
        guarded: whether guarded processes decode the images.
        splits_of: with `stratify`, the dataset whose images keep their splits; None to divide all
            images. If the source is another dataset, shares choose the splits of images that only
            the source has.
        before: the dataset to update; images whose split differs from their split in it are
            counted.
        drop_limit: how many images of `before` may be dropped; None for all.
        groups: step that begins the pipeline and yields images that must share a split, as
            `ChooseSplits` accepts them.
        copies: step that begins the pipeline and yields copies to reject, as `reject_copies`
            accepts them.
        on_bytes: steps of your own between ReadImages and ResizeImages. Each maps lists of `Item`
            to lists of `Item`, and keeps their order.
        on_images: such steps between ResizeImages (or ParseArrays) and BuildExamples.
        on_records: such steps between BuildExamples and WriteShards.

    Attributes:
        read: the step that reads the files of a shard.
        steps: the steps from the bytes of files to records.

    Output: the `Manifest`, once the dataset is complete.
    """

    def __init__(
        self,
        options: ConvertOptions,
        source: Input | None = None,
        *,
        run_id: str = "",
        base: BaseDataset | None = None,
        update: Update | None = None,
        removed: Removed = _NOTHING,
        guarded: bool = False,
        splits_of: BaseDataset | None = None,
        before: BaseDataset | None = None,
        drop_limit: DropLimit | None = None,
        groups: beam.PTransform | None = None,
        copies: beam.PTransform | None = None,
        on_bytes: Sequence[beam.PTransform] = (),
        on_images: Sequence[beam.PTransform] = (),
        on_records: Sequence[beam.PTransform] = (),
    ) -> None:
        super().__init__()
        self.options = options
        self.source = source or open_source(options)
        self.run_id = run_id or uuid.uuid4().hex
        self.base = base
        self.update = update
        self.removed = removed
        self.splits_of = splits_of
        self.before = before
        self.drop_limit = drop_limit
        self.groups = groups
        self.copies = copies
        self.read = ReadImages(
            self.source.root,
            ahead=_read_ahead(options, self.source),
            accept_unreadable=options.accept_unreadable,
            output=options.output if self.source.encoding in IMAGE_ENCODINGS else "",
            guarded=guarded,
            base=base,
        )
        build = values.BuildExamples(
            self.source.encoding, place=_column_placer(options, self.source)
        )
        self.steps = [
            *on_bytes,
            *_parse_steps(options, self.source),
            *on_images,
            build,
            *on_records,
        ]
        if removed.sources:
            self.steps.append(values.RejectRemoved(removed, self.source.encoding))

    def expand(self, begin: PBegin) -> PCollection[Manifest]:
        plan, work = self._plan(begin)  # Plan, ShardWork(shard, [ImageRef])
        infos = self._write(work)  # ShardInfo
        return infos | publishing.WriteManifest(  # Manifest
            self.options.output,
            plan=plan,
            run_id=self.run_id,
            max_rejects=self.options.max_rejects,
            allow_empty=self.options.allow_empty,
            update=self.update,
        )

    def progress(self) -> Progress | None:
        """Returns the progress stored in the output; None if there is no plan yet."""
        return claim.read_progress(self.options.output)

    def final_progress(self, published: Manifest) -> Progress:
        """Returns the progress at the end, when all shards are finished."""
        shards = sum(len(split.shards) for split in published.splits.values())
        images = published.counts["matched"]
        return Progress("publishing", images, images, shards, shards)

    def record_functions(self, *, guarded: bool = False) -> list[Callable[[Any, ImageRef], Any]]:
        """Returns the functions that turn the content of a file into its record.

        The functions are those of the `MapImages` steps, because a sample of files passes no other
        steps.

        Args:
            guarded: whether guarded processes decode the images.
        """
        functions = []
        for step in self.steps:
            if isinstance(step, values.MapImages):
                in_process = step.guarded if guarded else None
                functions.append(in_process or step.fn)
        return functions

    def plan_shards(
        self,
        known_images: PCollection[bytes] | None = None,
        earlier_splits: PCollection[bytes] | None = None,
        earlier_records: PCollection[bytes] | None = None,
    ) -> PlanShards:
        """Makes the step that plans the shards.

        Args:
            known_images, earlier_splits, earlier_records: see `PlanShards`.
        """
        return PlanShards(
            self._choose_target(),
            draft=self._choose_draft(),
            seed=self.options.seed,
            gives_splits=not self.options.stratify,
            known_images=known_images,
            earlier_splits=earlier_splits,
            drop_limit=self.drop_limit,
            earlier_records=earlier_records,
        )

    def _choose_target(self) -> Target | None:
        """Returns the folder to claim for the plan."""
        options = self.options
        return Target(
            options.output,
            self.run_id,
            options.overwrite,
            options.accept_unreadable,
            self.base,
            counts_added=bool(self.before) and not self._updates_in_place(),
        )

    def _choose_draft(self) -> Callable[[Survey], Plan]:
        """Returns the function that drafts the plan from the survey of all references."""
        options = self.options
        return DraftFromSample(
            settings=self.source.plan,
            origin=self.source.origin,
            layout=self.source.layout,
            shares_option=options.shares_option,
            has_default_layout=not options.layout,
            read=self.read,
            functions=self.record_functions(guarded=self.read.guarded),
            guarded_functions=self.record_functions(guarded=True),
            settles_copies=options.settles_copies and not self.source.renames,
        )

    def _plan(self, begin: PBegin) -> tuple[PCollection[Plan], PCollection[ShardWork]]:
        if not isinstance(begin, PBegin):
            raise UsageError(
                "Convert lists its own input: apply it to the pipeline itself, not to a PCollection"
            )
        refs = self._list_refs(begin)  # ImageRef
        if self.removed.keys:
            refs = references.drop_removed(refs, self.removed)
        if self.options.limit is not None:
            refs = references.take_first(refs, self.options.limit, seed=self.options.seed)
        if self.source.renames:
            refs = references.rename_classes(refs, self.source.renames)
        copies = None
        if self.copies:
            copies = begin | "Copies" >> self.copies
            refs = reject_copies(refs, copies)
        refs = self._choose_splits(begin, refs, copies)
        known_images = None
        if self.base:
            splits_stay = self._splits_stay(self.base)
            known_images = dataset_reading.read_known(begin, self.base, splits_stay=splits_stay)
        moves_images = self._may_move_images()
        earlier_records = None
        if self.before and (moves_images or self.drop_limit):
            earlier_records = dataset_reading.read_earlier_splits(begin, self.before)
        planning = self.plan_shards(
            known_images,
            earlier_records if moves_images else None,
            earlier_records,
        )
        return refs | planning  # type: ignore[no-any-return]

    def _may_move_images(self) -> bool:
        """Whether images in the updated dataset may move to other splits."""
        if self.before is None:
            return False
        return not (self._updates_in_place() and self._splits_stay(self.before))

    def _updates_in_place(self) -> bool:
        """Whether any copied records come from the dataset in the output."""
        return self.base is None or self.base.folder == self.options.output

    def _choose_splits(
        self, begin: PBegin, refs: PCollection[bytes], copies: PCollection[bytes] | None
    ) -> PCollection[bytes]:
        """Chooses the splits of references that have none yet.

        Args:
            begin: the beginning of the pipeline.
            refs: the references.
            copies: see `FollowCopies`.
        """
        if not self._are_splits_open() and self.groups is None:
            return refs
        groups = begin | "Groups" >> self.groups if self.groups else None
        stays = self._find_known_splits()
        known_dataset = self.base or self.splits_of
        layout = self._find_layout_of_groups()
        choosing = ChooseSplits(
            self.options.shares if self.options.stratify else None,
            seed=self.options.seed,
            grouped=self.source.has_groups or layout is not None,
            known_splits=dataset_reading.read_splits(begin, stays) if stays else None,
            groups=groups,
            copied_splits=self._follow_copies(begin, copies),
            known_images=known_dataset.read_manifest().counts["matched"] if known_dataset else 0,
            layout=layout,
        )
        return refs | "ChooseSplits" >> choosing

    def _are_splits_open(self) -> bool:
        """Whether shares choose the splits of some images."""
        if not self.options.stratify:
            return False
        return not isinstance(self.source.origin, BaseDataset) or self._adds_images()

    def _find_known_splits(self) -> BaseDataset | None:
        """Returns the dataset whose images keep their splits; None if shares choose no splits."""
        return self.splits_of if self.options.stratify else None

    def _follow_copies(
        self, begin: PBegin, copies: PCollection[bytes] | None
    ) -> PCollection[bytes] | None:
        """Returns splits for images that replace one of their copies in the updated dataset."""
        if not (self.before and self._find_known_splits()) or self.options.group_column:
            return None
        has_dropped = self.before.read_manifest().counts["rejected"].get(DUPLICATE)
        if not has_dropped and copies is None:
            return None
        return begin | "FollowCopies" >> FollowCopies(self.before, copies)

    def _adds_images(self) -> bool:
        """Whether images of another dataset are added to a dataset whose images keep their splits.

        False if there is a column of groups, because only the table has the groups, not the other
        dataset.
        """
        if not isinstance(self.source.origin, BaseDataset) or self.splits_of is None:
            return False
        is_other = self.source.origin.folder != self.splits_of.folder
        return is_other and not self.options.group_column

    def _find_layout_of_groups(self) -> Layout | None:
        """Returns the layout that reads groups from paths if a dataset's references lack them."""
        if not self._adds_images() or "{group}" not in self.options.layout:
            return None
        return parse_layout(self.options.layout)

    def _list_refs(self, begin: PBegin) -> PCollection[bytes]:
        """Lists the input as encoded references."""
        source = self.source
        if isinstance(source.origin, BaseDataset):
            return dataset_reading.read_dataset_refs(begin, source.origin)
        if isinstance(source.origin, Tables):
            return begin | references.ReadTable(source.origin)
        return begin | references.MatchImages(
            source.input,
            source.origin,
            root=source.root,
            input_list=self.options.input_list,
            exclude=source.exclude,
            keep_damaged=self.options.allows_rejects,
        )

    def _splits_stay(self, base: BaseDataset) -> bool:
        """Whether images that are in both the dataset and the input keep their splits."""
        if self.groups is not None or self._adds_images():
            return False
        if self.options.stratify:
            return self.splits_of is not None
        before = base.read_manifest().options
        now = self.source.plan.options
        return "layout" in now and all(
            before.get(name) == now.get(name) for name in ("layout", "splits", "folds", "stratify")
        )

    def _write(
        self, work: PCollection[ShardWork], expected: Mapping[str, str] | None = None
    ) -> PCollection[ShardInfo | Unfinished]:
        """Writes the files of shards from their references.

        Args:
            work: the shards.
            expected: see `WriteShards`.
        """
        items = work | self._read_with_copies()  # ReadImages: Item(bytes)
        for step in self.steps:  # ResizeImages: Item(Image), BuildExamples: Item(Record)
            items = items | step
        options = self.options
        plan = self.source.plan
        level = gzip_level(**options.stored_compression, encoding=self.source.encoding)
        write = writing.WriteShards(
            options.output,
            name=plan.name,
            suffix=plan.suffix,
            level=level,
            features=_features_of(self.source),
            run_id=self.run_id,
            expected=expected,
            base=self._base_in_output(),
        )
        return items | write  # ShardInfo

    def _base_in_output(self) -> BaseDataset | None:
        """Returns the dataset in the output if its files may stay; otherwise None."""
        base = self.base
        return base if base and base.copies and base.folder == self.options.output else None

    def _read_with_copies(self) -> ReadImages:
        """Makes the step that reads the files of a shard, using copies of images in Parquet files.

        Only steps after planning use the copies, because the sample is read before the folder is
        claimed.
        """
        if self.read.ahead is None:
            return self.read
        copies = work_path(self.options.output, "")
        ahead = dataclasses.replace(self.read.ahead, copies=copies)
        return dataclasses.replace(self.read, ahead=ahead)


class Repair(Convert):
    """A conversion that rebuilds shards of a dataset with exactly the same bytes as before.

    Reads from the dataset which copies were dropped, and which split each group of images is in.

    Args:
        options: options of the dataset.
        source: result of `open_source(options)`.
        dataset: the dataset's manifest.
        broken: names of the shards to rebuild.
        run_id, removed, guarded: see `Convert`.

    Output: a PCollection with a single None, if all broken shards are rebuilt.
    """

    def __init__(
        self,
        options: ConvertOptions,
        source: Input,
        *,
        dataset: Manifest,
        broken: Set[str],
        run_id: str = "",
        removed: Removed = _NOTHING,
        guarded: bool = False,
    ) -> None:
        base = BaseDataset.of(dataset)
        super().__init__(
            options,
            source,
            run_id=run_id,
            removed=removed,
            guarded=guarded,
            splits_of=base,
            copies=ReadDroppedCopies(base) if options.duplicates == "drop" else None,
        )
        self._dataset = dataset
        self._broken = broken

    def expand(self, begin: PBegin) -> PCollection[None]:
        is_broken = functools.partial(_is_one_of, names=self._broken)
        plan, work = self._plan(begin)
        splits = self._dataset.splits.values()
        entries = itertools.chain.from_iterable(split.shards for split in splits)
        expected = {entry.file: entry.sha256 for entry in entries}
        infos = self._write(work | "KeepBroken" >> beam.Filter(is_broken), expected)
        # Shards that the runner lost are noticed when the dataset is read again.
        check = functools.partial(shard_totals.check_repaired, folder=self.options.output)
        return plan | "Check" >> beam.ParDo(FunctionDoFn(check), AsIter(infos))

    def progress(self) -> Progress:
        """Returns the progress before any shard is rebuilt."""
        shards = planned_shards(self._dataset)
        images = sum(shard.images for shard in shards if shard.name in self._broken)
        return Progress("converting", 0, images, 0, len(self._broken))

    def final_progress(self, published: Manifest) -> Progress:
        """Returns the progress at the end, when the broken shards are finished."""
        begun = self.progress()
        return begun._replace(stage="publishing", done=begun.total, shards=begun.num_shards)

    def _are_splits_open(self) -> bool:
        """Whether paths or rows do not determine the split of an image."""
        return self.options.settles_copies or super()._are_splits_open()

    def _find_known_splits(self) -> BaseDataset | None:
        """Returns the dataset if paths or rows do not determine the split of an image."""
        return self.splits_of if self._are_splits_open() else None

    def _choose_target(self) -> None:
        """Returns None, because the folder already holds the dataset."""

    def _choose_draft(self) -> DraftAgain:
        """Returns the function that drafts the plan that the shards were made with.

        This function needs no sample, because the number of shards is known. It raises a DataError
        if the input, or the classes in it, have changed.
        """
        dataset = self._dataset
        splits = dataset.splits.items()
        matched = {name: split.matched for name, split in splits}
        settings = self.source.plan
        has_rows_in_splits = "layout" not in settings.options and not self.options.stratify
        num_shards = {name: len(split.shards) for name, split in splits if split.shards}
        options = {**dataset.options, "num_shards": num_shards}
        labels = [*dataset.class_names]
        return DraftAgain(
            folder=dataset.folder,
            manifest_digest=dataset.fields["manifest_digest"],
            input_digest=dataset.fields["input_digest"],
            digest_differs=has_rows_in_splits and self.options.duplicates == "group",
            matched=matched,
            options=dict(dataset.options),
            settings=dataclasses.replace(settings, first=labels, options=options),
        )


def _is_one_of(work: ShardWork, names: Set[str]) -> bool:
    """Whether work is for a shard with one of these names."""
    return work.shard.name in names


def _features_of(source: Input) -> FeaturesDict:
    """Returns the features of the records made from an input."""
    return FeaturesDict.from_options(source.plan.options, labelled=source.plan.labelled)


def _read_ahead(options: ConvertOptions, source: Input) -> ReadAhead | None:
    """Returns how to read the files; None for table rows, whose references hold everything."""
    if source.encoding == "row":
        return None
    features = _features_of(source)
    companions = {
        companion.key: functools.partial(file_of, root=source.root, companion=companion)
        for companion in features.companions
    }
    optional = {companion.key for companion in features.companions if companion.is_optional}
    return ReadAhead(
        options.max_file_bytes,
        images=options.read_ahead,
        companions=companions,
        optional=optional,
        read_embedded=read_embedded,
        root=source.root,
    )


def _parse_steps(options: ConvertOptions, source: Input) -> list[values.MapImages]:
    """Returns the steps that turn the bytes of files into values to serialize.

    Returns no steps if the bytes stay unchanged.
    """
    if source.encoding == "array":
        return [values.ParseArrays()]
    if source.encoding in IMAGE_ENCODINGS:
        companions = _features_of(source).companions
        image_options = options.restricted_to(
            ImageOptions,
            encoding=source.encoding,  # columns may have decided it
            resize=source.plan.options["resize"],
        )
        return [values.ResizeImages(image_options, companions=companions)]
    return []


def _column_placer(options: ConvertOptions, source: Input) -> values.PlaceColumns | None:
    """Returns the function that maps an image's columns to its pixels, for `BuildExamples`.

    Returns None if no column depends on the pixels.
    """
    features = _features_of(source)
    if not features.columns_follow_pixels:
        return None
    return functools.partial(
        place_columns,
        features=features,
        policy=options.box_policy,
        max_decode_bytes=options.max_decode_bytes,
    )
