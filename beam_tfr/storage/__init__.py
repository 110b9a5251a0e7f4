"""Reads and writes files on disk and on gs:// through one interface.

A path is a local path or `gs://bucket/name`. A file appears whole or not at all: on disk through an
unfinished file, fsync and a rename, or a hard link if no file may be replaced; on gs:// through one
upload with a precondition. `STORAGE_EMULATOR_HOST` is respected.

Each function calls the `Backend` for its path: `disk.DiskBackend` or `gcs.GcsBackend`.
"""

import errno
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from beam_tfr.schema.dataset import WORK_FOLDER
from beam_tfr.schema.errors import UsageError, check_text, show_value
from beam_tfr.storage import opened
from beam_tfr.storage.backend import GCS as GCS
from beam_tfr.storage.backend import AlreadyExistsError as AlreadyExistsError
from beam_tfr.storage.backend import Backend as Backend
from beam_tfr.storage.backend import ChangedError as ChangedError
from beam_tfr.storage.backend import Entry as Entry
from beam_tfr.storage.backend import PendingFile as PendingFile
from beam_tfr.storage.backend import split_gcs as split_gcs
from beam_tfr.storage.disk import DiskBackend
from beam_tfr.storage.gcs import GcsBackend
from beam_tfr.storage.gcs import connect as connect
from beam_tfr.storage.gcs_client import DEADLINE_S as DEADLINE_S
from beam_tfr.storage.gcs_client import REQUESTS
from beam_tfr.storage.gcs_client import Access as Access
from beam_tfr.storage.gcs_client import use_access as use_access
from beam_tfr.storage.names import NameRules as NameRules
from beam_tfr.storage.waits import take_waits as take_waits

READ_AHEAD = 64  # files read in parallel
_HASHED_BYTES = 1 << 18  # 256 KiB at a time
MOST_REMOTE_NAMES = 20_000  # names in a folder that are searched for folders
_DISK = DiskBackend()
_GCS = GcsBackend()
_CERTAIN_ERRORS = (errno.EINVAL, errno.ENXIO, errno.ELOOP, errno.ENAMETOOLONG)


def backend_of(path: str) -> Backend:
    """Returns the backend for a path."""
    return _GCS if path.startswith(GCS) else _DISK


def is_gcs(path: str) -> bool:
    """Whether a path is on gs://."""
    return path.startswith(GCS)


def is_remote(path: str) -> bool:
    """Whether each request for a file waits for a network, so that parallel requests are faster."""
    return backend_of(path).is_remote


def join(folder: str, name: str) -> str:
    """Joins a folder and a name into a path."""
    return backend_of(folder).join(folder, name)


def work_path(output: str, name: str) -> str:
    """Returns the path of a file in the work folder of an output, or of the folder itself."""
    return join(join(output, WORK_FOLDER), name)


