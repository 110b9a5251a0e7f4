"""`beam-tfr bench`: it runs, and its figures add up; how large they are depends on the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr.bench import converting, reading
from beam_tfr.options import ImageOptions
from beam_tfr.schema import DataError
from tests.conftest import Run
from tests.converted import SOURCES, converted_photos, once, write_photos

Command = Callable[..., Run]


def test_bench_of_a_conversion(beam_tfr: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converting, "SECONDS", 0.1)
    photos = once("photos", write_photos)
    run = beam_tfr("bench", "--input", f"{photos}/**/*.jpg", "--images", 1000, "--cores", 10, "--json")
    assert (run.code, run.err) == (0, "")
    found = run.json
    assert (found["sample"], found["rejected"], found["images"], found["cores"]) == (18, 0, 1000, 10)
    assert found["seconds"] == pytest.approx(found["ends_s"] + 100 / found["images_per_s"] * found["cores_here"])
    assert sum(found["cpu_shares"].values()) == pytest.approx(1)
    assert all(found["cpu_ms_per_image"][stage] > 0 for stage in ("decoding", "resizing", "encoding"))
    lines = converting.describe_convert(found).splitlines()
    assert lines[1] == f"rejected:   0 of {found['tried']} tried"
    assert lines[-1].startswith("prediction: 1,000 images on 10 cores like these: ")
    assert lines[-1].endswith(
        f" s, if they are {10 / found['cores_here']:g} times as fast as the {found['cores_here']} here"
    )
    few = beam_tfr("bench", "--input", f"{photos}/test/hat/*.jpg").out.splitlines()
    assert few[-2] == "limit:      start and end: a run of so few images takes that long on any machine"
    assert few[-1].endswith(" s")


def test_stages_of_every_format_are_found() -> None:
    for name, data in SOURCES.items():
        accepted, tried, stages = converting._measure_stages({name: data}, ImageOptions(), 1)
        assert (accepted, tried) == ([(Path(name).suffix, data)], 1)
        assert all(stages[stage] > 0 for stage in ("decoding", "resizing", "encoding")), name


def test_bench_without_an_image(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("no image")
    with pytest.raises(DataError, match=r"no file of the sample can be converted; .*a\.jpg: .*not-an-image"):
        converting.bench_convert([f"{tmp_path}/*"], ImageOptions())


def test_no_cache_is_suggested_for_an_epoch_of_a_moment() -> None:
    rates = {reading.PLAIN: 1000.0, 'cache="memory"': 3000.0}
    assert reading._suggest(rates, 12, 1, 1) == "load as it is; it reads all 12 in 0.01 s"
    assert reading._suggest(rates, 5000, 1, 1).startswith('load(…, cache="memory"): 3.0 times as fast')


@pytest.mark.slow
def test_bench_of_a_dataset_with_a_trace_for_tensorboard(
    beam_tfr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorflow")
    monkeypatch.setattr("beam_tfr.bench.reading.SECONDS", 0.05)
    monkeypatch.setattr("beam_tfr.bench.reading.TRACED_STEPS", 2)
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
        ([], "give the folder of a dataset, or files: --input"),
        (["x", "--images", "3"], "--images has no effect with DIR: it is for converting files"),
        (["x", "--image_size", "9x9"], "--image_size has no effect with DIR: it is for converting files"),
        (["--input", "a", "--tensorboard", "x"], "--tensorboard has no effect without DIR"),
        (["--input", "a", "--cores", "0"], "argument --cores: 0: must be a whole number, 1 or more"),
        (["--input", "a", "--quality", "0"], "--quality 0: "),
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
