"""Converting from Cloud Storage with a latency, beside converting from the local disk.

A server in another process holds the photos and answers each request after the latency, as many at
a time as come.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from benchmarks import measuring
from benchmarks.measuring import Table, served
from benchmarks.turns import add_photos, pattern_of, photos, table, take_turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_photos(parser)
    parser.add_argument(
        "--latencies", type=float, nargs="+", default=[0, 50, 200], help="in ms (default: 0 50 200)"
    )


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    with photos(arguments) as paths, contextlib.ExitStack() as stack:
        pattern = pattern_of(paths)
        folder, _, below = pattern.partition("/**")
        latencies = [20] if arguments.quick else arguments.latencies
        program = "-m", "tests.fake_gcs", "--photos", f"photos={folder}", "--latency_ms"
        servers = {f"{ms:g} ms away": stack.enter_context(served(*program, ms)) for ms in latencies}

        def commands(_: str, output: str) -> dict[str, list[str]]:
            found = {"local disk": measuring.convert(pattern, f"{output}/local")}
            for name, (address, _) in servers.items():
                command = measuring.convert(f"gs://photos/**{below}", f"{output}/{name}")
                found[name] = ["env", f"STORAGE_EMULATOR_HOST={address}", *command]
            return found

        before = {name: cpu_s() for name, (_, cpu_s) in servers.items()}
        made = table("cloud", len(paths), take_turns(commands, pattern, arguments.pairs))
        for name, (_, cpu_s) in servers.items():
            each_ms = (cpu_s() - before[name]) / arguments.pairs / len(paths) * 1e3
            made.rows.append([f"server, {name}", None, None, each_ms, None, None])
        yield made
