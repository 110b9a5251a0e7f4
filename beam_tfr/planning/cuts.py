"""Finds exactly where in the order each shard begins, without holding all keys at once."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from beam_tfr.planning.survey import Survey, bucket_of, first_rank, order_key
from beam_tfr.schema import ImageRef, Plan

Bucket = tuple[str, int]  # a split, and a bucket of its order


@dataclasses.dataclass(frozen=True, slots=True)
class CutBuckets:
    """The histogram buckets that contain cuts: bucket -> ranks of the cuts in its sorted keys."""

    seed: int
    ranks: dict[Bucket, list[int]]

    def find(self, encoded: bytes) -> list[tuple[Bucket, bytes]]:
        """Returns [(bucket, order key)] for a reference in such a bucket, else []."""
        ref = ImageRef.decode(encoded)
        order = order_key(self.seed, ref.key)
        bucket = ref.split, bucket_of(order)
        return [(bucket, order)] if bucket in self.ranks else []

    def pick(self, bucket: Bucket, orders: Iterable[bytes]) -> list[bytes]:
        """Returns the cuts in a bucket, from all its order keys in any order."""
        found = sorted(orders)
        return [found[rank] for rank in self.ranks[bucket]]


def find_cut_buckets(survey: Survey, plan: Plan) -> CutBuckets:
    """Finds the buckets that contain the first image of each shard but the first."""
    ranks: dict[Bucket, list[int]] = {}
    for split, of in plan.splits.items():
        buckets = sorted(bucket for bucket in survey.buckets if bucket[0] == split)
        ends = list(itertools.accumulate(survey.buckets[bucket] for bucket in buckets))
        for rank in (first_rank(of, i) for i in range(1, of.num_shards)):
            place = bisect.bisect_right(ends, rank)
            begin = ends[place] - survey.buckets[buckets[place]]
            ranks.setdefault(buckets[place], []).append(rank - begin)
    return CutBuckets(survey.seed, ranks)


def cut(plan: Plan, wanted: CutBuckets, picked: Iterable[tuple[Bucket, Sequence[bytes]]]) -> Plan:
    """Returns the plan with its cuts, from the (bucket, cuts) that were picked."""
    orders = dict(picked)
    cuts: dict[str, list[str]] = {split: [] for split in plan.splits}
    for bucket in sorted(wanted.ranks):
        cuts[bucket[0]] += [order.hex() for order in orders[bucket]]
    return dataclasses.replace(
        plan, splits={split: dataclasses.replace(of, cuts=cuts[split]) for split, of in plan.splits.items()}
    )
