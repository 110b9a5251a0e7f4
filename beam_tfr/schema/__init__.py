"""What travels along each arrow of the pipeline. Standard library only.

    MatchImages ──▶ ImageRef ──PlanShards──▶ ShardWork ──ReadImages──▶ Item(bytes) ──ResizeImages──▶ Item(Image)
        ──BuildExamples──▶ Item(Record) ──WriteShards──▶ ShardInfo ──WriteManifest──▶ Manifest

Between ReadImages and WriteShards an `Item` may instead hold a `Reject` (an unusable image keeps its place) or a
`ShardInfo` (an earlier run finished the shard); every stage passes those on. `schema.features` names the
features of a record.
"""

from beam_tfr.schema.counts import Counts, ShardInfo, add_sums, size_bucket
from beam_tfr.schema.dataset import (
    ADJUSTMENTS,
    FORMAT_VERSION,
    LABELS_FILE,
    MANIFEST_FILE,
    NO_SPLIT,
    REJECT_REASONS,
    REJECTS_FILE,
    WORK_FOLDER,
    is_class_name,
)
from beam_tfr.schema.digests import RecordsDigest, canonical_json, sha256_hex
from beam_tfr.schema.elements import Array, Image, ImageRef, Item, Record, Reject, ShardWork
from beam_tfr.schema.errors import (
    TRACEBACK_VARIABLE,
    BeamTfrError,
    DataError,
    InterruptedRunError,
    RejectError,
    RunError,
    UsageError,
    as_flags,
)
from beam_tfr.schema.plan import Plan, Shard, SplitPlan

__all__ = [
    "ADJUSTMENTS",
    "FORMAT_VERSION",
    "LABELS_FILE",
    "MANIFEST_FILE",
    "NO_SPLIT",
    "REJECTS_FILE",
    "REJECT_REASONS",
    "TRACEBACK_VARIABLE",
    "WORK_FOLDER",
    "Array",
    "BeamTfrError",
    "Counts",
    "DataError",
    "Image",
    "ImageRef",
    "InterruptedRunError",
    "Item",
    "Plan",
    "Record",
    "RecordsDigest",
    "Reject",
    "RejectError",
    "RunError",
    "Shard",
    "ShardInfo",
    "ShardWork",
    "SplitPlan",
    "UsageError",
    "add_sums",
    "as_flags",
    "canonical_json",
    "is_class_name",
    "sha256_hex",
    "size_bucket",
]
