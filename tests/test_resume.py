"""Keras trainings that are killed in mid-epoch and end as if they had not been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
    folder = write_dataset(
        tmp_path / "d", {"train": [20, 17], "test": [4]}
    )  # 5 steps an epoch, a backup every 3
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
