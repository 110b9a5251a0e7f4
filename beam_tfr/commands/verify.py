"""The command `verify`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from beam_tfr import storage
from beam_tfr.terminal import counted, say

PROGRESS_S = 10.0


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "verify",
        help="re-read a dataset and check everything that its manifest promises",
        description="Re-reads every shard of a dataset: checksums, records, images, labels, counts. Names file and "
        "record and exits with 1 if something is wrong.",
    )
    parser.add_argument("folder", metavar="DIR", help="folder of the dataset, on disk or gs://")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Verifies a dataset; 1 if it has problems."""
    from beam_tfr.verification import verify

    shown = [time.monotonic()]

    def progress(done: int, total: int) -> None:
        if time.monotonic() - shown[0] >= PROGRESS_S:
            shown[0] = time.monotonic()
            say(f"verify: {done:,} of {total:,} records")

    report = verify(storage.check_path(parsed.folder), progress=progress)
    for problem in report.problems:
        say(str(problem))
    if report.num_problems > len(report.problems):
        say(f"and at least {report.num_problems - len(report.problems):,} more")
    rate = report.examples / max(report.seconds, 1e-3)
    print(
        f"{report.folder}: {counted(report.examples, 'record')} in {counted(report.shards, 'shard')}, "
        f"{report.num_bytes:,} bytes, {report.seconds:.1f} s, {rate:,.0f} records/s"
    )
    print("OK: the dataset matches its manifest" if report.ok else counted(report.num_problems, "problem"))
    return 0 if report.ok else 1
