"""`beam-tfr bench`: it runs, and its figures add up; how large they are depends on the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import bench
from tests.conftest import Run
from tests.converted import converted_photos, once, write_photos

Command = Callable[..., Run]


def test_no_cache_is_suggested_for_an_epoch_of_a_moment() -> None:
    rates = {bench.PLAIN: 1000.0, 'cache="memory"': 3000.0}
    assert bench._suggest(rates, 12, 1, 1) == "load as it is; it reads all 12 in 0.01 s"
    assert bench._suggest(rates, 5000, 1, 1).startswith('load(…, cache="memory"): 3.0 times as fast')


@pytest.mark.slow
def test_bench_of_a_dataset_with_a_trace_for_tensorboard(
    beam_tfr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorflow")
    monkeypatch.setattr("beam_tfr.bench.SECONDS", 0.05)
    monkeypatch.setattr("beam_tfr.bench.TRACED_STEPS", 2)
    photos = once("photos", write_photos)
    run = beam_tfr("bench", converted_photos(), "--input", f"{photos}/**/*.jpg", "--tensorboard", tmp_path)
    assert (run.code, run.err) == (0, "")
    first, _, _, *lines = run.out.splitlines()
    assert first == "split train: 12 examples, batches of 64"
    names = [line[:36].rstrip() for line in lines]
    ways = ["load", "without decoding", 'cache="memory"', "cache=FOLDER", 'cache="memory", cache_decoded=True']
    assert names[:7] == [*ways, "the files one by one", "disk alone"]
    assert [line.partition(":")[0] for line in lines[8:]] == ["decoder", "disk", "suggestion"]
    assert [*tmp_path.glob("plugins/profile/*/*.xplane.pb")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: DIR"),
        (["x", "--images", "3"], "unknown: --images"),
        (["--input", "a", "--tensorboard", "x"], "the following arguments are required: DIR"),
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


def test_the_folder_of_a_trace_is_made_before_anything_is_measured(beam_tfr: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    run = beam_tfr("bench", converted_photos(), "--tensorboard", tmp_path / "file" / "x")
    assert (run.code, run.out) == (2, "")
    assert f"--tensorboard {tmp_path}/file/x: cannot be created: " in run.err
