"""Where in the order each shard begins: exactly, though nobody ever holds all keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from beam_tfr.planning.ordering import bucket_of, first_rank, order_key
from beam_tfr.planning.survey import Survey
from beam_tfr.schema import ImageRef, Plan, RunError


@dataclasses.dataclass(frozen=True, slots=True)
class CutBuckets:
    """The buckets of the histogram in which cuts lie: for each (split, bucket) the ranks wanted of its sorted keys."""

    seed: int
    ranks: dict[tuple[str, int], list[int]]

    def find(self, encoded: bytes) -> list[tuple[str, bytes]]:
        """[(name of the bucket, order key)] of a reference in such a bucket, else []."""
        ref = ImageRef.decode(encoded)
        order = order_key(self.seed, ref.key)
        bucket = bucket_of(order)
        return [(_bucket_name(ref.split, bucket), order)] if (ref.split, bucket) in self.ranks else []

    def pick(self, name: str, orders: Iterable[bytes]) -> list[bytes]:
        """The cuts in a bucket: of all its order keys, in any order, those at the ranks wanted.

        Raises:
            RunError: the runner lost some of them.
        """
        split, _, bucket = name.rpartition("/")
        ranks, found = self.ranks[split, int(bucket)], sorted(orders)
        if ranks[-1] >= len(found):
            raise RunError("a bucket of the order came without some of its keys: this runner lost elements")
        return [found[rank] for rank in ranks]


def _bucket_name(split: str, bucket: int) -> str:
    return f"{split}/{bucket}"


def find_cut_buckets(survey: Survey, plan: Plan) -> CutBuckets:
    """Where the first image of each shard but the first lies."""
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
    """The plan with its cuts, from those picked in the buckets where they lie, by the buckets' names.

    Raises:
        RunError: the runner lost a bucket.
    """
    by_name = dict(picked)
    cuts: dict[str, list[str]] = {split: [] for split in plan.splits}
    for split, bucket in sorted(wanted.ranks):
        orders = by_name.get(_bucket_name(split, bucket))
        if orders is None:
            raise RunError("a bucket of the order did not come: this runner lost elements. Nothing is written")
        cuts[split] += [order.hex() for order in orders]
    return dataclasses.replace(
        plan, splits={split: dataclasses.replace(of, cuts=cuts[split]) for split, of in plan.splits.items()}
    )
