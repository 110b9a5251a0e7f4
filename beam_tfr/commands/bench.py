"""Measures how fast this machine reads a dataset, and what decoding takes of it, in seconds. For the speed of a
conversion, see beam-tfr plan.
"""

import argparse
import json
from collections.abc import Sequence

from beam_tfr import storage
from beam_tfr.options import DisplayOptions, add_arguments

HELP = "measure how fast this machine reads a dataset"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument("folder", metavar="DIR", help="folder of a dataset, on disk or gs://")
    add_arguments(parser, DisplayOptions, ("json",), switches=True)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Measures how fast a dataset is read."""
    from beam_tfr import bench

    found = bench.measure(storage.check_path(parsed.folder))
    print(json.dumps(found, sort_keys=True) if parsed.json else bench.describe(found))
    return 0
