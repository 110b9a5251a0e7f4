"""The output of `convert`, as a table or a JSON object."""

import json
import shlex
from typing import Any

from beam_tfr.console.terminal import printable
from beam_tfr.launch import Job, Result
from beam_tfr.schema.errors import as_flags


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
                **{field: value for field, value in split.items() if field != "shards"},
                "num_shards": len(split["shards"]),
            }
            for name, split in dataset.fields["splits"].items()
        },
        "cropped": dataset.statistics.get("cropped"),
        "boxes": dataset.statistics.get("boxes"),
        "columns": dataset.options.get("feature_columns", {}),
        "skipped": result.skipped,
        "missed": result.missed,
        "rewritten_shards": result.rewritten,
        "new_ids": result.new_ids,
        "dataset_digest": dataset.dataset_digest,
        "seconds": round(result.seconds, 3),
        "resumed": result.resumed,
        "images_per_second": round(result.images_per_second, 1),
    }


def print_job(job: Job, *, as_json: bool) -> None:
    """Prints what was submitted, for a run that does not wait for the dataset."""
    if as_json:
        fields = {"job_id": job.id or None, "console" if job.id else "template": job.place}
        print(json.dumps(fields, sort_keys=True))
    elif job.id:
        print(f"job {job.id} was created and runs on its own: {job.place}")
    else:
        print(f"no job was created; its description: {job.place or 'not kept, this was a dry run'}")


def print_summary(result: Result) -> None:
    """Prints the summary of a conversion as a table."""
    print(as_flags(str(result)))
    print(printable(f"next:    beam-tfr verify {shlex.quote(result.folder)}"))


def tell_changes(done: Result) -> str:
    """What an update changed, in a line."""
    text = ", ".join(f"{number:,} {kind}" for kind, number in done.changed.items() if number)
    if done.fresh:
        return f"update:  {text or 'no image changed, but the dataset did' if done.changed else 'all converted again'}"
    return "update:  nothing changed"
