"""Finished shards to publish, without images."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.output import publish, rejects, shard_totals, sidecars
from beam_tfr.output.claim import Claim
from beam_tfr.schema.dataset import NO_SPLIT, sha256_hex
from beam_tfr.schema.items import Reject
from beam_tfr.schema.plan import Plan, Shard, ShardInfo, SplitPlan

LABELS = ["hat", "shoes"]


def make_plan(**changes: Any) -> Plan:
    """A plan for ten images in train, four in test, and two without a split.

    Train has two shards; test has one, and one that is empty.
    """
    plan = Plan(
        name="d",
        suffix=".tfrecord.gz",
        options={"compression": "gzip", "encoding": "jpeg", "seed": 0},
        input_digest="ab" * 32,
        labels=LABELS,
        splits={
            "train": SplitPlan(
                matched=10, num_shards=2, cuts=["80"], class_counts={"hat": 6, "shoes": 4}
            ),
            "test": SplitPlan(
                matched=4, num_shards=2, cuts=["80"], class_counts={"hat": 2, "shoes": 2}
            ),
            NO_SPLIT: SplitPlan(matched=2, num_shards=1, cuts=[], class_counts={}),
        },
        codecs={},
    )
    return dataclasses.replace(plan, **changes)


def info_of(
    plan: Plan, split: str, number: int, total: int, written: int, **changes: Any
) -> ShardInfo:
    info = ShardInfo(
        shard=Shard(split, number, plan.splits[split].num_shards, total, plan.digest),
        num_examples=written,
        rejected={"damaged-image": total - written} if total > written else {},
        class_counts={0: written - written // 2, 1: written // 2} if written else {},
        pixels=4 * written,
        channel_sums=[10 * written, 20 * written, 40 * written] if written else [],
        channel_squares=[30 * written, 150 * written, 500 * written] if written else [],
        source_sizes={512: written} if written else {},
    )
    if split != NO_SPLIT:
        info.file = f"d-{info.shard.name}.tfrecord.gz"
        info.sha256, info.records_sha256 = (
            sha256_hex(info.file.encode()),
            sha256_hex(b"r" + info.file.encode()),
        )
        info.num_bytes = 100 * written + 23
    return dataclasses.replace(info, **changes)


def make_infos(plan: Plan) -> dict[str, ShardInfo]:
    infos = [
        info_of(plan, "train", 0, 5, 4),
        info_of(plan, "train", 1, 5, 5, adjusted={"rotated": 5}),
        info_of(plan, "test", 0, 4, 4),
        info_of(plan, "test", 1, 0, 0),
        info_of(plan, NO_SPLIT, 0, 2, 0, rejected={"layout-mismatch": 2}),
    ]
    return {info.shard.name: info for info in infos}


def totals_of(
    plan: Plan,
    infos: dict[str, ShardInfo],
    max_rejects: int | float = 3,
    allow_empty: tuple[str, ...] = (),
) -> dict[str, shard_totals.SplitTotals]:
    found = shard_totals.merge_totals(plan, [shard_totals.add_up_shards(infos.values())])
    rejects.check_rejects(
        plan,
        {split: of.counts for split, of in found.items()},
        max_rejects,
        allow_empty=allow_empty,
    )
    return found


NEW = Claim(replaces=0, overwrite=False)


def build(folder: Path, plan: Plan, infos: dict[str, ShardInfo]) -> dict[str, ShardInfo]:
    """The shards and their sidecars, as WriteShards leaves them."""
    (folder / ".beam_tfr").mkdir(parents=True, exist_ok=True)
    written = {}
    for name, info in infos.items():
        reasons = [reason for reason, count in info.rejected.items() for _ in range(count)]
        lines = [
            Reject(f"{name}/{i}", "MatchImages", reason, "x").to_json()
            for i, reason in enumerate(reasons)
        ]
        if info.file:
            info = dataclasses.replace(info, built=sidecars.unique_name(name))
            path = folder / ".beam_tfr" / info.built
            path.write_bytes(b"r" * info.num_bytes)
            info.generation = path.stat().st_mtime_ns
        written[name] = sidecars.write_sidecar(str(folder), info, lines)
    return written


def write(
    folder: Path, plan: Plan, infos: dict[str, ShardInfo], claimed: Claim = NEW, **how: Any
) -> Manifest:
    totals = totals_of(plan, build(folder, plan, infos), 1.0)
    return publish.publish_dataset(str(folder), plan, totals, claimed, **how)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def generation(folder: Path) -> int:
    return (folder / "manifest.json").stat().st_mtime_ns