def check_path(path: str | os.PathLike[str], *, option: str = "") -> str:
    """Checks a path from an option; returns it as a string, absolute if local, with ~ expanded.

    Raises:
        UsageError: the path is empty, its scheme is not gs://, it has no bucket, it is relative but
            the current folder is gone, or this locale does not read file names as UTF-8.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    try:
        if not isinstance(text, str):
            raise ValueError("must be a path")
        return backend_of(text).complete_path(check_text(text))
    except ValueError as error:
        message = str(error) if option else f"{show_value(text)}: {error}"
        raise UsageError(message, option=option, value=text) from None


def real_path(path: str) -> str:
    """Returns a path without a final slash and, if it is local, with links resolved."""
    return backend_of(path).real_path(path).rstrip("/")


def walk(
    folder: str,
    descend: Callable[[str], bool],
    *,
    prefix: str = "",
    deep: bool = True,
    start: str = "",
    end: str = "",
    note_repeat: Callable[[str], object] = lambda _: None,
) -> Iterator[Entry]:
    """Yields every file below a folder: on gs:// sorted by name, on disk in no particular order.

    Links are followed, but each folder is listed only once, whichever links lead to it. A dangling
    link is listed with size 0, so that reading it fails with the reason. Folder objects on gs://
    (with a trailing slash and no bytes) are skipped.

    Args:
        folder: local or gs://.
        descend: whether to enter a local folder, given its path.
        prefix: prefix of the wanted paths below the folder; other files may be omitted (on gs://
            they are).
        deep: whether files in subfolders are wanted; if not, they may be omitted (on gs:// they
            are).
        start, end: on gs://, only names in the bucket from `start` on and before `end`; empty for
            all.
        note_repeat: called with the path of each link to a folder that is listed under another
            path.

    Raises:
        OSError: the bucket does not exist, or a folder may not be listed.
    """
    return backend_of(folder).walk(
        folder,
        descend,
        prefix=prefix,
        deep=deep,
        start=start,
        end=end,
        note_repeat=note_repeat,
    )


def list_folder(folder: str, *, prefix: str = "") -> list[str]:
    """Lists the names of files in a folder that begin with a prefix, sorted.

    Files in subfolders are not listed. Returns None if the folder does not exist.
    """
    names = [entry.name for entry in list_files(folder, prefix=prefix)]
    return [name for name in names if name.startswith(prefix)]


def list_files(folder: str, *, prefix: str = "") -> list[Entry]:
    """Lists the files in a folder, without subfolders, sorted by name; see `list_folder`."""
    return sorted(walk(folder.rstrip("/"), lambda _: False, prefix=prefix, deep=False))


def list_names(folder: str) -> Iterator[str]:
    """Yields the names in a folder, in no particular order; names of folders end in /.

    Raises:
        OSError: the folder does not exist, or may not be listed.
    """
    return backend_of(folder).list_names(folder)


def list_folders(folder: str) -> list[str]:
    """Lists the names of subfolders, sorted; on gs://, only those among the folder's first names.

    Raises:
        OSError: the folder does not exist, or may not be listed.
    """
    most = MOST_REMOTE_NAMES if is_remote(folder) else None
    names = itertools.islice(list_names(folder), most)
    return sorted(name.rstrip("/") for name in names if name.endswith("/"))


def find(path: str) -> Entry | None:
    """Returns the file at a path; None if there is none."""
    return backend_of(path).find(path)


def read_bytes(
    path: str,
    *,
    max_bytes: int | None = None,
    generation: int = 0,
    cancelled: Callable[[], bool] = lambda: False,
) -> bytes:
    """Reads a file; if it is longer than `max_bytes`, reads only its first max_bytes + 1 bytes.

    Args:
        path: local or gs://. An object with Content-Encoding: gzip is decompressed.
        max_bytes: None for no limit.
        generation: required generation of the object, or modification time in ns of the file on
            disk; 0 for any.
        cancelled: returns True once the result is no longer needed, which stops retries.

    Raises:
        FileNotFoundError: there is no such file or object.
        ChangedError: the generation of the file differs (ESTALE), or the file changed in each
            attempt to read it (EBUSY).
        OSError: the file cannot be read, or is not a regular file.
    """
    data = backend_of(path).read_bytes(
        path, max_bytes=max_bytes, generation=generation, cancelled=cancelled
    )
    opened.note(path, len(data))
    return data


def read_existing(path: str, max_bytes: int | None = None) -> bytes | None:
    """Reads a file as `read_bytes` does; returns None if there is no such file."""
    try:
        return read_bytes(path, max_bytes=max_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise


def may_pass(error: OSError) -> bool:
    """Whether a later attempt to read might succeed.

    Returns False only if the path is not a regular file, is a link to itself, or is invalid.
    """
    return error.errno not in _CERTAIN_ERRORS


def is_gone(path: str, root: str = "") -> bool:
    """Whether a file that was not found certainly does not exist.

    This is certain if its folder contains other files, or its bucket responds. A missing or empty
    folder may be an unmounted disk, unless a folder above it contains other files; folders are
    checked up to the parent of `root`.
    """
    return backend_of(path).is_gone(path, root)


def open_binary(path: str) -> IO[bytes]:
    """Opens a file for reading from its start; an object is first downloaded as a whole.

    Reading raises ChangedError if the file grows meanwhile.
    """
    return opened.noting(path, backend_of(path).open_binary(path, None))


def sha256(path: str) -> str:
    """Returns the SHA-256 of a file in hex; raises the errors of `open_binary`."""
    with open_binary(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def sha256_of_small(path: str, max_bytes: int) -> str:
    """Returns the SHA-256 of a file in hex, or "" if the file has more than `max_bytes` bytes.

    Raises the errors of `open_binary`.
    """
    digest = hashlib.sha256()
    left = max_bytes
    with backend_of(path).open_binary(path, max_bytes) as file:
        while data := file.read(min(left + 1, _HASHED_BYTES)):
            if len(data) > left:
                return ""
            digest.update(data)
            left -= len(data)
    return digest.hexdigest()


def read_part(path: str, begin: int, num_bytes: int, *, generation: int = 0) -> bytes:
    """Reads a range of bytes from a file, or fewer at its end; on gs://, this takes one request.

    Args:
        path: local or gs://.
        begin: number of the first byte.
        num_bytes: number of bytes.
        generation: required generation of the file; 0 for any.

    Raises:
        FileNotFoundError: there is no such file.
        ChangedError: the generation of the file differs.
        OSError: the file cannot be read.
    """
    opened.note(path, num_bytes)
    return backend_of(path).read_part(path, begin, num_bytes, generation)


def check_is_file(entry: Entry) -> None:
    """Checks that a listed file without bytes is a file.

    Pipes, sockets, devices and dangling links are listed with size 0.

    Raises:
        OSError: it is something else, or cannot be opened.
    """
    if not entry.size_bytes and not is_remote(entry.path):
        read_part(entry.path, 0, 0)


def create(path: str, *, scratch: str, replace: bool = True) -> PendingFile:
    """Opens a file that appears at `path` on `commit()`, and never before.

    Args:
        path: local or gs://.
        scratch: local folder on the same disk for the unfinished file; ignored for gs://.
        replace: whether to replace a file that exists now. An object that another writer creates in
            the meantime is never replaced.
    """
    return backend_of(path).create(path, scratch, replace)


def write_bytes(path: str, data: bytes, *, scratch: str, replace: bool = True) -> None:
    """Writes a small file, as a whole or not at all.

    Args:
        path, scratch, replace: as for `create`.
        data: content of the file.

    Raises:
        AlreadyExistsError: `replace` is false, and the file exists with different bytes (equal
            bytes count as success).
    """
    with create(path, scratch=scratch, replace=replace) as file:
        file.write(data)
        file.commit()


def touch(path: str, *, deadline_s: float = DEADLINE_S) -> None:
    """Sets the modification time of a file to the current time.

    On gs://, this takes one request, and does not create a new version of the object.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: the file cannot be changed.
    """
    backend_of(path).touch(path, deadline_s)


def modified(path: str) -> float:
    """Returns when a file was last written or touched, in seconds since 1970.

    Raises:
        OSError: the file does not exist, or may not be read.
    """
    return backend_of(path).modified(path)


def move(source: str, target: str, *, generation: int = 0) -> None:
    """Renames a file on the same disk or in the same bucket, replacing any file with the new name.

    The file never has both names, and no byte is copied.

    Args:
        source, target: paths, both local or both gs://.
        generation: required generation of the source; 0 for any.

    Raises:
        FileNotFoundError: the source does not exist.
        ChangedError: the generation of the source differs.
        OSError: the file cannot be moved.
    """
    backend_of(source).move(source, target, generation)


def delete(path: str, *, generation: int = 0) -> None:
    """Removes a file if it exists and has the specified generation (0 for any)."""
    backend_of(path).delete(path, generation)


def delete_all(entries: Iterable[Entry]) -> None:
    """Removes listed files, except those replaced since they were listed."""
    for_each_file(lambda entry: delete(entry.path, generation=entry.generation), entries)


def for_each_file(change: Callable[[Entry], object], entries: Iterable[Entry]) -> None:
    """Calls a function that changes a file, once for each file.

    On gs://, up to `REQUESTS` calls run in parallel. After an error, no further calls start.
    """
    waiting = list(entries)
    if not any(is_remote(entry.path) for entry in waiting):
        for entry in waiting:
            change(entry)
        return
    with ThreadPoolExecutor(REQUESTS) as pool:
        list(pool.map(change, waiting))


def name_rules(folder: str) -> NameRules:
    """Finds out which file names a folder accepts; on disk, the folder must exist.

    Raises:
        OSError: no file can be created in the folder.
    """
    return backend_of(folder).name_rules(folder)


def is_folder(path: str) -> bool:
    """Whether a path is a folder on disk; gs:// has no folders."""
    return backend_of(path).is_folder(path)


def is_link(path: str) -> bool:
    """Whether a path on disk is a symbolic link."""
    return backend_of(path).is_link(path)


def find_link(folder: str) -> str:
    """Returns the first symbolic link in or below a folder on disk, or "" if there is none."""
    return backend_of(folder).find_link(folder)


def is_writable(folder: str) -> bool:
    """Whether files can be created in a folder, or in the nearest existing folder above it.

    On gs://, only a request could show this, so the function returns True.
    """
    return backend_of(folder).is_writable(folder)


def free_bytes(folder: str) -> int | None:
    """Returns the free space on the disk of a folder, which need not exist yet.

    Returns None on gs://, whose space is unlimited.
    """
    return backend_of(folder).free_bytes(folder)


def make_folder(folder: str) -> None:
    """Creates a folder on disk if it does not exist; gs:// needs no folders."""
    backend_of(folder).make_folder(folder)


def remove_folder(folder: str) -> None:
    """Removes a folder on disk if it is empty; gs:// has no folders."""
    backend_of(folder).remove_folder(folder)


def sync_folder(folder: str) -> None:
    """Ensures that renamed and removed names in a folder survive a power failure.

    gs:// ensures this by itself.
    """
    backend_of(folder).sync_folder(folder)
