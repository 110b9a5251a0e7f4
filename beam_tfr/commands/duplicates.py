"""Finds images in a dataset that are copies of each other, using the dataset's contents.

Copies are files with equal bytes, and photos with similar perceptual hashes: the same photo
re-encoded, resized, brightened, converted to grayscale, or mirrored. Photos cropped by more than
1 to 2% are not found. The command reads no shard and changes nothing: `beam-tfr update DIR
--duplicates group` puts copies into one split, and `--duplicates drop` keeps one of them.

examples:
  beam-tfr duplicates /data/photos
  beam-tfr duplicates /data/photos --contact_sheet copies.png
      a row of thumbnails for each of the first 20 clusters
  beam-tfr duplicates /data/photos --json | jq -e '.counts.across_splits == 0'
      a check that no photo is in two splits
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from beam_tfr.commands.calls import DISPLAY_FLAGS, print_result, save_sheet, show_progress
from beam_tfr.console.terminal import print_message
from beam_tfr.options import ConvertOptions, add_arguments

HELP = "find copies: equal files, and photos that look the same"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder of the dataset, on disk or gs://")
    parser.add_argument(
        "--distance",
        metavar="BITS",
        type=int,
        help="number of bits, of 256, by which the hashes of near copies may differ, up to 48 "
        "(default: 31)",
    )
    parser.add_argument(
        "--contact_sheet",
        metavar="FILE.png",
        help="draw thumbnails of the first 20 clusters, each in a row",
    )
    add_arguments(parser, ConvertOptions, DISPLAY_FLAGS, switches=True)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Shows the copies in a dataset."""
    with show_progress(parsed, "images") as display:
        from beam_tfr.copies import duplicates

        found = duplicates(parsed.folder, distance=parsed.distance, progress=display)
    if parsed.contact_sheet:
        from beam_tfr.inspection.copies_sheet import draw_copies

        save_sheet(draw_copies(found), parsed.contact_sheet)
        print_message(f"wrote {parsed.contact_sheet}")
    print_result(found, as_json=parsed.json)
    return 0
