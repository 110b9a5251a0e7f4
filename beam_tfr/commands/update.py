"""Brings a dataset up to date with its input, or changes its options.

The time that an update takes depends on how much has changed.

examples:
  beam-tfr update /data/photos --input photos
      adds new photos, drops deleted ones, converts changed ones, and copies all other records;
      --input must include all photos, old and new
  beam-tfr update /data/photos --input photos --splits train=0.8,validation=0.1,test=0.1
      divides the images again, without decoding them
  beam-tfr update /data/photos --rename tabby=cat
      renames a class; its id stays the same
  beam-tfr update /data/photos --target_shard_bytes 200MiB
      needs no input: the records are copied into other shards
  beam-tfr update /data/photos --duplicates group
      needs no input: puts photos that are copies of each other into one split
  beam-tfr update /data/photos --input photos --max_pixels 500000000
      reads only the rejected images again

The result is byte for byte the dataset that `beam-tfr convert` would write. All other options are
taken from the manifest. The existing dataset stays intact until the new one is complete. After an
interruption, the same command resumes. Beam's own options are accepted too.
"""

import argparse
from collections.abc import Sequence

from beam_tfr.commands.calls import add_dataset, print_result, show_run
from beam_tfr.options import ConvertOptions, add_arguments, from_arguments
from beam_tfr.options.run import NOT_FOR_UPDATES, UpdateOptions
from beam_tfr.options.table import options_of

HELP = "add, change and drop images of a dataset, or divide it again"
_OPTIONS = options_of(ConvertOptions).keys() - {*NOT_FOR_UPDATES}


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser, *_OPTIONS)
    add_arguments(parser, UpdateOptions, switches=True)


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Updates a dataset; `others` are Beam's flags."""
    # A switch that is not set is False, and must not override the dataset's value.
    options = {name: getattr(parsed, name) or None for name in _OPTIONS}
    update_options = from_arguments(parsed, UpdateOptions)
    with show_run(parsed, others) as display:
        from beam_tfr import launch

        result = launch.update(
            parsed.folder, options, update_options, others, progress=display, say=display.say
        )
    print_result(result, as_json=parsed.json)
    return 0
