"""The command `verify`: a sample of the shards, the sources, the report as JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr.console.display import Pace, Progress, describe
from beam_tfr.verification.report import ProblemKind
from tests.conftest import Run
from tests.converted import converted_photos
from tests.fake_gcs import FakeGcs
from tests.spoiled_dataset import TEST_0, TEST_1, TRAIN, flip

Command = Callable[..., Run]


def test_the_report_is_one_json_object(beam_tfr: Command, dataset: Path) -> None:
    sound = beam_tfr("verify", dataset, "--json")
    assert (sound.code, sound.err) == (0, "")
    counts = {
        "shards": 5,
        "records_read": 18,
        "bytes_read": sum(path.stat().st_size for path in dataset.glob("*.gz")),
        "sources_read": None,
        "problems": 0,
    }
    assert sound.json == {
        "ok": True,
        "folder": str(dataset),
        "dataset_digest": json.loads((dataset / "manifest.json").read_text())["dataset_digest"],
        "counts": counts,
        "kinds": {},
        "problems": [],
        "broken": [],
        "notes": [],
        "seconds": sound.json["seconds"],
    }
    flip(dataset / TRAIN[1])
    (dataset / TEST_0).unlink()
    run = beam_tfr("verify", dataset, "--json")
    assert (run.code, run.json["ok"], run.json["broken"]) == (1, False, [TEST_0, TRAIN[1]])
    assert run.json["kinds"] == {"damaged": len(run.json["problems"]) - 1, "missing": 1}
    first = {
        "kind": "missing",
        "file": TEST_0,
        "record": None,
        "offset": None,
        "message": "is missing",
    }
    assert run.json["problems"][0] == first
    assert run.err.startswith(f"{TEST_0}: is missing\n{TRAIN[1]}, record ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sources", "nosuch/*"], "/nosuch/*: matches no file; there is no folder"),
        (["--sources", "s3://b/*"], "--sources s3://b/*: only local paths and gs:// are supported"),
        (["--exclude", "*.gif"], "--exclude has no effect without --sources"),
    ],
)
def test_wrong_calls(beam_tfr: Command, dataset: Path, arguments: list[str], said: str) -> None:
    run = beam_tfr("verify", dataset, *arguments)
    assert (run.code, run.out) == (2, "")
    assert said in run.err


def test_sources_that_changed_are_gone_or_new_are_named(
    beam_tfr: Command, dataset: Path, sources: Path
) -> None:
    command = ["verify", dataset, "--sources", f"{sources}/**/*.jpg"]
    sound = beam_tfr(*command)
    assert (sound.code, sound.err) == (0, "")
    assert "\nsources: 18 compared, 0 changed, 0 gone, 0 new, 0 unreadable\n" in sound.out
    assert (
        beam_tfr("verify", dataset, "--sources", sources).out.splitlines()[1:]
        == sound.out.splitlines()[1:]
    )

    changed, gone = sorted(sources.glob("train/shoes/*.jpg"))[:2]
    flip(changed)
    gone.unlink()
    shutil.copy(changed, sources / "train" / "hat" / "one more.jpg")
    run = beam_tfr(*command)
    keys = {
        kind: str(path.relative_to(sources))
        for kind, path in (("changed", changed), ("gone", gone))
    }
    told = run.err.splitlines()
    assert run.code == 1
    assert sum(line.endswith(f"its source '{keys['changed']}' has changed") for line in told) == 1
    assert sum(line.endswith(f"its source '{keys['gone']}' is gone") for line in told) == 1
    # a long path is cut
    assert told[-1].endswith("/hat/one more.jpg': is neither a record nor a reject")
    assert run.out.endswith(
        "sources: 18 compared, 1 changed, 1 gone, 1 new, 0 unreadable\n3 problems\n"
    )
    found = beam_tfr(*command, "--json").json
    assert found["kinds"] == {"source-changed": 1, "source-gone": 1, "source-new": 1}
    assert found["broken"] == []
    assert (
        "1 changed, 1 gone, 0 new, 0 unreadable\n" in beam_tfr(*command, "--exclude", "**/one*").out
    )
    excluded = beam_tfr(*command, "--exclude", "**/one*", "nothing/**").out
    notes = [line for line in excluded.splitlines() if line.startswith("note: --exclude")]
    assert [note.split()[2] for note in notes] == ["'nothing/**'"]


STRAYS = (
    "d-train-00001-of-00003 (copy).tfrecord.gz",
    "d-train-00001-of-00003_old.tfrecord.gz",
    "d-test-00000-of-00002.bak",
    "old.tfrecord.gz",
)


def test_files_that_the_taught_patterns_match_are_problems_and_others_are_not(
    beam_tfr: Command, dataset: Path, sources: Path
) -> None:
    for name in STRAYS:
        shutil.copy(dataset / TRAIN[1], dataset / name)
    (dataset / ".beam_tfr").mkdir()  # a replacement is being made
    (dataset / "notes").mkdir()
    (dataset / "README.md").write_text("mine")
    (dataset / "link").symlink_to("..")
    (dataset / "gone").symlink_to("nowhere")
    read = {
        file.name
        for pattern in ("d-train-*", "d-test-*", "*.tfrecord*")
        for file in dataset.glob(pattern)
    }
    assert read == {TEST_0, TEST_1, *TRAIN, *STRAYS}
    run = beam_tfr("verify", dataset)
    assert run.code == 1
    assert [
        line.partition(": is not in the manifest, but readers that use ")[0]
        for line in run.err.splitlines()
    ] == [*sorted(STRAYS)]
    assert run.out.endswith("\n4 problems\n")
    assert {
        problem["file"] for problem in beam_tfr("verify", dataset, "--json").json["problems"]
    } == {*STRAYS}
    repaired = beam_tfr("repair", dataset, "--input", f"{sources}/**/*.jpg")
    assert repaired.code == 1
    assert repaired.out.startswith(
        f"nothing was rebuilt\nleft alone: {'; '.join(sorted(STRAYS))}; move them out of the "
        f"folder\n"
    )
    assert {*STRAYS} <= {file.name for file in dataset.iterdir()}
    for name in STRAYS:
        (dataset / name).unlink()
    assert beam_tfr("verify", dataset).code == 0


@pytest.mark.timeout(100)
def test_sources_that_are_too_large_are_not_read_through(
    beam_tfr: Command, dataset: Path, sources: Path
) -> None:
    """An image that has grown to a terabyte has changed, which needs no hours."""
    large = min(sources.glob("train/shoes/*.jpg"))
    os.truncate(large, 1 << 40)
    run = beam_tfr("verify", dataset, "--sources", sources)
    assert f"its source 'train/shoes/{large.name}' has changed" in run.err
    assert "18 compared, 1 changed, 0 gone, 0 new, 0 unreadable" in run.out


def test_sources_and_dataset_on_cloud_storage(
    beam_tfr: Command, dataset: Path, photos: Path, fake: FakeGcs
) -> None:
    fake.put_folder(photos, "photos")
    fake.put_folder(dataset, "out")
    (name,) = [name for name in fake.names() if name.startswith("photos/train/hat/")][:1]
    fake.put(name, b"other")
    run = beam_tfr("verify", "gs://b/out", "--sources", "gs://b/photos/**/*.jpg")
    assert (run.code, len(run.err.splitlines())) == (1, 1)
    assert f"its source '{name.removeprefix('photos/')}' has changed" in run.err
    other = beam_tfr("verify", "gs://b/out", "--sources", "gs://b/photos/train/**/*.jpg")
    assert other.code == 2
    given = "the --input or --table that the dataset was made from, and the folder passed as"
    assert f"matches none of the records; specify {given}" in other.err


def test_progress_counts_records_shards_and_bytes() -> None:
    state = Progress("verifying", 250, 1000, 1, 4, 50_000_000)
    told = "verifying: 250 of 1,000 records, 30 s left, 25 records/s, 5.0 MB/s, 1 of 4 shards"
    assert describe(state, "records", Pace(25.0, 5e6, 30.0)) == told


def test_a_folder_that_is_no_dataset(beam_tfr: Command, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    (tmp_path / "dataset").symlink_to(converted_photos())
    for name, said in (
        ("nosuch", "the folder does not exist"),
        (
            "photos",
            "manifest.json is missing, which convert writes last; the folder holds other files, "
            "such as a.jpg",
        ),
        ("photos/a.jpg", "it is a file; specify the folder of a dataset"),
        ("dataset/manifest.json", "it is a file; specify the folder of a dataset"),
    ):
        run = beam_tfr("verify", tmp_path / name)
        assert (run.code, run.out) == (1, "")
        assert run.err == f"beam-tfr verify: {tmp_path / name} is not a complete dataset: {said}\n"


def test_every_kind_of_problem_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "verifying.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \| [a-z ]+", page.partition("| kind |")[2], re.M)) == {
        *ProblemKind
    }
