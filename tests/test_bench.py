"""`beam-tfr bench`: it runs, and its figures add up; how large they are depends on the machine."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import storage
from beam_tfr.commands.bench import Measured
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile, frame
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.feature_names import ENCODED
from tests.conftest import Run, files_of
from tests.converted import SAMPLE, converted_photos
from tests.fake_gcs import FakeGcs
from tests.tls_proxy import tls_proxy

Command = Callable[..., Run]
FILES = [
    "files, one by one",
    "files, parallel",
    "files, cached in memory",
    "files, cached in a file",
]
DATASET = [
    "TFRecords, tutorial, batch 1",
    "TFRecords, tutorial, batch 4",  # 64 but in tests
    "load",
    "load, without decoding",
    "decoding alone",
]


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorflow")
    for name in ("SECONDS", "SETTLING_S"):
        monkeypatch.setattr(f"beam_tfr.speed.turns.{name}", 0.01)
    monkeypatch.setattr("beam_tfr.speed.turns.TURNS", 1)
    monkeypatch.setattr("beam_tfr.speed.ways.BATCH_SIZE", 4)
    monkeypatch.setattr("beam_tfr.speed.ways.SHUFFLED", 8)
    monkeypatch.setattr("beam_tfr.speed.traces.MOST_TRACED", 16)
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
    assert measured["trace"] == str(trace)
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert {*FILES, *DATASET} <= {event["name"] for event in events if event["ph"] == "X"}


@pytest.mark.slow
@pytest.mark.usefixtures("short_turns")
def test_a_line_for_each_way(beam_tfr: Command) -> None:
    run = beam_tfr("bench", converted_photos("--resize none"))
    assert (run.code, run.err) == (0, "")
    lines = [line for line in run.out.splitlines() if not line.startswith("note: ")]
    assert [line[:34].rstrip() for line in lines[2:] if "PyTorch" not in line] == DATASET
    assert max(line.count("#") for line in lines) == 24


@pytest.mark.parametrize(
    ("cpu_s", "other_cores", "limit"),
    [
        (0.0039, 0.0, "all cores are busy"),
        (0.0039, 0.1, "all cores are busy"),
        (0.0021, 0.2, "2.1 of 4 cores are busy"),
        (0.001, 0.2, "one core is busy"),
        (0.001, 2.9, "other programs take 2.9 of 4 cores"),
        (0.0001, 0.2, "waits for files or other programs"),
    ],
)
def test_what_limits_a_way(cpu_s: float, other_cores: float, limit: str) -> None:
    turns = pytest.importorskip("beam_tfr.speed.turns")
    assert turns.describe_limit(turns.Speed(1000.0, cpu_s, other_cores), 4) == limit


def test_what_makes_figures_doubtful() -> None:
    turns = pytest.importorskip("beam_tfr.speed.turns")
    dataset = read_manifest(str(converted_photos()))
    for other_cores, wanted in ((0.0, ["12 examples"]), (1.5, ["12 examples", "1.5 of"])):
        speeds = {"load": turns.Speed(100.0, 0.001, other_cores)}
        notes = Measured(dataset, "train", speeds).as_json()["notes"]
        assert len(notes) == len(wanted)
        for note, text in zip(notes, wanted, strict=True):
            assert text in note


@pytest.mark.slow
@pytest.mark.usefixtures("short_turns")
def test_what_tensorflow_cannot_read_is_not_measured(
    fake: FakeGcs, beam_tfr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow reads gs:// by itself, and knows no emulator; decoding alone needs our reader."""
    fake.put_folder(converted_photos(), "d")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HTTPS_PROXY", "http://nowhere.invalid:9")
    run = beam_tfr("bench", "gs://b/d", "--json", "--trace", tmp_path, "--quiet")
    assert run.code == 0
    ways = {way["name"]: way for way in json.loads(run.out)["ways"]}
    unmeasured = {name for name, way in ways.items() if "not_measured" in way}
    assert unmeasured == {*DATASET} - {"decoding alone"}
    assert "STORAGE_EMULATOR_HOST" in ways["load"]["not_measured"]
    assert ways["decoding alone"]["images_per_second"] > 0
    run = beam_tfr("bench", "gs://b/d", "--quiet")
    assert run.out.count("not measured: TensorFlow") == 1


BENCH = """
import sys
from beam_tfr import cli
from beam_tfr.speed import turns, ways
turns.SECONDS = turns.SETTLING_S = 0.01
turns.TURNS = 1
ways.BATCH_SIZE = 4  # each epoch of the 12 images asks the emulator anew
ways.SHUFFLED = 8
sys.exit(cli.main(["bench", *sys.argv[1:], "--json", "--quiet"]))
"""


@pytest.mark.slow
def test_all_ways_read_gs(gcs: str, gcs_emulator: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    for folder, name in ((converted_photos(), "d"), (SAMPLE / "test" / "hat", "photos")):
        for file, data in files_of(folder).items():
            storage.write_bytes(f"{gcs}/{name}/{file}", data, scratch="", replace=False)
    with tls_proxy(gcs_emulator, tmp_path) as environment:
        run = subprocess.run(
            [sys.executable, "-c", BENCH, f"{gcs}/d", "--input", f"{gcs}/photos"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert run.returncode == 0, run.stderr[-2000:]
    ways = {way["name"]: way for way in json.loads(run.stdout)["ways"]}
    assert {*FILES, *DATASET} <= {*ways}
    assert all("not_measured" not in way for way in ways.values()), ways


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


def test_bench_names_a_record_whose_image_is_too_large(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    from beam_tfr.speed.ways import check_images

    folder = shutil.copytree(converted_photos("--compression none --encoding png"), tmp_path / "d")
    dataset = read_manifest(str(folder))
    check_images(dataset, "train")
    shard = folder / dataset.splits["train"].shards[0].file
    records = [*RecordFile(str(shard), max_record_bytes=1 << 20)]
    size = dataset.image_options.stored_size
    assert size
    (image,) = parse_example(records[1])[ENCODED]
    larger = image.replace(size[1].to_bytes(4) + size[0].to_bytes(4), (9_000).to_bytes(4) * 2)
    records[1] = records[1].replace(image, larger)
    shard.write_bytes(b"".join(map(frame, records)))
    message = re.escape(f"{shard}: record 1: the image has 81,000,000 pixels, but ")
    with pytest.raises(DataError, match=message):
        check_images(dataset, "train")
    shard.write_bytes(b"")
    with pytest.raises(DataError, match="has 0 bytes instead of"):
        check_images(dataset, "train")
