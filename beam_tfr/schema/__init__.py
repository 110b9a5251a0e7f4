"""Defines the element types of the pipeline, errors and names.

Imports only the standard library and `console`.

    MatchImages ──▶ ImageRef ──PlanShards──▶ ShardWork ──ReadImages──▶ Item(bytes)
        ──ResizeImages──▶ Item(Image) ──BuildExamples──▶ Item(Record)
        ──WriteShards──▶ ShardInfo ──WriteManifest──▶ Manifest

Between ReadImages and WriteShards, an `Item` may instead hold a `Reject` (a rejected image keeps
its place), a `ShardInfo` (an earlier run finished the shard) or `Unfinished` (some of its images
cannot be read now); every stage passes these on unchanged. Items travel in lists; see
`batch_items`. `schema.feature_names` names the features of a record.
"""

from beam_tfr.schema.errors import RejectError as RejectError
from beam_tfr.schema.items import Image as Image
from beam_tfr.schema.items import ImageRef as ImageRef
from beam_tfr.schema.items import Item as Item
from beam_tfr.schema.items import Record as Record
