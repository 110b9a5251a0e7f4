"""Shows what convert would do with the same options.

Shows splits, classes and shards, and estimates rejects, size and time. Lists all files, converts a
sample, and writes nothing.

examples:
  beam-tfr plan --input photos --layout '{label}/*'
      what convert would do with the same options: classes, splits, shards, rejects, size, time
  beam-tfr plan --input 'gs://bucket/photos/**/*.jpg' --output gs://bucket/dataset
      CPU time is what Dataflow bills as vCPU-hours, if its vCPUs are as fast as this machine's
"""

import argparse
from collections.abc import Sequence

from beam_tfr.commands.calls import (
    add_conversion,
    print_result,
    read_conversion,
    show_run,
)
from beam_tfr.schema.encodings import noun_of

HELP = "show what convert would do, without writing anything"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sample_size",
        metavar="N",
        type=int,
        default=256,
        help="images in the sample (default: %(default)s)",
    )
    add_conversion(parser)


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Lists the input, converts a sample and estimates the result.

    `others` are Beam's flags, which are only checked.
    """
    options, flags = read_conversion(parsed, others, output="dataset")
    with show_run(parsed, flags, noun_of(options.encoding)) as display:
        from beam_tfr.preview import preview

        previewed = preview(
            options,
            flags,
            check_output=parsed.has_output,
            sample_size=parsed.sample_size,
            progress=display,
        )
    print_result(previewed, as_json=options.json)
    return 0
