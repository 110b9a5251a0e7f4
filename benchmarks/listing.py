"""One pattern that matches millions of names, listed by one worker and by two.

A server makes up the names, as in `scale`, and answers each page as late as told. MatchImages and
the survey run on the local engine with one worker process and with two, and on Prism, which starts
only one, first with one bundle of work at a time, then with as many as it divides the work into.
The rate is without what a few names take: the start of the engine, and the division of the pattern.
"Pages at a time" is how many are waited for, on average: Prism may divide the work into more than
two bundles. The last column is the most that this machine could reach if nothing waited, since
engine, workers and server share its cores.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import Cost, Table, measure, python, served
from benchmarks.scale import PAGE, PATTERN

if TYPE_CHECKING:
    from beam_tfr.planning.survey import Survey

LOCAL = ("--direct_running_mode=multi_processing",)
PRISM = ("--runner=PrismRunner", "--experiments=disable_prism_server_singleton")
WAYS = {
    "local, 1 process": (*LOCAL, "--direct_num_workers=1"),
    "local, 2 processes": (*LOCAL, "--direct_num_workers=2"),
    "Prism, 1 bundle": (*PRISM, "--experiments=prism_disable_sdf_split"),
    "Prism, its own way": PRISM,
}
FEW = 100 * PAGE  # so many are divided as more are
COLUMNS = {
    "": "",
    "names": ",",
    "seconds": ".1f",
    f"seconds for {FEW:,}": ".1f",
    "names/s": ",.0f",
    "times": ".2f",
    "pages at a time": ".1f",
    "CPU µs a name": ".1f",
    "the server's": ".1f",
    "names/s, all cores busy": ",.0f",
}


def list_names(names: int, flags: list[str]) -> None:
    import apache_beam as beam

    from beam_tfr.engine.beam_internals import streams_without_timeout
    from beam_tfr.inputs.labels import Labeler
    from beam_tfr.launch.flags import choose_runner, parse_beam_flags
    from beam_tfr.layouts.parsing import parse_layout
    from beam_tfr.planning.survey import Survey
    from beam_tfr.transforms import MatchImages
    from beam_tfr.transforms.totals import CountRefs

    beam_options = parse_beam_flags(flags)
    pipeline = beam.Pipeline(choose_runner(beam_options, flags), options=beam_options)
    refs = pipeline | MatchImages([PATTERN], Labeler(parse_layout("{label}/*")))
    make_survey = functools.partial(Survey, 0, gives_splits=True)
    refs | beam.CombineGlobally(CountRefs(make_survey)) | beam.Map(check, names)
    with streams_without_timeout():
        result = pipeline.run()
    result.wait_until_finish()


def check(survey: Survey, names: int) -> None:
    assert survey.counts.total() == names, survey.counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--names", type=int, default=1_500_000, help="(default: 1500000)")
    parser.add_argument(
        "--latency_ms",
        type=int,
        nargs="+",
        default=[600, 50],
        help="of each page, a table for each (default: 600 50)",
    )
    parser.add_argument("--only", choices=WAYS, nargs="+", help="(default: all that can run)")
    parser.add_argument("--prism", help="path of Prism's binary; without it only the local engine")


def cost(names: int, latency_ms: int, flags: Sequence[str]) -> tuple[Cost, float]:
    """What the engine and its workers take, and CPU seconds of the server."""
    with served("-m", "benchmarks.scale", "serve", names, latency_ms) as (address, server_cpu_s):
        program = python("-m", "benchmarks.listing", names, *flags)
        return measure(["env", f"STORAGE_EMULATOR_HOST={address}", *program]), server_cpu_s()


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    names = arguments.names
    few = FEW
    latencies = arguments.latency_ms
    only = arguments.only
    if arguments.quick:
        names = 21_000
        few = 1
        latencies = [0]
        only = ["local, 1 process"]
    ways = {way: [*flags] for way, flags in WAYS.items() if way in (only or WAYS)}
    for way in [way for way in ways if way.startswith("Prism")]:
        if arguments.prism:
            ways[way] += ["--prism_location", arguments.prism]
        elif only:
            raise SystemExit(f"--only '{way}' needs --prism PATH")
        else:
            del ways[way]
    for latency_ms in latencies:
        rows = [*compare(ways, names, few, latency_ms)]
        yield Table(f"listing: pages after {latency_ms} ms", COLUMNS, rows)


def compare(
    ways: dict[str, list[str]], names: int, few: int, latency_ms: int
) -> Iterator[Sequence[Any]]:
    rates: dict[str, float] = {}  # engine -> of its first row
    for way, flags in ways.items():
        (start, start_server_s), (whole, whole_server_s) = (
            cost(number, latency_ms, flags) for number in (few, names)
        )
        net = whole.without(start)
        number = names - few
        own_us = net.cpu_s / number * 1e6
        server_us = (whole_server_s - start_server_s) / number * 1e6
        times = [whole.wall_s, start.wall_s]
        if min(net.wall_s, net.cpu_s) > 0:  # not always so if few names are listed
            rate = number / net.wall_s
            first = rates.setdefault(way.partition(",")[0], rate)
            pages = rate / PAGE * latency_ms / 1000
            most = (os.cpu_count() or 1) * 1e6 / (own_us + server_us)
            yield [way, names, *times, rate, rate / first, pages, own_us, server_us, most]
        else:
            yield [way, names, *times, *[None] * 6]


if __name__ == "__main__":
    list_names(int(sys.argv[1]), sys.argv[2:])
