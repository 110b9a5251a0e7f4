"""`repair` makes broken shards again with the bytes that they had.

Nothing else is touched.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_tfr import launch, storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.base import restore_options
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.engine import runs
from beam_tfr.sources import open_source
from tests.conftest import Run, as_nobody, few_at_once, files_of, wait_for
from tests.converted import (
    CONVERSIONS,
    FAST,
    SAMPLE,
    converted,
    converted_photos,
    converted_sample,
    once,
    write_photos,
)
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import objects_below
from tests.handmade_dataset import edit
from tests.spoiled_dataset import TEST_0, TRAIN, flip

Command = Callable[..., Run]


def identities(dataset: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in dataset.iterdir()
        if path.is_file()
    }


def test_broken_and_missing_shards_are_made_again_and_no_other_file_is_touched(
    beam_tfr: Command, dataset: Path, sources: Path
) -> None:
    before, files = identities(dataset), files_of(dataset)
    flip(dataset / TRAIN[1])
    (dataset / TEST_0).unlink()
    run = beam_tfr("repair", dataset, "--input", f"{sources}/**/*.jpg")
    assert (run.code, run.err) == (0, "repair: 2 of 5 shards will be rebuilt\n")
    assert run.out.startswith(f"rebuilt: 2 files\n{dataset}: 18 records in 5 shards, ")
    assert run.out.endswith("OK: the dataset matches its manifest\n")
    assert files_of(dataset) == files
    after = identities(dataset)
    assert {name for name in before if before[name] != after[name]} == {TRAIN[1], TEST_0}
    again = beam_tfr("repair", dataset, "--input", f"{sources}/**/*.jpg", "--json")
    assert (again.code, again.json["ok"], again.json["repaired"]) == (0, True, [])
    assert identities(dataset) == after


def test_progress_is_shown_while_the_shards_are_made_again(
    dataset: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PROGRESS_S", 0.0)
    (dataset / TRAIN[1]).unlink()
    states: list[Progress] = []
    launch.repair(str(dataset), {"input": (f"{sources}/**/*.jpg",)}, progress=states.append)
    stages = [stage for stage, _ in itertools.groupby(state.stage for state in states)]
    assert (stages[0], stages[-1]) == ("verifying", "verifying")
    assert {*stages[1:-1]} <= {"listing", "converting", "publishing"}
    made = [state for state in states if state.total and state.stage != "verifying"]
    assert {(state.total, state.num_shards) for state in made} == {(6, 1)}
    assert (made[-1].done, made[-1].shards) == (6, 1)


def test_the_other_files_are_made_again_too(
    beam_tfr: Command, dataset: Path, sources: Path
) -> None:
    files = files_of(dataset)
    (dataset / "rejects.jsonl").unlink()
    (dataset / "labels.txt").write_text("hat\n")
    (dataset / "manifest.json").write_text(
        json.dumps(json.loads((dataset / "manifest.json").read_text()))
    )
    run = beam_tfr("repair", dataset, "--input", f"{sources}/**/*.jpg", "--json")
    assert (run.code, run.json["repaired"]) == (0, ["labels.txt", "manifest.json", "rejects.jsonl"])
    assert files_of(dataset) == files


def test_changed_sources_replace_nothing(beam_tfr: Command, dataset: Path, sources: Path) -> None:
    command = ["repair", dataset, "--input", f"{sources}/**/*.jpg"]
    flip(dataset / TRAIN[0])
    broken = files_of(dataset)
    for path in sorted(sources.glob("train/*/*.jpg")):
        if path.is_file() and path.stat().st_size > 1000:
            flip(path)
    run = beam_tfr(*command)
    assert (run.code, run.out) == (1, "")
    assert f"1 broken shard, such as {TRAIN[0][2:22]}" in run.err
    assert "images have changed, or libraries (beam_tfr 0.1.0 made the dataset" in run.err
    assert {
        name: data for name, data in files_of(dataset).items() if not name.startswith(".beam_tfr")
    } == broken

    next(sources.glob("test/shoes/*.jpg")).unlink()
    run = beam_tfr(*command)
    assert run.code == 1
    assert "the input has changed since the dataset was made" in run.err
    assert "`beam-tfr verify` with --sources names the changes. Undo them" in run.err
    assert "write the dataset again with `beam-tfr convert` and --overwrite" in run.err


@pytest.mark.parametrize(
    "command", [("repair",), ("repair", "--table", "t.csv"), ("update", "--table", "t.csv")]
)
def test_a_dataset_of_files_wants_the_files(
    beam_tfr: Command, dataset: Path, command: tuple[str, ...]
) -> None:
    done = beam_tfr(command[0], dataset, *command[1:])
    message = f"beam-tfr {command[0]}: {dataset} was made from files: specify them with --input\n"
    assert (done.code, done.out, done.err) == (2, "", message)


def test_other_libraries_are_told(beam_tfr: Command, dataset: Path, sources: Path) -> None:
    def other_bytes(fields: dict[str, Any]) -> None:
        fields["splits"]["train"]["shards"][0]["sha256"] = "0" * 64

    edit(dataset, other_bytes)
    run = beam_tfr("repair", dataset, "--input", f"{sources}/**/*.jpg")
    assert run.code == 1
    assert "images have changed, or libraries (beam_tfr 0.1.0 made the dataset" in run.err
    (dataset / TRAIN[0]).unlink()
    run = beam_tfr("repair", dataset, "--input", f"{sources}/**/*.jpg")
    assert run.code == 1
    assert not (dataset / TRAIN[0]).exists()


def test_on_cloud_storage(beam_tfr: Command, fake: FakeGcs) -> None:
    fake.put_folder(once("photos", write_photos), "photos")
    fake.put_folder(converted_photos(), "out")
    before = objects_below(fake, "out")
    shard, gone = sorted(name for name in before if ".tfrecord" in name)
    fake.put(f"out/{shard}", before[shard][:-1] + b"?")
    storage.delete(f"gs://b/out/{gone}")
    run = beam_tfr("repair", "gs://b/out", "--input", "gs://b/photos/**/*.jpg", "--json")
    assert (run.code, run.json["repaired"]) == (0, [shard, gone])
    assert objects_below(fake, "out") == before


@pytest.mark.slow
def test_a_killed_repair_goes_on(beam_tfr: Command, fake: FakeGcs) -> None:
    made = converted_sample("--layout {split}/{label}/* --num_shards train=8")
    fake.put_folder(SAMPLE, "photos")
    fake.put_folder(made, "out")
    before = objects_below(fake, "out")
    shards = [name for name in before if ".tfrecord" in name]
    for name in shards:
        storage.delete(f"gs://b/out/{name}")
    fake.set(latency_s=0.05)
    flags = ["--input", "gs://b/photos/**/*.jpg", "--read_ahead", "2"]
    command = [sys.executable, "-m", "beam_tfr", "repair", "gs://b/out", *flags]

    def finished() -> dict[str, bytes]:
        names = before.keys() & {name.removeprefix("out/") for name in fake.names()}
        # locks and unfinished files come and go
        return {name: fake.get(f"out/{name}") for name in names}

    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: len(finished()) > len(before) - len(shards) or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
    fake.set()
    wait_for(lambda: not fake.counts()["running"])  # what it asked for last
    left = finished()
    assert left.items() <= before.items()
    assert len(left) < len(before)
    run = beam_tfr("repair", "gs://b/out", *flags, "--json")
    assert (run.code, run.json["repaired"]) == (0, sorted(before.keys() - left.keys()))
    assert objects_below(fake, "out") == before


@pytest.mark.parametrize("flags", few_at_once(CONVERSIONS, *FAST))
def test_the_manifest_holds_all_options(flags: str) -> None:
    dataset = read_manifest(str(converted(flags)))
    options = restore_options(dataset, {"input": [f"{once('sources', Path.mkdir)}/*/*"]}, {})
    source = open_source(options, dataset.options.get("classes"))
    assert json.loads(json.dumps(source.plan.options)) == dataset.options


@pytest.mark.slow
def test_splits_by_share_come_back_and_a_file_that_cannot_be_read_is_told(
    beam_tfr: Command, public_path: Path
) -> None:
    for number in range(40):
        (public_path / f"{number:02}.bin").write_bytes(b"%d" % number)
    output, source = public_path / "out", ["--input", f"{public_path}/*.bin"]
    flags = [
        "--splits",
        "b=0.3,a=0.7",
        "--encoding",
        "bytes",
        "--layout",
        "*",
        "--num_shards",
        "3",
        "--name",
        "d",
    ]
    assert beam_tfr("convert", *source, "--output", output, *flags).code == 0
    files = files_of(output)
    (output / "d-a-00001-of-00003.tfrecord.gz").unlink()
    for number in range(40):
        (public_path / f"{number:02}.bin").chmod(0)
    for path in (public_path, output, *output.iterdir()):
        path.chmod(0o777)
    with as_nobody():
        unread = beam_tfr("repair", output, *source)
    assert unread.code == 1
    assert "files cannot be read, such as " in unread.err
    assert "That leaves 1 of 1 shard unfinished. Run the same command again" in unread.err
    for number in range(40):
        (public_path / f"{number:02}.bin").chmod(0o644)
    assert beam_tfr("repair", output, *source).code == 0
    assert files_of(output) == files
