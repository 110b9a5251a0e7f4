"""Makes the contents of datasets that tests write by hand, from their shards.

Cells that no record holds are null.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.output.publish import format_checksums
from beam_tfr.records import contents, contents_file
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import HEADER_BYTES, RecordFile, max_record_bytes_in
from beam_tfr.schema.dataset import CONTENTS_FOLDER, METADATA_FILES, SUMS_FILE
from beam_tfr.schema.naming import contents_name, shard_number


def make(dataset: Manifest, split: str, entry: ShardEntry) -> None:
    """Makes the contents of a shard from its records.

    Raises:
        RecordError: the shard is damaged.
        OSError: a file cannot be read or written.
    """
    path = storage.join(dataset.folder, entry.file)
    columns, rows = dataset.contents_columns, list[dict[str, Any]]()
    file = RecordFile(path, max_record_bytes=max_record_bytes_in(entry.num_bytes))
    for record in file:
        values: Mapping[str, Sequence[Any]] = {}
        with contextlib.suppress(ValueError):  # `verify` tells of a record that is none
            values = parse_example(record)
        place = {"offset": file.offset + HEADER_BYTES, "length": len(record)}
        rows.append({**contents.contents_row(values, columns), **place})
    schema = dataset.contents_schema()
    table = contents.join_rows(rows, schema, split=split, shard=shard_number(entry.file))
    _write(dataset, contents_name(entry.file), contents_file.contents_bytes(table))


def write_sums(dataset: Manifest) -> None:
    """Writes the checksums of the contents and the files for other programs that are there."""
    files = [
        contents_name(shard.file) for split in dataset.splits.values() for shard in split.shards
    ]
    there = [name for name in METADATA_FILES if storage.find(storage.join(dataset.folder, name))]
    metadata = {name: storage.read_bytes(storage.join(dataset.folder, name)) for name in there}
    text = format_checksums(
        ((name, storage.sha256(storage.join(dataset.folder, name))) for name in files), metadata
    )
    _write(dataset, SUMS_FILE, text)


def _write(dataset: Manifest, name: str, data: bytes) -> None:
    storage.make_folder(storage.join(dataset.folder, CONTENTS_FOLDER))
    storage.write_bytes(
        storage.join(dataset.folder, name), data, scratch=storage.work_path(dataset.folder, "")
    )
