"""Defines the interface, types and errors that disks and gs:// have in common."""

import abc
import contextlib
from collections.abc import Callable, Iterator
from typing import IO, ClassVar, NamedTuple

from beam_tfr.storage.names import NameRules

GCS = "gs://"


def split_gcs(path: str) -> tuple[str, str]:
    """Splits the path of an object into (bucket, name)."""
    bucket, _, name = path[len(GCS) :].partition("/")
    return bucket, name


class Entry(NamedTuple):
    """A listed file.

    On gs://, it has the generation and CRC-32C of the object; on disk, its generation is the
    modification time in ns.

    An image in an archive has the path to which it would be unpacked, its place (see
    `inputs.archives`), and the reason why it cannot be read, if there is one.
    """

    path: str
    size_bytes: int
    generation: int
    crc32c: int = 0
    place: str = ""
    problem: str = ""

    def __repr__(self) -> str:
        return f"<{self.size_bytes} bytes of {self.path}>"  # for messages

    @property
    def name(self) -> str:
        """The name of the file in its folder."""
        return self.path.rpartition("/")[2]


class AlreadyExistsError(Exception):
    """A file that must not be replaced already exists with different bytes."""


class ChangedError(OSError):
    """A file or object changed after it was listed."""


class PendingFile(contextlib.AbstractContextManager["PendingFile"]):
    """A file that is being written; without `commit()`, nothing of it remains."""

    _file: IO[bytes]
    closed = False  # pyarrow asks for it

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    @abc.abstractmethod
    def commit(self) -> int:
        """Makes the whole file visible; returns its generation, as in `Entry`.

        Raises:
            AlreadyExistsError: a file that must not be replaced exists with different bytes.
        """

    def abort(self) -> None:
        """Discards the written bytes; does nothing after `commit()`."""
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.abort()


class Backend(abc.ABC):
    """A store of files: a disk or gs://.

    Each method implements the function in `beam_tfr.storage` with its name. A generation of 0
    stands for any generation.

    Attributes:
        is_remote: whether each request waits for a network, so that parallel requests are faster.
    """

    is_remote: ClassVar[bool]

    @abc.abstractmethod
    def join(self, folder: str, name: str) -> str: ...

    @abc.abstractmethod
    def complete_path(self, path: str) -> str:
        """Makes a path from a user absolute.

        Raises:
            ValueError: the path names no file.
        """

    @abc.abstractmethod
    def real_path(self, path: str) -> str: ...

    @abc.abstractmethod
    def walk(
        self,
        folder: str,
        descend: Callable[[str], bool],
        *,
        prefix: str,
        deep: bool,
        start: str,
        end: str,
        note_repeat: Callable[[str], object],
    ) -> Iterator[Entry]: ...

    @abc.abstractmethod
    def list_names(self, folder: str) -> Iterator[str]: ...

    @abc.abstractmethod
    def find(self, path: str) -> Entry | None: ...

    @abc.abstractmethod
    def is_gone(self, path: str, root: str) -> bool: ...

    @abc.abstractmethod
    def read_bytes(
        self,
        path: str,
        *,
        max_bytes: int | None,
        generation: int,
        cancelled: Callable[[], bool],
    ) -> bytes: ...

    @abc.abstractmethod
    def read_part(self, path: str, begin: int, num_bytes: int, generation: int) -> bytes: ...

    @abc.abstractmethod
    def open_binary(self, path: str, max_bytes: int | None) -> IO[bytes]:
        """Opens a file at its start; the part after `max_bytes` may be missing."""

    @abc.abstractmethod
    def create(self, path: str, scratch: str, replace: bool) -> PendingFile: ...

    @abc.abstractmethod
    def touch(self, path: str, deadline_s: float) -> None: ...

    @abc.abstractmethod
    def modified(self, path: str) -> float: ...

    @abc.abstractmethod
    def move(self, source: str, target: str, generation: int) -> None: ...

    @abc.abstractmethod
    def delete(self, path: str, generation: int) -> None: ...

    @abc.abstractmethod
    def name_rules(self, folder: str) -> NameRules: ...

    # gs:// has no folders: a name with slashes needs none above it.

    def is_folder(self, path: str) -> bool:
        return False

    def is_link(self, path: str) -> bool:
        return False

    def find_link(self, folder: str) -> str:
        return ""

    def is_writable(self, folder: str) -> bool:
        return True  # only a request could tell

    def free_bytes(self, folder: str) -> int | None:
        return None

    def make_folder(self, folder: str) -> None:  # noqa: B027
        pass

    def remove_folder(self, folder: str) -> None:  # noqa: B027
        pass

    def sync_folder(self, folder: str) -> None:  # noqa: B027
        pass
