"""Plans that claim a folder, and shards that a run has finished in it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from beam_tfr.output import claim, sidecars
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.items import Reject
from beam_tfr.schema.naming import shard_name
from beam_tfr.schema.plan import Plan, Shard, ShardInfo, SplitPlan, WrittenFile


def make_plan(seed: int = 0, name: str = "d") -> Plan:
    return Plan(
        name=name,
        suffix=".tfrecord.gz",
        options={"seed": seed, "image_size": [224, 224]},
        input_digest="ab" * 32,
        labels=["hat"],
        splits={
            "train": SplitPlan(matched=4, num_shards=2, cuts=["80"], class_counts={"hat": 4}),
            "none": SplitPlan(matched=1, num_shards=1, cuts=[], class_counts={}),
        },
        codecs={"pillow": "12"},
    )


def begin(
    output: Path, plan: Plan | None = None, *, overwrite: bool = False, run_id: str = "mine"
) -> Plan:
    return claim.claim_folder(str(output), plan or make_plan(), run_id=run_id, overwrite=overwrite)


def shard_of(plan: Plan, number: int = 0, split: str = "train") -> Shard:
    of = plan.splits[split]
    return Shard(split, number, of.num_shards, 2 if split == "train" else 1, plan.digest)


def finish_shard(output: Path, plan: Plan, number: int = 0, split: str = "train") -> ShardInfo:
    """A shard as WriteShards leaves it."""
    shard = shard_of(plan, number, split)
    reject = Reject("a\u2028\n.jpg", "ReadImages", "not-found", "gone")
    info = ShardInfo(shard=shard, rejected={"not-found": 1})
    if split == "train":
        data = shard.name.encode() * 100
        info = dataclasses.replace(
            info,
            file=f"{plan.name}-{shard.name}.tfrecord.gz",
            num_examples=1,
            sha256=sha256_hex(data),
            num_bytes=len(data),
            built=sidecars.unique_name(shard.name),
            generation=10**18,
        )
        path = built_file(output, info)
        path.write_bytes(data)
        contents = WrittenFile(
            sidecars.unique_name(shard.name, sidecars.CONTENTS), 4, sha256_hex(b"PAR1"), 10**18
        )
        info.contents = contents
        (output / ".beam_tfr" / contents.built).write_bytes(b"PAR1")
        os.utime(output / ".beam_tfr" / contents.built, (1e9, 1e9))
        os.utime(
            path, (1e9, 1e9)
        )  # a test that changes it may do so within the same tick of the clock
    return sidecars.write_sidecar(str(output), info, [reject.to_json()])


def built_file(output: Path, info: ShardInfo) -> Path:
    return output / ".beam_tfr" / info.built


def sidecar(output: Path, number: int = 0) -> Path:
    return output / ".beam_tfr" / f"{shard_name('train', number, 2)}.json"
