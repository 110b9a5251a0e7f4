"""PlanShards, and SavePlan and ReadPlan for a plan that is used elsewhere."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PBegin, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_tfr import beam_internals, claim, cloud, codec_versions, saved_plan, sidecars
from beam_tfr.planning import assignment, packing
from beam_tfr.planning.drafts import Bucket, CutBuckets, cut, find_cut_buckets
from beam_tfr.planning.survey import Survey
from beam_tfr.schema import Plan, RunError, Shard, ShardInfo, ShardWork
from beam_tfr.transforms.counting import ShownFunction, count

_Finished = Callable[[Shard, Sequence[bytes]], ShardInfo | None]
_Draft = tuple[Plan, CutBuckets]  # the plan without its cuts, and the buckets in which they lie


class PlanShards(beam.PTransform):
    """Packed references to shards: decides where each image goes before any is read.

    Claims the output for the plan. Only references are shuffled: each once, as short bytes, and the order keys of some.
    Every planned shard comes out, even if it is empty.

    Args:
        output: folder of the dataset; None to plan without writing anything.
        draft: survey -> `Plan` without cuts.
        seed: of the order.
        run_id: holds the folder's lock.
        overwrite: whether another dataset in the folder is replaced.
        accept_unreadable: whether shards stay in which an earlier run accepted files that could not be read.
        check_finished: whether shards that stay are read whole.
        after: must exist before anything is written.

    Output: (the `Plan`, a PCollection of one; `ShardWork`).
    """

    def __init__(
        self,
        output: str | None,
        *,
        draft: Callable[[Survey], Plan],
        seed: int,
        run_id: str,
        overwrite: bool,
        accept_unreadable: bool = False,
        check_finished: bool = False,
        after: PCollection[None] | None = None,
    ) -> None:
        super().__init__()
        self._output, self._seed, self._run_id, self._overwrite = output, seed, run_id, overwrite
        self._draft, self._after = draft, after
        self._finished = _finished(output, accept_unreadable, check_finished)

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
        plan = drafted | "Cut" >> beam.Map(lambda draft, cuts: cut(draft[0], draft[1], cuts), AsIter(cuts))
        if self._output is not None:
            plan = plan | "Claim" >> _claim(self._output, self._run_id, self._overwrite)
        assigned = refs | "Assign" >> beam.ParDo(_Assign(), AsSingleton(plan)).with_output_types(tuple[str, bytes])
        work = (
            (assigned, plan | "EveryShard" >> _every_shard())
            | beam.Flatten()
            | "GroupByShard" >> beam.GroupByKey()
            | "Order" >> beam.Map(_order, seed=self._seed, finished=self._finished)
        )
        return plan, work


class _Survey(beam.CombineFn):
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def create_accumulator(self) -> Survey:
        return Survey(self._seed)

    def add_input(self, survey: Survey, packed: bytes) -> Survey:
        for ref in packing.split(packed):
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
    return itertools.chain.from_iterable(map(drafted[1].find, packing.split(packed)))


def _pick_cuts(bucket: tuple[Bucket, Iterable[bytes]], drafted: _Draft) -> tuple[Bucket, list[bytes]]:
    return bucket[0], drafted[1].pick(*bucket)


def _claim(output: str, run_id: str, overwrite: bool) -> beam.PTransform:
    def claimed(plan: Plan) -> Iterator[Plan]:
        options = beam_internals.worker_options()  # of a job made from a template, whose lock nobody else took
        job, has_ended = cloud.own_job(options), functools.partial(cloud.has_ended, options)
        plan = claim.claim(output, plan, run_id=run_id, overwrite=overwrite, job=job, has_ended=has_ended)
        count("matched", plan.matched)
        count("planned-shards", sum(split.num_shards for split in plan.splits.values()))
        yield plan

    return beam.ParDo(ShownFunction(claimed, output=output, run_id=run_id, overwrite=overwrite))


def _every_shard() -> beam.PTransform:
    shards = beam.FlatMap(lambda plan: [] if plan.complete else assignment.every_shard(plan))
    return shards.with_output_types(tuple[str, bytes])


class _Assign(beam.DoFn):
    def start_bundle(self) -> None:
        self._assigned = assignment.Assigned()

    def process(self, packed: bytes, plan: Plan) -> Iterator[tuple[str, bytes]]:
        for ref in [] if plan.complete else packing.split(packed):
            yield from self._assigned.add(*assignment.assign(ref, plan))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._assigned.flush())


def _finished(output: str | None, accept_unreadable: bool, check_finished: bool) -> _Finished:
    """What tells whether a shard is finished; of a plan to be saved none is."""
    if output is None:
        return lambda shard, refs: None
    return lambda shard, refs: sidecars.read_finished(
        output, shard, refs, accept_unreadable=accept_unreadable, check_finished=check_finished
    )


def _order(grouped: tuple[str, Iterable[bytes]], *, seed: int, finished: _Finished) -> ShardWork:
    shard, refs = assignment.order(grouped[1], seed)
    return ShardWork(shard, refs, finished(shard, refs))


class SavePlan(beam.PTransform):
    """Writes a plan and its shards to a file, for `ReadPlan`.

    Args:
        path: of the file, local or gs://.
        plan: of `PlanShards`, a PCollection of one.
        call: of `saved_plan.SavedPlan`.
        replace: whether another plan there is replaced.

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
    """A saved plan to shards, without listing or shuffling.

    Args:
        path: of the file, local or gs://.
        output, run_id, overwrite, accept_unreadable, check_finished: as for `PlanShards`.

    Output: (the `Plan`, a PCollection of one; `ShardWork`).
    """

    def __init__(
        self,
        path: str,
        *,
        output: str,
        run_id: str,
        overwrite: bool,
        accept_unreadable: bool = False,
        check_finished: bool = False,
    ) -> None:
        super().__init__()
        self._path, self._output, self._run_id, self._overwrite = path, output, run_id, overwrite
        self._finished = _finished(output, accept_unreadable, check_finished)

    def expand(self, begin: PBegin) -> tuple[PCollection[Plan], PCollection[ShardWork]]:
        plan = (
            begin
            | beam.Create([None])
            | "Open" >> beam.Map(_open, self._path)  # Beam's coder for text fails for some paths
            | "Claim" >> _claim(self._output, self._run_id, self._overwrite)
        )
        work = (
            plan
            | "EveryShard" >> _every_shard()
            | "SpreadShards" >> beam.Reshuffle()
            | "ReadRefs" >> beam.ParDo(_ReadRefs(self._path, self._finished))
        )
        return plan, work


def _open(_: None, path: str) -> Plan:
    with saved_plan.SavedPlan(path) as saved:
        return _with_codecs(saved.plan)


def _with_codecs(plan: Plan) -> Plan:
    """The plan with the codecs of this worker, since no byte was made where it was saved."""
    return dataclasses.replace(plan, codecs=codec_versions.used(plan.options))


class _ReadRefs(beam.DoFn):
    def __init__(self, path: str, finished: _Finished) -> None:
        self._path, self._finished = path, finished

    def setup(self) -> None:
        self._saved = saved_plan.SavedPlan(self._path)
        self._digest = _with_codecs(self._saved.plan).digest

    def process(self, planned: tuple[str, bytes]) -> Iterator[ShardWork]:
        shard = assignment.planned_shard(planned[1])
        codec_versions.check(shard.codecs)
        if shard.plan_digest != self._digest:
            raise RunError(
                "was replaced after this run began; run the same command again to use the new one",
                option="plan",
                value=self._path,
            )
        refs = self._saved.refs(shard)
        yield ShardWork(shard, refs, self._finished(shard, refs))

    def teardown(self) -> None:
        self._saved.close()
