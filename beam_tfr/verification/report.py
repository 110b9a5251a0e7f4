"""The report of `verify`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfr.console.terminal import counted
from beam_tfr.verification.problems import Problem


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """The result of `verify`.

    Attributes:
        folder: folder of the dataset.
        problems: the first `MAX_PROBLEMS`, in the order of the dataset.
        kinds: kind of problem -> number of all such problems; reading stops after about `MAX_SHARD_PROBLEMS` of one
            shard.
        broken: names of the shard files with problems.
        unread: names of the shard files that were not read, because of `sample`.
        examples: records read.
        shards: shard files in the manifest.
        num_bytes: bytes of shard files read.
        sources: number of records compared with their source files; None if not requested.
        seconds: time taken.
        dataset_digest: from the manifest.
        contents: "rows" if the contents were compared with the records, "checksums" if only their files were, because
            pyarrow is not installed, "none" for a dataset of an earlier version.
    """

    folder: str
    problems: tuple[Problem, ...]
    kinds: Mapping[str, int]
    broken: tuple[str, ...]
    unread: tuple[str, ...]
    examples: int
    shards: int
    num_bytes: int
    sources: int | None
    seconds: float
    dataset_digest: str
    contents: str

    @property
    def ok(self) -> bool:
        return not self.kinds

    @property
    def num_problems(self) -> int:
        return sum(self.kinds.values())

    def __repr__(self) -> str:
        found = "OK" if self.ok else counted(self.num_problems, "problem")
        read = counted(self.shards - len(self.unread), "shard")
        return f"<{self.folder}: {found}; {counted(self.examples, 'record')} in {read}, {self.seconds:.1f} s>"

    def lines(self) -> Iterator[str]:
        """Yields the report as printable lines, without its problems."""
        read = self.shards - len(self.unread)
        rate = self.examples / max(self.seconds, 1e-3)
        yield (
            f"{self.folder}: {counted(self.examples, 'record')} in {counted(read, 'shard')}, "
            f"{self.num_bytes:,} bytes, {self.seconds:.1f} s, {rate:,.0f} records/s"
        )
        if self.sources is not None:
            kinds = {kind: self.kinds.get(f"source-{kind}", 0) for kind in ("changed", "gone", "unreadable")}
            found = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
            new = "not looked for" if self.unread else f"{self.kinds.get('source-new', 0):,}"
            yield f"sources: {self.sources:,} compared, {found}, new: {new}"
        if self.unread:
            yield (
                f"not read: {len(self.unread):,} of {counted(self.shards, 'shard')}, for which only the sizes were "
                "compared; sums over all records and the digest were not checked"
            )
        if self.contents == "checksums":
            yield "pyarrow is not installed: only the checksums of contents/ were compared"
        if not self.ok:
            yield counted(self.num_problems, "problem")
        elif self.unread:
            yield f"OK as far as it was read: {counted(read, 'shard')} of {self.shards:,}"
        else:
            yield "OK: the dataset matches its manifest"

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values; docs/verifying.md explains the fields."""
        return {
            "ok": self.ok,
            "folder": self.folder,
            "dataset_digest": self.dataset_digest,
            "counts": {
                "shards": self.shards,
                "shards_read": self.shards - len(self.unread),
                "records_read": self.examples,
                "bytes_read": self.num_bytes,
                "sources_read": self.sources,
                "problems": self.num_problems,
            },
            "kinds": dict(self.kinds),
            "problems": [problem._asdict() for problem in self.problems],
            "broken": [*self.broken],
            "unread": [*self.unread],
            "contents": self.contents,
            "seconds": round(self.seconds, 3),
        }

    @classmethod
    def from_json(cls, text: bytes) -> Report:
        """The report whose fields (`dataclasses.asdict`) are a JSON object."""
        fields = json.loads(text)
        problems = tuple(Problem(*problem) for problem in fields["problems"])
        lists = {name: tuple(fields[name]) for name in ("broken", "unread")}
        return cls(**{**fields, **lists, "problems": problems})
