"""Bytes from and to disk and gs://, one interface for both. Never Beam, never TensorFlow.

A path is a local path or `gs://bucket/name`. Files appear whole or not at all: on a disk by a file beside them, fsync
and rename; on gs:// by one upload with a precondition. Works with `STORAGE_EMULATOR_HOST`.
"""

from __future__ import annotations

import abc
import base64
import contextlib
import errno
import filecmp
import functools
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from beam_tfr.schema import WORK_FOLDER, UsageError

if TYPE_CHECKING:
    from google.cloud.storage import Blob, Client
    from typing_extensions import Self

GCS = "gs://"


class Entry(NamedTuple):
    """A listed file: its path, size in bytes and generation (gs://) or modification time in ns (disk)."""

    path: str
    size_bytes: int
    generation: int


class AlreadyExistsError(Exception):
    """A file that must not exist exists, with other bytes."""


class ListError(Exception):
    """A bucket or folder that is not there or may not be listed."""


def is_gcs(path: str) -> bool:
    return path.startswith(GCS)


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


_client_lock = threading.Lock()


def _client() -> Client:
    """One client per process, also for threads that begin together: kept-alive connections, credentials once."""
    with _client_lock:
        return _make_client()


@functools.cache
def _make_client() -> Client:
    from google.cloud import storage

    if os.environ.get("STORAGE_EMULATOR_HOST"):
        from google.auth.credentials import AnonymousCredentials

        return storage.Client(credentials=AnonymousCredentials(), project="emulator")
    return storage.Client()


def _blob(path: str) -> Blob:
    bucket, _, name = path[len(GCS) :].partition("/")
    return _client().bucket(bucket).blob(name)


def walk(folder: str, descend: Callable[[str], bool]) -> Iterator[Entry]:
    """Every file below a folder, in no promised order; local folders only where `descend(path)` says so.

    Links are followed, but never into a folder that contains them. A link that leads nowhere is listed with size 0,
    so that reading it names what is wrong. Folder objects of gs:// (a trailing slash, no bytes) are left out.

    Raises:
        ListError: the bucket is not there, or a folder may not be listed.
    """
    if is_gcs(folder):
        yield from _walk_gcs(folder)
    else:
        try:
            yield from _walk_disk(folder, descend)
        except OSError as error:
            raise ListError(f"{error.filename}: {error.strerror}") from error


def _walk_gcs(folder: str) -> Iterator[Entry]:
    bucket, prefix = _split_folder(folder)
    fields = "items(name,size,generation),nextPageToken"
    try:
        with _gcs_errors(folder):
            for blob in _client().list_blobs(bucket, prefix=prefix, fields=fields, page_size=5000):
                if not (blob.name.endswith("/") and not blob.size):
                    yield Entry(f"{GCS}{bucket}/{blob.name}", int(blob.size or 0), int(blob.generation or 0))
    except OSError as error:
        raise ListError(f"{folder}: {error.strerror}") from error


def _split_folder(folder: str) -> tuple[str, str]:
    """(bucket, prefix of the names below the folder)."""
    bucket, _, prefix = folder[len(GCS) :].partition("/")
    return bucket, prefix.rstrip("/") + "/" if prefix.rstrip("/") else ""


