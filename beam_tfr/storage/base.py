"""Listed files, errors, and files being written, for disk and gs://."""

from __future__ import annotations

import abc
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

READ_AHEAD = 64  # files read at a time


class Entry(NamedTuple):
    """A listed file, with its generation (gs://) or modification time in ns (disk)."""

    path: str
    size_bytes: int
    generation: int


class Access(NamedTuple):
    """The account and the project for requests to gs://.

    Attributes:
        project: of the client; empty for that of the credentials.
        user_project: billed for requests to requester-pays buckets; empty for none.
        impersonate: service accounts, each impersonating the next; the last one makes the requests.
    """

    project: str = ""
    user_project: str = ""
    impersonate: tuple[str, ...] = ()


class AlreadyExistsError(Exception):
    """A file that must not be replaced exists with other bytes."""


class ChangedError(OSError):
    """A file or object changed after it was listed."""


class PendingFile(abc.ABC):
    """A file being written; nothing of it remains without `commit()`."""

    _file: IO[bytes]

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    @abc.abstractmethod
    def commit(self) -> None:
        """Makes the whole file visible.

        Raises:
            AlreadyExistsError: it must not replace the file that is there, and that has other bytes.
        """

    @abc.abstractmethod
    def abort(self) -> None:
        """Discards what was written; does nothing after `commit()`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()
