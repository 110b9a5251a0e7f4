"""`Records`: any list of numbers gives what reading in order gives.

So it is in threads and processes. Damage is named.
"""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import beam_tfr
from beam_tfr.dataset.elements import ExampleDecoder
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.records.examples import serialize
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError, UsageError
from tests.conftest import few_at_once
from tests.converted import converted_photos
from tests.converted_contents import ROWS, converted_files, converted_rows
from tests.fake_gcs import FakeGcs
from tests.worker_shares import read_and_count

STORED = "--num_shards 3"
DEFLATED = "--num_shards 2 --encoding raw"
VARIANTS = (
    STORED,
    DEFLATED,
    "--num_shards 3 --compression gzip:6",
    "--encoding png --compression none",
    "--encoding keep --resize none",
)
field = pa.compute.field


@functools.cache
def sort_splits(folder: Path) -> list[bytes]:
    """The records of train, as the sequential reader gives them."""
    return [
        record
        for file in sorted(folder.glob("*-train-*.tfrecord*"))
        for record in RecordFile(str(file))
    ]


@functools.cache
def raw_records(flags: str) -> beam_tfr.Records:
    return beam_tfr.Records(converted_photos(flags), split="train", output="raw_record")


@pytest.mark.parametrize("flags", few_at_once(VARIANTS, STORED, DEFLATED))
@given(data=st.data())
def test_any_numbers_give_what_the_sequential_reader_gives(flags: str, data: st.DataObject) -> None:
    records, expected = raw_records(flags), sort_splits(converted_photos(flags))
    assert len(records) == len(expected) == 12
    numbers = data.draw(st.lists(st.integers(-12, 11), max_size=20))
    assert records.__getitems__(numbers) == [expected[number] for number in numbers]
    bound = st.none() | st.integers(-15, 15)
    step = bound.filter(lambda value: value != 0)
    first, second = (data.draw(st.builds(slice, bound, bound, step)) for _ in range(2))
    assert [*records[first][second]] == expected[first][second]


def test_images_of_more_pixels_than_a_dataset_has_are_not_decoded() -> None:
    """A record may be from elsewhere; 60,000 x 60,000 pixels of one color have some kilobytes."""
    photo = simplejpeg.encode_jpeg(np.zeros((32, 32, 1), np.uint8), colorspace="GRAY")
    start_of_frame = photo.index(b"\xff\xc0")
    sides = (60_000).to_bytes(2, "big") * 2
    jpeg = photo[: start_of_frame + 5] + sides + photo[start_of_frame + 9 :]
    _, encoded = cv2.imencode(".png", np.zeros((32, 32), np.uint8))
    png = encoded.tobytes()[:16] + (60_000).to_bytes(4, "big") * 2 + encoded.tobytes()[24:]
    lossless = b"VP8L\x0a\0\0\0\x2f" + ((1 << 28) - 1).to_bytes(4, "little") + bytes(5)
    lossy = b"VP8 \x0a\0\0\0\x10\0\0\x9d\x01\x2a" + (0x3FFF).to_bytes(2, "little") * 2
    canvas = b"VP8X\x0a\0\0\0" + bytes(4) + (59_999).to_bytes(3, "little") * 2
    webps = [b"RIFF\x20\0\0\0WEBP" + chunk for chunk in (lossless, lossy, canvas)]
    images = [(jpeg, "jpeg"), (png, "png"), *((webp, "webp") for webp in webps)]
    decoder = ExampleDecoder(read_manifest(str(converted_photos(STORED))), output="image")
    for data, form in images:
        decoder._encoding = form
        record = serialize({"image/encoded": ("bytes", [data])})
        with pytest.raises(ValueError, match=r"has [0-9,]{11,} pixels, but .* at most 100,000,000"):
            decoder(record)
    for form in ("png", "webp"):  # OpenCV would decode a JPEG
        decoder._encoding = form
        record = serialize({"image/encoded": ("bytes", [jpeg])})
        with pytest.raises(ValueError, match=f"the image cannot be decoded as {form}"):
            decoder(record)


def test_examples_are_those_of_the_streaming_reader() -> None:
    from beam_tfr.torch import ImageDataset

    folder = converted_photos(DEFLATED)
    records = beam_tfr.Records(folder, split="train")
    assert records.class_names == ("hat", "shoes", "t-shirt")
    found = {image.tobytes(): label for image, label in records}
    streamed = ImageDataset(folder, split="train", shuffle=False)
    assert found == {image.tobytes(): int(label) for image, label in streamed}
    assert {image.shape for image, _ in records} == {(224, 224, 3)}
    assert {
        len(output) for output in beam_tfr.Records(folder, split="train[:50%]", output="dict")
    } == {13}
    flipped = beam_tfr.Records(folder, split="train", output="image", transform=np.fliplr)
    np.testing.assert_array_equal(np.fliplr(flipped[-1]), records[11][0])


