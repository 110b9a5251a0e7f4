"""history.jsonl: what updates did to a dataset, a line for each."""

import contextlib
import datetime
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.dataset import HISTORY_FILE
from beam_tfr.schema.plan import Counts
from beam_tfr.version import __version__

CHANGE_KINDS = ("added", "removed", "changed", "relabelled")  # of changes, counted in each line


class Update(NamedTuple):
    """How a dataset is updated.

    Attributes:
        command: "update" or "remove".
        counted: whether the changes are known; they are not if all images are converted again.
    """

    command: str
    counted: bool = True


def read_history(folder: str) -> list[dict[str, Any]]:
    """The lines of the history of a dataset, oldest first, without damaged ones; empty without a
    history."""
    lines = list[Any]()
    for line in _bytes(folder).splitlines():
        with contextlib.suppress(ValueError):
            lines.append(json.loads(line))
    return [
        line for line in lines if isinstance(line, dict) and isinstance(line.get("records"), int)
    ]


def _bytes(folder: str) -> bytes:
    return storage.read_existing(storage.join(folder, HISTORY_FILE)) or b""


def describe_updates(folder: str, most: int = 5) -> Iterator[str]:
    """Yields what the last updates of a dataset did, a line for each."""
    for line in read_history(folder)[-most:]:
        changes = ", ".join(f"{line[kind]:,} {kind}" for kind in CHANGE_KINDS if line.get(kind))
        when = line.get("time", "")[:10]
        command = line.get("command")
        records = line.get("records", 0)
        yield f"{when} {command}: {changes or 'no image changed'}; {records:,} records"


def add_update(before: Manifest, after: Mapping[str, Any], counts: Counts, update: Update) -> bytes:
    """The content of history.jsonl after an update.

    Args:
        before: the dataset.
        after: fields of its new manifest.
        counts: of all records, with `before`.
        update: how it was updated.
    """
    stayed = counts.before
    line = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": update.command,
        "tool_version": __version__,
        "before": before.dataset_digest,
        "after": after["dataset_digest"],
        "records": after["counts"]["written"],
        "rejects": after["rejects"]["count"],
    }
    if update.counted:
        numbers = (
            counts.num_examples - sum(stayed.values()),
            before.counts["written"] - sum(stayed.values()),
        )
        line |= zip(
            CHANGE_KINDS,
            (*numbers, stayed.get("changed", 0), stayed.get("relabelled", 0)),
            strict=True,
        )
    existing = _bytes(before.folder)
    return (
        existing
        + (b"\n" if existing and not existing.endswith(b"\n") else b"")
        + json.dumps(line).encode()
        + b"\n"
    )
