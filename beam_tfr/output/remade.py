"""Makes the contents of finished shards again, from the shards alone.

Cells that no record holds are null: size and CRC-32C of the source, and `adjusted`. Mean, deviation and hash are those
of the stored image, which differ a little from those of the pixels before they were encoded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_tfr import storage
from beam_tfr.dataset.lookup import features_in
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.images import formats
from beam_tfr.images.looks import describe, sums_of
from beam_tfr.images.source import SMALLEST
from beam_tfr.output.publish import sums_text
from beam_tfr.records import contents
from beam_tfr.records.examples import parse_example
from beam_tfr.records.shard_file import restart_points
from beam_tfr.records.tensors import parse_tensor
from beam_tfr.records.tfrecords import FRAME_BYTES, HEADER_BYTES, RecordFile, longest_in
from beam_tfr.schema import CONTENTS_FOLDER, SUMS_FILE, RejectError, WrittenFile, sha256_hex
from beam_tfr.schema.features import CHANNELS, ENCODED, HEIGHT, RAW, WIDTH
from beam_tfr.schema.naming import contents_name, shard_number


def make(dataset: Manifest, split: str, entry: ShardEntry) -> None:
    """Makes the contents of a shard from its records.

    Raises:
        RecordError: the shard is damaged.
        OSError: a file cannot be read or written.
    """
    path, features = storage.join(dataset.folder, entry.file), features_in(dataset)
    columns, rows, ends = contents.columns_of(features, dataset.names), list[dict[str, Any]](), list[int]()
    file = RecordFile(path, max_record_bytes=longest_in(entry.num_bytes))
    for record in file:
        values: Mapping[str, Sequence[Any]] = {}
        with contextlib.suppress(ValueError):  # `verify` tells of a record that is none
            values = parse_example(record)
        place = {"offset": file.offset + HEADER_BYTES, "length": len(record)}
        rows.append({**contents.row_of(values, columns), **_looks(values, dataset), **place})
        ends.append(file.offset + FRAME_BYTES + len(record))
    if dataset.gzip_level:
        for row, restart in zip(rows, restart_points(storage.read_bytes(path), ends), strict=True):
            row["restart"] = restart
    schema = contents.schema_of(features, dataset.names)
    data = contents.to_bytes(rows, schema, split=split, shard=shard_number(entry.file))
    _write(dataset, contents_name(entry.file), data)


def write_sums(dataset: Manifest) -> bool:
    """Writes SHA256SUMS of the contents that are there; returns False if it was right already."""
    files = [contents_name(shard.file) for split in dataset.splits.values() for shard in split.shards]
    read = ((name, storage.read_bytes(storage.join(dataset.folder, name))) for name in files)
    written = [(name, WrittenFile("", len(data), sha256_hex(data), 0)) for name, data in read]
    text = sums_text(written)
    with contextlib.suppress(OSError):
        if storage.read_bytes(storage.join(dataset.folder, SUMS_FILE)) == text:
            return False
    _write(dataset, SUMS_FILE, text)
    return True


def _write(dataset: Manifest, name: str, data: bytes) -> None:
    storage.make_folder(storage.join(dataset.folder, CONTENTS_FOLDER))
    storage.write_bytes(storage.join(dataset.folder, name), data, scratch=storage.work_path(dataset.folder, ""))


def _looks(values: Mapping[str, Sequence[Any]], dataset: Manifest) -> dict[str, Any]:
    """Mean, deviation and hash of the stored image; nothing without one that decodes."""
    if RAW in values:
        tensor = parse_tensor(values[RAW][0])
        if tensor is None or not isinstance(tensor[2], bytes):
            return {}
        shape = [values[side][0] for side in (HEIGHT, WIDTH, CHANNELS)]
        pixels = np.frombuffer(tensor[2], np.uint8).reshape(shape)
        return describe(pixels, *sums_of(pixels))._asdict()
    if ENCODED not in values:
        return {}
    data = values[ENCODED][0]
    try:
        source = formats.FORMATS[formats.identify(data)].open(data)
        pixels = source.decode(SMALLEST if dataset.image_options.encoding == "keep" else None).pixels
    except RejectError:
        return {}
    return describe(pixels, *sums_of(pixels))._asdict()
