"""The table of contents of a dataset.

Every row is derived from its record again, and hostile files are refused.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import itertools
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.compute
import pyarrow.dataset
import pytest
from pyarrow import parquet

import beam_tfr
from beam_tfr.comparison.compared_contents import read_compared_contents
from beam_tfr.dataset import lookup
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.images.appearance import describe_pixels, sum_channels
from beam_tfr.records import contents, contents_file
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile, frame
from beam_tfr.schema.encodings import names_of
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import FeatureSpec
from tests.converted import converted_photos
from tests.converted_contents import converted_files, converted_rows, schema
from tests.fake_gcs import FakeGcs
from tests.pages import ROOT

PHOTOS = (
    "",
    "--num_shards 3 --compression gzip:6",
    "--num_shards 2 --encoding raw",
    "--encoding png --compression none",
    "--encoding keep --resize none",
)


DATASETS: dict[str, Callable[[], Path]] = {
    **{flags or "defaults": functools.partial(converted_photos, flags) for flags in PHOTOS},
    "rows": converted_rows,
    "files": converted_files,
}


@pytest.mark.timeout(100)
def test_columns_of_many_features_whose_names_are_alike_have_names_of_their_own() -> None:
    names = ["a" + "".join(marks) for marks in itertools.product("/_", repeat=15)]
    features = dict.fromkeys(names, FeatureSpec("int64"))
    columns = contents.contents_columns(features, names_of("row"))
    found = [columns[name].name for name in sorted(names)]
    base = "a" + "_" * 15
    assert found[:10] == [*(base + "_" * number for number in range(9)), f"{base}_9"]
    assert len({*found}) == len(names)
    assert max(map(len, found)) < 30


@pytest.mark.parametrize("name", DATASETS)
def test_every_row_is_derived_from_its_record_again(name: str) -> None:
    folder = DATASETS[name]()
    dataset = read_manifest(str(folder))
    columns = dataset.contents_columns
    for split in dataset.splits.keys() - {"none"}:
        rows = iter(beam_tfr.contents(folder, split).to_table().to_pylist())
        for number, shard in enumerate(dataset.splits[split].shards):
            data = (folder / shard.file).read_bytes()
            plain = gzip.decompress(data) if shard.file.endswith(".gz") else data
            for record in RecordFile(str(folder / shard.file)):
                row = next(rows)
                derived = contents.contents_row(parse_example(record), columns)
                assert {column: row[column] for column in derived} == derived
                assert (row["split"], row["shard"]) == (split, number)
                assert plain[row["offset"] :][: row["length"]] == record
                if row["restart"] is not None:
                    assert frame(record) in zlib.decompressobj(-15).decompress(
                        data[row["restart"] :]
                    )
                assert row.keys() - derived.keys() <= {*contents.PLACE, *contents.MADE}
        assert next(rows, None) is None


@pytest.mark.parametrize("name", ["defaults", "rows"])
@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        ("shard", 10**12),
        ("shard", None),
        ("split", "other"),
        ("label", 3),
        ("label", -2),
        ("class", "hut"),
    ],
)
def test_contents_that_contradict_the_manifest_are_damaged(
    name: str, column: str, wrong: object, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    shutil.copytree(DATASETS[name](), folder)
    path = min((folder / "contents").iterdir())
    table = parquet.read_table(path)
    place = table.column_names.index(column)
    cells = table.column(column).to_pylist()
    cells[-1] = [wrong] if isinstance(cells[-1], list) else wrong
    field = table.schema.field(column)
    table = table.set_column(place, field, pa.array(cells, field.type))
    path.write_bytes(contents_file.contents_bytes(table))
    problem = rf"{re.escape(str(path))} is damaged: its column {column} "
    if column in ("split", "class"):  # which `diff` compares
        with pytest.raises(DataError, match=problem):
            read_compared_contents(read_manifest(str(folder)), lambda _: None)
    split = path.name.split("-")[1]
    with pytest.raises(DataError, match=problem):
        beam_tfr.Records(folder, split=split, output="raw_record").where(
            pyarrow.compute.field("offset") > 0
        )
    (folder / "contents.sha256").unlink()  # which differs first
    report = beam_tfr.verify(folder, progress=False)
    assert any(f"its column {column} " in str(found) for found in report.problems)


def test_what_is_known_only_while_converting() -> None:
    folder = converted_photos("--num_shards 2 --encoding raw")
    rows = beam_tfr.contents(folder, "train").to_table().to_pylist()
    for example, row in zip(
        beam_tfr.Records(folder, split="train", output="dict"), rows, strict=True
    ):
        source = (folder.parent / "photos" / row["key"]).read_bytes()
        assert (row["source_bytes"], row["source_crc32c"]) == (
            len(source),
            google_crc32c.value(source),
        )
        assert row["source_sha256"].hex() == example["image/key/sha256"].decode()
        appearance = describe_pixels(example["image"], sum_channels(example["image"]))
        assert (row["mean"], row["std"]) == pytest.approx(
            (appearance.mean, appearance.std), rel=1e-5
        )
        assert row["phash"] == appearance.phash


def test_filters_and_columns() -> None:
    folder = converted_photos("--num_shards 3 --compression gzip:6")
    field = pa.compute.field
    found = beam_tfr.contents(str(folder)).to_table(
        columns=["key", "split"], filter=field("class") == "hat"
    )
    assert found.num_rows == 6
    assert found.column_names == ["key", "split"]
    assert all("/hat/" in key for key in found["key"].to_pylist())
    assert beam_tfr.contents(folder, split="test").count_rows() == 6


def test_readers_of_folders_take_the_contents_as_a_table() -> None:
    folder = converted_photos()
    rows = beam_tfr.contents(folder).to_table(columns=["key", "split"]).sort_by("key")
    read = pyarrow.dataset.dataset(folder / "contents").to_table(columns=["key", "split"])
    assert read.sort_by("key").equals(rows)
    table = pandas.read_parquet(folder / "contents")
    assert sorted(table["key"]) == rows["key"].to_pylist()


def test_tools_check_the_sums() -> None:
    checked = subprocess.run(
        ["sha256sum", "--check", "contents.sha256"],
        cwd=converted_photos(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert checked.stdout.count(": OK") >= 2


def test_wrong_calls(tmp_path: Path) -> None:
    folder = converted_photos()
    with pytest.raises(
        UsageError, match=r"^`split=nope`: is not in .*; the splits are: test, train$"
    ):
        beam_tfr.contents(folder, "nope")
    shutil.copytree(folder, tmp_path / "d")
    shutil.rmtree(tmp_path / "d" / "contents")
    with pytest.raises(
        DataError, match=r"contents/d-test-00000-of-00001.parquet is missing; copy contents"
    ):
        beam_tfr.contents(tmp_path / "d")


def test_on_gs(fake: FakeGcs) -> None:
    folder = converted_photos("--num_shards 3 --compression gzip:6")
    fake.put_folder(folder, "d")
    fake.take_log()
    there = beam_tfr.contents("gs://b/d")
    assert len(fake.take_log()) == 2  # the manifest, a listing; however many shards
    assert there.to_table().equals(beam_tfr.contents(folder).to_table())


def test_the_page_lists_every_column() -> None:
    dataset = read_manifest(str(converted_photos()))
    text = (ROOT / "docs" / "contents.md").read_text()
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    listed = {name.strip(" `") for row in rows for name in row.split("|")[1].split(",")}
    assert listed == {*dataset.contents_schema().names}


# Hostile files


def rows_of(**columns: list[Any]) -> pa.Table:
    size = len(next(iter(columns.values())))
    return pa.table(
        [pa.array(columns.get(field.name, [None] * size), field.type) for field in schema()],
        schema(),
    )


def written(table: pa.Table, **how: Any) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink, **{"compression": "none", "store_schema": False, **how})
    return sink.getvalue()


def long_list(values: int) -> pa.Table:
    """Two rows, of which one has a list of many zeros: some hundred bytes as Parquet."""
    zeros = pa.ListArray.from_arrays(
        pa.array([0, values, values + 1], pa.int32()), pa.array(np.zeros(values + 1, int))
    )
    return rows_of(key=["a", "b"]).set_column(schema().get_field_index("ids"), "ids", zeros)


def lie(data: bytes, values: int) -> bytes:
    """Says 2 values instead of `values` in the metadata, but not in the pages."""

    def number(value: int) -> bytes:
        return bytes(
            [value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21 & 127]
        )

    metadata = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:metadata] + data[metadata:].replace(number(values * 2), number(4))


MANY = 20_000_000
PAGE = {"data_page_size": 1 << 40, "write_batch_size": 1 << 30}


@functools.cache
def hostile() -> dict[str, tuple[bytes, str]]:
    """What it is -> (the file, what must be said)."""
    good = rows_of(key=["a", "b"], n=[1, 2])
    data = written(good)
    bomb = written(long_list(MANY), **PAGE)
    many_rows = rows_of(key=["a"] * 100_000, n=[7] * 100_000)
    texts = rows_of(key=["a", "b"], words=[["x" * 5000] * 100, ["y"]])
    nested = pa.table({"key": pa.array([[["a"]], []])})
    latin = good.set_column(
        good.schema.get_field_index("key"), "key", pa.array([b"\xe9", b"b"]).view(pa.string())
    )
    lied = lie(bomb, MANY + 1)
    assert lied != bomb
    return {
        "compressed": (written(good, compression="zstd"), "it is compressed"),
        "other rows": (written(many_rows), "it has 100000 rows, expected 2"),
        "other columns": (written(pa.table({"a": [1, 2]})), "its columns are"),
        "other types": (written(good.set_column(2, "key", pa.array([1, 2]))), "its columns are"),
        "nested": (written(nested), "its columns are"),
        "a long list": (bomb, "ids has more values than its rows can have"),
        "a long list that the metadata hide": (lied, "ids has more values than its rows can have"),
        "a long text": (
            written(rows_of(key=["a" * 5000, "b"])),
            "a string has more than 1000 characters",
        ),
        "a long text in lists": (written(texts), "a string has more than 1000 characters"),
        "no UTF-8": (written(latin), "UTF8"),
        "another writer": (
            data.replace(b"parquet-cpp-arrow", b"parquet-mr version"[:17]),
            "not by pyarrow",
        ),
        "no Parquet": (b"PAR1" + bytes(100) + b"PAR1", ""),
        "nothing": (b"", ""),
        "no footer": (data[:-9], ""),
        "half a footer": (data[: len(data) // 2] + data[-8:], ""),
        "a long footer": (
            data[:-8] + bytes(2_000_000) + (2_000_000).to_bytes(4, "little") + b"PAR1",
            "its metadata are too long for",
        ),
        "a footer longer than the file": (data[:-8] + b"\xff\xff\xff\x7fPAR1", ""),
    }


def repeated(words: int) -> pa.Table:
    """Rows that repeat a text of 4,000 bytes: some bytes per row as Parquet."""
    text = "\N{GRINNING FACE}" * contents.MAX_TEXT
    return rows_of(key=["k"] * ROWS, words=[[text] * words] * ROWS)


ROWS = 20_000


@pytest.mark.parametrize(("words", "num_bytes"), [(1, 80_020_000), (3, 240_020_000)])
def test_texts_that_take_far_more_memory_than_their_file_are_refused(
    words: int, num_bytes: int
) -> None:
    data = written(repeated(words))
    assert len(data) < 50_000
    said = f"p is damaged: its strings have {num_bytes:,} bytes, too many for {len(data):,} bytes"
    with pytest.raises(DataError, match=re.escape(said)):
        contents_file.parse_contents(data, schema(), path="p", num_rows=ROWS)


def test_numbers_that_take_far_more_memory_than_their_file_are_refused() -> None:
    rows = 2_000_000
    one = rows_of(key=["k"])
    data = written(one.take(np.zeros(rows, int)), row_group_size=rows)
    assert len(data) < 200_000
    with pytest.raises(DataError, match=r"it has [0-9,]+ values, too many for [0-9,]+ bytes"):
        contents_file.parse_contents(data, schema(), path="p", num_rows=rows)


def test_texts_that_many_rows_share_are_read() -> None:
    """Such as the description of a class, in a shard of tiny images."""
    rows = 10_000
    keys = [f"{number:08}" for number in range(rows)]
    table = rows_of(key=keys, words=[["d" * 500, "e" * 300]] * rows, n=[7] * rows)
    data = contents_file.contents_bytes(table)
    read = contents_file.parse_contents(data, schema(), path="p", num_rows=rows)
    assert read.equals(table)


def test_few_contents_are_parsed_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the many that are read ahead, because they may be far larger than their files."""
    dataset = read_manifest(str(converted_photos("--num_shards 3 --compression gzip:6")))
    shards = [*dataset.shards] * 4
    expected = [lookup.read_shard_contents(dataset, shard, ["key", "split"]) for shard in shards]
    parsed = []

    def parse(data: bytes, schema: pa.Schema, *, path: str, **how: Any) -> pa.Table:
        parsed.append(path)
        return contents_file.parse_contents(data, schema, path=path, **how)

    monkeypatch.setattr(lookup, "parse_contents", parse)
    tables = []
    for table in lookup.read_all_contents(dataset, ["key", "split"], shards):
        tables.append(table)
        assert len(parsed) < len(tables) + 4
    assert tables == expected


