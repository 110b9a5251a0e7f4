"""`load_records`: exact contents of files of any origin, and what is said of damage."""

from __future__ import annotations

import gzip
import itertools
import struct
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from beam_tfr.reader import load_records
from beam_tfr.reader.files import _read_chunks
from beam_tfr.records.tfrecords import MAX_RECORD_BYTES, masked_crc
from beam_tfr.schema.errors import UsageError

RECORDS = [bytes([number]) * (number % 7 * 30) for number in range(150)]


def framed(records: list[bytes]) -> bytes:
    lengths = [struct.pack("<Q", len(record)) for record in records]
    return b"".join(
        length
        + struct.pack("<I", masked_crc(length))
        + record
        + struct.pack("<I", masked_crc(record))
        for length, record in zip(lengths, records, strict=True)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """bare, gzip by TensorFlow, gzip of two members, and files without records."""
    for name, compression in (("a.tfrecord", ""), ("b.tfrecord.gz", "GZIP")):
        with tf.io.TFRecordWriter(str(tmp_path / name), compression) as writer:
            for record in RECORDS:
                writer.write(record)
    assert (tmp_path / "a.tfrecord").read_bytes() == framed(RECORDS)
    members = gzip.compress(framed(RECORDS[:70])) + gzip.compress(framed(RECORDS[70:]), 0)
    (tmp_path / "c.tfrecord").write_bytes(members)
    (tmp_path / "d.tfrecord").write_bytes(b"")
    (tmp_path / "e.tfrecord").write_bytes(gzip.compress(b""))
    return tmp_path


def read(paths: Any, **options: Any) -> list[bytes]:
    return list(load_records(paths, **options).as_numpy_iterator())


def test_files_of_every_kind(folder: Path) -> None:
    elements = load_records(f"{folder}/*")
    assert elements.element_spec == tf.TensorSpec([], tf.string)
    assert list(elements.as_numpy_iterator()) == RECORDS * 3
    assert read(f"{folder}/**/*.tfrecord") == RECORDS * 2


def test_order_is_that_of_the_paths_and_no_file_comes_twice(folder: Path) -> None:
    (folder / "a.tfrecord").write_bytes(framed([b"a"]))
    assert read([folder / "b.tfrecord.gz", f"{folder}/*", folder / "a.tfrecord"]) == [
        *RECORDS,
        b"a",
        *RECORDS,
    ]


def test_streams(folder: Path) -> None:
    (folder / "a.tfrecord").write_bytes(framed([b"a"] * 130))
    both = [folder / "a.tfrecord", folder / "b.tfrecord.gz"]
    a, b = [b"a"] * 64, RECORDS
    assert read(both, streams=2) == [*a, *b[:64], *a, *b[64:128], b"a", b"a", *b[128:]]


def test_a_bare_file_that_begins_like_gzip(tmp_path: Path) -> None:
    records = [b"x" * 0x088B1F, b"y"]
    path = tmp_path / "records"
    path.write_bytes(framed(records))
    assert path.read_bytes()[:3] == gzip.compress(b"")[:3]
    assert read(path) == records


@pytest.mark.parametrize("kind", ["bare", "gzip", "stored"])
def test_truncations_are_found_and_named(tmp_path: Path, kind: str) -> None:
    records = [b"ab" * 5, b"", b"cdefg" * 3]
    whole = framed(records)
    data = whole if kind == "bare" else gzip.compress(whole, 6 if kind == "gzip" else 0, mtime=0)
    path = tmp_path / "records"
    sound = (
        {0: 0} if kind != "bare" else {len(framed(records[:number])): number for number in (0, 2)}
    )
    # In the length of a record, its data, its checksum; in the header of gzip, its content and
    # trailer.
    within = (
        (5, 12, 20, 24, 30)
        if kind == "bare"
        else (1, 10, len(data) - 20, len(data) - 8, len(data) - 4)
    )
    for length in sorted({*within, len(data) - 1, *sound}):
        path.write_bytes(data[:length])
        if length in sound:  # nothing tells that there was more
            assert [*itertools.chain(*_read_chunks(bytes(path), MAX_RECORD_BYTES))] == records[
                : sound[length]
            ]
            continue
        with pytest.raises(ValueError, match=rf"damaged file {path}: record \d at byte \d+: "):
            list(_read_chunks(bytes(path), MAX_RECORD_BYTES))
    path.write_bytes(data)
    assert read(path) == records


def test_damage_names_file_record_and_byte(folder: Path) -> None:
    path = folder / "a.tfrecord"
    data = bytearray(path.read_bytes())
    at = len(framed(RECORDS[:100]))
    data[at + 20] ^= 1
    path.write_bytes(data)
    message = (
        rf"damaged file {path}: record 100 at byte {at}: its data does not match the "
        rf"checksum of the data"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        read(f"{folder}/*")
    path.write_bytes(b"no records at all")
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"{path}: record 0 at byte 0: its length does not match",
    ):
        read(path)


def test_a_file_that_is_gone(folder: Path) -> None:
    elements = load_records(f"{folder}/a*")
    (folder / "a.tfrecord").unlink()
    with pytest.raises(tf.errors.NotFoundError, match=f"{folder}/a.tfrecord"):
        list(elements)


def test_a_file_that_grows_is_read_as_it_is(folder: Path) -> None:
    elements = load_records(folder / "a.tfrecord")
    with (folder / "a.tfrecord").open("ab") as file:
        file.write(framed([b"more"]))
    assert list(elements.as_numpy_iterator()) == [*RECORDS, b"more"]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "`paths=`: is empty; specify one or more files or patterns"),
        ("", "`paths=''`: must be files or patterns"),
        ([3], "must be a path or a list of paths"),
        ("/nowhere/*.gz", r"`paths=/nowhere/\*\.gz`: matches no file; there is no folder /nowhere"),
        ("s3://bucket/a", "`paths=s3://bucket/a`: only local paths and gs:// are supported"),
    ],
    ids=str,
)
def test_wrong_paths(paths: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_records(paths)


def test_wrong_calls(folder: Path) -> None:
    with pytest.raises(UsageError, match=rf"`paths={folder}`: .* such as '{folder}/\*'"):
        load_records(folder)
    with pytest.raises(UsageError, match="`streams=0`: must be a whole number from 1 to 1023"):
        load_records(f"{folder}/*", streams=0)