@contextlib.contextmanager
def _gcs_errors(path: str) -> Iterator[None]:
    """Turns what Google's client raises into the OSError that a disk would raise."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests.exceptions import RequestException

    try:
        yield
    except (GoogleAPIError, GoogleAuthError, RequestException, DataCorruption, InvalidResponse) as error:
        code = int(getattr(error, "code", None) or 0)
        number, meaning = _GCS_CODES.get(code, (errno.EAGAIN, ""))
        if code:
            # The client puts the request before what the service says, and its own expectations behind.
            said = re.sub(r"^[A-Z]+ \S+: ", "", str(getattr(error, "message", error)))
            said = re.sub(r"(: )?\('Request failed with status code'.*", "", said, flags=re.DOTALL).strip()
            text = f"{meaning or 'the service failed'} (HTTP {code})"
            text += f": {said[:300]}" if said not in ("", "unknown error") else ""
        else:
            text = f"{type(error).__name__}: {error}"
        raise OSError(number, text, path) from error  # of the subclass that fits, such as FileNotFoundError


_GCS_CODES = {
    401: (errno.EACCES, "not signed in"),
    403: (errno.EACCES, "no permission"),
    404: (errno.ENOENT, "no such bucket or object"),
    412: (errno.EEXIST, "it exists already"),
}


def _walk_disk(folder: str, descend: Callable[[str], bool]) -> Iterator[Entry]:
    # Folders yet to be listed, each with the identities of those above it; no recursion, trees may be deep.
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [(folder, frozenset())]
    while waiting:
        folder, above = waiting.pop()
        try:
            status = os.stat(folder)
        except FileNotFoundError:
            continue
        identity = (status.st_dev, status.st_ino)
        if identity in above or not stat.S_ISDIR(status.st_mode):
            continue
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    is_folder = entry.is_dir()
                    info = None if is_folder else entry.stat()
                except OSError:  # a link that leads nowhere, or in a circle: reading it tells
                    yield Entry(entry.path, 0, 0)
                    continue
                if info is not None:
                    yield Entry(entry.path, info.st_size, info.st_mtime_ns)
                elif descend(entry.path):
                    waiting.append((entry.path, above | {identity}))


def list_folder(folder: str) -> list[str]:
    """Names of the files directly in a folder, sorted; empty where there is no such folder."""
    if is_gcs(folder):
        bucket, prefix = _split_folder(folder)
        with _gcs_errors(folder):
            blobs = _client().list_blobs(bucket, prefix=prefix, delimiter="/", fields="items(name),nextPageToken")
            return sorted(blob.name[len(prefix) :] for blob in blobs if blob.name != prefix)
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())
    except FileNotFoundError:
        return []


def is_link(path: str) -> bool:
    return not is_gcs(path) and os.path.islink(path.rstrip("/"))


def make_folder(folder: str) -> None:
    if not is_gcs(folder):
        os.makedirs(folder, exist_ok=True)


def read_bytes(path: str, *, max_bytes: int | None = None) -> bytes:
    """The bytes of a file; of one that is longer than `max_bytes`, the first max_bytes + 1.

    Raises:
        FileNotFoundError: no such file or object.
        OSError: it cannot be read, or is no regular file.
    """
    if is_gcs(path):
        buffer = _Bounded(max_bytes)
        with contextlib.suppress(_FullError), _gcs_errors(path):
            # Not a range: of a part the client compares no checksum, and the service refuses one of an empty object.
            _blob(path).download_to_file(buffer, raw_download=True, checksum="crc32c")
        return buffer.getvalue()[: None if max_bytes is None else max_bytes + 1]
    with os.fdopen(_open_disk(path), "rb", buffering=0) as file:
        if max_bytes is not None and os.fstat(file.fileno()).st_size > max_bytes:
            return file.read(max_bytes + 1)
        return file.readall()  # makes room for the size of the file, not for max_bytes


class _FullError(Exception):
    """A `_Bounded` has more than it may hold."""


class _Bounded(io.BytesIO):
    """Ends a download as soon as there is more than `max_bytes`."""

    def __init__(self, max_bytes: int | None) -> None:
        super().__init__()
        self._max_bytes = max_bytes

    def write(self, data: Any) -> int:
        written = super().write(data)
        if self._max_bytes is not None and self.tell() > self._max_bytes:
            raise _FullError
        return written


def may_pass(error: OSError) -> bool:
    """Whether reading again later might succeed: a broken disk, mount or service, not a missing permission."""
    return error.errno in (errno.EAGAIN, errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.ENOTCONN, errno.EMFILE)


def open_binary(path: str) -> IO[bytes]:
    """A file opened for reading from its start; an object is fetched whole first, its checksum compared."""
    if is_gcs(path):
        file = tempfile.TemporaryFile(prefix="beam_tfr-")  # noqa: SIM115 - the caller closes it
        with _gcs_errors(path):
            _blob(path).download_to_file(file, raw_download=True, checksum="crc32c")
        file.seek(0)
        return file
    return os.fdopen(_open_disk(path), "rb", buffering=1 << 18)


def _open_disk(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))  # a pipe must not block
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a folder" if stat.S_ISDIR(mode) else "not a regular file", path)
    return descriptor


def file_sha256(file: IO[bytes]) -> str:
    """Hex SHA-256 of what is left of an open file."""
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def find(path: str) -> Entry | None:
    """The file at a path, or None where there is none."""
    if is_gcs(path):
        bucket, _, name = path[len(GCS) :].partition("/")
        if not name:
            return None
        with _gcs_errors(path):
            blob = _client().bucket(bucket).get_blob(name)
        return None if blob is None else Entry(path, int(blob.size or 0), int(blob.generation or 0))
    try:
        info = os.stat(path)
    except OSError:
        return Entry(path, 0, 0) if os.path.islink(path) else None
    return None if stat.S_ISDIR(info.st_mode) else Entry(path, info.st_size, info.st_mtime_ns)


def size_bytes(path: str) -> int | None:
    """Size of a file, or None where there is none."""
    entry = find(path)
    return None if entry is None else entry.size_bytes


def delete(path: str) -> None:
    """Removes a file; one that is gone already is no error."""
    if is_gcs(path):
        with contextlib.suppress(FileNotFoundError), _gcs_errors(path):
            _blob(path).delete()
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def delete_folder(folder: str) -> None:
    """Removes a folder with all that is in it; one that is gone already is no error."""
    if is_gcs(folder):
        for entry in list(walk(folder, lambda _: True)):
            delete(entry.path)
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
        replace: whether an existing file may be replaced; see `PendingFile.commit`.
    """
    return GcsPendingFile(path, replace) if is_gcs(path) else DiskPendingFile(path, scratch, replace)


