"""Verifies a dataset and rebuilds its damaged and missing shards.

Rebuilt shards have the same bytes as before. Needs the input that the dataset was made from. If
the input has changed, `beam-tfr verify --sources` lists the changes.

examples:
  beam-tfr repair /data/photos --input 'photos/**/*.jpg'

All other options are taken from the manifest. Beam's own options are accepted too. After an
interruption, the same command resumes. The dataset keeps its manifest and digest, and an
interrupted repair leaves it no worse than before.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beam_tfr.commands.calls import add_dataset, show_run
from beam_tfr.commands.verify import print_report
from beam_tfr.console.terminal import counted, printable
from beam_tfr.schema.differences import join_texts

if TYPE_CHECKING:
    from beam_tfr.verification import Report

HELP = "rebuild damaged or missing shards of a dataset"
_OPTIONS = ("input", "input_list", "exclude", "table", "image_root", "read_ahead", "gcs_project")


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser, *_OPTIONS)


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Repairs a dataset; returns 1 if it still has problems.

    `others` are Beam's flags.
    """
    options = {name: getattr(parsed, name) for name in _OPTIONS}
    with show_run(parsed, others, "records") as display:
        from beam_tfr import launch

        report, rebuilt = launch.repair(
            parsed.folder, options, others, progress=display, say=display.say
        )
    if not parsed.json:
        _print_rebuilt(report, rebuilt)
    print_report(report, as_json=parsed.json, repaired=rebuilt)
    return int(not report.ok)


def _print_rebuilt(report: Report, rebuilt: Sequence[str]) -> None:
    """Prints how many files were rebuilt, and which foreign files were not touched."""
    from beam_tfr.verification.report import ProblemKind

    if rebuilt:
        print(f"rebuilt: {counted(len(rebuilt), 'file')}")
    elif report.ok:
        print("nothing was damaged")
    else:
        print("nothing was rebuilt")
    foreign = [problem.file for problem in report.problems if problem.kind is ProblemKind.FOREIGN]
    if foreign:
        names = join_texts(foreign)
        print(printable(f"left alone: {names}; move them out of the folder"))
