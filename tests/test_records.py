from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import os
import pathlib
import pickle
import struct
import zlib
from collections.abc import Callable

import google_crc32c
import pytest
from apache_beam.io import WriteToTFRecord
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from beam_tfr.records.tfrecords import RecordError, RecordFile, frame, masked_crc
from beam_tfr.schema.errors import DataError

RECORDS = [b"", b"a", b"some bytes" * 30, bytes(1000), os.urandom(500)]


def write(path: pathlib.Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def stored(data: bytes) -> bytes:
    """gzip of stored blocks of 1,000 bytes."""
    blocks = [data[at : at + 1000] for at in range(0, len(data), 1000)] or [b""]
    packed = [
        struct.pack("<BHH", i == len(blocks) - 1, len(b), len(b) ^ 0xFFFF) + b
        for i, b in enumerate(blocks)
    ]
    ends = struct.pack("<II", zlib.crc32(data), len(data))
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"".join(packed) + ends


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "file"


def fails(path: str, **options: object) -> RecordError:
    with pytest.raises(RecordError) as caught:
        list(RecordFile(path, **options))  # type: ignore[arg-type]
    assert caught.value.file == path
    return caught.value


def test_masked_crc_is_that_of_the_format() -> None:
    crc = google_crc32c.value(b"123456789")
    assert crc == 0xE3069283  # RFC 3720, B.4
    assert masked_crc(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32


@pytest.mark.parametrize("data", [b"", b"record", bytes(1000)])
def test_a_record_is_framed_as_beam_frames_it(data: bytes) -> None:
    beams = io.BytesIO()
    WriteToTFRecord("/x")._sink.write_record(beams, data)
    assert frame(data) == beams.getvalue()


@pytest.mark.parametrize("compression", ["GZIP", ""])
def test_reads_what_tensorflow_writes(path: pathlib.Path, compression: str) -> None:
    tf = pytest.importorskip("tensorflow")
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(RecordFile(str(path))) == RECORDS
    assert list(RecordFile(str(path), compression="gzip" if compression else "none")) == RECORDS


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    records=st.lists(
        st.one_of(st.binary(max_size=300), st.integers(0, 600_000).map(bytes)), max_size=8
    ),
    cuts=st.lists(st.integers(0, 5000), max_size=4),
    level=st.integers(-1, 9),
)
@example(records=[b"x" * 262144] * 3, cuts=[], level=0)
def test_records_round_trip(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], cuts: list[int], level: int
) -> None:
    """Whatever the records, wherever the gzip members end; level -1 is no gzip."""
    content = b"".join(map(frame, records))
    ends = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    if level >= 0:
        content = b"".join(gzip.compress(content[a:b], level) for a, b in itertools.pairwise(ends))
    path = write(tmp_path_factory.mktemp("law") / "file", content)
    raw = hashlib.sha256()
    reader = RecordFile(path, on_bytes=raw.update)
    offsets = []
    read = []
    for number, record in enumerate(reader):
        assert reader.record == number
        offsets.append(reader.offset)
        read.append(record)
    assert read == records
    assert offsets == [sum(16 + len(r) for r in records[:i]) for i in range(len(records))]
    assert reader.record == len(records)
    assert raw.digest() == hashlib.sha256(content).digest()


@pytest.mark.parametrize(
    "pack", [bytes, stored, lambda data: stored(data[:40]) + gzip.compress(data[40:])]
)
def test_every_truncation_and_every_flipped_bit_is_found(path: pathlib.Path, pack: object) -> None:
    content = pack(b"".join(map(frame, [b"first", b"", b"the third"])))  # type: ignore[operator]
    ends = {0, 21, 37, 62} if pack is bytes else set()  # a bare file may end behind any record
    for size in range(len(content)):
        if size not in ends:
            fails(write(path, content[:size]), compression="none" if pack is bytes else "gzip")
    for position in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            try:
                found = list(
                    RecordFile(
                        write(path, bytes(flipped)), compression=None if pack is bytes else "gzip"
                    )
                )
            except RecordError:
                continue
            # No checksum covers the time and place in gzip's header, nor the padding of its blocks.
            assert pack is not bytes
            assert found == [b"first", b"", b"the third"]


def test_damaged_record_is_located(path: pathlib.Path) -> None:
    content = bytearray(b"".join(map(frame, RECORDS)))
    offset = len(frame(b"")) + len(frame(b"a"))
    content[offset + 12 + 5] ^= 1
    for packed in (bytes(content), stored(bytes(content)), gzip.compress(content)):
        error = fails(write(path, packed))
        assert (error.record, error.offset) == (2, offset)
        assert (
            str(error)
            == f"{path}: record 2 at byte {offset}: its data does not match the checksum of the "
            f"data"
        )
        assert isinstance(error, DataError)
        damage: list[RecordError] = []
        rest = list(RecordFile(str(path), on_damage=damage.append))
        assert rest == [RECORDS[0], RECORDS[1], RECORDS[3], RECORDS[4]]
        assert [(e.record, e.offset) for e in damage] == [(2, offset)]


