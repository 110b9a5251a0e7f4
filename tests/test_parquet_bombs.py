"""Parquet files made to take memory, time or room: all of it is bounded, or they are an error."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as arrow

from beam_tfr import storage
from beam_tfr.inputs import parquet, parquet_file, parquet_process
from beam_tfr.inputs.parquet_file import ParquetFile
from beam_tfr.inputs.reading import read_embedded, read_image
from beam_tfr.schema.errors import DataError, RejectError, UsageError
from beam_tfr.tables.formats import read_class_names
from tests.pages import ROOT

MIB = 1 << 20
MANY = 20_000_000
CODECS = ("zstd", "gzip", "brotli", "snappy", "lz4")
PAGE = {"data_page_size": 1 << 40, "write_batch_size": 1 << 30}


def written(column: Any, **how: Any) -> bytes:
    sink = io.BytesIO()
    options = {"compression": "zstd", "store_schema": False, **how}
    arrow.write_table(pa.table({"image": column}), sink, **options)
    return sink.getvalue()


def repeated(rows: int, num_bytes: int, kind: pa.DataType | None = None) -> bytes:
    """One value in all rows, which is stored once."""
    value = pa.array([bytes(num_bytes)], kind or pa.binary())
    indices = pa.array(np.zeros(rows, np.int32))
    column = pa.DictionaryArray.from_arrays(indices, value)
    return written(column, dictionary_pagesize_limit=1 << 30)


def fixed() -> bytes:
    column = pa.array([bytes(MIB)] * 200, pa.binary(MIB))
    return written(column, dictionary_pagesize_limit=1 << 30)


def long_list() -> bytes:
    zeros = pa.ListArray.from_arrays(pa.array([0, MANY], pa.int32()), pa.array(np.zeros(MANY, int)))
    return written(zeros, compression="none", **PAGE)


def list_of_texts() -> bytes:
    texts = pa.array(["x" * MIB] * 300)
    column = pa.ListArray.from_arrays(pa.array([0, 300], pa.int32()), texts)
    return written(column, dictionary_pagesize_limit=1 << 30)


def deep() -> bytes:
    column = pa.array([1])
    for _ in range(100):
        column = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)
    return written(column)


def compressed(codec: str) -> bytes:
    return written(pa.array([bytes(160 * MIB)]), compression=codec, use_dictionary=False)


def prefixed() -> bytes:
    """Each value has the bytes of the one before."""
    values = pa.array([bytes(4 * MIB)] * 60)
    encoding = {"image": "DELTA_BYTE_ARRAY"}
    return written(values, use_dictionary=False, column_encoding=encoding)


def varint(number: int) -> bytes:
    """A positive number as Thrift's compact protocol has it."""
    value = 2 * number
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def boastful() -> bytes:
    """A footer that states 2^31 rows, of which there are a few."""
    rows = 1_234
    data = written(pa.nulls(rows))
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[begin:-8].replace(varint(rows), varint(1 << 31))
    assert footer != data[begin:-8]
    return data[:begin] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


TOO_MUCH = "takes more than"
# What it is -> how it is made, and what must be said; or the numbers of rows and of bytes.
BOMBS: dict[str, tuple[Callable[[], bytes], str | tuple[int, int]]] = {
    "a value in 60 rows": (lambda: repeated(60, 8 * MIB), (60, 60 * 8 * MIB)),
    "a value in 3,000 rows": (lambda: repeated(3000, MIB), (3000, 3000 * MIB)),
    "a value of one size": (fixed, TOO_MUCH),
    "a value that begins as the one before": (prefixed, (60, 60 * 4 * MIB)),
    "a long list": (long_list, TOO_MUCH),
    "a text many times in a list": (list_of_texts, TOO_MUCH),
    "a deep schema": (deep, "its columns nest lists and structs more than 64 levels deep"),
    "rows of nothing": (boastful, "its footer states 2,147,483,648 rows, more than its"),
    **{codec: (functools.partial(compressed, codec), TOO_MUCH) for codec in CODECS},
}

