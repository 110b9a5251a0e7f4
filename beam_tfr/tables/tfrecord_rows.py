"""Reads TFRecords (https://www.tensorflow.org/tutorials/load_data/tfrecord).

Each tf.train.Example is a row, and each feature is a column. Another column holds boxes whose sides
are features, as in the object detection API.
"""

import itertools
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import IO, Any

from beam_tfr import storage
from beam_tfr.features.cells import MAX_VALUES, BadCell
from beam_tfr.inputs import archives
from beam_tfr.records.examples import check_example, read_message
from beam_tfr.records.tfrecords import (
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    RecordError,
    RecordFile,
    begins_record,
)
from beam_tfr.schema.feature_names import BOXES, SIDES
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.base import ColumnSelection
from beam_tfr.tables.samples import ImageColumns, Samples, decode_text

_FEW_VALUES = 16  # such as the sides of an image; these few are always read
_MOST_BOXES = 100_000  # per image; this many take 20 MB
# The beginnings of image files: JPEG, PNG, GIF, WebP, TIFF.
_ENCODED = re.compile(rb"\xff\xd8\xff|\x89PNG|GIF8|RIFF|II[*+]|MM\0[*+]")
# Names of features with the number of rows and columns of raw pixels.
_SIDE_NAMES = {
    **dict.fromkeys(("height", "rows", "h"), "height"),
    **dict.fromkeys(("width", "cols", "columns", "w"), "width"),
    **dict.fromkeys(("channels", "depth", "c"), "channels"),
}


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
            raise ValueError("is not a TFRecord: it does not begin with a length and its checksum")
        file.seek(0)
        shard = archives.split_extension(listed.path)[1].partition("-")[2]
        folder = f"{shard}/" if shard else ""
        wanted = {*selection.columns, *images.names, *SIDES}
        records = RecordFile(listed.path, compression="none", opened=file)
        for number, record in enumerate(_read_records(records)):
            name = f"{folder}{number:08d}"
            begin = records.offset + HEADER_BYTES
            row = dict[str, Any]()
            features = _parse_features(record, wanted)
            check_example(record, features)
            for feature, values in features.items():
                cells: Sequence[Any] = values
                if values and isinstance(values[0], bytes):
                    if feature not in images.names:
                        cells = list(map(decode_text, values))
                    elif len(values) == 1:  # each search reads the whole record
                        cells = [_find_file(listed, name, values[0], record, begin)]
                row[feature] = cells[0] if len(cells) == 1 else cells
            if row.keys() >= {*SIDES}:
                row[BOXES] = _join_sides(row)
            pixels = _describe_pixels(row, features.get(images.main, ()))
            if pixels:
                row[images.main] = BadCell(
                    f"holds {pixels}, not an encoded image (`encoding=row` with "
                    f"{spell_option('feature_columns', f'{images.main}:bytes')} stores them as "
                    "they are)"
                )
            yield row


def _read_records(records: RecordFile) -> Iterator[bytes]:
    """Yields the records of a file.

    Raises:
        ValueError: the next record is damaged, truncated or too long; the message names a fix.
    """
    try:
        yield from records
    except RecordError as error:
        raise ValueError(
            f"{error.problem} (byte {error.offset:,} of the file); copy the file again if you have "
            "an intact copy, or write it again with records of at most "
            f"{MAX_RECORD_BYTES >> 20} MiB"
        ) from error


def _parse_features(record: bytes, wanted: Container[str]) -> dict[str, Sequence[Any]]:
    """Returns feature -> values; long lists are left empty unless wanted.

    A feature with too many values becomes a `BadCell`.

    Raises:
        ValueError: see `read_message`.
    """
    features = dict[str, Sequence[Any]]()
    for name, feature in read_message(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        values = getattr(feature, kind).value if kind else ()
        if len(values) > _FEW_VALUES and name not in wanted:
            features[name] = ()
        elif len(values) > MAX_VALUES:
            problem = f"has {len(values):,} values, more than {MAX_VALUES:,}"
            features[name] = [BadCell(problem)]
        else:
            features[name] = list(values)
    return features


def _describe_pixels(row: Mapping[str, Any], values: Sequence[Any]) -> str:
    """Describes an image column that holds raw pixels, or returns an empty string.

    Values are raw pixels if their number matches the height, width and channels in other features.
    """
    if len(values) != 1 or not isinstance(values[0], bytes) or _ENCODED.match(values[0]):
        return ""
    sides: dict[str, int] = {}
    for feature, value in row.items():
        side = _SIDE_NAMES.get(feature.rpartition("/")[2].lower())
        if side and isinstance(value, int):
            sides[side] = value
    if not sides.keys() >= {"height", "width"}:
        return ""
    area = sides["height"] * sides["width"]
    for channels in (sides.get("channels", 3), 1, 3, 4):
        for value_bytes in (1, 2, 4):
            if area and area * channels * value_bytes == len(values[0]):
                return f"raw pixels, {sides['height']}x{sides['width']}x{channels}"
    return ""


def _find_file(
    listed: storage.Entry, name: str, value: bytes, record: bytes, begin: int
) -> storage.Entry:
    """Returns the value of a feature as a listed file, given its record and the record's offset."""
    member = archives.Member(len(value), begin + record.find(value), len(value))
    return member.to_entry(listed, name)


def _join_sides(row: Mapping[str, Any]) -> list[list[Any]] | BadCell:
    """Returns the boxes whose sides are features; None stands for a missing side."""
    sides = []
    for name in SIDES:
        side = row[name]
        if isinstance(side, BadCell):
            return side
        sides.append(side if isinstance(side, list) else [side])
    longest = max(map(len, sides))
    if longest > _MOST_BOXES:
        return BadCell(f"has {longest:,} boxes, more than {_MOST_BOXES:,}")
    return [list(box) for box in itertools.zip_longest(*sides)]
