"""`beam-tfr bench`: it runs, and its figures add up; how large they are depends on the machine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.converted import SAMPLE, converted_photos

Command = Callable[..., Run]
FILES = [
    "files, one by one",
    "files, parallel",
    "files, cached in memory",
    "files, cached in a file",
]
DATASET = [
    "TFRecords, tutorial, batch 1",
    "TFRecords, tutorial, batch 64",
    "load",
    "load, without decoding",
    "decoding alone",
]


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorflow")
    for name in ("turns.SECONDS", "turns.SETTLING_S", "traces.TRACED_S"):
        monkeypatch.setattr(f"beam_tfr.speed.{name}", 0.01)
    monkeypatch.setattr("beam_tfr.speed.turns.TURNS", 1)
    monkeypatch.setattr("beam_tfr.commands.bench.MOST_FILES", 16)


@pytest.mark.slow
@pytest.mark.usefixtures("short_turns")
def test_bench_of_files_and_a_dataset(beam_tfr: Command, tmp_path: Path) -> None:
    run = beam_tfr(
        "bench", converted_photos(), "--input", SAMPLE, "--json", "--trace", tmp_path, "--quiet"
    )
    assert run.code == 0
    measured = json.loads(run.out)
    assert (measured["split"], measured["examples"]) == ("train", 12)
    ways = {way["name"]: way for way in measured["ways"]}
    assert [name for name in ways if "PyTorch" not in name] == [*FILES, *DATASET]
    for way in ways.values():
        busy = way["images_per_second"] * way["cpu_ms"] / 1e3
        assert way["busy_cores"] == pytest.approx(busy, rel=0.02, abs=0.02)
    (trace,) = tmp_path.glob("plugins/profile/*/*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert {*FILES, *DATASET} <= {event["name"] for event in events if event["ph"] == "X"}


@pytest.mark.slow
@pytest.mark.usefixtures("short_turns")
def test_a_line_for_each_way(beam_tfr: Command) -> None:
    run = beam_tfr("bench", converted_photos("--resize none"))
    assert (run.code, run.err) == (0, "")
    lines = run.out.splitlines()
    assert [line[:34].rstrip() for line in lines[2:] if "PyTorch" not in line] == DATASET
    assert max(line.count("#") for line in lines) == 24


@pytest.mark.parametrize(
    ("images_per_s", "cpu_s", "limit"),
    [
        (1000.0, 0.0039, "all cores are busy"),
        (1000.0, 0.0021, "2.1 of 4 cores are busy"),
        (1000.0, 0.001, "one core is busy"),
        (1000.0, 0.0001, "waits, for files or other programs"),
    ],
)
def test_what_limits_a_way(images_per_s: float, cpu_s: float, limit: str) -> None:
    turns = pytest.importorskip("beam_tfr.speed.turns")
    assert turns.describe_limit(turns.Speed(images_per_s, cpu_s), 4) == limit


def test_an_input_without_images_that_tensorflow_decodes(beam_tfr: Command, tmp_path: Path) -> None:
    (tmp_path / "a.webp").write_bytes(b"")
    run = beam_tfr("bench", converted_photos(), "--input", tmp_path)
    assert run.code == 2
    assert f"--input {tmp_path}" in run.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: DIR"),
        (["x", "--images", "3"], "unknown: --images"),
        (["x", "--tensorboard", "y"], "unknown: --tensorboard; see beam-tfr bench --help"),
    ],
)
def test_wrong_calls(arguments: list[str], message: str, beam_tfr: Command) -> None:
    run = beam_tfr("bench", *arguments)
    assert run.code == 2
    assert run.err.startswith(f"beam-tfr bench: {message}")


def test_bench_of_a_dataset_without_images(beam_tfr: Command) -> None:
    run = beam_tfr("bench", converted_photos("--encoding bytes"))
    assert run.code == 2
    assert "holds no images (--encoding bytes)" in run.err