class PendingFile(abc.ABC):
    """A file being written. Leaving the `with` block, or `abort()`, without `commit()` leaves nothing behind."""

    _file: IO[bytes]

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    @abc.abstractmethod
    def commit(self) -> None:
        """Makes the file visible, whole.

        Raises:
            AlreadyExistsError: it may not replace, and a file with other bytes is there.
        """

    @abc.abstractmethod
    def abort(self) -> None:
        """Throws away what was written; harmless after `commit()`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class DiskPendingFile(PendingFile):
    def __init__(self, path: str, scratch: str, replace: bool) -> None:
        self._path, self._replace = path, replace
        self._temporary: str | None = os.path.join(scratch, f".tmp-{uuid.uuid4().hex}")
        self._file = open(self._temporary, "w+b", buffering=1 << 18)  # noqa: SIM115 - closed by commit or abort

    def write(self, data: bytes | memoryview) -> None:
        with self._named_errors():
            self._file.write(data)

    def commit(self) -> None:
        if self._temporary is None:
            raise ValueError(f"{self._path} is closed already")
        with self._named_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
        if self._replace:
            os.replace(self._temporary, self._path)
        else:
            try:
                _rename_new(self._temporary, self._path)
            except FileExistsError:
                if not filecmp.cmp(self._temporary, self._path, shallow=False):
                    raise AlreadyExistsError(self._path) from None
                os.remove(self._temporary)
        self._temporary = None
        self._file.close()
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY)
        try:
            os.fsync(folder)  # the name too survives a power cut
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """A full disk says so without a name."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # what is still buffered has no place on a full disk
            self._file.close()
        if self._temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._temporary)
            self._temporary = None


def _rename_new(source: str, target: str) -> None:
    """Renames; where a file is already raises FileExistsError, which os.rename would not."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        # A mount without links: the name is taken by an empty file first.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(source, target)
    else:
        os.remove(source)


class GcsPendingFile(PendingFile):
    """Uploads a finished local file: a writer that streams would finalize what it has when it is garbage collected."""

    def __init__(self, path: str, replace: bool) -> None:
        self._path, self._replace = path, replace
        self._file = tempfile.TemporaryFile(prefix="beam_tfr-")  # noqa: SIM115 - has no name, goes with the process

    def commit(self) -> None:
        with _gcs_errors(self._path):
            blob = _blob(self._path)
            try:
                with _gcs_errors(self._path):
                    blob.upload_from_file(
                        self._file,
                        rewind=True,
                        checksum="crc32c",
                        if_generation_match=None if self._replace else 0,
                        content_type="application/octet-stream",
                    )
            except FileExistsError:
                if not self._same_object(blob):
                    raise AlreadyExistsError(self._path) from None
        self._file.close()

    def _same_object(self, blob: Blob) -> bool:
        import google_crc32c

        blob.reload()
        checksum = google_crc32c.Checksum()
        self._file.seek(0)
        while chunk := self._file.read(1 << 20):
            checksum.update(chunk)
        return bool(blob.crc32c == base64.b64encode(checksum.digest()).decode())

    def abort(self) -> None:
        self._file.close()
