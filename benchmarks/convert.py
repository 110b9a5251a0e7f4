"""How fast `beam-tfr convert` is, beside a Beam pipeline that checks nothing and a bare Pillow loop.

    python benchmarks/convert.py PHOTOS [--times 3] [--pairs 5]

Each run is a process of its own, from its start to the published dataset. Machines drift, so the three take turns and
the ratios are taken within a turn; the medians of those are what to compare.
"""

from __future__ import annotations

import argparse
import dataclasses
import glob
import importlib.metadata
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parents[1]
PEERS = str(ROOT / "benchmarks" / "peers.py")
SUFFIX = "**/*.jpg"
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # the unit of ru_maxrss


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one process: seconds of wall clock and of all its threads' CPU, and its largest resident size."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def contestants(pattern: str, folder: str) -> dict[str, list[str]]:
    """Name -> command; each makes one folder of its own in `folder`."""
    ours = ["-m", "beam_tfr", "convert", "--input", pattern, "--output", f"{folder}/images", "--max_rejects", "0"]
    commands = {
        "beam_tfr": ours,
        "planned shards": [PEERS, "planned_shards", pattern, f"{folder}/planned_shards"],
        "Pillow loop": [PEERS, "pillow_loop", pattern, f"{folder}/pillow_loop"],
    }
    return {name: [sys.executable, *command] for name, command in commands.items()}


def measure(command: list[str]) -> Cost:
    """
    Raises:
        SystemExit: the command fails; with what it said.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as said:
        started = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}\n{said.read()}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * MAXRSS_BYTES)


def make_corpus(photos: pathlib.Path, folder: pathlib.Path, times: int) -> int:
    """Fills `folder` with that many links to the photos, and reads them once; returns how many photos there are."""
    for number in range(times):
        (folder / str(number)).symlink_to(photos.resolve(), target_is_directory=True)
    found = glob.glob(f"{folder}/{SUFFIX}", recursive=True)
    for path in found:
        pathlib.Path(path).read_bytes()
    return len(found)


def run(photos: pathlib.Path, *, times: int, pairs: int) -> tuple[int, dict[str, list[Cost]]]:
    """The number of photos, and what each contestant's runs cost, in the order of the turns."""
    with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as temporary:
        corpus = pathlib.Path(temporary) / "corpus"
        corpus.mkdir()
        images = make_corpus(photos, corpus, times)
        if not images:
            raise SystemExit(f"{photos}: there is no {SUFFIX} in it")
        costs: dict[str, list[Cost]] = {}
        for _ in range(pairs):
            with tempfile.TemporaryDirectory(dir=temporary) as output:
                for name, command in contestants(f"{corpus}/{SUFFIX}", output).items():
                    costs.setdefault(name, []).append(measure(command))
    return images, costs


def report(images: int, costs: dict[str, list[Cost]]) -> str:
    """A table in Markdown: medians, and the medians of the ratios to beam_tfr in the same turn."""
    lines = [
        f"{images:,} photos, {len(costs['beam_tfr'])} runs each, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, Beam {importlib.metadata.version('apache-beam')}",
        "",
        "| | images/s | CPU ms per image | peak memory MB | time, beam_tfr = 1 | memory, beam_tfr = 1 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in costs.items():

        def ratio(of: Callable[[Cost], float], runs: list[Cost] = runs) -> float:
            return statistics.median(of(a) / of(b) for a, b in zip(runs, costs["beam_tfr"], strict=True))

        rate = statistics.median(images / cost.wall_s for cost in runs)
        cpu = statistics.median(cost.cpu_s / images * 1e3 for cost in runs)
        peak = statistics.median(cost.peak_bytes for cost in runs) / 1e6
        time_ratio, memory_ratio = ratio(lambda cost: cost.wall_s), ratio(lambda cost: cost.peak_bytes)
        lines.append(f"| {name} | {rate:,.0f} | {cpu:.2f} | {peak:,.0f} | {time_ratio:.2f} | {memory_ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast beam-tfr convert is.", allow_abbrev=False)
    parser.add_argument("photos", type=pathlib.Path, help="folder of JPEGs, in any folders below it")
    parser.add_argument("--times", type=int, default=1, help="read it so many times, through links (default: 1)")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each (default: 5)")
    arguments = parser.parse_args()
    print(report(*run(arguments.photos, times=arguments.times, pairs=arguments.pairs)))


if __name__ == "__main__":
    main()
