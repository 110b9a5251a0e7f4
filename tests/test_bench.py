"""`beam-tfr bench`: it runs, and its figures add up; how large they are depends on the machine."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.conftest import Run
from tests.converted import converted_photos

Command = Callable[..., Run]


@pytest.mark.slow
def test_bench_of_a_dataset(beam_tfr: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorflow")
    monkeypatch.setattr("beam_tfr.commands.bench.SECONDS", 0.05)
    run = beam_tfr("bench", converted_photos())
    assert (run.code, run.err) == (0, "")
    first, second = run.out.splitlines()
    assert first == "split train: 12 examples, batches of 64"
    assert re.fullmatch(
        r"[\d,]+ images/s, [\d,]+ without decoding, which takes \d+% of the CPU time", second
    )


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
