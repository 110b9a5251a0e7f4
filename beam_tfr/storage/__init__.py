"""Bytes from and to disk and gs://, one interface for both. Never Beam, never TensorFlow.

A path is a local path or `gs://bucket/name`. Files appear whole or not at all: on a disk by a file beside them, fsync
and rename; on gs:// by one upload with a precondition. Works with `STORAGE_EMULATOR_HOST`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import IO

from beam_tfr.schema import WORK_FOLDER, UsageError
from beam_tfr.storage import disk, download, gcs
from beam_tfr.storage.base import (
    GCS,
    READ_AHEAD,
    Access,
    AlreadyExistsError,
    ChangedError,
    Entry,
    ListError,
    PendingFile,
    is_gcs,
)
from beam_tfr.storage.disk import DiskPendingFile
from beam_tfr.storage.gcs import DEADLINE_S, GcsPendingFile, connect, use_access

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
    "ListError",
    "PendingFile",
    "connect",
    "is_gcs",
    "use_access",
]


def check_path(path: str, flag: str) -> str:
    """The path, absolute when local.

    Raises:
        UsageError: a scheme that is not read, an empty bucket, or a relative path in a folder that is gone; names
            `flag`.
    """
    if is_gcs(path):
        if not path[len(GCS) :].split("/")[0]:
            raise UsageError(f"{flag} {path}: names no bucket; write gs://BUCKET/FOLDER")
        return path
    if "://" in path:
        raise UsageError(f"{flag} {path}: only local paths and gs:// are supported")
    try:
        return os.path.abspath(path) if path else path
    except FileNotFoundError:
        raise UsageError(f"{flag} {path}: the current folder is gone; give a path that begins with /") from None


def join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if is_gcs(folder) else os.path.join(folder, name)


def work_path(output: str, name: str) -> str:
    """A file in the work folder of an output; the folder itself for an empty name."""
    return join(join(output, WORK_FOLDER), name)


def walk(folder: str, descend: Callable[[str], bool], *, prefix: str = "", deep: bool = True) -> Iterator[Entry]:
    """Every file below a folder, in no promised order.

    Links are followed, but never into a folder that contains them. A link that leads nowhere is listed with size 0,
    so that reading it names what is wrong. Folder objects of gs:// (a trailing slash, no bytes) are left out.

    Args:
        folder: local or gs://.
        descend: whether a local folder below it, by its path, is entered.
        prefix: of the paths behind the folder and its slash; others need not be listed (and are not on gs://).
        deep: whether what lies in folders below must be listed (on gs:// it is not otherwise).

    Raises:
        ListError: the bucket is not there, or a folder may not be listed.
    """
    try:
        yield from gcs.walk(folder, prefix=prefix, deep=deep) if is_gcs(folder) else disk.walk(folder, descend)
    except OSError as error:
        raise ListError(f"{error.filename}: {error.strerror}") from error


def list_folder(folder: str) -> list[str]:
    """Names of the files directly in a folder, sorted; empty where there is no such folder."""
    return gcs.list_folder(folder) if is_gcs(folder) else disk.list_folder(folder)


def is_link(path: str) -> bool:
    return not is_gcs(path) and os.path.islink(path.rstrip("/"))


def make_folder(folder: str) -> None:
    if not is_gcs(folder):
        os.makedirs(folder, exist_ok=True)


def read_bytes(
    path: str,
    *,
    max_bytes: int | None = None,
    generation: int = 0,
    deadline_s: float = DEADLINE_S,
    cancelled: Callable[[], bool] = lambda: False,
) -> bytes:
    """The bytes of a file; of one that is longer than `max_bytes`, the first max_bytes + 1.

    Args:
        path: local or gs://. What an object's Content-Encoding: gzip compressed is decompressed.
        max_bytes: None for no limit.
        generation: that the object must have, on a disk the modification time in ns; 0 for any.
        deadline_s: for an object with all its tries, in seconds.
        cancelled: whether nobody waits for it any more; then it is not tried again.

    Raises:
        FileNotFoundError: no such file or object.
        ChangedError: the object was replaced, the file changed.
        OSError: it cannot be read, or is no regular file.
    """
    if is_gcs(path):
        return download.read_bytes(
            path, generation=generation, max_bytes=max_bytes, deadline_s=deadline_s, cancelled=cancelled
        )
    return disk.read_bytes(path, max_bytes, generation)


def may_pass(error: OSError) -> bool:
    """Whether reading again later might succeed: a broken disk, mount or service, not a missing permission."""
    return error.errno in (errno.EAGAIN, errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.ENOTCONN, errno.EMFILE)


def open_binary(path: str) -> IO[bytes]:
    """A file opened for reading from its start; an object is fetched whole first, its checksum compared."""
    if is_gcs(path):
        file = tempfile.TemporaryFile(prefix="beam_tfr-")  # noqa: SIM115 - the caller closes it
        download.to_file(path, file)
        return file
    return os.fdopen(disk.open_descriptor(path), "rb", buffering=1 << 18)


def open_seekable(path: str) -> IO[bytes]:
    """A file opened to read parts of it; of an object only those are fetched, all of one generation.

    Raises:
        OSError: it is not there, or cannot be read; later reads raise it too.
    """
    return gcs.open_seekable(path) if is_gcs(path) else os.fdopen(disk.open_descriptor(path), "rb")


def file_sha256(file: IO[bytes]) -> str:
    """Hex SHA-256 of what is left of an open file."""
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def find(path: str) -> Entry | None:
    """The file at a path, or None where there is none."""
    return gcs.find(path) if is_gcs(path) else disk.find(path)


def size_bytes(path: str) -> int | None:
    """Size of a file, or None where there is none."""
    entry = find(path)
    return None if entry is None else entry.size_bytes


def delete(path: str) -> None:
    """Removes a file; one that is gone already is no error."""
    if is_gcs(path):
        gcs.delete(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def delete_folder(folder: str) -> None:
    """Removes a folder with all that is in it; one that is gone already is no error."""
    if is_gcs(folder):
        gcs.delete_folder(folder)
    else:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def write_bytes(path: str, data: bytes, *, scratch: str, replace: bool = True) -> None:
    """Writes a small file, whole or not at all; arguments as for `create`.

    Raises:
        AlreadyExistsError: not `replace`, and there is a file with other bytes (equal bytes are success).
    """
    with create(path, scratch=scratch, replace=replace) as file:
        file.write(data)
        file.commit()


def create(path: str, *, scratch: str, replace: bool = True) -> PendingFile:
    """Opens a file that appears at `path` on `commit()` and never before.

    Args:
        path: local or gs://.
        scratch: local folder on the same disk for the unfinished file; not used for gs://.
        replace: whether a file that is there now may be replaced; see `PendingFile.commit`. On gs:// one that another
            writer puts there meanwhile is not.
    """
    return GcsPendingFile(path, replace) if is_gcs(path) else DiskPendingFile(path, scratch, replace)
