"""Shows features, counts and the first records of a dataset or of TFRecord files.

The files may be GZIP or uncompressed. Exits with 1 if a file is damaged or the dataset is
incomplete.

examples:
  beam-tfr inspect /data/photos --where label=hat
      features, counts, and the first records of class hat
  beam-tfr inspect gs://bucket/train.tfrecord-00000-of-00010 --record 12
  beam-tfr inspect /data/photos --contact_sheet photos.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from beam_tfr.commands.calls import add_where, print_lines, save_sheet, show_progress
from beam_tfr.console.terminal import counted
from beam_tfr.options import DisplayOptions, add_arguments
from beam_tfr.schema.errors import UsageError

HELP = "show the records of a dataset, or of any TFRecord files"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="PATH", help="folder of a dataset, a file or a pattern, on disk or gs://"
    )
    parser.add_argument("--split", metavar="NAME", help="read only this split of a dataset")
    parser.add_argument(
        "--record", metavar="N", type=int, help="show only this record, counted from 0"
    )
    add_where(parser, "show only records with this value of a feature, such as label=hat")
    parser.add_argument(
        "--records", metavar="N", type=int, help="number of records to show (default: 3)"
    )
    parser.add_argument(
        "--contact_sheet",
        metavar="FILE.png",
        help="draw thumbnails of the first 40 (or --records) records",
    )
    add_arguments(parser, DisplayOptions, ("progress_format", "quiet"), switches=True)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Shows the contents of the path; returns 1 if it is damaged."""
    from beam_tfr.inspection import inspect
    from beam_tfr.inspection.inspecting import SHEET_RECORDS, TEXT_RECORDS

    records = parsed.records
    if records is None:
        records = SHEET_RECORDS if parsed.contact_sheet else TEXT_RECORDS
    with show_progress(parsed, "records") as display:
        inspected = inspect(
            parsed.path,
            split=parsed.split,
            record=parsed.record,
            where=parsed.where,
            records=records,
            progress=display,
        )
    if parsed.where and not inspected.records and not inspected.problem:
        raise UsageError("matches no record", option="where", value=",".join(parsed.where))
    if parsed.contact_sheet:
        save_sheet(inspected.contact_sheet(), parsed.contact_sheet)
        saved = f"wrote {parsed.contact_sheet}: {counted(len(inspected.records), 'record')}"
        print_lines([saved, *inspected.problem_lines()])
    else:
        print_lines(inspected.lines(records))
    return int(bool(inspected.problem))
