"""What `verify` finds wrong: problems, told for a person, collected from many threads in one order."""

from __future__ import annotations

import bisect
import os
import reprlib
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from beam_tfr import storage

MAX_PROBLEMS = 100  # kept; all are counted
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 100


class Problem(NamedTuple):
    """Something that is not as the manifest promises.

    Attributes:
        file: name in the dataset's folder.
        record: number of the record, or of the line of rejects.jsonl, 0-based; None for the file as a whole.
        offset: in bytes, of that record in the uncompressed stream, or of that line in its file.
        message: what was found and what was expected.
    """

    file: str
    record: int | None
    offset: int | None
    message: str

    def __str__(self) -> str:
        record = "" if self.record is None else f", record {self.record}"
        offset = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.file}{record}{offset}: {self.message}"


Tell = Callable[[Problem], None]


class Problems:
    """The first problems in the order of the dataset, whichever thread finds which first, and the number of all."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._kept: list[tuple[int, int, Problem]] = []

    def at(self, position: int) -> Tell:
        """What to call with the problems of the part of the dataset that stands there, in their order."""

        def tell(problem: Problem) -> None:
            with self._lock:
                self.count += 1
                bisect.insort(self._kept, (position, self.count, problem))
                del self._kept[MAX_PROBLEMS:]

        return tell

    def first(self) -> tuple[Problem, ...]:
        return tuple(problem for _, _, problem in self._kept)


def shown(value: Any) -> str:
    """A value for a message: short, in one line, without control characters, however hostile it is."""
    if isinstance(value, bytes):
        value = value[:200].decode("utf-8", "replace")
    return _repr.repr(value)


def unreadable(error: OSError) -> str:
    return "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"


def leads_outside(folder: str, file: str) -> str | None:
    """The problem with a file that is a link to somewhere else."""
    if storage.is_gcs(folder):
        return None
    root, target = os.path.realpath(folder), os.path.realpath(storage.join(folder, file))
    return None if os.path.dirname(target) == root else f"is a link that leads out of the folder, to {shown(target)}"
