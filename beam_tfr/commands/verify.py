r"""Reads every shard of a dataset and checks everything in it.

Checks checksums, records, images, labels and counts. If something is wrong, reports the file and
the record, and exits with 1.

examples:
  beam-tfr verify /data/photos
  beam-tfr verify /data/photos --sources 'photos/**/*.jpg'
      also compares every record with its source file
  beam-tfr verify /data/photos --sources photos.parquet
      the same for a dataset that was made with --table
  beam-tfr verify gs://bucket/photos --runner=DataflowRunner --project=… --region=… \
      --temp_location=gs://…
      reads the shards on other machines; works with any of Beam's runners
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from beam_tfr.commands.calls import (
    add_dataset,
    add_sources,
    print_json,
    print_lines,
    refuse_arguments,
    show_progress,
    show_run,
)
from beam_tfr.console.terminal import counted, print_message
from beam_tfr.inputs.key_lists import find_hash, read_keys
from beam_tfr.schema.errors import NotInstalledError, UsageError
from beam_tfr.schema.untrusted import quote

if TYPE_CHECKING:
    from beam_tfr.output.removed import NeverRemoved
    from beam_tfr.verification import Report

HELP = "read a whole dataset and check it against its manifest"
_TRACES = 10  # shown


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser, "exclude")
    add_sources(parser, "also reports changed, missing and new sources")
    parser.add_argument(
        "--absent",
        metavar="FILE",
        help="also check that no trace is left of the images that this file lists: on each line "
        "the key of a removed image, or the hex SHA-256 of a source file; keys may also be JSON "
        "Lines; - for standard input",
    )


def run(parsed: argparse.Namespace, others: Sequence[str]) -> int:
    """Verifies a dataset; returns 1 if it has problems. `others` are Beam's flags."""
    if not others:
        report = _verify_here(parsed)
    elif "--runner" in [flag.partition("=")[0] for flag in others]:
        report = _verify_on_runner(parsed, others)
    else:
        refuse_arguments(parsed, others, "beam-tfr verify")
    if not parsed.absent:
        print_report(report, as_json=parsed.json)
        return int(not report.ok)
    absence = _check_absence(parsed.folder, parsed.absent)
    is_clean = report.ok and absence.ok
    print_report(report, as_json=parsed.json, ok=is_clean, **absence.as_json())
    for trace in absence.traces[:_TRACES]:
        print_message(f"not removed: {trace}")
    keys = absence.never_removed.keys
    if keys:
        print_message(
            f"{len(keys):,} of the keys in {parsed.absent} were never removed here, such as "
            f"{quote(keys[0])}, so this proves nothing about them: keys must be spelled as in the "
            "contents, such as class/name.jpg; correct them, use the SHA-256 of the files, or "
            "keep them out with `beam-tfr remove --keys FILE --allow_missing`"
        )
    if not parsed.json:
        print_lines(absence.lines(parsed.absent))
    return int(not is_clean)


class _Absence(NamedTuple):
    """The result of searching for images that should be absent.

    Attributes:
        traces: places where the dataset still holds the images.
        never_removed: keys and hashes in the list that were never removed.
    """

    traces: list[str]
    never_removed: NeverRemoved

    @property
    def ok(self) -> bool:
        """Whether it is certain that no trace of the images is left."""
        return not (self.traces or self.never_removed.keys)

    def as_json(self) -> dict[str, list[str]]:
        keys, others = self.never_removed
        return {"traces": self.traces, "never_removed": [*keys, *others]}

    def lines(self, path: str) -> Iterator[str]:
        """Yields the result of checking the list in a file."""
        yield f"absent:  {counted(len(self.traces), 'trace')} of the images in {path}"
        others = self.never_removed.others
        if others and not self.traces:
            yield (
                f"note: {len(others):,} of these were never removed here, such as "
                f"{quote(others[0])}: nothing keeps them out of updates"
            )


def _verify_here(parsed: argparse.Namespace) -> Report:
    """Reads the shards on this machine, without Beam."""
    with show_progress(parsed, "records") as display:
        from beam_tfr.verification import verify

        return verify(
            parsed.folder,
            sources=parsed.sources,
            exclude=parsed.exclude or (),
            progress=display,
        )


def _verify_on_runner(parsed: argparse.Namespace, flags: Sequence[str]) -> Report:
    """Reads the shards on the engine that Beam's flags select."""
    with show_run(parsed, flags, "records") as display:
        from beam_tfr import launch

        if parsed.sources:
            raise UsageError(
                "`sources=` cannot be combined with `runner=`: sources are read by this machine"
            )
        return launch.verify_on(parsed.folder, flags, progress=display, say=display.say)


def _check_absence(folder: str, path: str) -> _Absence:
    """Finds traces of the keys and hashes in a file, and lists which of them were never removed."""
    from beam_tfr.dataset.manifest import read_manifest

    try:
        from beam_tfr.output.removed import ImageSelection, find_traces, list_never_removed
    except ModuleNotFoundError as error:
        raise NotInstalledError(
            f"`absent=` needs {error.name}: pip install 'beam_tfr[convert]'"
        ) from error
    listed = read_keys(path, option="absent", needs="a key or SHA-256 per line")
    hashes = [*filter(None, map(find_hash, listed.keys))]
    selection = ImageSelection(listed.keys, hashes, keys_are_lines=listed.are_lines)
    dataset = read_manifest(folder)
    traces = [*find_traces(dataset, selection)]
    return _Absence(traces, list_never_removed(dataset, listed.keys))


def print_report(report: Report, *, as_json: bool, ok: bool = True, **more: object) -> None:
    """Prints problems to standard error, and everything else to standard output.

    Args:
        report: the report.
        as_json: whether to print it as JSON.
        ok: whether all other checks passed.
        more: fields to add to the JSON.
    """
    for problem in report.problems:
        print_message(str(problem))
    unlisted = report.counts["problems"] - len(report.problems)
    if unlisted:
        print_message(f"and at least {unlisted:,} more")
    if as_json:
        print_json(report.as_json() | {"ok": report.ok and ok} | more)
    else:
        print_lines(report.lines(ok=ok))