# Reads all rows of files, and prints the number of their rows and bytes or the error of each; last
# the peaks of memory in MiB, of this process over its start and of the guarded ones.
READ = """
import resource, sys
from beam_tfr import storage
from beam_tfr.inputs import parquet_file, parquet_process
from beam_tfr.schema.errors import DataError
import pyarrow.ipc

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
parquet_file._CHILD = parquet_file._CHILD.replace(
    "parquet_process.serve", "parquet_process.MOST_MEMORY = 128 << 20; parquet_process.serve"
)


def read(path):
    rows = num_bytes = 0
    with parquet_file.ParquetFile(storage.find(path)) as opened:
        if "binary" not in str(opened.schema.field("image").type):
            return sum(batch.num_rows for batch in opened.read_rows(["image"])), 0
        for group in range(len(opened.groups)):
            sizes = {}
            for _, images in opened.read_images("image", 64 << 20, group):
                rows += images.num_rows
                numbers = images.numbers or range(len(images.values))
                for number, value in zip(numbers, images.values):
                    sizes[number] = sizes[number] if value is None else len(value)
                num_bytes += sum(sizes[numbers[position]] for position in images.positions)
    return rows, num_bytes


def peak(who):
    return resource.getrusage(who).ru_maxrss >> 10


start = peak(resource.RUSAGE_SELF)
for path in sys.argv[1:]:
    try:
        print(*read(path))
    except DataError as error:
        print(error)
for process in parquet_file._idle:
    process.close()
print(peak(resource.RUSAGE_SELF) - start, peak(resource.RUSAGE_CHILDREN))
"""


@pytest.mark.slow
def test_bombs_are_read_or_are_errors_in_bounded_memory(tmp_path: Path) -> None:
    paths = []
    for number, (make, _) in enumerate(BOMBS.values()):
        paths.append(tmp_path / f"{number}.parquet")
        paths[-1].write_bytes(make())
        assert paths[-1].stat().st_size < 10_000_000
    command = [sys.executable, "-c", READ, *map(str, paths)]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    *lines, peaks = run.stdout.splitlines()
    for (name, (_, expected)), path, line in zip(BOMBS.items(), paths, lines, strict=True):
        if isinstance(expected, tuple):
            assert line == f"{expected[0]} {expected[1]}", name
        else:
            assert expected in line, name
            assert str(path) in line, name
            assert "write the file again" in line, name
    here, guarded = map(int, peaks.split())
    assert here < 150
    assert guarded < 128 + 150  # what it may take, and what it takes for Python and pyarrow


