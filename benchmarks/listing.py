"""One pattern that matches millions of names, listed by one worker and by two.

A server makes up the names, as in `scale`, and answers each page as late as told. MatchImages and the survey run on the
local engine with one worker process and with two, and on Prism, which starts only one, first with one bundle of work at
a time, then with as many as it divides the work into. The rate is without what a few names take: the start of the
engine, and the division of the pattern.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarks.measuring import Cost, Table, measure, python, served
from benchmarks.scale import PAGE, PATTERN

if TYPE_CHECKING:
    from beam_tfr.planning.survey import Survey

LOCAL = ("--direct_running_mode=multi_processing",)
PRISM = ("--runner=PrismRunner", "--experiments=disable_prism_server_singleton")
ENGINES = {
    "local": {"1 process": (*LOCAL, "--direct_num_workers=1"), "2 processes": (*LOCAL, "--direct_num_workers=2")},
    "Prism": {"1 bundle": (*PRISM, "--experiments=prism_disable_sdf_split"), "its own way": PRISM},
}
FEW = 30 * PAGE
COLUMNS = {
    "": "",
    "names": ",",
    "seconds": ".1f",
    f"seconds for {FEW:,}": ".1f",
    "names/s": ",.0f",
    "times": ".2f",
    "CPU µs a name": ".1f",
}


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
    parser.add_argument("--names", type=int, default=1_500_000, help="(default: 1500000)")
    parser.add_argument("--latency_ms", type=int, default=300, help="of each page (default: 300)")
    ways = [f"{engine}, {way}" for engine, ways in ENGINES.items() for way in ways]
    parser.add_argument("--only", choices=ways, nargs="+", default=ways)
    parser.add_argument("--prism", help="path of Prism's binary; without it only the local engine")


def cost(names: int, latency_ms: int, flags: Sequence[str]) -> Cost:
    with served("-m", "benchmarks.scale", "serve", names, latency_ms) as (address, _):
        return measure(["env", f"STORAGE_EMULATOR_HOST={address}", *python("-m", "benchmarks.listing", names, *flags)])


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    names, few, latency_ms = arguments.names, FEW, arguments.latency_ms
    if arguments.quick:
        names, few, latency_ms, arguments.only = 21_000, 1, 0, ["local, 1 process"]
    rows = []
    for engine, ways in ENGINES.items():
        more, first = ["--prism_location", arguments.prism] if engine == "Prism" else [], 0.0
        for way, flags in ways.items():
            if f"{engine}, {way}" in arguments.only and None not in more:
                start, whole = (cost(number, latency_ms, [*flags, *more]) for number in (few, names))
                net = whole.without(start)
                rate = (names - few) / net.wall_s
                first = first or rate
                cpu_us = net.cpu_s / (names - few) * 1e6
                rows.append([f"{engine}, {way}", names, whole.wall_s, start.wall_s, rate, rate / first, cpu_us])
    yield Table(f"listing: pages after {latency_ms} ms", COLUMNS, rows)


if __name__ == "__main__":
    list_names(int(sys.argv[1]), sys.argv[2:])
