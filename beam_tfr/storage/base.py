"""Types shared by disk and gs://: listed files, errors, files being written."""

import abc
import contextlib
from typing import IO, NamedTuple

GCS = "gs://"


def split_gcs(path: str) -> tuple[str, str]:
    """(bucket, name) of an object."""
    bucket, _, name = path[len(GCS) :].partition("/")
    return bucket, name


class Entry(NamedTuple):
    """A listed file, with its generation and CRC-32C (gs://), or modification time in ns (disk).

    An image in an archive has the path that it would be unpacked to, its place (see
    `inputs.archives`), and the problem that keeps it from being read, if there is one.
    """

    path: str
    size_bytes: int
    generation: int
    crc32c: int = 0
    place: str = ""
    problem: str = ""

    def __repr__(self) -> str:
        return f"<{self.size_bytes} bytes of {self.path}>"  # as messages show it

    @property
    def name(self) -> str:
        """The name of the file in its folder."""
        return self.path.rpartition("/")[2]


class AlreadyExistsError(Exception):
    """A file that must not be replaced exists with other bytes."""


class ChangedError(OSError):
    """A file or object changed after it was listed."""


class PendingFile(contextlib.AbstractContextManager["PendingFile"]):
    """A file being written; nothing of it remains without `commit()`."""

    _file: IO[bytes]
    closed = False  # pyarrow asks

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    @abc.abstractmethod
    def commit(self) -> int:
        """Makes the whole file visible; returns its generation, as `Entry` has it.

        Raises:
            AlreadyExistsError: a file that must not be replaced exists, with other bytes.
        """

    def abort(self) -> None:
        """Discards what was written; does nothing after `commit()`."""
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.abort()
