"""Shows features, counts and the first records of a dataset or of TFRecord files.

Files may be compressed with GZIP or not at all. Exits with 1 if a file is damaged or the dataset
is incomplete.

examples:
  beam-tfr inspect /data/photos --where label=hat
      features, counts, and the first records of class hat
  beam-tfr inspect gs://bucket/train.tfrecord-00000-of-00010 --record 12
  beam-tfr inspect /data/photos --contact_sheet photos.png --names
      some images of each class, with their keys
  beam-tfr inspect /data/photos --rejects --sources photos --contact_sheet rejects.png
      rejects by reason, with pictures of those that can be decoded
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from beam_tfr.commands.calls import (
    add_sources,
    add_where,
    print_lines,
    save_sheet,
    show_progress,
)
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
        help="draw thumbnails of 40 (or --records) records, some of each class, or of the "
        "records that --where or --record selects",
    )
    parser.add_argument(
        "--names", action="store_true", help="show the key of each record on the contact sheet"
    )
    parser.add_argument("--rejects", action="store_true", help="show rejects instead of records")
    add_sources(parser, "for pictures of rejects")
    add_arguments(parser, DisplayOptions, ("progress_format", "quiet"), switches=True)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Shows the contents of the path; returns 1 if it is damaged."""
    _check_flags(parsed)
    if parsed.rejects:
        return _show_rejects(parsed)
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
        save_sheet(inspected.contact_sheet(names=parsed.names), parsed.contact_sheet)
        saved = f"wrote {parsed.contact_sheet}: {counted(len(inspected.sheet_records), 'record')}"
        notes = filter(None, [inspected.sheet_note])
        print_lines([saved, *notes, *inspected.problem_lines()])
    else:
        print_lines(inspected.lines(records))
    return int(bool(inspected.problem))


def _check_flags(parsed: argparse.Namespace) -> None:
    """Checks flags that need other flags.

    Raises:
        UsageError: a flag is used without the flag that it needs.
    """
    if parsed.names and not parsed.contact_sheet:
        raise UsageError("names are shown on a contact sheet; add --contact_sheet FILE.png")
    if parsed.sources and not (parsed.rejects and parsed.contact_sheet):
        raise UsageError(
            "sources are shown as pictures of rejects; add --rejects --contact_sheet FILE.png"
        )
    chosen = parsed.where or parsed.record is not None or parsed.records is not None
    if parsed.rejects and (chosen or parsed.split):
        raise UsageError(
            "--rejects shows the rejects of the whole dataset; leave out flags that select records"
        )


def _show_rejects(parsed: argparse.Namespace) -> int:
    """Shows rejects, as text or on a contact sheet."""
    from beam_tfr.reporting import rejects_sheet

    with show_progress(parsed, "rejects"):
        shown = rejects_sheet.read_rejects(parsed.path, parsed.sources)
    if parsed.contact_sheet and shown.groups:
        save_sheet(shown.contact_sheet(), parsed.contact_sheet)
        saved = f"wrote {parsed.contact_sheet}: {counted(shown.number, 'reject')} in all"
        advice = []
        if shown.is_complete and not parsed.sources:
            advice = ["add --sources, the input, for pictures"]
        notes = [f"note: {shown.note}"] if shown.note else []
        print_lines([saved, *advice, *notes])
    else:
        print_lines(shown.lines())
    return int(not shown.is_complete)
