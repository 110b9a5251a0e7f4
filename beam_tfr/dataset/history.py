"""Reads and writes history.jsonl, which has a line for each update of a dataset."""

import collections
import datetime
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.dataset import HISTORY_FILE
from beam_tfr.schema.plan import Counts
from beam_tfr.schema.untrusted import parse_json
from beam_tfr.version import __version__

_MOST_BYTES = 1 << 20  # 1 MiB, some thousand updates
CHANGE_KINDS = ("added", "removed", "changed", "relabelled", "renamed")  # counted in a line


class Update(NamedTuple):
    """How a dataset is updated.

    Attributes:
        command: "update" or "remove".
        counted: whether the changes are counted; False if the old records cannot be compared.
        folder: folder of the old dataset, if the new one is written elsewhere.
        changes: number of records that an earlier step changed, by kind.
        resplit: whether all images are divided among the splits again.
    """

    command: str
    counted: bool = True
    folder: str = ""
    changes: Mapping[str, int] = MappingProxyType({})
    resplit: bool = False


def read_history(folder: str) -> list[dict[str, Any]]:
    """Reads the last lines of a dataset's history, oldest first.

    Leaves out damaged lines; the list is empty if there is no history.
    """
    lines = map(_parse_line, _read_end(folder).splitlines())
    return [line for line in lines if line]


def _read_end(folder: str) -> bytes:
    """Reads the whole lines in the last `_MOST_BYTES` bytes of a history."""
    path = storage.join(folder, HISTORY_FILE)
    entry = storage.find(path)
    if entry is None or storage.is_link(path):  # a link would copy a foreign file into it
        return b""
    begin = max(0, entry.size_bytes - _MOST_BYTES)
    data = storage.read_part(path, begin, _MOST_BYTES)
    return data.partition(b"\n")[2] if begin else data


def _parse_line(text: bytes) -> dict[str, Any]:
    """Returns the fields of a line of the history, or an empty dict if the line is damaged."""
    try:
        fields = parse_json(text)
    except ValueError:
        return {}
    if not isinstance(fields, dict) or not isinstance(fields.get("records"), int):
        return {}
    texts = [fields.get(name, "") for name in ("time", "command")]
    numbers = [fields.get(kind, 0) for kind in CHANGE_KINDS]
    are_texts = all(isinstance(text, str) for text in texts)
    are_numbers = all(isinstance(number, int) for number in numbers)
    return fields if are_texts and are_numbers else {}


def describe_updates(folder: str, most: int = 5) -> Iterator[str]:
    """Yields a line for each of the last updates of a dataset, with its changes."""
    for line in read_history(folder)[-most:]:
        changes = [f"{line[kind]:,} {kind}" for kind in CHANGE_KINDS if line.get(kind)]
        date = line.get("time", "")[:10]
        counted = ", ".join(changes) or _describe_none(line)
        records = f"{line['records']:,} records"
        yield f"{date} {line.get('command')}: {counted}; {records}"


def _describe_none(line: Mapping[str, Any]) -> str:
    """Describes an update for which no changes are recorded."""
    return "no image changed" if "added" in line else "changes were not counted"


def add_update(before: Manifest, after: Mapping[str, Any], counts: Counts, update: Update) -> bytes:
    """Returns the content of history.jsonl after an update.

    Args:
        before: the dataset before the update.
        after: fields of the new manifest.
        counts: counts of all records; `counts.before` counts the copied records.
        update: how the dataset was updated.
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
    if update.resplit:
        line["resplit"] = True
    if update.counted:
        line |= _count_changes(before, counts, update.changes)
    existing = _read_end(before.folder)
    if existing and not existing.endswith(b"\n"):
        existing += b"\n"
    return existing + json.dumps(line).encode() + b"\n"


def _count_changes(before: Manifest, counts: Counts, earlier: Mapping[str, int]) -> dict[str, int]:
    """Counts the images that changed, for each of the `CHANGE_KINDS`.

    Args:
        counts: counts of all records; `counts.before` counts the copied records.
        earlier: number of changes in an earlier step, by kind.
    """
    stayed = sum(counts.before.values())
    kinds = collections.Counter(counts.before) + collections.Counter(earlier)
    changes = {
        "added": counts.num_examples - stayed,
        "removed": before.counts["written"] - stayed,
        "changed": kinds["changed"],
        "relabelled": kinds["relabelled"],
    }
    if "renamed" in kinds:
        changes["renamed"] = kinds["renamed"]
    return changes
