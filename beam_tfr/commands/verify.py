r"""Reads every shard of a dataset and checks checksums, records, images, labels and counts. If
something is wrong, names the file and record and exits with 1.

examples:
  beam-tfr verify /data/photos
  beam-tfr verify /data/photos --sources 'photos/**/*.jpg'
      also compares every record with its source file
  beam-tfr verify /data/photos --sources photos.parquet
      the same for a dataset that was made with --table
  beam-tfr verify gs://bucket/photos --runner=DataflowRunner --project=… --region=… \
      --temp_location=gs://…
      reads the shards on other machines; works with any of Beam's runners
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beam_tfr.commands.calls import add_dataset, check_flags, display, print_result, refuse
from beam_tfr.commands.remove import SHA256
from beam_tfr.console.terminal import say
from beam_tfr.inputs.patterns import read_lines
from beam_tfr.schema.errors import UsageError

if TYPE_CHECKING:
    from beam_tfr.verification import Report

HELP = "read a whole dataset and check it against its manifest"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_dataset(parser, "exclude")
    parser.add_argument(
        "--sources",
        metavar="GLOB|TABLE",
        nargs="+",
        help="the --input or --table that the dataset was made from, and the folder of --image_root: also reports "
        "changed, missing and new sources",
    )
    parser.add_argument(
        "--absent",
        metavar="FILE",
        help="also check that nothing is left of these images: a key, or the SHA-256 of a source file in hex, per line",
    )


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Verifies a dataset; returns 1 if it has problems. `others` are Beam's flags."""
    on_runner = any(flag.partition("=")[0] == "--runner" for flag in others)
    if others and not on_runner:
        refuse(parsed, others, "beam-tfr verify")
    with display(parsed, "records") as shown:
        if on_runner:
            check_flags(parsed, others)  # a misspelled one is reported first
            from beam_tfr import launch

            if parsed.sources:
                raise UsageError(
                    "`sources=` cannot be combined with `runner=`: sources are read by this machine"
                )
            report = launch.verify_on(parsed.folder, others, progress=shown, say=shown.say)
        else:
            from beam_tfr.verification import verify

            report = verify(
                parsed.folder,
                sources=parsed.sources or (),
                exclude=parsed.exclude or (),
                progress=shown,
            )
    traces = _find_traces(parsed.folder, parsed.absent) if parsed.absent else []
    print_report(report, as_json=parsed.json, **({"traces": traces} if parsed.absent else {}))
    for trace in traces[:10]:
        say(f"not removed: {trace}")
    if parsed.absent and not parsed.json:
        print(f"absent:  {len(traces):,} traces of what {parsed.absent} lists")
    return 0 if report.ok and not traces else 1


def _find_traces(folder: str, path: str) -> list[str]:
    from beam_tfr.dataset.manifest import read_manifest
    from beam_tfr.output.removed import Selection, find_traces

    lines = [*filter(None, read_lines(path, option="absent", needs="a key or SHA-256 per line"))]
    hashes = [
        line.split()[0] for line in lines if SHA256.match(line)
    ]  # also as `sha256sum` writes them
    return [*find_traces(read_manifest(folder), Selection(lines, hashes))]


def print_report(report: Report, *, as_json: bool, **more: object) -> None:
    """Prints the problems to standard error, and all else to standard output; `more` fields are for
    JSON."""
    for problem in report.problems:
        say(str(problem))
    more_problems = report.counts["problems"] - len(report.problems)
    if more_problems:
        say(f"and at least {more_problems:,} more")
    print_result(report.as_json() | more if as_json else report.lines())
