"""Shows what convert would do with the same options: splits, classes and shards, and estimates of
rejects, size and time. Lists all files, converts a sample, and writes nothing.

examples:
  beam-tfr plan --input photos --layout '{label}/*'
      what convert would do with the same options: classes, splits, shards, rejects, size, time
  beam-tfr plan --input 'gs://bucket/photos/**/*.jpg' --output gs://bucket/dataset
      the CPU time is that which Dataflow bills as vCPU-hours, if its vCPUs are as fast
"""

import argparse
from collections.abc import Sequence

from beam_tfr.commands.calls import add_options, launching, print_result, read_call
from beam_tfr.schema.encodings import noun_of

HELP = "show what convert would do, without writing anything"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument(
        "--sample_size",
        metavar="N",
        type=int,
        default=256,
        help="images in the sample (default: %(default)s)",
    )
    add_options(parser)


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Lists, samples and estimates; `others` are Beam's flags, which are only checked."""
    options, flags = read_call(parsed, others, output="dataset")
    with launching(parsed, flags, noun_of(options.encoding)) as (shown, _):
        from beam_tfr.preview import preview

        found = preview(
            options,
            flags,
            check_output=parsed.has_output,
            sample_size=parsed.sample_size,
            progress=shown,
        )
    print_result(found.as_json() if options.json else found.lines())
    return 0
