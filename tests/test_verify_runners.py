"""`verify --runner` finds what `verify` finds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr.launch import verify_on
from tests.conftest import Run
from tests.converted import converted_spoiled_photos
from tests.handmade_dataset import TEST_0, TRAIN_1, make_dataset
from tests.portable_runners import own_prism
from tests.spoiled_dataset import TRAIN, flip

Command = Callable[..., Run]
DIRECT = [
    "--runner=DirectRunner",
    "--direct_num_workers=2",
    "--direct_running_mode=multi_threading",
]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A dataset with a missing, a damaged and a foreign shard.

    One shard is in place of another.
    """
    folder = Path(shutil.copytree(converted_spoiled_photos(), tmp_path / "dataset"))
    flip(folder / TRAIN[0])
    shutil.copy(folder / TRAIN[1], folder / TRAIN[2])
    (folder / "d-test-00000-of-00002.tfrecord.gz").rename(
        folder / "d-test-00007-of-00009.tfrecord.gz"
    )
    (folder / "labels.txt").unlink()
    return folder


def without_time(found: Run) -> dict[str, object]:
    return {**found.json, "seconds": 0}


def check_alike(beam_tfr: Command, folder: Path, *flags: str) -> None:
    command = ["verify", folder, "--json", "--quiet"]
    here, there = beam_tfr(*command), beam_tfr(*command, *flags)
    assert (there.code, there.err) == (here.code, here.err)
    assert without_time(there) == without_time(here)


def test_on_beams_own_engine(beam_tfr: Command, broken: Path) -> None:
    check_alike(beam_tfr, converted_spoiled_photos(), *DIRECT)
    check_alike(beam_tfr, broken, *DIRECT)
    found = beam_tfr("verify", broken, "--json", *DIRECT).json["kinds"]
    assert found.keys() == {"missing", "foreign", "damaged", "repeated", "contents"}


def test_repeated_keys(tmp_path: Path) -> None:
    repeated = verify_on(str(make_dataset(tmp_path / "tiny", same_keys=True)), DIRECT)
    assert [str(problem) for problem in repeated.problems] == [
        f"{TRAIN_1}, record 2: has the same key as record 0 of {TEST_0}"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["processes", "prism"])
def test_on_workers_elsewhere(beam_tfr: Command, broken: Path, prism: Path, engine: str) -> None:
    processes = [
        "--runner=DirectRunner",
        "--direct_num_workers=2",
        "--direct_running_mode=multi_processing",
    ]
    to_prism = own_prism(prism)
    check_alike(beam_tfr, broken, *(to_prism if engine == "prism" else processes))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--runer=DirectRunner"], "unknown: --runer; see beam-tfr verify --help"),
        (["--runner=NoRunner"], "--runner NoRunner: "),
        ([*DIRECT, "--sources", "*.jpg"], "--sources cannot be combined with --runner"),
        (["--runner=DataflowRunner"], "must be on gs://, where Dataflow's workers can reach it"),
    ],
)
def test_wrong_calls(beam_tfr: Command, flags: list[str], said: str) -> None:
    run = beam_tfr("verify", converted_spoiled_photos(), *flags)
    assert (run.code, run.out) == (2, "")
    assert said in run.err


def test_what_is_no_dataset_is_said_at_once(beam_tfr: Command, tmp_path: Path) -> None:
    run = beam_tfr("verify", tmp_path / "nosuch", *DIRECT)
    assert run.code == 1
    assert "the folder does not exist" in run.err
