"""Writes a dataset in a format of other programs, with the bytes of its images as they are.

examples:
  beam-tfr export /data/photos /data/folders --format folder
      a file for each image, metadata.jsonl, and for datasets with boxes instances_train.json and so
      on, as in COCO
  beam-tfr export /data/photos /data/tars --format webdataset --split train
  beam-tfr export /data/photos /data/hats --format parquet --where label=hat
      for Hugging Face: datasets.load_dataset("/data/hats")
  beam-tfr export /data/photos /data/tfds --format tfds
      for TensorFlow Datasets: tfds.load("photos", data_dir="/data/tfds")
  beam-tfr export /data/photos /data/index --format dali-index
      an index for each shard, which must not be compressed

After an interruption, the same command resumes from the finished shards. export.json says whether
the export is complete. Beam's own options are accepted too: --runner=DataflowRunner exports from
and to gs:// on many machines.
"""

import argparse
from collections.abc import Sequence

from beam_tfr.commands.calls import add_dataset, add_where, launching, print_result
from beam_tfr.console.terminal import counted

HELP = "write a dataset as folders, tars, Parquet, or for TensorFlow Datasets or DALI"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_dataset(parser)
    parser.add_argument(
        "output", metavar="OUT", help="empty folder for the export, on disk or gs://"
    )
    parser.add_argument(
        "--format",
        metavar="NAME",
        required=True,
        help="folder, webdataset, parquet, tfds, dali-index",
    )
    parser.add_argument(
        "--split", metavar="NAME", help="split to export, or several: train+test (default: all)"
    )
    add_where(parser, "export only records with this value: label=hat")


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Exports a dataset; `others` are Beam's flags."""
    with launching(parsed, others) as (_, reports):
        from beam_tfr import launch

        chosen = {"split": parsed.split, "where": parsed.where, "beam_flags": others}
        done = launch.export(parsed.folder, parsed.output, parsed.format, **chosen, **reports)
    about = {
        "output": done.folder,
        "format": done.format,
        "splits": done.splits,
        "images": done.images,
    }
    images = counted(done.images, "image")
    lines = [f"exported: {images} to {done.folder}"]
    if not done.fresh:
        lines = [
            f"complete: {done.folder} has these {images} already; its files were compared by number and size"
        ]
    print_result(
        about | {"complete_already": not done.fresh}
        if parsed.json
        else [*lines, f"load:     {done.load}"]
    )
    return 0
