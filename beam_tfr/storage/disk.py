"""Files on a disk; see the package for what each function does."""

import contextlib
import errno
import filecmp
import os
import stat
import uuid
from collections.abc import Callable, Iterator

from beam_tfr.storage.base import AlreadyExistsError, ChangedError, Entry, PendingFile

_TRIES = 3  # to read a file that is changed meanwhile


def walk(folder: str, descend: Callable[[str], bool]) -> Iterator[Entry]:
    """`storage.walk` on a disk."""
    # Folders to list, each with the identities of its ancestors; no recursion, since trees may be
    # deep.
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
                    if not entry.is_dir():
                        info = entry.stat()
                        yield Entry(entry.path, info.st_size, info.st_mtime_ns)
                    elif descend(entry.path):
                        waiting.append((entry.path, above | {identity}))
                except OSError:  # a dangling or circular link; reading it gives the error
                    yield Entry(entry.path, 0, 0)


def find(path: str) -> Entry | None:
    """`storage.find` on a disk."""
    try:
        info = os.stat(path)
    except OSError:
        return Entry(path, 0, 0) if os.path.islink(path) else None
    return None if stat.S_ISDIR(info.st_mode) else Entry(path, info.st_size, info.st_mtime_ns)


def is_gone(path: str) -> bool:
    """`storage.is_gone` on a disk."""
    path = os.path.realpath(path)  # the target of a link may be on another disk
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(path)) as entries:
        return any(entries) and not os.path.lexists(path)
    return False


def open_file(path: str, generation: int = 0) -> tuple[int, os.stat_result]:
    """Opens a file of this generation (0: any) for reading; returns its descriptor and its status.

    Raises:
        OSError: it does not exist, is not readable, is not a regular file, or has another
            generation.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not block
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and generation in (0, status.st_mtime_ns):
        return descriptor, status
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise ChangedError(errno.ESTALE, "it was changed after it was listed", path)
    raise OSError(
        errno.EINVAL,
        "it is a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file",
        path,
    )


def read_part(path: str, begin: int, num_bytes: int, generation: int) -> bytes:
    """`storage.read_part` on a disk."""
    with os.fdopen(open_file(path, generation)[0], "rb") as file:
        file.seek(begin)
        return file.read(max(0, num_bytes))


def read_bytes(path: str, max_bytes: int | None, generation: int) -> bytes:
    """`storage.read_bytes` on a disk."""
    for _ in range(_TRIES):
        descriptor, before = open_file(path, generation)
        # without a file object, which makes twice as many calls, each of which releases the GIL
        try:
            size = before.st_size if max_bytes is None else min(before.st_size, max_bytes + 1)
            data = os.read(descriptor, size)
            while len(data) < size and (more := os.read(descriptor, size - len(data))):
                data += more
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if len(data) == size and _version(before) == _version(after):
            return data
    raise ChangedError(errno.EBUSY, "it was changed while it was read", path)


def _version(status: os.stat_result) -> tuple[int, int, int]:
    """What differs after a file was written to, even if its modification time was set back."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def move(source: str, target: str, generation: int) -> None:
    """`storage.move` on a disk."""
    if generation not in (0, os.stat(source).st_mtime_ns):
        raise ChangedError(errno.ESTALE, "it was changed after it was written", source)
    os.replace(source, target)


def sync_folder(folder: str) -> None:
    """`storage.sync_folder` on a disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete(path: str, generation: int) -> None:
    """`storage.delete` on a disk."""
    with contextlib.suppress(FileNotFoundError):
        if generation == 0 or os.stat(path).st_mtime_ns == generation:
            os.remove(path)


class DiskPendingFile(PendingFile):
    """A file being written on a disk: unfinished in `scratch`, then renamed."""

    def __init__(self, path: str, scratch: str, replace: bool) -> None:
        self._path = path
        self._replace = replace
        self._temporary = os.path.join(scratch, f".tmp-{uuid.uuid4().hex}")
        self._file = open(self._temporary, "w+b", buffering=1 << 18)  # noqa: SIM115 - closed by commit or abort

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
        else:
            try:
                _link(self._temporary, self._path)
            except FileExistsError:
                if not filecmp.cmp(self._temporary, self._path, shallow=False):
                    raise AlreadyExistsError(self._path) from None
                generation = os.stat(self._path).st_mtime_ns
        self.abort()  # removes the unfinished file, if it was linked or not needed
        sync_folder(os.path.dirname(self._path))  # so that the name survives a power cut, too
        return generation

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Adds the path, which the error of a full disk lacks."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # a full disk has no room for the rest of the buffer
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._temporary)


def _link(source: str, target: str) -> None:
    """Gives a file another name; renames it where there are no links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # takes the name first
        os.replace(source, target)
