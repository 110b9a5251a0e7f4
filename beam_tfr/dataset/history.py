"""history.jsonl: what updates did to a dataset, a line for each."""

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.dataset import HISTORY_FILE
from beam_tfr.schema.plan import Counts
from beam_tfr.version import __version__

CHANGE_KINDS = ("added", "removed", "changed", "relabelled")  # counted in each line


class Update(NamedTuple):
    """How a dataset is updated.

    Attributes:
        command: "update" or "remove".
        counted: whether the changes are known; they are not if all images are converted again.
    """

    command: str
    counted: bool = True


def read_history(folder: str) -> list[dict[str, Any]]:
    """The lines of the history of a dataset, oldest first.

    Without damaged ones; empty without a history.
    """
    lines = [_parse_line(line) for line in _read_bytes(folder).splitlines()]
    return [line for line in lines if line is not None]


def _parse_line(data: bytes) -> dict[str, Any] | None:
    """A line of the history; None if it is damaged."""
    try:
        line = json.loads(data)
    except ValueError:
        return None
    is_update = isinstance(line, dict) and isinstance(line.get("records"), int)
    return line if is_update else None


def _read_bytes(folder: str) -> bytes:
    return storage.read_existing(storage.join(folder, HISTORY_FILE)) or b""


def describe_updates(folder: str, most: int = 5) -> Iterator[str]:
    """Yields what the last updates of a dataset did, a line for each."""
    for line in read_history(folder)[-most:]:
        changes = [f"{line[kind]:,} {kind}" for kind in CHANGE_KINDS if line.get(kind)]
        date = line.get("time", "")[:10]
        counted = ", ".join(changes) or "no image changed"
        records = f"{line['records']:,} records"
        yield f"{date} {line.get('command')}: {counted}; {records}"


def add_update(before: Manifest, after: Mapping[str, Any], counts: Counts, update: Update) -> bytes:
    """The content of history.jsonl after an update.

    Args:
        before: the dataset.
        after: fields of its new manifest.
        counts: of all records, with `before`.
        update: how it was updated.
    """
    now = datetime.datetime.now(datetime.UTC)
    line = {
        "time": now.isoformat(timespec="seconds"),
        "command": update.command,
        "tool_version": __version__,
        "before": before.dataset_digest,
        "after": after["dataset_digest"],
        "records": after["counts"]["written"],
        "rejects": after["rejects"]["count"],
    }
    if update.counted:
        line |= _count_changes(before, counts)
    existing = _read_bytes(before.folder)
    if existing and not existing.endswith(b"\n"):
        existing += b"\n"
    return existing + json.dumps(line).encode() + b"\n"


def _count_changes(before: Manifest, counts: Counts) -> dict[str, int]:
    """How many images changed, of each of the `CHANGE_KINDS`."""
    kinds = counts.before
    stayed = sum(kinds.values())
    return {
        "added": counts.num_examples - stayed,
        "removed": before.counts["written"] - stayed,
        "changed": kinds.get("changed", 0),
        "relabelled": kinds.get("relabelled", 0),
    }