@pytest.mark.parametrize("pack", [bytes, stored, gzip.compress])
def test_skipping_records(path: pathlib.Path, pack: Callable[[bytes], bytes]) -> None:
    records = [*RECORDS, bytes(300_000), b"last"]
    content = bytearray(b"".join(map(frame, records)))
    content[12] ^= 1  # the checksum of the first one's data, which is empty
    write(path, pack(bytes(content)))
    for skip in range(1, 9):
        reader = RecordFile(str(path), skip=skip)
        places = []
        read = []
        for record in reader:
            places.append((reader.record, reader.offset))
            read.append(record)
        assert read == records[skip:]
        assert places == [(i, sum(16 + len(r) for r in records[:i])) for i in range(skip, 7)]
        assert reader.record == 7
    with pytest.raises(RecordError, match="record 0 at byte 0"):
        list(RecordFile(str(path)))
    content[16] ^= 1  # the length of the second
    write(path, pack(bytes(content)))
    with pytest.raises(
        RecordError, match="record 1 at byte 16: its length does not match the checksum"
    ):
        list(RecordFile(str(path), skip=5))


def test_record_errors_can_be_pickled() -> None:
    error = RecordError("f", 3, 44, "broken")
    other = pickle.loads(pickle.dumps(error))
    assert (str(other), vars(other)) == (str(error), vars(error))


def test_damaged_gzip_is_read_up_to_the_damage(path: pathlib.Path) -> None:
    records = [bytes([i % 256]) * 5000 for i in range(300)]  # several inflated chunks
    content = b"".join(map(frame, records))
    compressed = bytearray(gzip.compress(content, 1, mtime=0))
    compressed[-8] ^= 1  # the checksum of all
    reader = iter(RecordFile(write(path, bytes(compressed))))
    assert [next(reader) for _ in records] == records
    with pytest.raises(RecordError, match="incorrect data check") as caught:
        next(reader)
    assert (caught.value.record, caught.value.offset) == (300, len(content))

    compressed = bytearray(stored(content))
    compressed[10 + 700 * 1005 + 1] ^= 1  # the length of the 701st block
    error = fails(write(path, bytes(compressed)))
    assert (error.record, error.offset) == (700_000 // 5016, 700_000)
    assert "invalid stored block lengths" in error.problem


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**30 + 1, 101])
def test_hostile_lengths_allocate_nothing(path: pathlib.Path, length: int) -> None:
    header = struct.pack("<Q", length)
    content = frame(b"fine") + header + struct.pack("<I", masked_crc(header)) + bytes(200)
    error = fails(write(path, content), **({"max_record_bytes": 100} if length == 101 else {}))
    assert (error.record, error.offset) == (1, 20)
    assert f"its length is {length} bytes, but at most" in error.problem


def test_a_gzip_bomb_costs_no_memory(path: pathlib.Path) -> None:
    import tracemalloc

    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    header = struct.pack("<Q", 300 << 20)
    bomb = deflate.compress(header + struct.pack("<I", masked_crc(header)))
    bomb += b"".join(deflate.compress(bytes(1 << 20)) for _ in range(100)) + deflate.flush()
    write(path, bomb)
    assert len(bomb) < 200_000
    tracemalloc.start()
    try:
        assert "but at most 134217728 are allowed" in fails(str(path)).problem
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert "are missing" in fails(str(path), max_record_bytes=300 << 20).problem


@pytest.mark.parametrize(
    ("content", "compression", "problem"),
    [
        (b"", "gzip", "the file is empty, which is not gzip"),
        (frame(b"x"), "gzip", "incorrect header check"),
        (stored(frame(b"x")), "none", "its length does not match"),
        (stored(frame(b"x")) + b"\0", None, "the gzip stream is followed by something else"),
        (stored(frame(b"x")) + b"\x1f", None, "truncated"),
        (stored(frame(b"x")) + b"garbage", None, "the gzip stream is followed by something else"),
        (stored(frame(b"x")) + frame(b"y"), None, "the gzip stream is followed by something else"),
        (stored(frame(b"x"))[:-1], None, "truncated"),
        (frame(b"x") + b"\0", None, "at least 15 bytes are missing"),
        (b"hello world, this is no TFRecord", None, "its length does not match"),
    ],
)
def test_malformed_files(
    path: pathlib.Path, content: bytes, compression: str | None, problem: str
) -> None:
    assert problem in fails(write(path, content), compression=compression).problem


def test_empty_files_have_no_records(path: pathlib.Path) -> None:
    assert list(RecordFile(write(path, b""))) == []
    assert list(RecordFile(write(path, stored(b"")))) == []


def test_uncompressed_file_that_begins_like_gzip(path: pathlib.Path) -> None:
    record = bytes(0x088B1F)  # its length begins with gzip's magic number and method
    assert list(RecordFile(write(path, frame(record)))) == [record]


def test_unreadable_files(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(RecordFile(str(tmp_path / "nothing")))
    with pytest.raises(OSError, match="it is a folder"):
        list(RecordFile(str(tmp_path)))
    with pytest.raises(ValueError, match='"gzip", "none" or None, got \'zstd\''):
        RecordFile(str(tmp_path), compression="zstd")
