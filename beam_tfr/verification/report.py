"""What `verify` finds: problems, the result of a shard, and the report on the dataset."""

from __future__ import annotations

import collections
import dataclasses
import json
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from beam_tfr.console.terminal import Printable, counted
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.schema.plan import Counts

MAX_PROBLEMS = 100  # kept; the others are only counted
MAX_LINE_BYTES = 1 << 20  # 1 MiB, of rejects.jsonl
# A closed list, so that problems can be counted and compared; docs/verifying.md says what each
# means.
KINDS = (
    "missing",
    "unreadable",
    "damaged",
    "foreign",
    "record",
    "contents",
    "repeated",
    "manifest",
)
SOURCE_KINDS = ("source-changed", "source-gone", "source-new", "source-unreadable")
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 100


class Problem(NamedTuple):
    """A difference between a dataset and its manifest.

    Attributes:
        kind: one of `KINDS` or `SOURCE_KINDS`.
        file: name in the dataset's folder; of a new source, its path.
        message: what was found and what was expected.
        record: number of the record, from 0; None for the file as a whole.
        offset: offset of the record in the uncompressed stream, in bytes.
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
    """The first problems in dataset order, whichever thread finds them, and the number of each
    kind."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._kept: list[tuple[int, int | str, Problem]] = []

    def add(self, position: int, problem: Problem, order: int | str = 0) -> None:
        """Adds a problem of the part of the dataset at a position; those of one part and order
        arrive in order."""
        self.counts[problem.kind] += 1
        self._keep([(position, order, problem)])

    def merge(self, other: Problems) -> None:
        """Adds the problems of other parts."""
        self.counts.update(other.counts)
        self._keep(other._kept)

    def _keep(self, problems: list[tuple[int, int | str, Problem]]) -> None:
        self._kept = sorted([*self._kept, *problems], key=lambda kept: kept[:2])[:MAX_PROBLEMS]

    @property
    def kinds(self) -> dict[str, int]:
        """Kind of problem -> number of all such problems."""
        return {kind: self.counts[kind] for kind in KINDS + SOURCE_KINDS if self.counts[kind]}

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


class Task(NamedTuple):
    """A shard to read: its number among all shards of the dataset, its split and its file."""

    position: int
    split: str
    entry: ShardEntry


@dataclasses.dataclass(slots=True)
class ShardFound:
    """The result of reading a shard.

    Attributes:
        task: the shard.
        done: records read.
        num_bytes: bytes of the file read.
        problems: its problems, and those of its sources.
        num_problems: number of problems, without those of its sources.
        sources: number of records compared with their sources.
        keys: 16 bytes for each record.
        labels: class id -> records.
        pixels: stored pixels, by the records' own heights and widths.
        source_sizes: see `schema.plan.ShardInfo`.
        boxes: counts of boxes alone.
        records_sha256: see `schema.plan.ShardInfo`; empty until the shard was read to its end
            without a wrong checksum.
    """

    task: Task
    done: int = 0
    num_bytes: int = 0
    problems: Problems = dataclasses.field(default_factory=Problems)
    num_problems: int = 0
    sources: int = 0
    keys: bytearray = dataclasses.field(default_factory=bytearray)
    labels: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    pixels: int = 0
    source_sizes: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    boxes: Counts = dataclasses.field(default_factory=Counts)
    records_sha256: str = ""

    def add(self, problem: Problem) -> None:
        self.num_problems += problem.kind in KINDS
        self.problems.add(self.task.position, problem)


def tasks_of(manifest: Manifest) -> list[Task]:
    """The shards of a dataset."""
    shards = ((name, entry) for name, split in manifest.splits.items() for entry in split.shards)
    return [Task(position, split, entry) for position, (split, entry) in enumerate(shards)]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Report(Printable):
    """The result of `verify`, with the fields of its JSON object.

    Attributes:
        folder: folder of the dataset.
        dataset_digest: from the manifest.
        counts: "shards" in the manifest, "records_read", "bytes_read", "problems", and
            "sources_read", the records compared with their source files; None if not requested.
        kinds: kind of problem -> number of all such problems; reading stops after about
            `MAX_SHARD_PROBLEMS` of one shard.
        problems: the first `MAX_PROBLEMS`, in the order of the dataset.
        broken: names of the shard files with problems.
        seconds: time taken.
    """

    folder: str
    dataset_digest: str
    counts: Mapping[str, Any]
    kinds: Mapping[str, int]
    problems: tuple[Problem, ...]
    broken: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.kinds

    def lines(self) -> Iterator[str]:
        """Yields the report as lines, without its problems."""
        rate = self.counts["records_read"] / max(self.seconds, 1e-3)
        read = f"{counted(self.counts['records_read'], 'record')} in {counted(self.counts['shards'], 'shard')}"
        took = f"{self.counts['bytes_read']:,} bytes, {self.seconds:.1f} s, {rate:,.0f} records/s"
        yield f"{self.folder}: {read}, {took}"
        if self.counts["sources_read"] is not None:
            counts = ", ".join(
                f"{self.kinds.get(kind, 0):,} {kind.removeprefix('source-')}"
                for kind in SOURCE_KINDS
            )
            yield f"sources: {self.counts['sources_read']:,} compared, {counts}"
        yield (
            "OK: the dataset matches its manifest"
            if self.ok
            else counted(self.counts["problems"], "problem")
        )

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values; docs/verifying.md explains the fields."""
        problems = [problem._asdict() for problem in self.problems]
        return {
            "ok": self.ok,
            **vars(self),
            "problems": problems,
            "seconds": round(self.seconds, 3),
        }

    @classmethod
    def from_json(cls, text: bytes) -> Report:
        """The report of such a JSON object."""
        fields = json.loads(text)
        problems = tuple(Problem(**problem) for problem in fields["problems"])
        del fields["ok"]
        return cls(**{**fields, "problems": problems, "broken": tuple(fields["broken"])})
