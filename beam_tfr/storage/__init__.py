"""Files on disk and on gs://, through one interface.

A path is a local path or `gs://bucket/name`. A file appears whole or not at all: on disk by an unfinished file, fsync
and rename; on gs:// by one upload with a precondition. `STORAGE_EMULATOR_HOST` is respected.
"""

from beam_tfr.storage.base import (
    READ_AHEAD,
    Access,
    AlreadyExistsError,
    ChangedError,
    Entry,
    PendingFile,
)
from beam_tfr.storage.disk import DiskPendingFile
from beam_tfr.storage.files import (
    create,
    delete,
    delete_folder,
    file_sha256,
    find,
    list_folder,
    may_pass,
    open_binary,
    open_seekable,
    read_bytes,
    size_bytes,
    walk,
    write_bytes,
)
from beam_tfr.storage.gcs import GcsPendingFile, connect
from beam_tfr.storage.gcs_client import use_access
from beam_tfr.storage.gcs_errors import DEADLINE_S
from beam_tfr.storage.paths import GCS, check_path, is_gcs, join, work_path

__all__ = [
    "DEADLINE_S",
    "GCS",
    "READ_AHEAD",
    "Access",
    "AlreadyExistsError",
    "ChangedError",
    "DiskPendingFile",
    "Entry",
    "GcsPendingFile",
    "PendingFile",
    "check_path",
    "connect",
    "create",
    "delete",
    "delete_folder",
    "file_sha256",
    "find",
    "is_gcs",
    "join",
    "list_folder",
    "may_pass",
    "open_binary",
    "open_seekable",
    "read_bytes",
    "size_bytes",
    "use_access",
    "walk",
    "work_path",
    "write_bytes",
]