def test_rows_and_files() -> None:
    rows = beam_tfr.Records(converted_rows(), split="train", output="dict")
    found = sorted((row["n"][0], row["text"][0].decode(), list(row["ids"])) for row in rows)
    assert found == [(row["n"], row["text"], row["ids"]) for row in ROWS]
    with pytest.raises(UsageError, match=r'must be "dict" or "raw_record"'):
        beam_tfr.Records(converted_rows(), split="train")
    # one shard is empty
    assert len(beam_tfr.Records(converted_files(), split="train", output="raw_record")) == 2


def test_where() -> None:
    records = beam_tfr.Records(converted_photos(STORED), split="train", output="dict")
    hats = records.where(field("class") == "hat")
    assert [example["image/class/text"] for example in hats] == [b"hat"] * 4
    keys = [example["image/filename"].decode() for example in records]
    assert [
        example["image/filename"].decode()
        for example in records.where(field("key").isin(keys[2:4]))
    ] == keys[2:4]
    starts = records[::-1].where(pa.compute.starts_with(field("key"), "train/hat/"))
    assert [example["image/filename"] for example in starts] == [
        example["image/filename"] for example in hats[::-1]
    ]
    assert [len(hats.where(field(name) < 0)) for name in ("height", "mean", "restart")] == [0, 0, 0]
    assert [*records[:0].where(field("height") > 0)] == []
    for condition, said in (
        (field("nope") == 1, "where: No match for FieldRef.Name(nope)"),
        (
            field("height"),
            "where: it must be true or false for each row, but is int64; the columns are: split, ",
        ),
        (field("class") > 3, "where: "),
        ("class == 'hat'", "where: must be a pyarrow.compute.Expression"),
    ):
        with pytest.raises(UsageError) as raised:
            records.where(condition)
        assert str(raised.value).startswith(said)


def test_wrong_numbers() -> None:
    records = raw_records(STORED)
    assert records[np.int64(3)] == records[np.uint8(3)] == records[3] == records[-9]
    assert records.__getitems__(np.array([1, 2])) == [records[1], records[2]]
    for number in (12, -13, 10**30):
        with pytest.raises(IndexError, match=rf"^record {number} of 12$"):
            records[number]
    for wrong in (1.0, "1", None, np.array([1, 2])):
        with pytest.raises(TypeError):
            records[wrong]
    assert len(records[5:5]) == len(records[::-1][20:]) == 0
    with pytest.raises(IndexError, match=r"^record 0 of 0$"):
        records[5:5][0]


def test_threads() -> None:
    records, expected = (
        beam_tfr.Records(converted_photos(DEFLATED), split="train", output="raw_record"),
        [],
    )
    expected = sort_splits(converted_photos(DEFLATED))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert [*pool.map(records.__getitem__, [*range(12)] * 8)] == expected * 8


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_processes(method: str) -> None:
    records = beam_tfr.Records(converted_photos(STORED), split="train", output="raw_record")
    expected = [(record, 4) for record in sort_splits(converted_photos(STORED))]
    assert read_and_count(records, 0) == expected[0]  # the parent has used it
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        assert [*pool.map(read_and_count, [records] * 12, range(12), timeout=240)] == expected


def test_pickled_and_without_open_files() -> None:
    records = beam_tfr.Records(converted_photos(STORED), split="train", output="raw_record")
    before = len(os.listdir("/proc/self/fd"))
    assert [*records] == sort_splits(converted_photos(STORED))
    assert len(os.listdir("/proc/self/fd")) == before
    hats = records.where(field("class") == "hat")
    assert [*pickle.loads(pickle.dumps(hats))] == [*hats]
    assert len(pickle.dumps(records)) < 20_000


# Damage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(converted_photos(STORED), tmp_path / "d"))


def read(folder: Path) -> list[Any]:
    return [*beam_tfr.Records(folder, split="train", output="raw_record")]


def change(folder: Path, **columns: Any) -> Path:
    """Changes columns of the contents of the first shard.

    Name -> function of the list of its values.
    """
    path = folder / "contents" / "d-train-00000-of-00003.parquet"
    if not path.exists():
        path = folder / "contents" / "d-train-00000-of-00002.parquet"
    table = parquet.read_table(path)
    for name, function in columns.items():
        at = table.column_names.index(name)
        values = pa.array(function(table[name].to_pylist()), table.schema.field(name).type)
        table = table.set_column(at, name, values)
    parquet.write_table(table, path, compression="none", store_schema=False)
    return path


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"length": lambda old: [-1, *old[1:]]}, "a length is impossible"),
        ({"length": lambda old: [1 << 40, *old[1:]]}, "a length is impossible"),
        ({"length": lambda old: [None, *old[1:]]}, "a length is impossible"),
        (
            {"offset": lambda old: [old[0] + 1, *old[1:]]},
            "an offset does not follow the record before it",
        ),
        ({"offset": lambda old: old[::-1]}, "an offset does not follow the record before it"),
        (
            {"length": lambda old: [*old[:-1], old[-1] + 9]},
            "an offset does not follow the record before it",
        ),
        (
            {"length": lambda old: [*old[:-1], old[-1] + 9], "offset": lambda old: old},
            "an offset does not follow the record before it",
        ),
    ],
)
def test_contents_that_contradict_themselves(
    folder: Path, columns: dict[str, Any], said: str
) -> None:
    path = change(folder, **columns)
    if (said.startswith("an offset") and "offset" not in columns) or len(columns) == 2:
        said = "does not match its shard: the file has a different size"
    with pytest.raises(DataError, match=f"^{path} .*{said}"):
        read(folder)


