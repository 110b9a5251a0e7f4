"""Finds exactly where in the order each shard begins, without holding all keys at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from beam_tfr.planning.ordering import bucket_of, first_rank, order_key
from beam_tfr.planning.survey import Survey
from beam_tfr.schema import ImageRef, Plan, RunError


@dataclasses.dataclass(frozen=True, slots=True)
class CutBuckets:
    """The histogram buckets that contain cuts: (split, bucket) -> ranks of the cuts in its sorted keys."""

    seed: int
    ranks: dict[tuple[str, int], list[int]]

    def find(self, encoded: bytes) -> list[tuple[str, bytes]]:
        """Returns [(bucket name, order key)] for a reference in such a bucket, else []."""
        ref = ImageRef.decode(encoded)
        order = order_key(self.seed, ref.key)
        bucket = bucket_of(order)
        return [(_bucket_name(ref.split, bucket), order)] if (ref.split, bucket) in self.ranks else []

    def pick(self, name: str, orders: Iterable[bytes]) -> list[bytes]:
        """Returns the cuts in a bucket, from all its order keys in any order.

        Raises:
            RunError: the runner lost keys.
        """
        split, _, bucket = name.rpartition("/")
        ranks, found = self.ranks[split, int(bucket)], sorted(orders)
        if ranks[-1] >= len(found):
            raise RunError("the runner lost elements: a bucket of the order came without some of its keys")
        return [found[rank] for rank in ranks]


def _bucket_name(split: str, bucket: int) -> str:
    return f"{split}/{bucket}"


def find_cut_buckets(survey: Survey, plan: Plan) -> CutBuckets:
    """Finds the buckets that contain the first image of each shard but the first."""
    ranks: dict[tuple[str, int], list[int]] = {}
    for split, of in plan.splits.items():
        wanted = [first_rank(of, i) for i in range(1, of.num_shards)]
        passed = 0
        buckets = iter(sorted((bucket, n) for (name, bucket), n in survey.buckets.items() if name == split))
        bucket, n = next(buckets)
        for rank in wanted:
            while rank >= passed + n:
                passed += n
                bucket, n = next(buckets)
            ranks.setdefault((split, bucket), []).append(rank - passed)
    return CutBuckets(survey.seed, ranks)


def cut(plan: Plan, wanted: CutBuckets, picked: Iterable[tuple[str, Sequence[bytes]]]) -> Plan:
    """Returns the plan with its cuts, from the (bucket name, cuts) that were picked.

    Raises:
        RunError: the runner lost a bucket.
    """
    by_name = dict(picked)
    cuts: dict[str, list[str]] = {split: [] for split in plan.splits}
    for split, bucket in sorted(wanted.ranks):
        orders = by_name.get(_bucket_name(split, bucket))
        if orders is None:
            raise RunError("the runner lost elements: a bucket of the order is missing. Nothing is written")
        cuts[split] += [order.hex() for order in orders]
    return dataclasses.replace(
        plan, splits={split: dataclasses.replace(of, cuts=cuts[split]) for split, of in plan.splits.items()}
    )
