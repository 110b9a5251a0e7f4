"""The element types of the pipeline, errors, names. Imports only the standard library and `console`.

    MatchImages ──▶ ImageRef ──PlanShards──▶ ShardWork ──ReadImages──▶ Item(bytes) ──ResizeImages──▶ Item(Image)
        ──BuildExamples──▶ Item(Record) ──WriteShards──▶ ShardInfo ──WriteManifest──▶ Manifest

Between ReadImages and WriteShards an `Item` may instead hold a `Reject` (a rejected image keeps its place), a
`ShardInfo` (an earlier run finished the shard) or `Unfinished` (some of its images cannot be read now); every stage
passes those on. Items travel in lists; see `batches`. `schema.features` names the features of a record.
"""

from __future__ import annotations

from beam_tfr.schema.dataset import ADJUSTMENTS as ADJUSTMENTS
from beam_tfr.schema.dataset import CONTENTS_FOLDER as CONTENTS_FOLDER
from beam_tfr.schema.dataset import FORMAT_VERSION as FORMAT_VERSION
from beam_tfr.schema.dataset import HISTORY_FILE as HISTORY_FILE
from beam_tfr.schema.dataset import LABELS_FILE as LABELS_FILE
from beam_tfr.schema.dataset import MANIFEST_FILE as MANIFEST_FILE
from beam_tfr.schema.dataset import MOST_SHARDS as MOST_SHARDS
from beam_tfr.schema.dataset import NO_SPLIT as NO_SPLIT
from beam_tfr.schema.dataset import REJECT_REASONS as REJECT_REASONS
from beam_tfr.schema.dataset import REJECTS_FILE as REJECTS_FILE
from beam_tfr.schema.dataset import REMOVED_FILE as REMOVED_FILE
from beam_tfr.schema.dataset import SOURCES_FOLDER as SOURCES_FOLDER
from beam_tfr.schema.dataset import SUMS_FILE as SUMS_FILE
from beam_tfr.schema.dataset import SWITCH_FILE as SWITCH_FILE
from beam_tfr.schema.dataset import WORK_FOLDER as WORK_FOLDER
from beam_tfr.schema.dataset import RecordsDigest as RecordsDigest
from beam_tfr.schema.dataset import canonical_json as canonical_json
from beam_tfr.schema.dataset import in_order as in_order
from beam_tfr.schema.dataset import is_class_name as is_class_name
from beam_tfr.schema.dataset import json_digest as json_digest
from beam_tfr.schema.dataset import sha256_hex as sha256_hex
from beam_tfr.schema.errors import RESUME as RESUME
from beam_tfr.schema.errors import TRACEBACK_VARIABLE as TRACEBACK_VARIABLE
from beam_tfr.schema.errors import BeamTfrError as BeamTfrError
from beam_tfr.schema.errors import DataError as DataError
from beam_tfr.schema.errors import EngineError as EngineError
from beam_tfr.schema.errors import InputNotFoundError as InputNotFoundError
from beam_tfr.schema.errors import InterruptedRunError as InterruptedRunError
from beam_tfr.schema.errors import NotFoundError as NotFoundError
from beam_tfr.schema.errors import NotInstalledError as NotInstalledError
from beam_tfr.schema.errors import RejectError as RejectError
from beam_tfr.schema.errors import RunError as RunError
from beam_tfr.schema.errors import UsageError as UsageError
from beam_tfr.schema.errors import as_flags as as_flags
from beam_tfr.schema.errors import whole_number as whole_number
from beam_tfr.schema.errors import without_traceback as without_traceback
from beam_tfr.schema.items import Array as Array
from beam_tfr.schema.items import Copied as Copied
from beam_tfr.schema.items import Geometry as Geometry
from beam_tfr.schema.items import Image as Image
from beam_tfr.schema.items import ImageRef as ImageRef
from beam_tfr.schema.items import Item as Item
from beam_tfr.schema.items import Known as Known
from beam_tfr.schema.items import Looks as Looks
from beam_tfr.schema.items import Record as Record
from beam_tfr.schema.items import Reject as Reject
from beam_tfr.schema.items import ShardWork as ShardWork
from beam_tfr.schema.items import batches as batches
from beam_tfr.schema.items import label_ids_of as label_ids_of
from beam_tfr.schema.plan import MOST_CAUSES as MOST_CAUSES
from beam_tfr.schema.plan import Counts as Counts
from beam_tfr.schema.plan import Plan as Plan
from beam_tfr.schema.plan import Shard as Shard
from beam_tfr.schema.plan import ShardInfo as ShardInfo
from beam_tfr.schema.plan import SplitPlan as SplitPlan
from beam_tfr.schema.plan import Unfinished as Unfinished
from beam_tfr.schema.plan import WrittenFile as WrittenFile
from beam_tfr.schema.plan import add_each as add_each
from beam_tfr.schema.plan import size_bucket as size_bucket
