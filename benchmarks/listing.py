"""One pattern that matches millions of names, listed by one worker and by two.

A server makes up the names, as in `scale`, and answers each page as late as told. MatchImages and the survey run on the
local engine with one worker process and with two, and on Prism, which starts only one, first with one bundle of work at
a time, then with as many as it divides the work into.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.measuring import Table, measure, python, served
from benchmarks.scale import PATTERN

if TYPE_CHECKING:
    from beam_tfr.planning.survey import Survey

LOCAL = ("--direct_running_mode=multi_processing",)
PRISM = ("--runner=PrismRunner", "--experiments=disable_prism_server_singleton")
ENGINES = {
    "local": {"1 process": (*LOCAL, "--direct_num_workers=1"), "2 processes": (*LOCAL, "--direct_num_workers=2")},
    "Prism": {"1 bundle": (*PRISM, "--experiments=prism_disable_sdf_split"), "its own way": PRISM},
}
COLUMNS = {"": "", "names": ",", "seconds": ".1f", "names/s": ",.0f", "times": ".2f", "CPU µs a name": ".1f"}


def list_names(names: int, flags: list[str]) -> None:
    import apache_beam as beam

    from beam_tfr.labels import Labeler, parse_layout
    from beam_tfr.launch.flags import choose_runner, parse_beam_flags
    from beam_tfr.transforms import MatchImages
    from beam_tfr.transforms.plans import _Survey

    beam_options = parse_beam_flags(flags)
    pipeline = beam.Pipeline(choose_runner(beam_options, flags), options=beam_options)
    refs = pipeline | MatchImages([PATTERN], Labeler(parse_layout("{label}/*")))
    refs | beam.CombineGlobally(_Survey(0)) | beam.Map(check, names)
    pipeline.run().wait_until_finish()


def check(survey: Survey, names: int) -> None:
    assert survey.counts.total() == names, survey.counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--names", type=int, default=2_000_000, help="(default: 2000000)")
    parser.add_argument("--latency_ms", type=int, default=300, help="of each page (default: 300)")
    ways = [f"{engine}, {way}" for engine, ways in ENGINES.items() for way in ways]
    parser.add_argument("--only", choices=ways, nargs="+", default=ways)
    parser.add_argument("--prism", help="path of Prism's binary; without it only the local engine")


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    names, latency_ms = (2_500, 0) if arguments.quick else (arguments.names, arguments.latency_ms)
    rows = []
    for engine, ways in ENGINES.items():
        more, first_s = ["--prism_location", arguments.prism] if engine == "Prism" else [], 0.0
        for way, flags in ways.items():
            if f"{engine}, {way}" not in arguments.only or None in more:
                continue
            program = python("-m", "benchmarks.listing", names, *flags, *more)
            with served("-m", "benchmarks.scale", "serve", names, latency_ms) as (address, _):
                done = measure(["env", f"STORAGE_EMULATOR_HOST={address}", *program])
            first_s = first_s or done.wall_s
            rate, cpu_us = names / done.wall_s, done.cpu_s / names * 1e6
            rows.append([f"{engine}, {way}", names, done.wall_s, rate, first_s / done.wall_s, cpu_us])
    yield Table(f"listing: pages after {latency_ms} ms", COLUMNS, rows)


if __name__ == "__main__":
    list_names(int(sys.argv[1]), sys.argv[2:])
