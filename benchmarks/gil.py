"""How many threads a conversion can keep busy.

Decoding, resizing and encoding sleep for as long as they take.

All photos are the first one. The CPU time that is left is ours and Beam's, with reading, hashing
and writing.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
from collections.abc import Iterator

from benchmarks.measuring import Cost, Table, median_of, ratio
from benchmarks.phases import PARTS, watch
from benchmarks.turns import add_photos, photos

COLUMNS = {
    "threads": "",
    "photos": ",",
    "images/s": ",.0f",
    "1 thread = 1": ".2f",
    "CPU ms an image": ".3f",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_photos(parser)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 4, 16], help="(default: 1 4 16)"
    )
    parser.add_argument(
        "--each", type=int, default=1000, metavar="N", help="photos for each thread (default: 1000)"
    )


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    with (
        photos(arguments) as paths,
        tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as folder,
    ):
        each = arguments.each
        if arguments.quick:
            each = 2
            arguments.threads = arguments.threads[:2]
        for threads in arguments.threads:
            links = pathlib.Path(folder) / str(threads) / "photos"
            links.mkdir(parents=True)
            for number in range(each * threads):
                (links / f"{number}.jpg").symlink_to(paths[0])
        turns: dict[int, list[Cost]] = {threads: [] for threads in arguments.threads}
        for _ in range(arguments.pairs):
            for threads, costs in turns.items():
                flags = (
                    f"--direct_num_workers={threads}",
                    "--direct_running_mode=multi_threading",
                    "--num_shards",
                    str(4 * threads),
                )
                cost = watch(f"{folder}/{threads}/**/*.jpg", *flags, sleep=str(paths[0]))[PARTS[1]]
                costs.append(Cost(cost.wall_s / each / threads, cost.cpu_s / each / threads))
    rows = []
    for threads, costs in turns.items():
        rate = median_of(costs, lambda cost: 1 / cost.wall_s)
        gain = ratio(turns[arguments.threads[0]], costs, lambda cost: cost.wall_s)
        rows.append(
            [
                f"{threads}",
                each * threads,
                rate,
                gain,
                median_of(costs, lambda cost: cost.cpu_s * 1e3),
            ]
        )
    yield Table(f"gil: first image to last, {arguments.pairs} turns", COLUMNS, rows)
