"""The command `verify`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from beam_tfr.commands.calls import display, refuse
from beam_tfr.console.terminal import say
from beam_tfr.options import ConvertOptions, add_arguments
from beam_tfr.schema import UsageError

if TYPE_CHECKING:
    from beam_tfr.verification import Report

EXAMPLES = """examples:
  beam-tfr verify /data/photos
  beam-tfr verify /data/photos --sources 'photos/**/*.jpg'
      also compares every record with its source file
  beam-tfr verify gs://bucket/photos --runner=DataflowRunner --project=… --region=… --temp_location=gs://…
      reads the shards on other machines; works with any of Beam's runners
"""


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "verify",
        help="read a whole dataset and check it against its manifest",
        description="Reads every shard of a dataset and checks checksums, records, images, labels and counts. If "
        "something is wrong, names the file and record and exits with 1.",
        epilog=EXAMPLES,
    )
    parser.add_argument("folder", metavar="DIR", help="folder of the dataset, on disk or gs://")
    parser.add_argument(
        "--sources",
        metavar="GLOB",
        nargs="+",
        help="the --input that the dataset was made from, a folder too: also reports changed, missing and new files",
    )
    add_arguments(parser, ConvertOptions, ("exclude", "log_format", "quiet", "json"), switches=True)
    parser.set_defaults(run=run, takes_beam_flags=True)


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Verifies a dataset; returns 1 if it has problems. `others` are Beam's flags."""
    on_runner = any(flag.partition("=")[0] == "--runner" for flag in others)
    if others and not on_runner:
        refuse(parsed, others, "beam-tfr verify")
    with display(parsed, "records") as shown:
        if on_runner:
            from beam_tfr import launch

            launch.parse_beam_flags(others, parsed.known)  # a misspelled flag is reported first
            if parsed.sources:
                raise UsageError("`sources=` cannot be combined with `runner=`: sources are read by this machine")
            report = launch.verify_on(parsed.folder, others, progress=shown, say=shown.say)
        else:
            from beam_tfr.verification import verify

            report = verify(parsed.folder, sources=parsed.sources or (), exclude=parsed.exclude or (), progress=shown)
    print_report(report, as_json=parsed.json)
    return 0 if report.ok else 1


def print_report(report: Report, *, as_json: bool, **more: object) -> None:
    """Prints the problems to standard error, and all else to standard output; `more` fields are for JSON."""
    for problem in report.problems:
        say(str(problem))
    if more_problems := report.counts["problems"] - len(report.problems):
        say(f"and at least {more_problems:,} more")
    if as_json:
        print(json.dumps(report.as_json() | more, sort_keys=True))
    else:
        print("\n".join(report.lines()))