@pytest.mark.slow
def test_sound_images_in_one_page_are_read(tmp_path: Path) -> None:
    """As pyarrow and its heirs write up to 1,024 rows, whatever their size."""
    chance = np.random.default_rng(0)
    values = [chance.bytes(4 * MIB) for _ in range(40)]
    path = tmp_path / "t.parquet"
    path.write_bytes(written(pa.array(values), use_dictionary=False, compression="snappy"))
    run = subprocess.run(
        [sys.executable, "-c", READ, path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stdout.startswith(f"40 {40 * 4 * MIB}\n"), run.stdout + run.stderr


@pytest.mark.slow
def test_a_sample_of_a_large_group_decodes_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "KEPT_BYTES", 1 << 20)
    values = [bytes([row]) * 100_000 for row in range(200)]
    file = write_column(
        tmp_path / "t.parquet", written(pa.array(values), use_dictionary=False, row_group_size=100)
    )
    began = list[int]()

    def begin(*arguments: Any, **named: Any) -> Any:
        began.append(arguments[3])
        return really(*arguments, **named)

    really = parquet._read_images
    monkeypatch.setattr(parquet, "_read_images", begin)
    for row in (*range(3, 200, 5), *range(3, 200, 5)):
        assert read_embedded(image(file, row), 1 << 20) == values[row]
    parquet.end_sample()
    assert began == [0, 1, 0, 1]


def write_column(path: Path, data: bytes) -> storage.Entry:
    path.write_bytes(data)
    listed = storage.find(str(path))
    assert listed
    return listed


def image(file: storage.Entry, row: int) -> storage.Entry:
    return parquet.image_entry(file, "image", row, 1)


def test_equal_images_are_copied_once_and_long_ones_not_at_all(tmp_path: Path) -> None:
    values = pa.array([b"a" * 100, b"b" * 200, b""])
    indices = pa.array([0, 1, 0, None, 2, 2, 1, 0] * 1000, pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, values)
    file = write_column(tmp_path / "t.parquet", written(column))
    (tmp_path / "copies").mkdir()
    read = functools.partial(read_embedded, copies=str(tmp_path / "copies"))
    assert read_image(image(file, 7000), read_embedded=read) == b"a" * 100
    assert read_image(image(file, 7006), read_embedded=read) == b"b" * 200
    with pytest.raises(RejectError, match="holds no bytes"):
        read_image(image(file, 3), read_embedded=read)
    (copy,) = (tmp_path / "copies").glob("images-*[0-9a-f]")
    assert copy.stat().st_size == 300
    copy.unlink()
    parquet._copies.clear()
    assert read_image(image(file, 0), max_bytes=150, read_embedded=read) == b"a" * 100
    with pytest.raises(RejectError, match="file-too-large"):
        read_image(image(file, 1), max_bytes=150, read_embedded=read)
    (copy,) = (tmp_path / "copies").glob("images-*[0-9a-f]")
    assert copy.stat().st_size == 100


def test_a_copy_takes_no_more_than_the_file_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_column(tmp_path / "t.parquet", written(pa.array([b"12345"] * 100)))
    monkeypatch.setattr(parquet, "_FREE_EXCESS_BYTES", 4)
    monkeypatch.setattr(parquet, "_MOST_EXCESS", 0)
    read = functools.partial(read_embedded, copies=str(tmp_path))
    with pytest.raises(DataError, match=r"t\.parquet, row 1`: its images take more than 5 bytes"):
        read_image(image(file, 0), read_embedded=read)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_texts_take_no_more_memory_than_the_file_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the references of all rows, which the engine holds."""
    file = write_column(tmp_path / "t.parquet", written(pa.array(["x" * 10_000] * 2000)))
    monkeypatch.setattr(parquet_file, "_FREE_EXCESS_BYTES", 5_000_000)
    with (
        ParquetFile(file) as opened,
        pytest.raises(DataError, match=r"t\.parquet, row \d+`: the strings up to here take far"),
    ):
        list(opened.read_rows(["image"]))
    monkeypatch.setattr(parquet_file, "_FREE_EXCESS_BYTES", 20_000_000)
    with ParquetFile(file) as opened:
        assert sum(batch.num_rows for batch in opened.read_rows(["image"])) == 2000


@pytest.mark.parametrize("careful", [False, True])
def test_images_of_which_some_are_stored_once(
    careful: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ones are in a dictionary, until it is full."""
    values = [b"%04d" % (number % 700) * 50 for number in range(1500)]
    values += [b"%04d" % number * 50 for number in range(1500, 4000)]
    data = written(pa.array(values), dictionary_pagesize_limit=1000, write_batch_size=100)
    file = write_column(tmp_path / "t.parquet", data)
    if careful:
        monkeypatch.setattr(parquet_file, "ReadImages", make_careful)
    found = list[bytes]()
    sent = dict[int, bytes]()
    with ParquetFile(file) as opened:
        for first, images in opened.read_images("image", 1 << 20, 0):
            assert first == len(found)
            numbers = images.numbers or range(len(images.values))
            assert not any(
                value is None and number not in sent
                for number, value in zip(numbers, images.values, strict=True)
            )
            sent |= {
                number: value
                for number, value in zip(numbers, images.values, strict=True)
                if value is not None
            }
            found += [sent[numbers[position]] for position in images.positions]
    assert found == values


@pytest.mark.parametrize("copied", [False, True])
def test_values_that_take_turns_are_sent_once(copied: bool, tmp_path: Path) -> None:
    values = [bytes([number]) * (2 << 20) for number in range(5)]
    indices = pa.array([number % 5 for number in range(3000)], pa.int32())
    file = write_column(
        tmp_path / "t.parquet", written(pa.DictionaryArray.from_arrays(indices, values))
    )
    sent = 0
    with ParquetFile(file) as opened:
        for _, images in opened.read_images("image", 4 << 20, 0):
            sent += sum(len(value) for value in images.values if value is not None)
    assert sent == 5 * (2 << 20)
    copies = str(tmp_path) if copied else ""
    for row in (2999, 4):
        read = read_embedded(image(file, row), 4 << 20, copies)
        assert read == values[row % 5]


def test_rows_are_sent_without_the_values_of_others() -> None:
    column = pa.array(["a" * MIB, "b"]).dictionary_encode()
    batch = pa.RecordBatch.from_arrays([column], ["text"]).slice(1)
    stream = parquet_process._to_stream(batch)
    assert len(stream) < 2000
    assert pa.ipc.open_stream(stream).read_next_batch().to_pydict() == {"text": ["b"]}


def make_careful(
    group: int, column: str, max_bytes: int, skip: int, careful: bool
) -> parquet_process.ReadImages:
    return parquet_process.ReadImages(group, column, max_bytes, skip, careful=True)


def test_a_process_that_ends_costs_no_row(tmp_path: Path) -> None:
    file = write_column(tmp_path / "t.parquet", written(pa.array([b"12345"] * 5000)))
    numbers = list[int]()
    with ParquetFile(file) as opened:
        for first, images in opened.read_images("image", 100, 0):
            numbers += range(first, first + images.num_rows)
            if first == 0:
                assert opened._process
                opened._process.kill()
    assert numbers == [*range(5000)]


def test_metadata_of_any_size_and_depth_are_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"label": [0]})
    deep = '{"info":{"features":{"label":' + "[" * 100_000
    arrow.write_table(table.replace_schema_metadata({"huggingface": deep}), path)
    assert read_class_names(str(path), "label") == []
    long = json.dumps(["x" * (4 * MIB)])
    arrow.write_table(table.replace_schema_metadata({"huggingface": long}), path)
    with pytest.raises(UsageError, match=r"t\.parquet`: its Hugging Face metadata is larger"):
        read_class_names(str(path), "label")


def test_damaged_bytes_are_errors_or_read(tmp_path: Path) -> None:
    data = written(pa.array([b"12345", None, b"1"] * 20))
    random = np.random.default_rng(0)
    for position in random.integers(0, len(data), 60):
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(random.integers(8))
        file = write_column(tmp_path / "t.parquet", bytes(damaged))
        with contextlib.suppress(DataError), ParquetFile(file) as opened:
            if "image" in opened.schema.names:
                list(opened.read_rows(["image"]))
                list(opened.read_images("image", 100, 0))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1 << 62], pa.timestamp("us")),
        pa.array([1], pa.timestamp("us", "Nowhere/City")),
        pa.array([b"\xe9"]).view(pa.string()),
    ],
    ids=["a time", "a time zone", "a text"],
)
def test_values_that_python_cannot_hold_are_an_error(column: Any, tmp_path: Path) -> None:
    file = write_column(tmp_path / "t.parquet", written(column, store_schema=True))
    with (
        ParquetFile(file) as opened,
        pytest.raises(DataError, match=r"t\.parquet, row 1`: .* 'image' that cannot be read"),
    ):
        list(opened.read_rows(["image"]))
