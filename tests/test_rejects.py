"""rejects.jsonl: sorted, complete, in bounded memory; how a run with too many of them ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.dataset.reject_lines import read_rejects
from beam_tfr.output import rejects
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import Reject
from beam_tfr.verification.sources import open_sources
from tests.conftest import Run
from tests.converted import converted_photos, converted_spoiled_photos

Command = Callable[..., Run]


def line(key: str) -> bytes:
    return f"{Reject(key, 'ReadImages', 'empty-file', '').to_json()}\n".encode()


@given(st.lists(st.text(max_size=3)), st.integers(1, 500))
def test_lines_are_sorted_by_key_however_short_the_runs(keys: list[str], run_bytes: int) -> None:
    found = [*rejects.sort_by_key(map(line, keys), run_bytes)]
    assert [json.loads(one)["key"] for one in found] == sorted(keys)
    assert sorted(found) == sorted(map(line, keys))


MANY = """
import resource, sys
from beam_tfr.dataset.reject_lines import read_rejects
from beam_tfr.output import rejects
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import Reject
def lines(count):
    for i in range(count):
        reject = Reject(f"{i * 7919 % count:07}.jpg", "ResizeImages", "damaged-image", "x" * 600)
        yield f"{reject.to_json()}\\n".encode()
before = 0
for count in (30_000, 120_000):
    last, total = b"", 0
    for one in rejects.sort_by_key(lines(count)):
        total += 1
    assert total == count
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_many_rejects_take_the_memory_of_a_few() -> None:
    run = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    few, many = map(int, run.stdout.split())
    assert many < 1.2 * few


def test_rejects_of_a_dataset_are_sorted_by_key_across_splits_and_shards() -> None:
    folder = converted_spoiled_photos()
    found = [reject.key for reject in read_rejects(str(folder / "rejects.jsonl"))]
    assert found == sorted(found)
    assert len(found) == 7
    assert len(read_manifest(str(folder)).splits) == 3


def convert(beam_tfr: Command, source: Path, output: Path, *flags: object) -> Run:
    return beam_tfr(
        "convert",
        "--input",
        f"{source}/*",
        "--output",
        output,
        "--encoding=bytes",
        "--layout=*",
        "--num_shards=3",
        *flags,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """60 files, 12 of which are empty."""
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(60):
        (folder / f"{i:02}.bin").write_bytes(b"" if i % 5 == 0 else b"%d" % i)
    return folder


def test_a_name_that_is_not_utf8_can_be_told(beam_tfr: Command, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in (b"\xff\x1b1.bin", b"\xff\x1b2.bin"):
        (tmp_path / "in" / os.fsdecode(name)).touch()
    run = convert(beam_tfr, tmp_path / "in", tmp_path / "o", "--max_rejects=1")
    assert run.code == 1
    assert r"\udcff\x1b" in run.err


def test_the_first_ten_rejects_of_the_leading_reason_are_shown(
    beam_tfr: Command, source: Path, tmp_path: Path
) -> None:
    run = convert(beam_tfr, source, tmp_path / "o", "--max_rejects=11")
    first = "".join(f"    {i:02}.bin: 0 bytes\n" for i in range(0, 50, 5))
    shown = f"  empty-file: 12\n{first}  all of them, with reasons: {tmp_path}/o"
    assert run.code == 1
    assert f" kept\n{shown}/.beam_tfr/rejects.jsonl\n" in run.err
    run = convert(beam_tfr, source, tmp_path / "o", "--max_rejects=12")
    assert f"\n{shown}/rejects.jsonl\n" in run.out


def test_rejects_of_each_reason_are_shown(beam_tfr: Command, source: Path, tmp_path: Path) -> None:
    for number in range(5):
        (source / f"big{number}.bin").write_bytes(bytes(100))
    run = convert(beam_tfr, source, tmp_path / "o", "--max_file_bytes=50")
    assert run.code == 1
    assert "  empty-file: 12\n    00.bin: 0 bytes\n" in run.err
    assert "  file-too-large: 5\n    big0.bin: more than 50 bytes\n" in run.err
    assert "    big2.bin: " in run.err
    assert "    big3.bin: " not in run.err


def test_a_small_share_of_few_images_may_be_rejected() -> None:
    allowed = {matched: rejects.count_allowed(None, matched) for matched in (5, 12, 60, 202, 5000)}
    assert allowed == {5: 0, 12: 1, 60: 6, 202: 10, 5000: 50}
    assert rejects.count_allowed(0.01, 202) == 2
    assert rejects.count_allowed(0.29, 100) == 29
    assert rejects.count_allowed(25, 12) == 25


def test_a_run_with_any_reject_fails_and_is_resumed(
    beam_tfr: Command, source: Path, tmp_path: Path
) -> None:
    run = convert(beam_tfr, source, tmp_path / "o", "--max_rejects=0")
    assert run.code == 1
    assert (
        "12 of 60 files were rejected (empty-file 12), --max_rejects 0 allows 0. Nothing is "
        "published" in run.err
    )
    assert not (tmp_path / "o" / "manifest.json").exists()
    assert convert(beam_tfr, source, tmp_path / "o", "--max_rejects=12").code == 0
    assert read_manifest(str(tmp_path / "o")).counts["written"] == 48


def test_a_split_or_class_may_be_lost_where_allowed(beam_tfr: Command, tmp_path: Path) -> None:
    for name, data in (("train/hat/a", b"a"), ("train/shoe/b", b""), ("test/hat/c", b"")):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    command = [
        "convert",
        "--input",
        f"{tmp_path}/in/*/*/*",
        "--output",
        tmp_path / "o",
        "--layout={split}/{label}/*",
    ]
    command += ["--encoding=bytes", "--max_rejects=2"]
    assert beam_tfr(*command).code == 1
    run = beam_tfr(*command, "--allow_empty", "test")
    assert "class shoe would be lost from split train" in run.err
    assert beam_tfr(*command, "--allow_empty", "test", "shoe").code == 0
    dataset = read_manifest(str(tmp_path / "o"))
    assert {name: split.num_examples for name, split in dataset.splits.items()} == {
        "test": 0,
        "train": 1,
    }
    assert beam_tfr("verify", tmp_path / "o").code == 0


@pytest.mark.parametrize(
    "line",
    [b"", b"[" * 200_000, b"[]", b"{}", b'{"key": 5}', rb'{"key": "\ud800"}', b'{"key": "a"'],
)
def test_damaged_lines_of_rejects_are_told(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "rejects.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(DataError, match="is damaged"):
        next(read_rejects(str(path)))


@pytest.mark.parametrize("key", ["../secret.jpg", "hat/../../secret.jpg", "a\0b", "\ud800"])
def test_keys_lead_to_no_file_outside_of_the_sources(photos: Path, key: str) -> None:
    shutil.copy(next(photos.glob("train/hat/*.jpg")), photos.parent / "secret.jpg")
    sources = open_sources(read_manifest(str(converted_photos())), [f"{photos}/**"])
    assert sources.find("hat/1.jpg").path == f"{photos}/hat/1.jpg"
    with pytest.raises(FileNotFoundError):
        sources.find(key)
