"""The output of `convert`: progress lines while it runs, then a table or a JSON object."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from beam_tfr.claim import Progress
from beam_tfr.display import Display
from beam_tfr.launch import Job, Result
from beam_tfr.launch.results import hints
from beam_tfr.schema import Plan, as_flags, in_order
from beam_tfr.tallies import Row, dataset_rows, plan_rows, with_totals
from beam_tfr.terminal import columns, counted, folded, printable


class Follow:
    """Shows how far a conversion is; the first call, before it begins, what an earlier run has finished."""

    def __init__(self, shown: Display) -> None:
        self._shown, self._begun = shown, False

    def __call__(self, progress: Progress) -> None:
        if not self._begun and progress.finished_shards:
            of = counted(progress.num_shards, "shard")
            self._shown.say(f"an earlier run has finished {progress.finished_shards:,} of {of}")
        self._begun = True
        self._shown(progress.state())


def summary(result: Result) -> dict[str, Any]:
    """The summary of a conversion, as JSON values."""
    dataset = result.manifest
    return {
        "output": dataset.folder,
        "name": dataset.name,
        "complete_already": not result.fresh,
        **dataset.counts,
        "splits": {
            name: {
                **{what: value for what, value in split.items() if what != "shards"},
                "num_shards": len(split["shards"]),
            }
            for name, split in dataset.fields["splits"].items()
        },
        "cropped": dataset.statistics.get("cropped"),
        "columns": dataset.options.get("feature_columns", {}),
        "skipped": dict(result.skipped),
        "left_behind": dict(result.left_behind),
        "nested": dict(result.nested),
        "changes": result.changes._asdict(),
        "new_ids": result.new_ids,
        "hints": [*map(as_flags, hints(dataset.counts))],
        "dataset_digest": dataset.dataset_digest,
        "seconds": round(result.seconds, 3),
        "resumed": result.resumed,
        "images_per_second": round(result.images_per_second, 1),
    }


def print_job(job: Job, *, as_json: bool) -> None:
    """Prints what was submitted, for a run that does not wait for the dataset."""
    if as_json:
        about = {"job_id": job.id or None, "console" if job.id else "template": job.place}
        print(json.dumps(about, sort_keys=True))
    elif job.id:
        print(f"job {job.id} was created and runs on its own: {job.place}")
    else:
        print(f"no job was created; its description: {job.place or 'not kept, this was a dry run'}")


def plan_lines(plan: Plan) -> Iterator[str]:
    """The splits of a plan as a table: images, shards and classes."""
    return _table(in_order(plan.splits), plan_rows(plan))


def print_summary(result: Result, *, to: IO[str]) -> None:
    """Prints the summary of a conversion as a table."""
    dataset = result.manifest

    def line(text: str) -> None:
        print(folded(printable(text), 9), file=to)

    if not result.fresh:
        line(f"{dataset.folder} already holds this complete dataset; nothing was written.")
        line("Its files were compared by name and size; beam-tfr verify reads all their bytes.")
    for row in _table(in_order(dataset.splits), dataset_rows(dataset)):
        print(printable(row), file=to)
    for text in result.lines():
        line(as_flags(text))
    # Not folded, since they are to be copied.
    print(printable(f"next:    beam-tfr verify {shlex.quote(dataset.folder)}"), file=to)
    print(printable(f"load:    {result.load_call()}"), file=to)


def _table(splits: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    table = [("", [*splits, "total"])]
    table += [(f"{title:.24}", [f"{value:,}" for value in values]) for title, values in with_totals(rows)]
    widths = [24, *[12] * (len(splits) + 1)]
    if sum(widths) > columns():
        numbers = zip(*(cells for _, cells in table if cells), strict=True)
        widths = [max(len(title) for title, _ in table), *(1 + max(map(len, column)) for column in numbers)]
    for title, cells in table:
        padded = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=False))
        yield f"{title:{widths[0]}}{''.join(padded)}".rstrip()