READ = """
import resource, sys
from beam_tfr.records import contents, contents_file
from beam_tfr.schema.errors import DataError
from tests.converted_contents import schema
wanted = schema()
import pyarrow.parquet, pyarrow.compute
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        data = file.read()
    try:
        contents_file.parse_contents(data, wanted, path=path, num_rows=2)
        print("read")
    except DataError as error:
        print(error)
"""


@pytest.mark.slow
def test_hostile_files_are_errors_in_bounded_memory(tmp_path: Path) -> None:
    paths = []
    for number, (data, _) in enumerate(hostile().values()):
        paths.append(tmp_path / f"{number}.parquet")
        paths[-1].write_bytes(data)
    command = [sys.executable, "-c", READ, *map(str, paths)]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240
    )
    assert run.returncode == 0, run.stderr[-2000:]
    lines = run.stdout.splitlines()
    for (name, (_, said)), path, line in zip(hostile().items(), paths, lines, strict=True):
        assert line.startswith(f"{path} is damaged: {said}"[: len(f"{path} is damaged: ")]), name
        assert said in line, name


def test_damaged_bytes_are_errors_or_read() -> None:
    data = written(rows_of(key=["a", "b"], n=[1, 2], ids=[[1], [2, 3]], words=[["a"], []]))
    random = np.random.default_rng(0)
    for position in random.integers(0, len(data), 300):
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(random.integers(8))
        with contextlib.suppress(DataError):  # any other error fails
            found = contents_file.parse_contents(bytes(damaged), schema(), path="p", num_rows=2)
            assert found.schema.equals(schema())
            assert found.num_rows == 2