@pytest.mark.parametrize(
    ("restart", "said"),
    [
        (lambda old: [-1, *old[1:]], "restart points are out of order"),
        (lambda old: old[::-1], "restart points are out of order"),
        (lambda old: [*old[:-1], 1 << 40], "restart points are out of order"),
        (lambda old: [None] * len(old), "restart points are out of order"),
        (lambda old: [place + 1 for place in old], "it is damaged|it does not begin|the file ends"),
        (lambda old: [old[0]] * len(old), ""),  # one restart point for all: slower, and right
    ],
)
def test_restart_points_that_do_not_fit(tmp_path: Path, restart: Any, said: str) -> None:
    folder = Path(shutil.copytree(converted_photos(DEFLATED), tmp_path / "d"))
    change(folder, restart=restart)
    if not said:
        assert read(folder) == sort_splits(folder)
        return
    with pytest.raises(DataError, match=said) as raised:
        read(folder)
    assert "d-train-00000-of-00002" in str(raised.value)


def test_contents_of_another_shard(folder: Path) -> None:
    first, second = (
        folder / "contents" / f"d-train-0000{number}-of-00003.parquet" for number in (0, 1)
    )
    shutil.copy(second, first)
    with pytest.raises(DataError, match=f"^{first} (is damaged|does not match its shard)"):
        read(folder)


@pytest.mark.parametrize("place", [15, 24, None], ids=["a length", "its checksum", "data"])
def test_a_flipped_bit_is_never_wrong_pixels(folder: Path, place: int | None) -> None:
    shard = folder / "d-train-00000-of-00003.tfrecord.gz"
    data = bytearray(shard.read_bytes())
    data[place or len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DataError, match=f"^{shard}: record .*: .*; .*repair"):
        read(folder)


def test_shards_that_are_not_those_of_the_manifest(folder: Path) -> None:
    shard = folder / "d-train-00000-of-00003.tfrecord.gz"
    data = shard.read_bytes()
    records = beam_tfr.Records(folder, split="train", output="raw_record")
    shard.write_bytes(data[:-5])
    with pytest.raises(
        DataError, match=f"^{shard} has {len(data) - 5} bytes instead of {len(data)}"
    ):
        records[0]
    with pytest.raises(DataError, match=str(shard)):
        read(folder)
    shard.write_bytes(data)
    assert records[0] == sort_splits(folder)[0]
    os.utime(shard, (1, 1))
    with pytest.raises(DataError, match=f"^{shard} was changed or removed while it was read"):
        records[0]
    shard.unlink()
    with pytest.raises(DataError, match=f"^{shard} was changed or removed while it was read"):
        records[0]


@pytest.mark.parametrize("flags", ["--encoding keep --resize none", "--num_shards 3 --limit 9"])
def test_a_dataset_that_is_replaced_while_it_is_read(folder: Path, flags: str) -> None:
    records = beam_tfr.Records(folder, split="train", output="raw_record")
    first = records[0]
    shutil.rmtree(folder)
    shutil.copytree(converted_photos(flags), folder)
    for use in (
        lambda: records[0],
        lambda: records[11],
        lambda: records.where(field("class") == "hat"),
    ):
        with pytest.raises(DataError, match="another dataset replaced "):
            use()
    assert first == sort_splits(converted_photos(STORED))[0]


# gs://


def test_on_gs_with_few_requests(fake: FakeGcs) -> None:
    folder = converted_photos(STORED)
    fake.put_folder(folder, "d")
    records = beam_tfr.Records("gs://b/d", split="train", output="raw_record")
    assert [*records] == sort_splits(folder)
    fake.take_log()
    assert records[5] == sort_splits(folder)[5]
    assert len(fake.take_log()) == 1
    assert records.__getitems__([0, 11, 1, 10, 2]) == [
        sort_splits(folder)[number] for number in (0, 11, 1, 10, 2)
    ]
    assert len(fake.take_log()) == 2  # neighbors are read together
    assert len(records.where(field("class") == "hat")) == 4
    fake.delete("d/d-train-00000-of-00003.tfrecord.gz")
    with pytest.raises(
        DataError, match=r"^gs://b/d/d-train-00000-of-00003.tfrecord.gz was changed or removed"
    ):
        records[0]
