"""Verifies a dataset and rebuilds its damaged and missing shards, with the same bytes as before.
Needs the input that the dataset was made from. If that has changed, beam-tfr verify --sources names
the changes.

examples:
  beam-tfr repair /data/photos --input 'photos/**/*.jpg'

All other options are taken from the manifest. Beam's own options are accepted too. After an
interruption, the same command resumes. The dataset keeps its manifest and digest, and an
interrupted repair leaves it no worse than before.
"""

import argparse
from collections.abc import Sequence

from beam_tfr.commands.calls import add_dataset, launching
from beam_tfr.commands.verify import print_report
from beam_tfr.console.terminal import counted, printable
from beam_tfr.schema.differences import join_texts

GIVEN = ("input", "input_list", "exclude", "table", "image_root", "read_ahead", "gcs_project")
HELP = "rebuild damaged or missing shards of a dataset"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_dataset(parser, *GIVEN)


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Repairs a dataset; returns 1 if it still has problems. `others` are Beam's flags."""
    given = {name: getattr(parsed, name) for name in GIVEN}
    with launching(parsed, others, "records") as (_, reports):
        from beam_tfr import launch

        report, repaired = launch.repair(parsed.folder, given, others, **reports)
    if not parsed.json:
        nothing = "nothing was damaged" if report.ok else "nothing was rebuilt"
        print(f"rebuilt: {counted(len(repaired), 'file')}" if repaired else nothing)
        strays = [
            problem.file.replace("\n", "\\n")
            for problem in report.problems
            if problem.kind == "foreign"
        ]
        if strays:
            print(printable(f"left alone: {join_texts(strays)}; move them out of the folder"))
    print_report(report, as_json=parsed.json, repaired=repaired)
    return 0 if report.ok else 1
