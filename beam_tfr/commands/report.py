"""Makes one HTML page that shows what is in a dataset, and what deserves a look.

It shows the classes in each split, samples with their boxes and masks, rejects, sizes, copies, and
how the dataset was made. It needs no other file, so you can email it, or open it from a bucket.

examples:
  beam-tfr report /data/photos
      writes /data/photos/report.html
  beam-tfr report /data/photos --output photos.html --sources photos
      also shows rejects that can be decoded, and the sources of extreme images, such as the darkest
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from beam_tfr import storage
from beam_tfr.commands.calls import add_sources, show_progress
from beam_tfr.console.terminal import counted, print_message
from beam_tfr.options import DisplayOptions, add_arguments
from beam_tfr.schema.dataset import REPORT_FILE

HELP = "make an HTML page of samples, classes, sizes, copies and rejects"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder of the dataset, on disk or gs://")
    parser.add_argument(
        "--output", metavar="FILE.html", help="where to write the page (default: DIR/report.html)"
    )
    add_sources(
        parser,
        (
            "also show rejects that can be decoded, and the sources of extreme images, such as the "
            "darkest"
        ),
    )
    add_arguments(parser, DisplayOptions, ("progress_format", "quiet"), switches=True)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Writes the page."""
    with show_progress(parsed, "records") as display:
        from beam_tfr.reporting import report

        made = report(parsed.folder, sources=parsed.sources, progress=display)
        path = parsed.output or storage.join(parsed.folder, REPORT_FILE)
        made.save(path)
    print_message(f"wrote {path}: {counted(len(made.findings), 'thing')} to look at")
    return 0
