"""PlanShards: decides which image goes to which file, before any image is read.

The order of a split is that of `order_key(seed, key)`: a global shuffle that is the same everywhere. A shard is a
contiguous part of that order. The shards of a split differ by at most one image, because the cuts between them are
exact: a histogram of key prefixes tells which buckets contain cuts, and all keys of those few buckets are compared.
"""

from beam_tfr.planning.assignment import Assigned, assign, every_shard, join, order, planned_shard, split
from beam_tfr.planning.cuts import CutBuckets, cut, find_cut_buckets
from beam_tfr.planning.drafts import REJECTS_PER_SHARD, count_shards, draft_plan
from beam_tfr.planning.measuring import mean_record_bytes
from beam_tfr.planning.ordering import order_key, planned_total
from beam_tfr.planning.survey import SAMPLE_IMAGES, Survey

__all__ = [
    "REJECTS_PER_SHARD",
    "SAMPLE_IMAGES",
    "Assigned",
    "CutBuckets",
    "Survey",
    "assign",
    "count_shards",
    "cut",
    "draft_plan",
    "every_shard",
    "find_cut_buckets",
    "join",
    "mean_record_bytes",
    "order",
    "order_key",
    "planned_shard",
    "planned_total",
    "split",
]
