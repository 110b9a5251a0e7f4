"""What disk and gs:// have in common: paths, listed files, errors, files being written."""

from __future__ import annotations

import abc
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

GCS = "gs://"
READ_AHEAD = 64  # files that are read at a time


class Entry(NamedTuple):
    """A listed file: its path, size in bytes and generation (gs://) or modification time in ns (disk)."""

    path: str
    size_bytes: int
    generation: int


class Access(NamedTuple):
    """As whom gs:// is asked, and who pays.

    Attributes:
        project: of the client; empty: that of the credentials.
        user_project: pays for requests to buckets whose requesters pay; empty: nobody.
        impersonate: service accounts, each acting as the next; the last one asks. Empty: the account itself.
    """

    project: str = ""
    user_project: str = ""
    impersonate: tuple[str, ...] = ()


class AlreadyExistsError(Exception):
    """A file that must not exist, or not have changed, is there with other bytes."""


class ChangedError(OSError):
    """An object is no longer of the generation that was asked for."""


class ListError(Exception):
    """A bucket or folder that is not there or may not be listed."""


def is_gcs(path: str) -> bool:
    return path.startswith(GCS)


class PendingFile(abc.ABC):
    """A file being written. Leaving the `with` block, or `abort()`, without `commit()` leaves nothing behind."""

    _file: IO[bytes]

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    @abc.abstractmethod
    def commit(self) -> None:
        """Makes the file visible, whole.

        Raises:
            AlreadyExistsError: it may not replace what is there, and that has other bytes.
        """

    @abc.abstractmethod
    def abort(self) -> None:
        """Throws away what was written; harmless after `commit()`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()
