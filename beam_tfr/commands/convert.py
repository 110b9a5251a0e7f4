r"""Converts images into a dataset of sharded TFRecord files.

Every matching file becomes a record or is listed in rejects.jsonl with a reason.

examples:
  beam-tfr convert --input photos --output /data/photos
      photos/cat/1.jpg belongs to class cat; everything goes into the split train
  beam-tfr convert --input photos --output /data/photos --layout '{label}_*' \
      --splits train=0.8,validation=0.1,test=0.1 --stratify
      photos/cat_1.jpg belongs to class cat; each split contains its share of each class
  beam-tfr convert --table photos.csv --uri_column file --label_column species \
      --output /data/photos --image_size 299 --resize pad
      photos.csv has a row for each photo, with its path and its class

Beam's own options are accepted too: --runner=DataflowRunner --project=… --region=… and so on.
Without --runner, the conversion uses all cores of this machine.
After an interruption, the same command resumes where it stopped.
"""

import argparse
import dataclasses
from collections.abc import Sequence

from beam_tfr.commands.calls import (
    add_conversion,
    print_result,
    read_conversion,
    show_run,
)
from beam_tfr.schema.encodings import noun_of

HELP = "convert images into a dataset"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_conversion(parser)


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Converts; `others` are Beam's flags."""
    options, flags = read_conversion(parsed, others)
    with show_run(parsed, flags, noun_of(options.encoding)) as display:
        from beam_tfr import launch

        result = launch.start(options, flags, progress=display, say=display.say)
        if not isinstance(result, launch.Job):
            result = dataclasses.replace(result, seconds=display.seconds)
            if options.report:
                from beam_tfr.reporting import write_report

                write_report(result.folder, options, display)
    print_result(result, as_json=options.json)
    return 0
