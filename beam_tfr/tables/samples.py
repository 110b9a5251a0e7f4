"""Reads tables that hold their images.

These are tars of WebDataset, and TFRecords of tf.train.Examples.

The cell of an image is a `storage.Entry` whose place says which bytes of the file it is, see
`inputs.archives`: it is read later, with the other images of its shard.

WebDataset (https://github.com/webdataset/webdataset): files that follow each other, with the same
path up to the first dot of their name, are a row. The rest of their names are its columns, as are
the fields of an object in a .json.

TFRecord (https://www.tensorflow.org/tutorials/load_data/tfrecord): an Example is a row, a feature a
column. One more column holds the boxes whose sides are features, as of the object detection API.
"""

import abc
import gzip
import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import IO, Any

from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.inputs import archives
from beam_tfr.inputs.patterns import compile_pattern
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import HEADER_BYTES, RecordFile
from beam_tfr.schema.feature_names import BOXES, SIDES
from beam_tfr.tables.base import ColumnSelection, ObjectFormat, find_table

MAX_TEXT_BYTES = 1 << 20  # 1 MiB, of a file in a tar that is no image
# Columns of images in tars, of which a row may have any.
EXTENSIONS = ("jpg", "jpeg", "png", "webp")


class Samples(ObjectFormat):
    """A format of tables that hold their images.

    The first of the selected images may be missing in a row, which then has its image in another
    of `EXTENSIONS`.
    """

    may_be_numbered = True

    @abc.abstractmethod
    def read_samples(
        self, listed: storage.Entry, file: IO[bytes], image_columns: Collection[str]
    ) -> Iterator[dict[str, Any]]:
        """Yields the rows of a table.

        Files in `image_columns` are entries, whatever they hold."""

    def read_objects(
        self, path: str, file: IO[bytes], selection: ColumnSelection
    ) -> Iterator[dict[str, Any]]:
        if isinstance(file, gzip.GzipFile):
            raise ValueError(
                "is compressed as a whole, so its images cannot be read one by one; decompress it "
                "first"
            )
        images = selection.images
        alternatives = []
        if images and images[0] in EXTENSIONS:
            alternatives = [name for name in EXTENSIONS if name not in images]
        image_columns = {*images, *alternatives}
        for row in self.read_samples(find_table(path), file, image_columns):
            for name in image_columns & row.keys():
                row[name] = _check_image(row[name])
            for name in alternatives:
                if name in row:
                    row.setdefault(images[0], row[name])
                    break
            yield row


def _check_image(cell: Any) -> storage.Entry | BadCell:
    """The image in a cell, or what else it holds."""
    if isinstance(cell, storage.Entry):
        return cell
    if isinstance(cell, list):
        content = f"a list of {len(cell)} values"
    else:
        content = f"{cell!a:.100}"
    return BadCell(f"holds {content}, and not the bytes of one image")


class Tar(Samples):
    """Tars of WebDataset."""

    def read_samples(
        self, listed: storage.Entry, file: IO[bytes], image_columns: Collection[str]
    ) -> Iterator[dict[str, Any]]:
        try:
            members = archives.list_members(listed, file)
            for sample, group in itertools.groupby(members, _sample_of):
                yield _read_sample(listed, file, sample, group, image_columns)
        except archives.ERRORS as error:
            raise ValueError(f"{error or type(error).__name__}; copy the tar again") from None


def _sample_of(named_member: tuple[str, archives.Member]) -> str:
    """The path of a file in a tar, up to the first dot of its name."""
    folder, slash, name = named_member[0].rpartition("/")
    return folder + slash + name.partition(".")[0]


def _read_sample(
    listed: storage.Entry,
    file: IO[bytes],
    sample: str,
    members: Iterable[tuple[str, archives.Member]],
    image_columns: Collection[str],
) -> dict[str, Any]:
    """The row of the files of one sample in a tar.

    They follow each other, and their names begin with `sample`.
    """
    is_image = compile_pattern("/").fullmatch
    row = dict[str, Any]()
    fields = dict[str, Any]()
    for name, member in members:
        column = name[len(sample) + 1 :]
        if column in row:
            member = archives.Member(0, problem=f"is in {listed.name} more than once")
        entry = member.to_entry(listed, name)
        row[column] = entry
        if column in image_columns or is_image(f"/{name}"):
            continue
        if member.problem:
            row[column] = BadCell(f"{name}: {member.problem}")
        elif member.size_bytes <= MAX_TEXT_BYTES:
            file.seek(member.begin)
            data = file.read(member.num_bytes)
            row[column] = _decode_text(data, otherwise=entry)
            if column == "json":
                fields = _parse_fields(name, data)
    return fields | row


def _decode_text(data: bytes, otherwise: storage.Entry) -> str | storage.Entry:
    """The text of a cell, or else the file that it is, such as an image."""
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return otherwise


def _parse_fields(name: str, data: bytes) -> dict[str, Any]:
    """The fields of a JSON object; none of another JSON value."""
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}


class TfRecord(Samples):
    """TFRecords of tf.train.Examples."""

    def read_samples(
        self, listed: storage.Entry, file: IO[bytes], image_columns: Collection[str]
    ) -> Iterator[dict[str, Any]]:
        shard = os.path.splitext(listed.path)[1].partition("-")[2]
        folder = f"{shard}/" if shard else ""
        records = RecordFile(listed.path, compression="none")
        for number, record in enumerate(records):
            name = f"{folder}{number:08d}"
            begin = records.offset + HEADER_BYTES
            row = dict[str, Any]()
            for feature, values in parse_example(record).items():
                if values and isinstance(values[0], bytes):
                    files = [_find_file(listed, name, value, record, begin) for value in values]
                    if feature in image_columns:
                        values = files
                    else:
                        values = list(map(_decode_text, values, files))
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
