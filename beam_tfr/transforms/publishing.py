"""Publishes a dataset with its manifest, and reads its rejects."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection

from beam_tfr import storage
from beam_tfr.dataset.history import Update
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.reject_lines import read_rejects
from beam_tfr.output import claim, lock, publish, rejects, shard_totals, switch
from beam_tfr.output.shard_totals import RunTotals
from beam_tfr.schema.dataset import (
    REJECTS_FILE,
)
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.schema.items import Reject
from beam_tfr.schema.plan import Plan, ShardInfo, Unfinished, sum_counts
from beam_tfr.transforms.counting import FunctionDoFn

# Groups of shards to add up on different workers, so that no worker holds the infos of all shards:
# 2 GB for 75,000 shards with a thousand classes.
_GROUPS = 64


@dataclasses.dataclass(eq=False, repr=False)
class WriteManifest(beam.PTransform):
    """Writes manifest.json last, from the counts of all shards, and only if the counts add up.

    Attributes:
        output: folder of the dataset.
        plan: the plan from `PlanShards`, a PCollection with one element.
        run_id: id of the run, which must still hold the folder's lock.
        max_rejects: maximum fraction (float) or number (int) of rejects; see `count_allowed`.
        allow_empty: splits and classes whose images may all be rejected.
        update: how the dataset in the output is updated, if it is.

    Output: the `Manifest`, once the dataset is complete.
    """

    output: str
    _: dataclasses.KW_ONLY
    plan: PCollection[Plan]
    run_id: str
    max_rejects: int | float | None
    allow_empty: Sequence[str] = ()
    update: Update | None = None

    def expand(self, infos: PCollection[ShardInfo | Unfinished]) -> PCollection[Manifest]:
        assigning = beam.Map(_assign_group).with_output_types(tuple[int, ShardInfo | Unfinished])
        grouped = infos | "Group" >> assigning | "GroupShards" >> beam.GroupByKey()
        totals = grouped | "AddUp" >> beam.Map(_add_up_group)
        return self.plan | "Publish" >> beam.ParDo(FunctionDoFn(self._publish), AsIter(totals))

    def _publish(self, plan: Plan, totals: Iterable[RunTotals]) -> Iterator[Manifest]:
        # Even a complete plan may have a work folder, from a run that was killed at its end.
        dataset = read_manifest(self.output) if plan.complete else self._add_up(plan, totals)
        claim.remove_work_folder(self.output, self.run_id, plan.shards())
        yield dataset

    def _add_up(self, plan: Plan, parts: Iterable[RunTotals]) -> Manifest:
        """Adds up the shards and publishes the dataset, unless an earlier attempt has done so."""
        totals = shard_totals.merge_totals(plan, parts)
        if plan.provisional:
            raise RunError(
                "some of the files used to estimate the number of shards could not be read at "
                "first, but can be read now. Nothing is published; run the same command again"
            )
        self._check_rejects(plan, totals)
        claimed = claim.find_claim(self.output, self.run_id)
        check_lock = functools.partial(lock.check_lock, self.output, self.run_id)
        if claimed is not None:
            check_lock()
            switch.complete_switch(self.output)  # an earlier attempt of this step began it
        published = publish.find_published(self.output, plan, totals, claimed)
        if published:
            return published
        return publish.publish_dataset(
            self.output, plan, totals, claimed, check_lock=check_lock, update=self.update
        )

    def _check_rejects(self, plan: Plan, totals: Mapping[str, shard_totals.SplitTotals]) -> None:
        """Checks that rejects are within the limit; if not, lists them in the work folder."""
        counts = {split: total.counts for split, total in totals.items()}
        try:
            rejects.check_rejects(plan, counts, self.max_rejects, allow_empty=self.allow_empty)
        except DataError as error:
            rejected = sum_counts(counts.values()).rejected
            if not rejected:
                raise
            path = storage.work_path(self.output, REJECTS_FILE)
            rejects.write_rejects(path, self.output, shard_totals.reject_digests(totals))
            lines = rejects.describe_rejects(path, rejected)
            raise DataError(*error.args, *lines) from error


def _assign_group(info: ShardInfo | Unfinished) -> tuple[int, ShardInfo | Unfinished]:
    """Assigns a shard to one of `_GROUPS`, always to the same group, so that it is counted once.

    This is why shards are grouped, not combined: two workers could each have added up the same
    shard.
    """
    return info.shard.number % _GROUPS, info


def _add_up_group(group: tuple[int, Iterable[ShardInfo | Unfinished]]) -> RunTotals:
    return shard_totals.add_up_shards(group[1])


class ReadRejects(beam.PTransform):
    """Reads the rejects of complete datasets, given their `Manifest`.

    Output: each `Reject` in rejects.jsonl.
    """

    def expand(self, manifests: PCollection[Manifest]) -> PCollection[Reject]:
        return manifests | "ReadRejects" >> beam.ParDo(FunctionDoFn(_read_rejects))


def _read_rejects(dataset: Manifest) -> Iterator[Reject]:
    return read_rejects(storage.join(dataset.folder, REJECTS_FILE))
