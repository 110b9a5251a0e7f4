"""PlanShards, and SavePlan and ReadPlan for a plan that is used elsewhere."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PBegin, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import with_input_types, with_output_types
from apache_beam.utils.windowed_value import WindowedValue

from beam_tfr import beam_internals, claim, codec_versions, saved_plan, sidecars
from beam_tfr.dataflow import jobs
from beam_tfr.planning import assignment, packing
from beam_tfr.planning.drafts import Bucket, CutBuckets, cut, find_cut_buckets
from beam_tfr.planning.survey import Survey
from beam_tfr.schema import Plan, RunError, Shard, ShardInfo, ShardWork
from beam_tfr.transforms.counting import ShownFunction, count

_Draft = tuple[Plan, CutBuckets]  # the plan without its cuts, and the buckets in which they lie


class Target(NamedTuple):
    """The folder that a plan is claimed for.

    Attributes:
        output: folder of the dataset.
        run_id: id of the run that holds the folder's lock.
        overwrite: whether to replace another dataset in the folder.
        accept_unreadable: whether to keep shards in which an earlier run accepted unreadable files.
    """

    output: str
    run_id: str
    overwrite: bool = False
    accept_unreadable: bool = False

    def claim(self, plan: Plan) -> Iterator[Plan]:
        """Claims the folder."""
        options = beam_internals.worker_options()  # of a job made from a template, whose lock nobody else took
        job, job_state = jobs.own_job(options), functools.partial(jobs.job_state, options)
        how: dict[str, Any] = {"run_id": self.run_id, "overwrite": self.overwrite, "job": job, "job_state": job_state}
        plan = claim.claim(self.output, plan, **how)
        count("matched", plan.matched)
        count("planned-shards", sum(split.num_shards for split in plan.splits.values()))
        yield plan

    def finished(self, shard: Shard, refs: Sequence[bytes]) -> ShardInfo | None:
        """The shard, if an earlier run finished it."""
        return sidecars.read_finished(self.output, shard, refs, accept_unreadable=self.accept_unreadable)


@with_input_types(bytes)
class PlanShards(beam.PTransform):
    """Assigns packed references to shards before any image is read.

    Claims the output for the plan. Only references are shuffled: each once, as short bytes, and the order keys of some.
    Every planned shard is emitted, even if it is empty.

    Args:
        target: the folder to claim for the plan; None to plan without writing anything.
        draft: survey -> `Plan` without cuts.
        seed: seed for the order.
        after: a PCollection that must exist before anything is written.

    Output: (the `Plan`, a PCollection of one; `ShardWork`).
    """

    def __init__(
        self,
        target: Target | None,
        *,
        draft: Callable[[Survey], Plan],
        seed: int,
        after: PCollection[None] | None = None,
    ) -> None:
        super().__init__()
        self._target, self._draft, self._seed, self._after = target, draft, seed, after

    def expand(self, refs: PCollection[bytes]) -> tuple[PCollection[Plan], PCollection[ShardWork]]:
        after = [] if self._after is None else [AsSingleton(self._after)]
        drafted = (
            refs
            | "Survey" >> beam.CombineGlobally(_Survey(self._seed))
            | "Draft" >> beam.Map(_draft, self._draft, *after)
        )
        cuts = (
            refs
            | "KeepNearCuts" >> beam.FlatMap(_near_cuts, AsSingleton(drafted)).with_output_types(tuple[Bucket, bytes])
            | "GroupByBucket" >> beam.GroupByKey()  # so no worker ever holds more than the keys of one bucket
            | "PickCuts" >> beam.Map(_pick_cuts, AsSingleton(drafted))
        )
        plan = drafted | "Cut" >> beam.Map(
            lambda draft, cuts: cut(draft[0], draft[1], cuts), AsIter(cuts)
        ).with_output_types(Plan)
        if self._target is not None:
            plan = plan | "Claim" >> _claim(self._target)
        assigned = refs | "Assign" >> beam.ParDo(_Assign(), AsSingleton(plan)).with_output_types(tuple[str, bytes])
        work = (
            (assigned, plan | "EveryShard" >> _every_shard())
            | beam.Flatten()
            | "GroupByShard" >> beam.GroupByKey()
            | "Order" >> beam.Map(_order, seed=self._seed, target=self._target).with_output_types(ShardWork)
        )
        return plan, work


class _Survey(beam.CombineFn):
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def create_accumulator(self) -> Survey:
        return Survey(self._seed)

    def add_input(self, survey: Survey, packed: bytes) -> Survey:
        for ref in packing.unpack(packed):
            survey.add(ref)
        return survey

    def merge_accumulators(self, surveys: Iterable[Survey]) -> Survey:
        total = Survey(self._seed)
        for survey in surveys:
            total.merge(survey)
        return total

    def extract_output(self, survey: Survey) -> Survey:
        return survey


def _draft(survey: Survey, draft: Callable[[Survey], Plan], _: None = None) -> _Draft:
    plan = draft(survey)
    return plan, find_cut_buckets(survey, plan)


def _near_cuts(packed: bytes, drafted: _Draft) -> Iterator[tuple[Bucket, bytes]]:
    return itertools.chain.from_iterable(map(drafted[1].find, packing.unpack(packed)))


def _pick_cuts(bucket: tuple[Bucket, Iterable[bytes]], drafted: _Draft) -> tuple[Bucket, list[bytes]]:
    return bucket[0], drafted[1].pick(*bucket)


def _claim(target: Target) -> beam.PTransform:
    shown = {"output": target.output, "run_id": target.run_id, "overwrite": target.overwrite}
    return beam.ParDo(ShownFunction(target.claim, **shown)).with_output_types(Plan)


def _every_shard() -> beam.PTransform:
    shards = beam.FlatMap(lambda plan: [] if plan.complete else assignment.every_shard(plan))
    return shards.with_output_types(tuple[str, bytes])


class _Assign(beam.DoFn):
    def start_bundle(self) -> None:
        self._assigned = assignment.Assigned()

    def process(self, packed: bytes, plan: Plan) -> Iterator[tuple[str, bytes]]:
        for ref in [] if plan.complete else packing.unpack(packed):
            yield from self._assigned.add(*assignment.assign(ref, plan))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._assigned.flush())


def _order(grouped: tuple[str, Iterable[bytes]], *, seed: int, target: Target | None) -> ShardWork:
    shard, refs = assignment.order(grouped[1], seed)
    return ShardWork(shard, refs, target and target.finished(shard, refs))


@with_input_types(ShardWork)
@with_output_types(None)
class SavePlan(beam.PTransform):
    """Writes a plan and its shards to a file, for `ReadPlan`.

    Args:
        path: path of the file, local or gs://.
        plan: the plan from `PlanShards`, a PCollection of one.
        call: see `saved_plan.SavedPlan`.
        replace: whether to replace another plan there.

    Output: a PCollection of one None, once the file is written.
    """

    def __init__(self, path: str, *, plan: PCollection[Plan], call: Mapping[str, Any], replace: bool) -> None:
        super().__init__()
        self._plan = plan
        self._write = functools.partial(saved_plan.write, path, call=call, replace=replace)

    def expand(self, work: PCollection[ShardWork]) -> PCollection[None]:
        packed = work | "Pack" >> beam.Map(lambda one: (one.shard.name, saved_plan.pack(one.refs)))
        return self._plan | "Save" >> beam.Map(self._write, AsIter(packed))


class ReadPlan(beam.PTransform):
    """Reads the shards of a saved plan, without listing or shuffling.

    Args:
        path: path of the file, local or gs://.
        target: the folder to claim for the plan.

    Output: (the `Plan`, a PCollection of one; `ShardWork`).
    """

    def __init__(self, path: str, target: Target) -> None:
        super().__init__()
        self._path, self._target = path, target

    def expand(self, begin: PBegin) -> tuple[PCollection[Plan], PCollection[ShardWork]]:
        plan = (
            begin
            | beam.Create([None])
            | "Open" >> beam.Map(_open, self._path)  # Beam's coder for text fails for some paths
            | "Claim" >> _claim(self._target)
        )
        work = (
            plan
            | "EveryShard" >> _every_shard()
            | "SpreadShards" >> beam.Reshuffle()
            | "ReadRefs" >> beam.ParDo(_ReadRefs(self._path, self._target)).with_output_types(ShardWork)
        )
        return plan, work


def _open(_: None, path: str) -> Plan:
    with saved_plan.SavedPlan(path) as saved:
        return _with_codecs(saved.plan)


def _with_codecs(plan: Plan) -> Plan:
    """The plan with the codecs of this worker instead of those of the machine that saved it."""
    return dataclasses.replace(plan, codecs=codec_versions.used(plan.options))


class _ReadRefs(beam.DoFn):
    def __init__(self, path: str, target: Target) -> None:
        self._path, self._target = path, target

    def setup(self) -> None:
        self._saved = saved_plan.SavedPlan(self._path)
        self._digest = _with_codecs(self._saved.plan).digest

    def process(self, planned: tuple[str, bytes]) -> Iterator[ShardWork]:
        shard = assignment.planned_shard(planned[1])
        codec_versions.check(shard.codecs)
        if shard.plan_digest != self._digest:
            raise RunError(
                "was replaced after this run started; run the same command again to use the new one",
                option="plan",
                value=self._path,
            )
        refs = self._saved.refs(shard)
        yield ShardWork(shard, refs, self._target.finished(shard, refs))

    def teardown(self) -> None:
        self._saved.close()
