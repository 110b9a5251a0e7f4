"""Defines problems, the results for shards, and the report on a dataset."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import operator
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from beam_tfr.console.terminal import Printable, counted
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.schema.plan import Counts

MAX_PROBLEMS = 100  # problems to keep; further problems are only counted


class ProblemKind(enum.StrEnum):
    """The kinds of problems, in the order of a report.

    docs/verifying.md explains each kind.
    """

    MISSING = "missing"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    FOREIGN = "foreign"
    RECORD = "record"
    CONTENTS = "contents"
    REPEATED = "repeated"
    MANIFEST = "manifest"
    SOURCE_CHANGED = "source-changed"
    SOURCE_GONE = "source-gone"
    SOURCE_NEW = "source-new"
    SOURCE_UNREADABLE = "source-unreadable"


SOURCE_KINDS = (
    ProblemKind.SOURCE_CHANGED,
    ProblemKind.SOURCE_GONE,
    ProblemKind.SOURCE_NEW,
    ProblemKind.SOURCE_UNREADABLE,
)


class Problem(NamedTuple):
    """A difference between a dataset and its manifest.

    Attributes:
        kind: a `ProblemKind`.
        file: name in the dataset's folder; for a new source, its path.
        message: the actual value and the expected value.
        record: number of the record, from 0; None for the file as a whole.
        offset: offset of the record in the uncompressed stream, in bytes.
    """

    kind: str
    file: str
    message: str
    record: int | None = None
    offset: int | None = None

    @classmethod
    def of_unreadable(cls, file: str, error: OSError) -> Problem:
        """Returns the problem for a file that cannot be read."""
        if isinstance(error, FileNotFoundError):
            return cls(ProblemKind.MISSING, file, "is missing")
        reason = error.strerror or error
        return cls(ProblemKind.UNREADABLE, file, f"cannot be read: {reason}")

    def __str__(self) -> str:
        record = "" if self.record is None else f", record {self.record}"
        offset = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.file}{record}{offset}: {self.message}"


class Section(enum.IntEnum):
    """The sections of a report, in order."""

    FILES = enum.auto()
    SHARDS = enum.auto()
    REPEATED_KEYS = enum.auto()
    TOTALS = enum.auto()
    NEW_SOURCES = enum.auto()


class _SortedProblem(NamedTuple):
    section: Section
    place: tuple[Any, ...]
    problem: Problem


class Problems:
    """The first few problems, and the total number of problems of each kind.

    These problems come first in the order of the dataset, whichever threads find them.

    Attributes:
        counts: kind of problem -> total number of such problems.
    """

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._first: list[_SortedProblem] = []

    def add(self, problem: Problem, section: Section, *place: int | str) -> None:
        """Adds a problem.

        Args:
            problem: the problem.
            section: the section of the report that lists the problem.
            place: sort key of the problem in its section; problems with equal keys are added in
                order.
        """
        self.counts[problem.kind] += 1
        self._merge_first([_SortedProblem(section, place, problem)])

    def merge(self, other: Problems) -> None:
        """Adds the problems found in another part."""
        self.counts.update(other.counts)
        self._merge_first(other._first)

    def _merge_first(self, problems: list[_SortedProblem]) -> None:
        by_place = operator.attrgetter("section", "place")
        self._first = sorted(self._first + problems, key=by_place)[:MAX_PROBLEMS]

    @property
    def kinds(self) -> dict[str, int]:
        """The total number of problems of each kind, as kind -> number."""
        return {kind.value: self.counts[kind] for kind in ProblemKind if self.counts[kind]}

    @property
    def first(self) -> tuple[Problem, ...]:
        """The first `MAX_PROBLEMS`."""
        return tuple(kept.problem for kept in self._first)


class VerifyTask(NamedTuple):
    """A shard to verify.

    Attributes:
        position: number of the shard among all shards of the dataset.
        split: name of its split.
        entry: file of the shard.
    """

    position: int
    split: str
    entry: ShardEntry


@dataclasses.dataclass(slots=True)
class TaskResult:
    """The result of verifying a shard.

    Attributes:
        task: the shard.
        num_records: number of records read.
        num_bytes: number of bytes read from the file.
        record_bytes: number of bytes of the records that were read, uncompressed.
        problems: problems of the shard and of its sources.
        num_problems: number of problems of the shard, without those of its sources.
        num_sources: number of records compared with their sources.
        key_hashes: 16 bytes for each record.
        source_hashes, source_labels: see `split_notes.SourceHashes`; empty if no file is read.
        labels: class id -> number of records.
        pixels: number of stored pixels, from the heights and widths that the records state.
        source_sizes: see `schema.plan.ShardInfo`.
        counted: the counts of boxes and masks only.
        records_sha256: see `schema.plan.ShardInfo`; empty until the shard has been read to its end
            without a wrong checksum.
    """

    task: VerifyTask
    num_records: int = 0
    num_bytes: int = 0
    record_bytes: int = 0
    problems: Problems = dataclasses.field(default_factory=Problems)
    num_problems: int = 0
    num_sources: int = 0
    key_hashes: bytearray = dataclasses.field(default_factory=bytearray)
    source_hashes: bytearray = dataclasses.field(default_factory=bytearray)
    source_labels: bytearray = dataclasses.field(default_factory=bytearray)
    labels: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    pixels: int = 0
    source_sizes: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    counted: Counts = dataclasses.field(default_factory=Counts)
    records_sha256: str = ""

    def add(self, problem: Problem) -> None:
        """Adds a problem of the shard or of one of its sources."""
        if problem.kind not in SOURCE_KINDS:
            self.num_problems += 1
        self.problems.add(problem, Section.SHARDS, self.task.position)


def list_tasks(manifest: Manifest) -> list[VerifyTask]:
    """Lists the shards of a dataset, in the order of the manifest."""
    tasks: list[VerifyTask] = []
    for split_name, split in manifest.splits.items():
        for entry in split.shards:
            tasks.append(VerifyTask(len(tasks), split_name, entry))
    return tasks


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Report(Printable):
    """The result of `verify`, with the fields of its JSON object.

    Attributes:
        folder: folder of the dataset.
        dataset_digest: from the manifest.
        counts: "shards" in the manifest, "records_read", "bytes_read", "problems", and
            "sources_read", which is the number of records compared with their sources, or None if
            this was not requested.
        kinds: kind of problem -> total number of such problems; reading a shard stops after about
            `MAX_SHARD_PROBLEMS`.
        problems: the first `MAX_PROBLEMS` problems, in the order of the dataset.
        broken: names of the shard files with problems.
        notes: sentences about what is worth knowing but is not a problem: about the splits (see
            `split_notes`), records that take far more memory than their files suggest, and patterns
            in `exclude` that match nothing.
        seconds: time taken.
    """

    folder: str
    dataset_digest: str
    counts: Mapping[str, Any]
    kinds: Mapping[str, int]
    problems: tuple[Problem, ...]
    broken: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.kinds

    def lines(self, *, ok: bool = True) -> Iterator[str]:
        """Yields the report as lines, without its problems.

        Args:
            ok: whether everything that the report does not cover is OK too.
        """
        records = counted(self.counts["records_read"], "record")
        shards = counted(self.counts["shards"], "shard")
        rate = self.counts["records_read"] / max(self.seconds, 1e-3)
        yield (
            f"{self.folder}: {records} in {shards}, {self.counts['bytes_read']:,} bytes, "
            f"{self.seconds:.1f} s, {rate:,.0f} records/s"
        )
        if self.counts["sources_read"] is not None:
            yield self._sources_line()
        for note in self.notes:
            yield f"note: {note}"
        if self.ok:
            matches = "the dataset matches its manifest"
            yield f"OK: {matches}" if ok else matches
        else:
            yield counted(self.counts["problems"], "problem")

    def _sources_line(self) -> str:
        line = f"sources: {self.counts['sources_read']:,} compared"
        for kind in SOURCE_KINDS:
            line += f", {self.kinds.get(kind, 0):,} {kind.removeprefix('source-')}"
        return line

    def as_json(self) -> dict[str, Any]:
        """Returns the report as JSON values; docs/verifying.md explains the fields."""
        problems = [problem._asdict() for problem in self.problems]
        seconds = round(self.seconds, 3)
        return {"ok": self.ok, **vars(self), "problems": problems, "seconds": seconds}

    @classmethod
    def from_json(cls, text: bytes) -> Report:
        """Returns the report that `as_json` turned into JSON values."""
        fields = json.loads(text)
        del fields["ok"]
        fields["problems"] = tuple(Problem(**problem) for problem in fields["problems"])
        fields["broken"] = tuple(fields["broken"])
        fields["notes"] = tuple(fields["notes"])
        return cls(**fields)
