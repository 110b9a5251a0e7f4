"""Assigns references to shards, and claims the output folder for the plan."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import with_input_types, with_output_types
from apache_beam.utils.windowed_value import WindowedValue

from beam_tfr.dataflow import jobs
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.engine import beam_internals
from beam_tfr.output import claim, known, sidecars
from beam_tfr.output.drop_limit import DropLimit
from beam_tfr.planning import assignment, packing
from beam_tfr.planning.drafts import Bucket, Draft, find_cut_buckets
from beam_tfr.planning.survey import Survey
from beam_tfr.schema.encoded_ref import key_of
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.items import KnownImage, ShardWork
from beam_tfr.schema.plan import Plan, Shard, ShardInfo
from beam_tfr.transforms.counting import FunctionDoFn, count
from beam_tfr.transforms.dropping import CountDropped
from beam_tfr.transforms.totals import CountRefs


class Target(NamedTuple):
    """The folder to claim for a plan.

    Attributes:
        output: folder of the dataset.
        run_id: id of the run that holds the folder's lock.
        overwrite: whether to replace another dataset in the folder.
        accept_unreadable: whether to keep shards in which an earlier run accepted unreadable files.
        base: the dataset to update, if any.
        counts_added: whether the base has images that the dataset in the output lacks; such images
            count as new.
    """

    output: str
    run_id: str
    overwrite: bool = False
    accept_unreadable: bool = False
    base: BaseDataset | None = None
    counts_added: bool = False

    def claim(self, plan: Plan) -> Iterator[Plan]:
        """Claims the folder for a plan, counts the plan's images and shards, and yields the plan.

        The yielded plan is complete if the folder already holds the dataset of the plan.
        """
        # A job made from a template acquires the lock itself: no code ran when it was submitted.
        beam_options = beam_internals.worker_options()
        plan = claim.claim_folder(
            self.output,
            plan,
            run_id=self.run_id,
            overwrite=self.overwrite,
            job=jobs.worker_job_id(beam_options),
            job_state=functools.partial(jobs.read_job_state, beam_options),
        )
        count("matched", plan.matched)
        count("planned-shards", sum(split.num_shards for split in plan.splits.values()))
        yield plan

    def find_finished(self, shard: Shard, refs: Sequence[bytes]) -> ShardInfo | None:
        """Returns the shard if it need not be written.

        This is the case if an earlier run finished the shard, or if the dataset being updated has
        it.
        """
        finished = sidecars.read_finished(
            self.output,
            shard,
            refs,
            accept_unreadable=self.accept_unreadable,
            on_changed=_count_changed,
        )
        if finished is None and self.base and self.base.folder == self.output:
            return known.reuse_shard(self.base, shard, refs)
        return finished


def _count_changed(images: int) -> None:
    """Counts a shard of an earlier run that is written again because its input changed.

    Args:
        images: number of new or changed images in the shard.
    """
    count("rewritten-shards")
    count("changed-images", images)


@with_input_types(bytes)
@dataclasses.dataclass(eq=False, repr=False)
class PlanShards(beam.PTransform):
    """Assigns packed references to shards before any image is read.

    Claims the output for the plan. Only references are shuffled, each once and as short bytes,
    along with the order keys of some references. Every planned shard is emitted, even if it is
    empty.

    Attributes:
        target: the folder to claim for the plan; None to plan without writing anything.
        draft: survey -> `Plan` without cuts.
        seed: seed for the order.
        gives_splits: see `Survey`.
        known_images: for an update: packed (split, known image) of the dataset.
        earlier_splits: for an update that may move images: packed (empty, key, earlier split).
        drop_limit: for an update that has an input: how many images the update may drop.
        earlier_records: packed (empty, key, split) of the records among which dropped images are
            counted.

    Output: (the `Plan`, a PCollection with one element; `ShardWork`).
    """

    target: Target | None
    _: dataclasses.KW_ONLY
    draft: Callable[[Survey], Plan]
    seed: int
    gives_splits: bool = True
    known_images: PCollection[bytes] | None = None
    earlier_splits: PCollection[bytes] | None = None
    drop_limit: DropLimit | None = None
    earlier_records: PCollection[bytes] | None = None

    def expand(self, refs: PCollection[bytes]) -> tuple[PCollection[Plan], PCollection[ShardWork]]:
        plan = self._make_plan(refs)
        planned = beam.FlatMap(_list_shards).with_output_types(tuple[str, bytes])
        parts = [plan | "EveryShard" >> planned]
        for label, kind, values in (
            ("Assign", assignment.IMAGES, refs),
            ("AssignKnown", assignment.KNOWN, self.known_images),
            ("AssignEarlier", assignment.EARLIER, self.earlier_splits),
        ):
            if values is not None:
                assigning = beam.ParDo(_Assign(kind), AsSingleton(plan))
                parts.append(values | label >> assigning)
        ordering = FunctionDoFn(functools.partial(_order_shard, seed=self.seed, target=self.target))
        shards = parts | beam.Flatten() | "GroupByShard" >> beam.GroupByKey()
        work = shards | "Order" >> beam.ParDo(ordering).with_output_types(ShardWork)
        return plan, work

    def _make_plan(self, refs: PCollection[bytes]) -> PCollection[Plan]:
        """Makes the plan, and claims the folder for it."""
        make_survey = functools.partial(Survey, self.seed, gives_splits=self.gives_splits)
        surveyed = refs | "Survey" >> beam.CombineGlobally(CountRefs(make_survey))
        drafting = FunctionDoFn(functools.partial(_draft_plan, self.draft, self.drop_limit))
        drafted = surveyed | "Draft" >> beam.ParDo(drafting)
        keeping = beam.FlatMap(_find_near_cuts, AsSingleton(drafted))
        near_cuts = refs | "KeepNearCuts" >> keeping.with_output_types(tuple[Bucket, bytes])
        # No worker ever holds more than the keys of one bucket.
        buckets = near_cuts | "GroupByBucket" >> beam.GroupByKey()
        cuts = buckets | "PickCuts" >> beam.Map(_pick_cuts, AsSingleton(drafted))
        finishing = beam.Map(Draft.finish_plan, AsIter(cuts))
        plan = drafted | "Cut" >> finishing.with_output_types(Plan)
        if self.drop_limit and self.earlier_records is not None:
            dropped = refs | "CountDropped" >> CountDropped(self.earlier_records)
            checking = beam.Map(self.drop_limit.check, AsIter(dropped))
            plan = plan | "CheckDropped" >> checking.with_output_types(Plan)
        if self.target is None:
            return plan
        claiming = beam.ParDo(FunctionDoFn(self.target.claim))
        return plan | "Claim" >> claiming.with_output_types(Plan)


def _draft_plan(
    draft: Callable[[Survey], Plan], drop_limit: DropLimit | None, survey: Survey
) -> Iterator[Draft]:
    try:
        plan = draft(survey)
    except UsageError:
        if drop_limit and survey.counts:  # which explains, for example, why a split is empty
            drop_limit.check_total(survey.counts.total())
        raise
    yield find_cut_buckets(survey, plan)


def _find_near_cuts(packed: bytes, draft: Draft) -> Iterator[tuple[Bucket, bytes]]:
    return draft.find_candidates(packing.unpack_values(packed))


def _pick_cuts(bucket: tuple[Bucket, Iterable[bytes]], draft: Draft) -> tuple[Bucket, list[bytes]]:
    return bucket[0], draft.pick_cuts(*bucket)


def _list_shards(plan: Plan) -> Iterable[tuple[str, bytes]]:
    return () if plan.complete else assignment.list_planned_shards(plan)


@with_output_types(tuple[str, bytes])
class _Assign(beam.DoFn):
    def __init__(self, kind: bytes) -> None:
        self._kind = kind

    def start_bundle(self) -> None:
        self._assigned = assignment.AssignmentPacker(kind=self._kind)

    def process(self, packed: bytes, plan: Plan) -> Sequence[tuple[str, bytes]]:
        return [] if plan.complete else self._assigned.add(packing.unpack_values(packed), plan)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._assigned.flush())


def _order_shard(
    shard_parts: tuple[str, Iterable[bytes]], *, seed: int, target: Target | None
) -> Iterator[ShardWork]:
    """Orders the references of a shard, and adds the results of earlier runs.

    If an earlier run finished the shard, the finished shard is added; otherwise, in an update, the
    known facts about the images of the shard are added.
    """
    _, parts = shard_parts
    ordered = assignment.order_shard(parts, seed)
    shard = ordered.shard
    refs = ordered.refs
    if target is None:
        yield ShardWork(shard, refs)
        return
    moved = ordered.count_moved()
    if moved:
        count("moved-images", moved)
    finished = target.find_finished(shard, refs)
    known_images: dict[int, KnownImage] = {}
    if target.base and not finished:
        known_images = _match_images(refs, ordered.known_images, target.base)
        if target.counts_added:
            known_images = _note_added(refs, known_images, ordered.earlier_splits)
    yield ShardWork(shard, refs, finished, known_images)


def _match_images(
    refs: Sequence[bytes], images: Mapping[bytes, bytes], base: BaseDataset
) -> dict[int, KnownImage]:
    """Finds the known facts about the images of an update, by the positions of their references.

    Args:
        refs: encoded references, in order.
        images: key -> result of `known.encode_source`.
        base: the dataset being updated.
    """
    matched = {}
    for position, ref in enumerate(refs):
        image = images.get(key_of(ref))
        known_image = known.match_image(ref, image, base) if image else None
        if known_image:
            matched[position] = known_image
    return matched


def _note_added(
    refs: Sequence[bytes],
    known_images: Mapping[int, KnownImage],
    earlier_splits: Mapping[bytes, bytes],
) -> dict[int, KnownImage]:
    """Returns the known images, marking images that had no record before."""
    noted = {}
    for position, image in known_images.items():
        is_added = key_of(refs[position]) not in earlier_splits
        noted[position] = image._replace(is_added=is_added)
    return noted
