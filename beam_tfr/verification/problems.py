"""The problems that `verify` finds, collected in the order of the dataset."""

from __future__ import annotations

import collections
import reprlib
from typing import Any, NamedTuple

MAX_PROBLEMS = 100  # kept; the others are only counted
MAX_LINE_BYTES = 1 << 20  # 1 MiB, of rejects.jsonl
# A closed list, so that problems can be counted and compared; docs/verifying.md says what each means.
KINDS = ("missing", "unreadable", "damaged", "foreign", "record", "contents", "repeated", "manifest")
SOURCE_KINDS = ("source-changed", "source-gone", "source-new", "source-unreadable")
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 100


class Problem(NamedTuple):
    """A difference between a dataset and its manifest.

    Attributes:
        kind: one of `KINDS` or `SOURCE_KINDS`.
        file: name in the dataset's folder; of a new source, its path.
        message: what was found and what was expected.
        record: number of the record, or of the line of rejects.jsonl, from 0; None for the file as a whole.
        offset: offset of the record in the uncompressed stream, or of the line in its file, in bytes.
    """

    kind: str
    file: str
    message: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        record = "" if self.record is None else f", record {self.record}"
        offset = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.file}{record}{offset}: {self.message}"


class Problems:
    """The first problems in dataset order, whichever thread finds them, and the number of each kind."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._kept: list[tuple[int, int, Problem]] = []

    def add(self, position: int, problem: Problem, order: int = 0) -> None:
        """Adds a problem of the part of the dataset at a position; those of one part and order arrive in order."""
        self.counts[problem.kind] += 1
        self._keep([(position, order, problem)])

    def merge(self, other: Problems) -> None:
        """Adds the problems of other parts."""
        self.counts.update(other.counts)
        self._keep(other._kept)

    def _keep(self, problems: list[tuple[int, int, Problem]]) -> None:
        self._kept = sorted([*self._kept, *problems], key=lambda kept: kept[:2])[:MAX_PROBLEMS]

    @property
    def first(self) -> tuple[Problem, ...]:
        """The first `MAX_PROBLEMS`."""
        return tuple(problem for _, _, problem in self._kept)


def shown(value: Any) -> str:
    """An untrusted value for a message: short, on one line, without control characters."""
    if isinstance(value, bytes):
        value = value[:200].decode("utf-8", "replace")
    return _repr.repr(value)


def unreadable(file: str, error: OSError) -> Problem:
    """The problem with a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return Problem("missing", file, "is missing")
    return Problem("unreadable", file, f"cannot be read: {error.strerror or error}")
