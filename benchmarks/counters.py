"""What the counters cost.

It is the share of CPU time inside the functions that update them, of a conversion in one thread.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import beam_tfr
from beam_tfr.transforms import counting
from benchmarks.measuring import Table
from benchmarks.turns import add_photos, pattern_of, photos

COLUMNS = {
    "photos": ",",
    "updates": ",",
    "their CPU µs an image": ".1f",
    "all CPU µs an image": ",.0f",
    "share": ".2%",
}
FUNCTIONS = "count", "count_read", "count_waits", "count_shard"
spent: list[int] = []  # CPU nanoseconds of each call
add_arguments = add_photos


def _watched(function: Callable[..., Any], inside: list[bool]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if inside:  # called by another of them
            return function(*arguments)
        inside.append(True)
        started = time.thread_time_ns()
        try:
            return function(*arguments)
        finally:
            spent.append(time.thread_time_ns() - started)
            inside.clear()

    return call


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    inside: list[bool] = []
    for name in FUNCTIONS:
        function = getattr(counting, name)
        for module in [module for key, module in sys.modules.items() if key.startswith("beam_tfr")]:
            if getattr(module, name, None) is function:
                setattr(module, name, _watched(function, inside))
    rows = []
    with photos(arguments) as paths:
        for _ in range(arguments.pairs):
            spent.clear()
            with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as folder:
                started = time.process_time()
                options = {
                    "input": pattern_of(paths),
                    "output": f"{folder}/out",
                    "layout": "*",
                    "progress": False,
                }
                beam_tfr.convert(**options, beam_flags=["--direct_num_workers=1"])
                all_us = (time.process_time() - started) * 1e6
            ours_us = sum(spent) / 1e3
            images = len(paths)
            rows.append([images, len(spent), ours_us / images, all_us / images, ours_us / all_us])
    yield Table(
        f"counters: {arguments.pairs} turns", COLUMNS, sorted(rows, key=lambda row: row[-1])
    )
