"""What a conversion of any number of images costs, calculated from what one costs.

The table of docs/scale.md.

The cost of a name is measured by `scale`. The rest is arithmetic with the limits of the code.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

from beam_tfr.planning.drafts import DEFAULT_TARGET_BYTES, FRAME_BYTES
from beam_tfr.schema.dataset import MOST_SHARDS
from beam_tfr.storage.gcs import PAGE_SIZE
from beam_tfr.storage.gcs_client import REQUESTS
from benchmarks.measuring import Table

LIST_US = 4  # of CPU for a name that is listed alone, by `scale`
PLAN_US = 36  # of CPU for a name, from its label to the published manifest, by `scale`
REF_BYTES = 100  # of a reference
PACKED_SHARE = 0.43  # of their bytes, when the references of 70,000 shards are packed
CUT_BYTES = 32  # for a shard, in the plan
MANIFEST_BYTES = 200  # for a shard, in the manifest
SIDECAR_BYTES = 700  # for a shard, in the memory of the worker that publishes
MOVES = 3  # for a shard: its file, its contents, its sidecar
LATENCY_S = 0.05  # of a request
FIRST_READS_PER_S = 5000  # of a bucket that was idle
DOUBLED_S = 1200  # after which it serves twice as many


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, nargs="+", default=[10**6, 5 * 10**8, 10**9])
    parser.add_argument("--input_kb", type=float, default=100, help="of an image (default: 100)")
    parser.add_argument("--output_kb", type=float, default=15, help="of a record (default: 15)")
    parser.add_argument(
        "--images_per_s", type=float, default=200, help="converted by a core (default: 200)"
    )
    parser.add_argument("--cores", type=int, nargs="+", default=[25, 100, 400, 1000, 10_000])


def estimate(images: int, arguments: argparse.Namespace) -> dict[str, float]:
    record_bytes = arguments.output_kb * 1000 + FRAME_BYTES
    target = DEFAULT_TARGET_BYTES
    least = images * record_bytes / MOST_SHARDS
    if least > target:  # which would be refused
        target = math.ceil(least / 1e8) * 10**8
    shards = math.ceil(images * record_bytes / target) or 1
    return {
        "input, TB": images * arguments.input_kb / 1e9,
        "output, TB": images * arguments.output_kb / 1e9,
        "target of a shard, MB": target / 1e6,
        "shards": shards,
        "images in each": images / shards,
        "pages of names": math.ceil(images / PAGE_SIZE),
        "listing, core hours": images * LIST_US / 3.6e9,
        f"listing by one worker, hours at {LATENCY_S * 1000:.0f} ms a page": images
        / PAGE_SIZE
        * LATENCY_S
        / 3600,
        "label, plan and manifest, core hours": images * PLAN_US / 3.6e9,
        "references in the shuffle, GB": images * REF_BYTES * PACKED_SHARE / 1e9,
        "cuts in the plan, MB": shards * CUT_BYTES / 1e6,
        "converting, core hours": images / arguments.images_per_s / 3600,
        **{
            f"converting with {cores:,} cores, hours": ramped_s(
                images, arguments.images_per_s * cores
            )
            / 3600
            for cores in arguments.cores
        },
        "moving shards, contents and sidecars, minutes": shards * MOVES / REQUESTS * LATENCY_S / 60,
        "memory of the worker that publishes, MB": shards * SIDECAR_BYTES / 1e6,
        "manifest, MB": shards * MANIFEST_BYTES / 1e6,
    }


def ramped_s(reads: float, per_s: float) -> float:
    """Seconds for so many reads from a bucket.

    Their rate may only rise gradually.

    20 million at 20,000/s take 2,500 s: 6 million in 20 minutes at 5,000/s, 12 in the next at
    10,000/s, 2 in 100 s.
    """
    seconds = 0.0
    rate = float(FIRST_READS_PER_S)
    while rate < per_s and reads > rate * DOUBLED_S:
        reads -= rate * DOUBLED_S
        seconds += DOUBLED_S
        rate *= 2
    return seconds + reads / min(rate, per_s)


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    columns = [estimate(images, arguments) for images in arguments.images]
    headings = {"": "", **{f"{images:,}": "" for images in arguments.images}}
    rows = [[name, *(show(of[name]) for of in columns)] for name in columns[0]]
    yield Table("estimate: one split, Cloud Storage", headings, rows)


def show(number: float) -> str:
    """A number with two digits at least, and all those before its point."""
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.2g}"
