"""Every benchmark runs on the bundled photos; its figures are for a quiet machine."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from beam_tfr import cli
from benchmarks import estimate, listing, measuring, turns
from benchmarks.__main__ import NAMES, main

ROOT = Path(__file__).parents[1]
FIRST_COLUMNS = {
    "convert": ["beam_tfr", "tutorial Lanczos", "floor", "planned shards", "Pillow loop"],
    "others": ["beam_tfr", "Beam tutorial"],
    "keep": ["copy", "beam_tfr keep"],
    "masks": ["without masks", "with masks"],
    "png": ["beam_tfr", "Pillow loop"],
    "verify": ["convert", "verify"],
    "archives": ["folder", "stored zip", "deflated zip", "tars", "gs:// folder"],
    "cloud": ["local disk", "20 ms away", "server, 20 ms away"],
    "phases": [
        "start of the process to first image converted",
        "first image to last",
        "last image to exit",
    ],
    "gil": ["1", "4"],
    "counters": ["20"],
    "read": [
        "tutorial",
        "decoding alone",
        "beam_tfr, 97 shards",
        "tutorial, batch 1",
    ],
    "random_access": [
        "Records, one by one, warm",
        "Records, batches of 64, warm",
        "ImageDataset, warm",
        "load, warm",
    ],
    "updates": ["conversion before", "update 1: 10.0% changed", "conversion after"],
    "resize": ["beam_tfr", "OpenCV AREA", "Pillow BILINEAR", "Pillow BICUBIC"],
    "memory": ["WebP", "PNG, 16 bits", "TIFF, 64-bit floats"],
    "tables": ["parquet, read", "parquet, converted"],
    "scale": ["list", "plan"],
    "listing": ["local, 1 process"],
    "shards": ["load, one shard", "manifest"],
    "publish": [
        "publish: check the files, move them, write the manifest",
        "remove the work folder",
    ],
    "estimate": ["input, TB", "output, TB"],
    "report": ["20", "100"],
    "duplicates": ["JPEG, quality 30", "half size"],
    "digests": ["sample"],
}


def run_benchmark(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240
    )


def measure_here(command: Sequence[str]) -> measuring.Cost:
    """Runs `python -m beam_tfr` in this process, whose imports are done, and all else as ever."""
    beam_tfr = measuring.python("-m", "beam_tfr")
    if command[: len(beam_tfr)] != beam_tfr:
        return measuring.measure(command)
    wall = time.perf_counter()
    cpu = time.process_time()
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = cli.main(command[len(beam_tfr) :])
    assert code == 0, output.getvalue()
    wall_s = time.perf_counter() - wall
    cpu_s = time.process_time() - cpu
    return measuring.Cost(wall_s, cpu_s, peak_bytes=1e6, output=output.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_benchmark(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if name == "counters":  # replaces functions of the package
        done = run_benchmark(name, "--quick")
        assert done.returncode == 0, done.stderr
        printed = done.stdout
    else:
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr("sys.argv", ["benchmarks", name, "--quick"])
        if name != "convert":  # of which each contestant is a process, as always but in tests
            for module in (importlib.import_module(f"benchmarks.{name}"), turns):
                monkeypatch.setattr(module, "measure", measure_here, raising=False)
        main()
        printed = capfd.readouterr().out
    machine, _, title, _, *lines = printed.splitlines()
    assert re.fullmatch(
        r"\d+ cores, .+, Python 3\.\S+, Beam 2\.\S+, (TensorFlow 2\.\S+, )?\d{4}-\d\d-\d\d", machine
    )
    assert title.startswith(f"{name}: ")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    expected = FIRST_COLUMNS[name]
    rows = rows[2 : 2 + len(expected)]
    assert [row[0] for row in rows] == expected
    assert all(re.fullmatch(r"[\d,]*\.?\d+", cell) for row in rows for cell in row[1:3] if cell)


def test_benchmark_without_photos(tmp_path: Path) -> None:
    run = run_benchmark("keep", tmp_path)
    assert run.returncode == 1
    assert "there is no **/*.jpg in it" in run.stderr


def test_the_page_about_scale_has_the_figures_of_the_estimate() -> None:
    parser = argparse.ArgumentParser()
    estimate.add_arguments(parser)
    (table,) = estimate.run(parser.parse_args([]))
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    section = page.partition("## Cost")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert {*rows} <= {*str(table).splitlines()}


def test_an_estimate_of_no_images() -> None:
    parser = argparse.ArgumentParser()
    estimate.add_arguments(parser)
    (table,) = estimate.run(parser.parse_args(["--images", "0"]))
    assert "| images in each | 0 |" in str(table)


def test_listing_on_prism_alone_needs_its_path() -> None:
    parser = argparse.ArgumentParser()
    parser.set_defaults(quick=False)
    listing.add_arguments(parser)
    with pytest.raises(SystemExit, match="needs --prism PATH"):
        next(listing.run(parser.parse_args(["--only", "Prism, 1 bundle"])))


def test_readme_lists_every_benchmark() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert {*re.findall(r"`(\w+)[ `]", text)} >= {*NAMES}
