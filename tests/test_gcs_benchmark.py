"""The benchmark of latency runs, on a few of the bundled photos; its figures are for a quiet machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "latency.py"


@pytest.mark.slow
def test_latency_benchmark(sample: Path) -> None:
    command = [sys.executable, BENCHMARK, sample / "test", "--pairs", "1", "--latencies", "20"]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr) == (0, "")
    facts, _, _, _, *rows = run.stdout.splitlines()
    photos = len(list((sample / "test").rglob("*.jpg")))
    assert facts.startswith(f"{photos:,} photos, 1 runs each, ")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == ["local disk", "20 ms"]
    assert cells[0][2] == "100%"
    assert all(float(value.rstrip("%").replace(",", "")) > 0 for row in cells for value in row[1:])
