"""Counts of a shard, a split or a dataset, and everything known of one shard."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from beam_tfr.schema.plan import Shard


@dataclasses.dataclass(slots=True, kw_only=True)
class Counts:
    """Counts of the images of a shard, or their sums over shards.

    Attributes:
        num_examples: records written.
        num_bytes: of the shard files.
        rejected: reason -> count.
        class_counts: label id -> records; empty in a dataset without labels.
        adjusted: member of `ADJUSTMENTS` -> records.
        pixels: stored pixels.
        channel_sums, channel_squares: integer sums over them per channel; empty without pixels.
        source_sizes: `size_bucket` of the source -> records.
    """

    num_examples: int = 0
    num_bytes: int = 0
    rejected: dict[str, int] = dataclasses.field(default_factory=dict)
    class_counts: dict[int, int] = dataclasses.field(default_factory=dict)
    adjusted: dict[str, int] = dataclasses.field(default_factory=dict)
    pixels: int = 0
    channel_sums: list[int] = dataclasses.field(default_factory=list)
    channel_squares: list[int] = dataclasses.field(default_factory=list)
    source_sizes: dict[int, int] = dataclasses.field(default_factory=dict)

    @property
    def num_rejected(self) -> int:
        return sum(self.rejected.values())

    def add(self, other: Counts) -> None:
        for field in dataclasses.fields(Counts):
            mine, more = getattr(self, field.name), getattr(other, field.name)
            if isinstance(mine, dict):
                for key, count in more.items():
                    mine[key] = mine.get(key, 0) + count
            elif isinstance(mine, list):
                setattr(self, field.name, add_sums(mine, more))
            else:
                setattr(self, field.name, mine + more)


def add_sums(sums: Sequence[int], more: Sequence[int]) -> list[int]:
    """Adds sums per channel; an empty list stands for no pixels."""
    return [a + b for a, b in zip(sums, more, strict=True)] if sums and more else [*(sums or more)]


def size_bucket(height: int, width: int) -> int:
    """The longest side in pixels, rounded up to a power of two."""
    return 1 << (max(height, width) - 1).bit_length()


@dataclasses.dataclass(slots=True, kw_only=True)
class ShardInfo(Counts):
    """A finished shard, as written to its sidecar for the manifest and for resuming.

    Attributes:
        shard: its place in the plan.
        file: name in the output folder; empty for shards of `NO_SPLIT`, which have no records.
        sha256: of the file.
        records_sha256: the `RecordsDigest` of its records.
    """

    shard: Shard
    file: str = ""
    sha256: str = ""
    records_sha256: str = ""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> ShardInfo:
        fields = json.loads(text)
        fields["shard"] = Shard(*fields["shard"])
        for name in ("class_counts", "source_sizes"):  # JSON has only string keys
            fields[name] = {int(key): count for key, count in fields[name].items()}
        return cls(**fields)
