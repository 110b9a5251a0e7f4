"""The command `verify`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfr.commands.calls import display, refuse
from beam_tfr.console.terminal import counted, say
from beam_tfr.options import ConvertOptions, add_arguments
from beam_tfr.schema import UsageError

if TYPE_CHECKING:
    from beam_tfr.verification import Report

EXAMPLES = """examples:
  beam-tfr verify /data/photos
  beam-tfr verify gs://bucket/photos --sample 0.01
      reads one shard in a hundred
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
        "--sample",
        metavar="SHARE",
        type=float,
        help="read only this share of the shards, such as 0.01, but at least one per split; reports what was not read",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="seed that chooses the sample (default: %(default)s)"
    )
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
        how: dict[str, Any] = {"sample": parsed.sample, "seed": parsed.seed, "progress": shown}
        if on_runner:
            from beam_tfr import launch

            launch.parse_beam_flags(others, parsed.known)  # a misspelled flag is reported first
            if parsed.sources:
                raise UsageError("`sources=` cannot be combined with `runner=`: sources are read by this machine")
            report = launch.verify_on(parsed.folder, others, **how, say=shown.say)
        else:
            from beam_tfr.verification import verify

            report = verify(parsed.folder, sources=parsed.sources or (), exclude=parsed.exclude or (), **how)
    say_problems(report)
    print(json.dumps(report.as_json(), sort_keys=True) if parsed.json else "\n".join(describe(report)))
    return 0 if report.ok else 1


def say_problems(report: Report) -> None:
    """Prints the problems to standard error."""
    for problem in report.problems:
        say(str(problem))
    if report.num_problems > len(report.problems):
        say(f"and at least {report.num_problems - len(report.problems):,} more")


def describe(report: Report) -> Iterator[str]:
    """The lines of a report, without its problems."""
    read = report.shards - len(report.unread)
    rate = report.examples / max(report.seconds, 1e-3)
    yield (
        f"{report.folder}: {counted(report.examples, 'record')} in {counted(read, 'shard')}, "
        f"{report.num_bytes:,} bytes, {report.seconds:.1f} s, {rate:,.0f} records/s"
    )
    if report.sources is not None:
        changed, gone, new, unreadable = (
            report.kinds.get(f"source-{kind}", 0) for kind in ("changed", "gone", "new", "unreadable")
        )
        new_files = "not looked for" if report.unread else f"{new:,}"
        yield (
            f"sources: {report.sources:,} compared, {changed:,} changed, {gone:,} gone, {unreadable:,} unreadable, "
            f"new: {new_files}"
        )
    if report.unread:
        yield (
            f"not read: {len(report.unread):,} of {counted(report.shards, 'shard')}, for which only the sizes were "
            "compared; sums over all records and the digest were not checked"
        )
    yield from report.describe_others()
    if not report.ok:
        yield counted(report.num_problems, "problem")
    elif report.unread:
        yield f"OK as far as it was read: {counted(read, 'shard')} of {report.shards:,}"
    else:
        yield "OK: the dataset matches its manifest"
