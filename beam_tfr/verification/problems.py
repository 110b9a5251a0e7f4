"""The problems that `verify` finds, collected from many threads in the order of the dataset."""

from __future__ import annotations

import bisect
import reprlib
import threading
from typing import Any, NamedTuple

MAX_PROBLEMS = 100  # kept; the others are only counted
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 100


class Problem(NamedTuple):
    """Something that is not as the manifest promises.

    Attributes:
        file: name in the dataset's folder.
        message: what was found and what was expected.
        record: number of the record, or of the line of rejects.jsonl, from 0; None for the file as a whole.
        offset: of the record in the uncompressed stream, or of the line in its file, in bytes.
    """

    file: str
    message: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        record = "" if self.record is None else f", record {self.record}"
        offset = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.file}{record}{offset}: {self.message}"


class Problems:
    """The first problems in the order of the dataset, whichever thread finds them, and the number of all."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._kept: list[tuple[int, int, Problem]] = []

    def add(self, position: int, problem: Problem) -> None:
        """Takes a problem of the part of the dataset at a position; those of one part come in order."""
        with self._lock:
            self.count += 1
            bisect.insort(self._kept, (position, self.count, problem))
            del self._kept[MAX_PROBLEMS:]

    @property
    def first(self) -> tuple[Problem, ...]:
        """The first `MAX_PROBLEMS`."""
        return tuple(problem for _, _, problem in self._kept)


def shown(value: Any) -> str:
    """An untrusted value for a message: short, on one line, without control characters."""
    if isinstance(value, bytes):
        value = value[:200].decode("utf-8", "replace")
    return _repr.repr(value)


def unreadable(error: OSError) -> str:
    """The problem with a file that cannot be read."""
    return "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
