"""Compares two datasets by their manifests and contents, without their shards.

Compares records by key, class, split, columns and pixels, and also options, counts and class ids.
Exits with 0 if the datasets are equal, and with 1 if they differ or cannot both be read.

examples:
  beam-tfr diff /data/photos-1 gs://bucket/photos-2
  beam-tfr diff /data/photos-1 /data/photos-2 --json --most 1000000 | jq -c .differing[]
      the records that differ, one per line:
      {"kind": "relabelled", "key": "7", "old": {"class": "a"}, "new": {"class": "b"}}
  beam-tfr diff /data/photos-1 /data/photos-2 --json | jq -e '.records.removed == 0'
      a check that nothing was lost
"""

import argparse
from collections.abc import Sequence

from beam_tfr.commands.calls import DISPLAY_FLAGS, print_json, print_lines, show_progress
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.options import ConvertOptions, add_arguments

HELP = "show the differences between two datasets"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help="folder of a dataset, on disk or gs://")
    parser.add_argument("new", metavar="NEW", help="folder of the other dataset")
    parser.add_argument(
        "--most",
        metavar="N",
        type=int,
        default=10,
        help="records of each kind to show (default: %(default)s)",
    )
    add_arguments(parser, ConvertOptions, DISPLAY_FLAGS, switches=True)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Compares two datasets; returns 1 if they differ."""
    most = check_integer("most", parsed.most, 0)
    with show_progress(parsed, "records") as display:
        from beam_tfr.comparison import diff

        compared = diff(parsed.old, parsed.new, progress=display)
    if parsed.json:
        print_json(compared.as_json(most))
    else:
        print_lines(compared.lines(most))
    return int(not compared.equal)
