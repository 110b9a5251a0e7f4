"""PlanShards: references to shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_tfr import claim, planning
from beam_tfr.schema import ImageRef, Plan, ShardWork


class _Survey(beam.CombineFn):
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def create_accumulator(self) -> planning.Survey:
        return planning.Survey(self._seed)

    def add_input(self, survey: planning.Survey, ref: bytes) -> planning.Survey:
        survey.add(ref)
        return survey

    def merge_accumulators(self, surveys: Iterable[planning.Survey]) -> planning.Survey:
        total = planning.Survey(self._seed)
        for survey in surveys:
            total.merge(survey)
        return total

    def extract_output(self, survey: planning.Survey) -> planning.Survey:
        return survey


class PlanShards(beam.PTransform):
    """References to shards: decides, before an image is read, which goes where, and claims the output for this plan.

    Only references are shuffled, each once, as short bytes, and the order keys of some. Every planned shard comes out,
    also an empty one.

    Args:
        output: folder of the dataset.
        draft: (survey, mean record bytes) -> `Plan` without cuts.
        measure: references of a sample -> mean bytes of their records.
        seed: of the order.
        run_id: holds the folder's lock.
        overwrite: whether another dataset in the folder is replaced.
        after: must be there before anything is written.

    Output: (the `Plan`, a PCollection of one; `ShardWork`).
    """

    def __init__(
        self,
        output: str,
        *,
        draft: Callable[[planning.Survey, float], Plan],
        measure: Callable[[Sequence[ImageRef]], float],
        seed: int,
        run_id: str,
        overwrite: bool,
        after: PCollection[None] | None = None,
    ) -> None:
        super().__init__()
        self._output, self._seed, self._run_id, self._overwrite = output, seed, run_id, overwrite
        self._draft, self._measure, self._after = draft, measure, after

    def expand(self, refs: PCollection[bytes]) -> tuple[PCollection[Plan], PCollection[ShardWork]]:
        survey = refs | "Survey" >> beam.CombineGlobally(_Survey(self._seed))
        after = [] if self._after is None else [AsSingleton(self._after)]
        drafted = survey | "Draft" >> beam.Map(_draft, *after, draft=self._draft, measure=self._measure)
        cuts = (
            refs
            | "KeepNearCuts" >> beam.FlatMap(_near_cuts, AsSingleton(drafted)).with_output_types(tuple[str, bytes])
            | "GroupByBucket" >> beam.GroupByKey()  # so that no worker ever holds more than the keys of one
            | "PickCuts" >> beam.Map(_pick_cuts, AsSingleton(drafted))
        )
        plan = drafted | "Claim" >> beam.Map(
            _claim, AsIter(cuts), output=self._output, run_id=self._run_id, overwrite=self._overwrite
        )
        assigned = refs | "Assign" >> beam.FlatMap(_assign, AsSingleton(plan)).with_output_types(tuple[str, bytes])
        planned = plan | "EveryShard" >> beam.FlatMap(_every_shard).with_output_types(tuple[str, bytes])
        work = (
            (assigned, planned)
            | beam.Flatten()
            | "GroupByShard" >> beam.GroupByKey()
            | "Order" >> beam.Map(_order, output=self._output)
        )
        return plan, work


_Draft = tuple[Plan, planning.CutBuckets]  # the plan without its cuts, and where they lie


def _draft(
    survey: planning.Survey,
    _: None = None,
    *,
    draft: Callable[[planning.Survey, float], Plan],
    measure: Callable[[Sequence[ImageRef]], float],
) -> _Draft:
    plan = draft(survey, measure(survey.sample_refs()))
    return plan, planning.find_cut_buckets(survey, plan)


def _near_cuts(ref: bytes, drafted: _Draft) -> list[tuple[str, bytes]]:
    return drafted[1].find(ref)


def _pick_cuts(bucket: tuple[str, Iterable[bytes]], drafted: _Draft) -> tuple[str, list[bytes]]:
    return bucket[0], drafted[1].pick(*bucket)


def _claim(
    drafted: _Draft, cuts: Iterable[tuple[str, list[bytes]]], *, output: str, run_id: str, overwrite: bool
) -> Plan:
    return claim.claim(output, planning.cut(*drafted, cuts), run_id=run_id, overwrite=overwrite)


def _assign(ref: bytes, plan: Plan) -> Iterator[tuple[str, bytes]]:
    if not plan.complete:
        yield planning.assign(ref, plan)


def _every_shard(plan: Plan) -> Iterator[tuple[str, bytes]]:
    if not plan.complete:
        yield from planning.every_shard(plan)


def _order(grouped: tuple[str, Iterable[bytes]], *, output: str) -> ShardWork:
    shard, refs = planning.order(grouped[1])
    return ShardWork(shard, refs, claim.read_finished(output, shard))
