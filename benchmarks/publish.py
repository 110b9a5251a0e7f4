"""What it takes to publish a dataset of many shards, and to clear what another plan has left.

Shards of a few bytes with their sidecars lie in the work folder, as a run leaves them: on a disk,
and on a simulated Cloud Storage that answers each request after `--latency_ms`. The server shares
the cores of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.measuring import Table, measure, python, served

COLUMNS = {
    "": "",
    "shards": ",",
    "s": ".1f",
    "CPU s": ".1f",
    "ms a shard": ".2f",
    "s for 70,000": ",.0f",
}


def publish(output: str, shards: int) -> None:
    """Prints the seconds and the CPU seconds of each part as JSON."""
    from beam_tfr import storage
    from beam_tfr.output import claim, shard_totals, sidecars
    from beam_tfr.output import publish as publishing
    from beam_tfr.schema.dataset import sha256_hex
    from beam_tfr.schema.naming import shard_name
    from beam_tfr.schema.plan import Plan, Shard, ShardInfo, SplitPlan

    plan = Plan(
        name="d",
        suffix=".tfrecord.gz",
        options={"compression": "gzip", "encoding": "jpeg"},
        input_digest="0" * 64,
        labels=None,
        splits={"train": SplitPlan(matched=shards, num_shards=shards, cuts=[], class_counts={})},
        codecs={},
    )
    digest = plan.digest
    parts = {}
    fsync = os.fsync
    os.fsync = lambda _: None  # nothing is lost if the machine stops now
    claim.claim_folder(output, plan, run_id="run", overwrite=False)

    def build(number: int) -> ShardInfo:
        shard = Shard("train", number, shards, 1, digest)
        data = b"%d" % number
        info = ShardInfo(shard=shard, num_examples=1, num_bytes=len(data), sha256=sha256_hex(data))
        info.file = f"d-{shard_name('train', number, shards)}.tfrecord.gz"
        info.built = sidecars.unique_name(shard.name)
        with storage.create(
            storage.work_path(output, info.built), scratch=f"{output}/.beam_tfr", replace=False
        ) as file:
            file.write(data)
            info.generation = file.commit()
        return sidecars.write_sidecar(output, info, [])

    def timed(name: str, begun: tuple[float, float]) -> None:
        parts[name] = [time.perf_counter() - begun[0], time.process_time() - begun[1]]

    def now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def build_all() -> list[ShardInfo]:
        with ThreadPoolExecutor(64) as pool:
            return [*pool.map(build, range(shards))]

    totals = shard_totals.merge_totals(plan, [shard_totals.add_up_shards(build_all())])
    os.fsync = fsync
    begun = now()
    publishing.publish_dataset(output, plan, totals, claim.Claim(0, False))
    timed("publish: check the files, move them, write the manifest", begun)
    begun = now()
    claim.remove_work_folder(output, "run")
    timed("remove the work folder", begun)
    os.fsync = lambda _: None
    plan.options["seed"] = 1
    digest = plan.digest
    claim.claim_folder(output, plan, run_id="run", overwrite=True)
    build_all()
    os.fsync = fsync
    begun = now()
    plan.options["seed"] = 2
    claim.claim_folder(output, plan, run_id="run", overwrite=True)
    timed("claim the folder for another plan", begun)
    print(json.dumps(parts))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=int, default=70_000)
    parser.add_argument("--gcs_shards", type=int, default=7_000)
    parser.add_argument("--latency_ms", type=float, default=50.0)


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    numbers = (50, 50) if arguments.quick else (arguments.shards, arguments.gcs_shards)
    for place, shards in zip(("disk", "gs://"), numbers, strict=True):
        with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as folder:
            command = python("-m", "benchmarks.publish", shards)
            if place == "disk":
                os.environ.pop("STORAGE_EMULATOR_HOST", None)
                cost = measure([*command, f"{folder}/out"])
            else:
                latency_ms = 1 if arguments.quick else arguments.latency_ms
                with served("-m", "tests.fake_gcs", "--latency_ms", latency_ms) as (address, _):
                    os.environ["STORAGE_EMULATOR_HOST"] = address
                    cost = measure([*command, "gs://b/out"])
        parts = json.loads(cost.output.splitlines()[-1])
        rows = [
            (name, shards, wall_s, cpu_s, wall_s / shards * 1e3, wall_s / shards * 70_000)
            for name, (wall_s, cpu_s) in parts.items()
        ]
        yield Table(f"publish: {place}", COLUMNS, rows)


if __name__ == "__main__":
    publish(sys.argv[2], int(sys.argv[1]))
