"""Reads and writes files on disk."""

import contextlib
import errno
import filecmp
import heapq
import io
import os
import shutil
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import IO, Any

from beam_tfr.storage.backend import AlreadyExistsError, Backend, ChangedError, Entry, PendingFile
from beam_tfr.storage.names import NameRules, try_names

_TRIES = 3  # attempts to read a file that changes during reading
_BUFFER_BYTES = 1 << 18  # 256 KiB
_EFFECTIVE_IDS = os.access in os.supports_effective_ids
_NO_FILE_TO_OPEN = (errno.ENXIO, errno.ENODEV)  # of sockets, and devices without a driver
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # the file system has none


class DiskBackend(Backend):
    """The backend for files on disk; see `Backend`."""

    is_remote = False

    def join(self, folder: str, name: str) -> str:
        return os.path.join(folder, name)

    def complete_path(self, path: str) -> str:
        if "://" in path:
            raise ValueError("only local paths and gs:// are supported")
        if not path:
            return path
        _check_locale()
        try:
            return os.path.abspath(os.path.expanduser(path))
        except FileNotFoundError:
            raise ValueError("the current folder was deleted; use an absolute path") from None

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def walk(
        self,
        folder: str,
        descend: Callable[[str], bool],
        *,
        note_repeat: Callable[[str], object],
        **_: object,
    ) -> Iterator[Entry]:
        return _Walk(descend, note_repeat).list_below(folder)

    def list_names(self, folder: str) -> Iterator[str]:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield f"{entry.name}/" if entry.is_dir() else entry.name

    def find(self, path: str) -> Entry | None:
        try:
            status = os.stat(path)
        except OSError:
            return Entry(path, 0, 0) if os.path.islink(path) else None
        if stat.S_ISDIR(status.st_mode):
            return None
        return Entry(path, status.st_size, status.st_mtime_ns)

    def is_gone(self, path: str, root: str) -> bool:
        target = os.path.realpath(path)  # the target of a link may be on another disk
        folder = os.path.dirname(target)
        if root:
            top = _highest_folder(path, root)
            while folder.startswith(top) and not os.path.isdir(folder):
                folder = os.path.dirname(folder)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            return any(entries) and not os.path.lexists(target)
        return False

    def read_bytes(
        self, path: str, *, max_bytes: int | None, generation: int, cancelled: object
    ) -> bytes:
        for _ in range(_TRIES):
            descriptor, before = _open_file(path, generation)
            try:
                size = before.st_size if max_bytes is None else min(before.st_size, max_bytes + 1)
                data = _read_descriptor(descriptor, size)
                after = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            if len(data) == size and _version(before) == _version(after):
                return data
        raise ChangedError(errno.EBUSY, "it was changed while it was read", path)

    def read_part(self, path: str, begin: int, num_bytes: int, generation: int) -> bytes:
        with os.fdopen(_open_file(path, generation)[0], "rb") as file:
            file.seek(begin)
            return file.read(max(0, num_bytes))

    def open_binary(self, path: str, max_bytes: int | None) -> IO[bytes]:
        return io.BufferedReader(_SameSizeFile(path), _BUFFER_BYTES)

    def create(self, path: str, scratch: str, replace: bool) -> PendingFile:
        return DiskPendingFile(path, scratch, replace)

    def touch(self, path: str, deadline_s: float) -> None:
        os.utime(path)

    def modified(self, path: str) -> float:
        return os.stat(path).st_mtime

    def move(self, source: str, target: str, generation: int) -> None:
        if generation not in (0, os.stat(source).st_mtime_ns):
            raise ChangedError(errno.ESTALE, "it was changed after it was written", source)
        os.replace(source, target)

    def delete(self, path: str, generation: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            if generation == 0 or os.stat(path).st_mtime_ns == generation:
                os.remove(path)

    def name_rules(self, folder: str) -> NameRules:
        return try_names(folder)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def find_link(self, folder: str) -> str:
        waiting = [folder]
        while waiting:
            with contextlib.suppress(FileNotFoundError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        return entry.path
                    if entry.is_dir():
                        waiting.append(entry.path)
        return ""

    def is_writable(self, folder: str) -> bool:
        mode = os.W_OK | os.X_OK
        return os.access(_nearest_above(folder), mode, effective_ids=_EFFECTIVE_IDS)

    def free_bytes(self, folder: str) -> int | None:
        return shutil.disk_usage(_nearest_above(folder)).free

    def make_folder(self, folder: str) -> None:
        missing = []  # no recursion, since trees may be deep
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for name in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another thread has just made it
                os.mkdir(name)

    def remove_folder(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(folder)

    def sync_folder(self, folder: str) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Walk:
    """A walk that lists files, and enters each folder once, however many links lead to it.

    A folder comes before links to it, and links to the same folder are followed in the order of
    their paths, so a folder is always listed under the same path.

    Args:
        descend, note_repeat: see `storage.walk`.
    """

    def __init__(
        self, descend: Callable[[str], bool], note_repeat: Callable[[str], object]
    ) -> None:
        self._descend = descend
        self._note_repeat = note_repeat
        self._entered = set[tuple[int, int]]()
        # folders to list next, last first; trees may be too deep for recursion
        self._folders = list[str]()
        self._links = list[str]()  # a heap

    def list_below(self, folder: str) -> Iterator[Entry]:
        """Yields the files below a folder."""
        self._folders.append(folder)
        while self._folders or self._links:
            path = self._folders.pop() if self._folders else heapq.heappop(self._links)
            if self._enter(path):
                yield from self._list(path)

    def _enter(self, folder: str) -> bool:
        """Whether a folder exists and has not been listed yet."""
        identity = _folder_identity(folder)
        if identity is None:
            return False
        if identity in self._entered:
            self._note_repeat(folder)
            return False
        self._entered.add(identity)
        return True

    def _list(self, folder: str) -> Iterator[Entry]:
        """Yields the files in a folder, and records which folders to list next."""
        folders = []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if not entry.is_dir():
                        status = entry.stat()
                        yield Entry(entry.path, status.st_size, status.st_mtime_ns)
                    elif not self._descend(entry.path):
                        continue
                    elif entry.is_symlink():
                        heapq.heappush(self._links, entry.path)
                    else:
                        folders.append(entry.path)
                except OSError:  # a dangling or circular link; reading it gives the error
                    yield Entry(entry.path, 0, 0)
        folders.sort(reverse=True)
        self._folders += folders


def _check_locale() -> None:
    """Checks that file names are decoded as UTF-8, as on other machines.

    Otherwise keys would differ from those of the same files elsewhere, and some would match no
    file.

    Raises:
        ValueError: file names are decoded in another encoding.
    """
    encoding = sys.getfilesystemencoding()
    if encoding != "utf-8":
        raise ValueError(
            f"names of files are read as {encoding} in this locale, but keys are UTF-8: set "
            "PYTHONUTF8=1 in the environment"
        )


def _folder_identity(folder: str) -> tuple[int, int] | None:
    """Returns the identity of a folder, which is the same through all links."""
    try:
        status = os.stat(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # no folder has such a name
            return None
        raise
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _nearest_above(folder: str) -> str:
    """Returns a folder itself, or the nearest existing folder above it."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder


def _open_file(path: str, generation: int = 0) -> tuple[int, os.stat_result]:
    """Opens a file of the given generation (0: any) for reading; returns its descriptor and status.

    Raises:
        OSError: the file does not exist, is not readable, is not a regular file, or its generation
            differs.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not block
    except OSError as error:
        if error.errno in _NO_FILE_TO_OPEN:
            raise OSError(errno.EINVAL, "it is a socket or a device, not a file", path) from None
        raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and generation in (0, status.st_mtime_ns):
        return descriptor, status
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise ChangedError(errno.ESTALE, "it was changed after it was listed", path)
    raise OSError(errno.EINVAL, f"it is {_describe_kind(status.st_mode)}", path)


def _describe_kind(mode: int) -> str:
    """Describes what is not a regular file."""
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe, not a file: write it to a file first"
    return "a device, not a file"


class _SameSizeFile(io.FileIO):
    """A file that raises ChangedError if it grows while it is read, perhaps without end."""

    def __init__(self, path: str) -> None:
        descriptor, status = _open_file(path)
        super().__init__(descriptor)
        self._path = path
        self._size = status.st_size

    def readinto(self, buffer: Any) -> int:
        num_bytes = super().readinto(buffer)
        if num_bytes and self.tell() > self._size:  # not after a seek beyond the end
            raise ChangedError(errno.EBUSY, "it grew while it was read", self._path)
        return num_bytes


def _read_descriptor(descriptor: int, size: int) -> bytes:
    """Reads the given number of bytes, or fewer at the end of the file.

    A file object would make twice as many system calls, each of which releases the GIL.
    """
    data = os.read(descriptor, size)
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            break
        data += more
    return data


def _version(status: os.stat_result) -> tuple[int, int, int]:
    """Returns values that change when a file is written to, even if its time is set back."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


class DiskPendingFile(PendingFile):
    """A file that is being written on disk: unfinished in `scratch`, then renamed."""

    def __init__(self, path: str, scratch: str, replace: bool) -> None:
        self._path = path
        self._replace = replace
        self._temporary = os.path.join(scratch, f".tmp-{uuid.uuid4().hex}")
        # `commit` or `abort` closes it.
        self._file = open(self._temporary, "w+b", buffering=_BUFFER_BYTES)  # noqa: SIM115

    def write(self, data: bytes | memoryview) -> None:
        with self._named_errors():
            self._file.write(data)

    def commit(self) -> int:
        with self._named_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
        generation = os.fstat(self._file.fileno()).st_mtime_ns
        if self._replace:
            os.replace(self._temporary, self._path)
        elif not self._link_new():
            generation = os.stat(self._path).st_mtime_ns
        self.abort()  # removes the unfinished file if it was linked or is not needed
        # Now the name also survives a power failure.
        DiskBackend().sync_folder(os.path.dirname(self._path))
        return generation

    def _link_new(self) -> bool:
        """Gives the file its name; returns False if a file with equal bytes already has the name.

        Raises:
            AlreadyExistsError: a file with different bytes already has the name.
        """
        try:
            _link(self._temporary, self._path)
        except FileExistsError:
            if filecmp.cmp(self._temporary, self._path, shallow=False):
                return False
            raise AlreadyExistsError(self._path) from None
        return True

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Adds the path to errors, since the error for a full disk lacks the path."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # a full disk has no room for the rest of the buffer
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._temporary)


def _highest_folder(path: str, root: str) -> str:
    """Returns the folder, with a slash, below which missing folders are certainly missing.

    This is the root or, for a path outside an existing root, the parent of the root, since
    masks are often stored next to their images.
    """
    is_below = os.path.normpath(path).startswith(os.path.join(os.path.normpath(root), ""))
    root = os.path.realpath(root)
    if is_below or not os.path.isdir(root):
        return os.path.join(root, "")
    return os.path.join(os.path.dirname(root), "")


def _link(source: str, target: str) -> None:
    """Gives a file a second name; renames the file if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # reserves the name first
        os.replace(source, target)
