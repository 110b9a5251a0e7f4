"""Files on disk and on gs://, through one interface.

A path is a local path or `gs://bucket/name`. A file appears whole or not at all: on disk by an unfinished file, fsync
and rename; on gs:// by one upload with a precondition. `STORAGE_EMULATOR_HOST` is respected.
"""

from __future__ import annotations

from beam_tfr.storage.base import GCS as GCS
from beam_tfr.storage.base import AlreadyExistsError as AlreadyExistsError
from beam_tfr.storage.base import ChangedError as ChangedError
from beam_tfr.storage.base import Entry as Entry
from beam_tfr.storage.base import PendingFile as PendingFile
from beam_tfr.storage.base import split_gcs as split_gcs
from beam_tfr.storage.files import READ_AHEAD as READ_AHEAD
from beam_tfr.storage.files import check_path as check_path
from beam_tfr.storage.files import create as create
from beam_tfr.storage.files import delete as delete
from beam_tfr.storage.files import delete_all as delete_all
from beam_tfr.storage.files import delete_folder as delete_folder
from beam_tfr.storage.files import find as find
from beam_tfr.storage.files import for_each as for_each
from beam_tfr.storage.files import free_bytes as free_bytes
from beam_tfr.storage.files import is_gcs as is_gcs
from beam_tfr.storage.files import is_gone as is_gone
from beam_tfr.storage.files import join as join
from beam_tfr.storage.files import links_out as links_out
from beam_tfr.storage.files import list_folder as list_folder
from beam_tfr.storage.files import may_pass as may_pass
from beam_tfr.storage.files import modified as modified
from beam_tfr.storage.files import move as move
from beam_tfr.storage.files import nearest as nearest
from beam_tfr.storage.files import open_binary as open_binary
from beam_tfr.storage.files import open_seekable as open_seekable
from beam_tfr.storage.files import read_bytes as read_bytes
from beam_tfr.storage.files import read_part as read_part
from beam_tfr.storage.files import subfolders as subfolders
from beam_tfr.storage.files import sync_folder as sync_folder
from beam_tfr.storage.files import touch as touch
from beam_tfr.storage.files import walk as walk
from beam_tfr.storage.files import work_path as work_path
from beam_tfr.storage.files import write_bytes as write_bytes
from beam_tfr.storage.gcs import connect as connect
from beam_tfr.storage.gcs import first_names as first_names
from beam_tfr.storage.gcs_client import DEADLINE_S as DEADLINE_S
from beam_tfr.storage.gcs_client import Access as Access
from beam_tfr.storage.gcs_client import use_access as use_access
from beam_tfr.storage.waits import take_waits as take_waits
