"""Keras trainings that are killed in mid-epoch and end as if they had not been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_tfr.schema.errors import DataError, UsageError
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
    # 5 steps an epoch, a backup every 3
    folder = write_dataset(tmp_path / "d", {"train": [20, 17], "test": [4]})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert run(folder, broken, kill_after=7).returncode == -signal.SIGKILL
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


@pytest.mark.slow
def test_a_damaged_backup_gives_way_to_the_one_before(tmp_path: Path) -> None:
    import keras

    from beam_tfr.reader import fit

    folder = write_dataset(tmp_path / "d", {"train": [20], "test": [4]})

    def make_model() -> keras.Model:
        layers = [keras.Input((8, 12, 3)), keras.layers.Flatten(), keras.layers.Dense(41)]
        return keras.Sequential(layers)

    model = make_model()
    options: dict[str, Any] = {"split": "train", "batch_size": 8, "fit_options": {"verbose": 0}}
    backups = tmp_path / "backups"
    with pytest.raises(UsageError, match="compile"):
        fit(model, folder, epochs=1, backup=backups, **options)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for wrong in ({"epoch": 1}, {"batch_size": None}, {"epochs": 0}):
        with pytest.raises(UsageError):
            fit(model, folder, **{"epochs": 1, "backup": backups, **options, **wrong})
    history = fit(model, folder, epochs=2, backup=backups, save_freq=1, **options)
    assert len(history.history["loss"]) == 2
    assert history.epoch == [0, 1]
    assert fit(model, folder, epochs=2, backup=backups, **options).history == {}
    latest = backups / "latest.weights.h5"
    latest.write_bytes(latest.read_bytes()[:100])
    again = make_model()
    again.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.warns(RuntimeWarning, match="using the backup before it"):
        history = fit(again, folder, epochs=3, backup=backups, **options)
    assert len(history.history["loss"]) == 2  # the rest of the second epoch, and the third
    for path in backups.iterdir():
        path.write_bytes(b"x")
    with pytest.raises(DataError, match="is not a backup"):
        fit(again, folder, epochs=3, backup=backups, **options)
