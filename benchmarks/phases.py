"""Where the time of a conversion goes.

Before its first image, between first and last, and after the last.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator

from benchmarks import measuring
from benchmarks.measuring import Cost, Table, measure, median_of, python
from benchmarks.turns import add_photos, pattern_of, photos

add_arguments = add_photos
COLUMNS = {"": "", "s": ".2f", "busy cores": ".2f", "images/s": ",.0f", "CPU ms an image": ".2f"}
PARTS = "start of the process to first image converted", "first image to last", "last image to exit"


def watch(pattern: str, *flags: str, sleep: str = "") -> dict[str, Cost]:
    """Part of a conversion -> what it cost."""
    with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as folder:
        command = measuring.convert(pattern, f"{folder}/out", *flags)[3:]
        cost = measure(
            python("-m", "benchmarks.timed_run", *(("--sleep", sleep) if sleep else ()), *command)
        )
    marks = [(cost.started_s, 0.0), *json.loads(cost.output.splitlines()[-1])]
    marks[-1] = (cost.started_s + cost.wall_s, cost.cpu_s)
    spans = zip(PARTS, marks, marks[1:], strict=False)
    return {part: Cost(end - start, cpu_end - cpu) for part, (start, cpu), (end, cpu_end) in spans}


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    with photos(arguments) as paths:
        runs = [watch(pattern_of(paths)) for _ in range(arguments.pairs)]
    each = len(paths) - 1
    rows = []
    for part in PARTS:
        costs = [costs[part] for costs in runs]
        wall_s = median_of(costs, lambda cost: cost.wall_s)
        row = [part, wall_s, median_of(costs, lambda cost: cost.cpu_s / cost.wall_s), None, None]
        if part == PARTS[1]:
            row[3:] = each / wall_s, median_of(costs, lambda cost: cost.cpu_s / each * 1e3)
        rows.append(row)
    yield Table(f"phases: {len(paths):,} photos, {arguments.pairs} turns", COLUMNS, rows)
