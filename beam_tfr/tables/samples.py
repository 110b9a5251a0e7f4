"""Reads tables that hold their images: tars of WebDataset, and TFRecords of tf.train.Examples, such
as others write.

The cell of an image is a `storage.Entry` whose place says which bytes of the file it is, see
`inputs.archives`: it is read later, with the other images of its shard. Formats:

    WebDataset    https://github.com/webdataset/webdataset: files that follow each other and have
    the same path up to
                  the first dot of their name are a row; the rest of their names are its columns, as
                  are the fields of an object in a .json
    TFRecord      https://www.tensorflow.org/tutorials/load_data/tfrecord: an Example is a row, a
    feature a column;
                  one more column holds the boxes whose sides are features, as of the object
                  detection API
"""

import gzip
import itertools
import json
import os
from collections.abc import Collection, Iterator, Sequence
from typing import IO, Any

from beam_tfr import storage
from beam_tfr.inputs import archives
from beam_tfr.inputs.patterns import compile_pattern
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import HEADER_BYTES, RecordFile
from beam_tfr.schema.feature_names import BOXES, SIDES

MAX_TEXT_BYTES = 1 << 20  # 1 MiB, of a file in a tar that is no image
EXTENSIONS = (
    "jpg",
    "jpeg",
    "png",
    "webp",
)  # columns of images in tars, of which a row may have any


def read_samples(
    path: str, file: IO[bytes], images: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yields column -> cell for each row, in the order of the file.

    Args:
        path, file: the table.
        images: columns that hold files, whatever their bytes are: that of the images, and those
            beside it. A row without the first may have its image in another of `EXTENSIONS`.

    Raises:
        ValueError, DataError: it is damaged.
    """
    if isinstance(file, gzip.GzipFile):
        raise ValueError(
            "is compressed as a whole, so its images cannot be read one by one; decompress it first"
        )
    others = (
        [name for name in EXTENSIONS if name not in images] if {*images[:1]} & {*EXTENSIONS} else []
    )
    held = {*images, *others}
    listed = storage.find(path)
    if listed:
        for row in (
            _tar(listed, file, held) if path.lower().endswith(".tar") else _examples(listed, held)
        ):
            for name in held & row.keys():
                if not isinstance(cell := row[name], storage.Entry):
                    if isinstance(cell, list):
                        what = f"a list of {len(cell)} values"
                    else:
                        what = f"{cell!a:.100}"
                    row[name] = ValueError(f"holds {what}, and not the bytes of one image")
            other = next((name for name in others if name in row), "")
            if other:
                row.setdefault(images[0], row[other])
            yield row


def _tar(
    listed: storage.Entry, file: IO[bytes], images: Collection[str]
) -> Iterator[dict[str, Any]]:
    is_image = compile_pattern("/").fullmatch

    def sample_of(found: tuple[str, archives.Member]) -> str:
        folder, slash, name = found[0].rpartition("/")
        return folder + slash + name.partition(".")[0]

    try:
        for sample, members in itertools.groupby(archives.list_members(listed, file), sample_of):
            row = dict[str, Any]()
            fields = dict[str, Any]()
            for name, member in members:
                column = name[len(sample) + 1 :]
                if column in row:
                    member = archives.Member(0, problem=f"is in {listed.name} more than once")
                row[column] = member.entry(listed, name)
                if column in images or is_image(f"/{name}"):
                    continue
                if member.problem:
                    row[column] = ValueError(f"{name}: {member.problem}")
                elif member.size_bytes <= MAX_TEXT_BYTES:
                    file.seek(member.begin)
                    row[column] = text = _text(file.read(member.num_bytes), row[column])
                    if column == "json" and isinstance(json_fields := _json(name, text), dict):
                        fields = json_fields
            yield fields | row
    except archives.ERRORS as error:
        raise ValueError(f"{error or type(error).__name__}; copy the tar again") from None


def _text(data: bytes, place: storage.Entry) -> Any:
    """The text of a cell; its place if it is not text, but an image, say."""
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return place


def _json(name: str, text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{name} is not valid JSON: {error}") from None


def _examples(listed: storage.Entry, images: Collection[str]) -> Iterator[dict[str, Any]]:
    shard = os.path.splitext(listed.path)[1].partition("-")[2]
    records = RecordFile(listed.path, compression="none")
    for number, record in enumerate(records):
        name = f"{shard}/{number:08d}" if shard else f"{number:08d}"
        row = dict[str, Any]()
        for feature, values in parse_example(record).items():
            if values and isinstance(values[0], bytes):
                begins = [records.offset + HEADER_BYTES + record.find(value) for value in values]
                members = [
                    archives.Member(len(data), at, len(data))
                    for data, at in zip(values, begins, strict=True)
                ]
                places = [member.entry(listed, name) for member in members]
                values = places if feature in images else [*map(_text, values, places)]
            row[feature] = values[0] if len(values) == 1 else values
        if row.keys() >= {*SIDES}:
            sides = [of if isinstance(of, list) else [of] for of in (row[side] for side in SIDES)]
            row[BOXES] = [[*box] for box in itertools.zip_longest(*sides)]
        yield row
