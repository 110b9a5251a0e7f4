"""Reads TFRecords (https://www.tensorflow.org/tutorials/load_data/tfrecord).

A tf.train.Example is a row, a feature a column. One more column holds the boxes whose sides are
features, as of the object detection API.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import IO, Any

from beam_tfr import storage
from beam_tfr.inputs import archives
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import HEADER_BYTES, RecordFile, begins_record
from beam_tfr.schema.feature_names import BOXES, SIDES
from beam_tfr.tables.base import ColumnSelection
from beam_tfr.tables.samples import ImageColumns, Samples, decode_text


class TfRecord(Samples):
    """TFRecords of tf.train.Examples."""

    def read_samples(
        self,
        listed: storage.Entry,
        file: IO[bytes],
        selection: ColumnSelection,
        images: ImageColumns,
    ) -> Iterator[dict[str, Any]]:
        first = file.read(HEADER_BYTES)
        if first and not begins_record(first):
            raise ValueError("is no TFRecord: it does not begin with a length and its checksum")
        shard = archives.split_extension(listed.path)[1].partition("-")[2]
        folder = f"{shard}/" if shard else ""
        records = RecordFile(listed.path, compression="none")
        for number, record in enumerate(records):
            name = f"{folder}{number:08d}"
            begin = records.offset + HEADER_BYTES
            row = dict[str, Any]()
            for feature, values in parse_example(record).items():
                if values and isinstance(values[0], bytes):
                    files = [_find_file(listed, name, value, record, begin) for value in values]
                    if feature in images.names:
                        values = files
                    else:
                        values = list(map(decode_text, values, files))
                row[feature] = values[0] if len(values) == 1 else values
            if row.keys() >= {*SIDES}:
                row[BOXES] = _join_sides(row)
            yield row


def _find_file(
    listed: storage.Entry, name: str, value: bytes, record: bytes, begin: int
) -> storage.Entry:
    """The value of a feature as a listed file, given its record and where that begins."""
    member = archives.Member(len(value), begin + record.find(value), len(value))
    return member.to_entry(listed, name)


def _join_sides(row: Mapping[str, Any]) -> list[list[Any]]:
    """The boxes whose sides are features; None for a side that is missing."""
    sides = []
    for name in SIDES:
        side = row[name]
        sides.append(side if isinstance(side, list) else [side])
    return [list(box) for box in itertools.zip_longest(*sides)]
