"""What a conversion says while it runs and at its end."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import summary
from beam_tfr.claim import Progress
from beam_tfr.launch import running
from tests.conftest import Run

Command = Callable[..., Run]


def test_progress_shows_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(summary.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    account = summary.ProgressLines(stream)
    account.tell(Progress(2, 10, 2_000, 10_000))
    now[0] = 110.0
    account.tell(Progress(7, 10, 7_000, 10_000))
    account.tell(Progress(1, 10, 1_000, 10_000))  # with --overwrite, of another plan
    account.tell(Progress(2, 10, 2_000, 10_000))
    assert stream.getvalue().splitlines() == [
        "convert: an earlier run has finished 2 of 10 shards",
        "convert: 7,000 of 10,000 images, 7 of 10 shards, 500 images/s, 6 s left",
        "convert: 1,000 of 10,000 images, 1 of 10 shards, 0 images/s",
        "convert: 2,000 of 10,000 images, 2 of 10 shards, 100 images/s, 80 s left",
    ]


def test_first_run_reports_no_earlier_work(
    beam_tfr: Command, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PROGRESS_S", 0.0)
    run = beam_tfr("convert", "--input", f"{photos}/**/*.jpg", "--output", tmp_path / "o", "--num_shards", "6")
    assert run.code == 0
    lines = run.err.splitlines()
    assert all(line.startswith("convert: ") and "of 18 images" in line for line in lines), lines


def test_the_table_has_the_splits_in_the_order_of_training(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    layout = ["--layout", "{split}/{label}/*"]
    run = beam_tfr("convert", "--input", f"{photos}/**/*.jpg", "--output", tmp_path / "o", *layout)
    rows = [line.split() for line in run.out.splitlines()]
    assert rows[0] == ["train", "test", "total"]
    assert rows[1:5] == [
        ["matched", "12", "6", "18"],
        ["rejected", "0", "0", "0"],
        ["written", "12", "6", "18"],
        ["shards", "1", "1", "2"],
    ]
    assert ["t-shirt", "4", "2", "6"] in rows
    assert "balance: 18 matched = 18 written + 0 rejected" in run.out
    assert run.out.splitlines()[-1] == f"next:    beam-tfr verify {tmp_path / 'o'}"


def test_hints_are_given_when_more_than_a_tenth_of_the_images_deserve_one() -> None:
    def hints(**adjusted: int) -> list[str]:
        return summary.hints({"written": 50, "adjusted": {name.replace("_", "-"): n for name, n in adjusted.items()}})

    assert hints(aspect_changed=5, cropped=5) == []
    assert hints(cropped=6) == ["12% of the images lost more than half of their area; --resize pad keeps all of it"]
    assert hints(aspect_changed=6) == [
        "12% of the images are stretched by more than 1.2; --resize crop, pad and shortest preserve the aspect ratio"
    ]
