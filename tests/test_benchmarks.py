"""The benchmark runs, on the bundled photos; its figures are for a quiet machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "convert.py"


def test_convert_benchmark(sample: Path) -> None:
    run = subprocess.run(
        [sys.executable, BENCHMARK, sample, "--times", "2", "--pairs", "1"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (run.returncode, run.stderr) == (0, "")
    facts, _, _, _, *rows = run.stdout.splitlines()
    assert re.fullmatch(r"260 photos, 1 runs each, \d+ cores, Python 3\.\S+, Beam 2\.\S+", facts)
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == ["beam_tfr", "planned shards", "Pillow loop"]
    assert cells[0][-2:] == ["1.00", "1.00"]
    assert all(float(value.replace(",", "")) > 0 for row in cells for value in row[1:])


def test_convert_benchmark_without_photos(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, BENCHMARK, tmp_path], capture_output=True, text=True, timeout=240)
    assert run.returncode == 1
    assert "there is no **/*.jpg in it" in run.stderr


def test_resize_benchmark(sample: Path) -> None:
    command = [sys.executable, BENCHMARK.with_name("resize.py"), sample, "--every", "50", "--factors", "2"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("3 photos to 224x224, in dB against LANCZOS\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in run.stdout.splitlines() if "|" in line]
    names = ["beam_tfr", "OpenCV AREA", "Pillow BILINEAR", "Pillow BICUBIC"]
    assert [row[0] for row in rows[2:6]] == names
    assert rows[6][1:5] == names
    ours, _, bilinear, _ = map(float, rows[8][1:5])
    assert ours > bilinear


def test_read_benchmark(sample: Path) -> None:
    command = [sys.executable, BENCHMARK.with_name("read.py"), sample / "train", "--turns", "1", "--quick"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert run.returncode == 0, run.stderr
    facts, _, _, _, *rows = run.stdout.splitlines()
    assert re.fullmatch(r"\d+ photos, 1 turns, \d+ cores, TensorFlow 2\.\S+", facts)
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("|")]
    assert [row[0] for row in cells[:3]] == ["tutorial", "decoding alone", "beam_tfr, 97 shards"]
    assert all(float(value.replace(",", "")) > 0 for row in cells for value in row[1:])
    assert "first batch, with that" in run.stdout
    assert len(run.stdout.splitlines()[-1].split(", ")) == 3


def test_scale_benchmark() -> None:
    command = [sys.executable, BENCHMARK.with_name("scale.py"), "--images", "12000", "--shards", "20"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert (run.returncode, run.stderr) == (0, "")
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in run.stdout.splitlines()]
    assert [row[:2] for row in rows[2:]] == [["12,000", "list"], ["12,000", "plan"]]
    assert all(float(cell.replace(",", "")) > 0 for row in rows[2:] for cell in row[2:6])


def test_tables_benchmark() -> None:
    command = [sys.executable, BENCHMARK.with_name("tables.py"), "--rows", "300", "--kinds", "parquet"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr) == (0, "")
    facts, _, _, _, *rows = run.stdout.splitlines()
    assert facts.startswith("300 rows, ")
    assert [row.split("|")[1].strip() for row in rows] == ["parquet, read", "parquet, converted"]


def test_memory_benchmark() -> None:
    command = [sys.executable, BENCHMARK.with_name("memory.py"), "--side", "300", "--threads", "2"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr) == (0, "")
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in run.stdout.splitlines()[4:]]
    assert rows[0][0] == "JPEG"
    assert len(rows) == 8
    assert all(30 < float(peak.replace(",", "")) < 600 for _, peak in rows)
