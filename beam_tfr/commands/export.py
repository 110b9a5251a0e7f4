"""Writes a dataset in a format for other programs.

The bytes of its images do not change.

examples:
  beam-tfr export /data/photos /data/folders --format folder
      a file for each image, and metadata.jsonl; with boxes, also instances_train.json … for COCO
  beam-tfr export /data/objects /data/yolo --format yolo
      data.yaml, images/train, labels/train …, with boxes, polygons or keypoints
  beam-tfr export /data/objects /data/voc --format voc
      JPEGImages, Annotations, ImageSets/Main
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

from beam_tfr.commands.calls import add_dataset, add_where, print_json, print_lines, show_run
from beam_tfr.console.terminal import counted

HELP = "write a dataset as folders, YOLO, VOC, tars, Parquet, or for TFDS or DALI"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument(
        "output", metavar="OUT", help="empty folder for the export, on disk or gs://"
    )
    parser.add_argument(
        "--format",
        metavar="NAME",
        required=True,
        help="folder, yolo, voc, webdataset, parquet, tfds, dali-index",
    )
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="split to export, or several: train+test, all-test (default: all)",
    )
    add_where(parser, "export only records with this value: label=hat")


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Exports a dataset; `others` are Beam's flags."""
    with show_run(parsed, others) as display:
        from beam_tfr import launch

        exported = launch.export(
            parsed.folder,
            parsed.output,
            parsed.format,
            split=parsed.split,
            where=parsed.where,
            beam_flags=others,
            progress=display,
            say=display.say,
        )
    if parsed.json:
        print_json(
            {
                "output": exported.folder,
                "format": exported.format,
                "splits": exported.splits,
                "images": exported.images,
                "complete_already": not exported.fresh,
            }
        )
        return 0
    images = counted(exported.images, "image")
    if exported.fresh:
        first = f"exported: {images} to {exported.folder}"
    else:
        first = (
            f"complete: {exported.folder} already has these {images}; "
            "only the number and size of its files were compared"
        )
    print_lines([first, f"load:     {exported.load}"])
    return 0
