"""Rows of tables as files, and the records made from them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile

Rows = Sequence[dict[str, Any]]


def as_csv(rows: Rows, delimiter: str = ",", **how: Any) -> bytes:
    """Lists as JSON, booleans as true and false, no value as an empty cell."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(
        text, [*rows[0]], delimiter=delimiter, **{"lineterminator": "\n", **how}
    )
    writer.writeheader()
    for row in rows:
        cells = {
            k: json.dumps(v) if isinstance(v, (list, bool)) else "" if v is None else v
            for k, v in row.items()
        }
        writer.writerow(cells)
    return text.getvalue().encode()


def records_of(folder: Path | str) -> dict[str, dict[str, list[Any]]]:
    """Key -> features of each record."""
    dataset = read_manifest(str(folder))
    records = [
        parse_example(record)
        for split in dataset.splits.values()
        for shard in split.shards
        for record in RecordFile(storage.join(str(folder), shard.file))
    ]
    return {record[dataset.names.key][0].decode(): record for record in records}
