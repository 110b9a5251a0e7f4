"""Keras trainings that are killed in mid-epoch and end as if they had not been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from beam_tfr.reader import Position, resume_position
from beam_tfr.schema import DataError, UsageError
from tests.reader_fixtures import write_dataset

TRAINING = Path(__file__).parent / "training.py"


def run(folder: Path, *work: Path, kill_after: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TRAINING), str(folder), "1", str(kill_after), *map(str, work)],
        env=os.environ | {"PYTHONPATH": str(TRAINING.parents[1]), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def steps_of(work: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (work / "l").read_text().splitlines()]


@pytest.mark.slow
def test_a_killed_training_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [20, 17], "test": [4]})  # 5 steps an epoch, a backup every 3
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    for step in (7, 11):
        assert run(folder, broken, kill_after=step).returncode == -signal.SIGKILL
    finished = run(folder, broken, whole)
    assert finished.returncode == 0, finished.stderr

    expected = steps_of(whole)
    assert [line["step"] for line in expected] == list(range(1, 16))
    assert len({line["loss"] for line in expected}) == 15
    found = steps_of(broken)
    assert len(found) > 15  # some steps were done again
    assert all(line == expected[int(line["step"]) - 1] for line in found)
    assert found[-1]["step"] == 15
    with np.load(f"{whole}/l.npz") as ours, np.load(f"{broken}/l.npz") as theirs:
        assert len(ours.files) == len(theirs.files) > 8
        for name in ours.files:
            np.testing.assert_array_equal(ours[name], theirs[name])


def model(units: int = 3) -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units)])
    made.compile("adam", "mse")
    return made


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backups") / "b"
    callback = keras.callbacks.BackupAndRestore(
        str(folder), save_freq=2, double_checkpoint=True, delete_checkpoint=False
    )
    keras.utils.set_random_seed(0)
    made = model()
    made.fit(np.ones((8, 2)), np.ones((8, 3)), batch_size=1, callbacks=[callback], verbose=0)
    return folder


@pytest.fixture
def backups(made_once: Path, tmp_path: Path) -> Path:
    """Of step 8, and before it of step 6."""
    return Path(shutil.copytree(made_once, tmp_path / "b"))


def test_position_and_weights(backups: Path, tmp_path: Path) -> None:
    for steps, expected in ((5, (1, 3)), (8, (1, 0)), (9, (0, 8))):
        made = model()
        assert resume_position(made, backups, steps) == Position(*expected)
    assert int(made.optimizer.iterations.numpy()) == 8
    other = model()
    other.load_weights(backups / "latest.weights.h5")
    for ours, theirs in zip(made.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    fresh = model()
    before = fresh.get_weights()
    assert resume_position(fresh, tmp_path / "nothing", 5) == (0, 0)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(fresh.get_weights(), before, strict=True))


@pytest.mark.parametrize("length", [0, 100, 3000])
def test_a_backup_that_is_cut_off(backups: Path, length: int) -> None:
    latest = backups / "latest.weights.h5"
    latest.write_bytes(latest.read_bytes()[:length])
    made = model()
    assert resume_position(made, backups, 5) == Position(1, 1)  # the one before it
    assert int(made.optimizer.iterations.numpy()) == 6
    (backups / "latest.weights.h5.bkp").unlink()
    with pytest.raises(DataError, match=r"cannot load a backup: .*latest.weights.h5: .*double_checkpoint=True"):
        resume_position(model(), backups, 5)


def test_wrong_calls(backups: Path) -> None:
    with pytest.raises(DataError, match=r"cannot load a backup: .*; if it is from another model"):
        resume_position(model(units=4), backups, 5)
    with pytest.raises(UsageError, match="`steps_per_epoch=0`: must be a whole number from 1"):
        resume_position(model(), backups, 0)
    with pytest.raises(UsageError, match=r"`model=` is not built: start it with keras.Input"):
        resume_position(keras.Sequential([keras.layers.Dense(1)]), backups, 5)
    with pytest.raises(UsageError, match=r"`model=` has no optimizer.*; compile it first"):
        resume_position(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]), backups, 5)
