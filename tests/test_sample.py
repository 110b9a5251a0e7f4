"""The photos that come with the package, and the example that converts them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

from beam_tfr.dataset.manifest import read_manifest
from tests.conftest import Run
from tests.converted import SAMPLE

CLASSES = [
    "dress",
    "hat",
    "longsleeve",
    "outwear",
    "pants",
    "shirt",
    "shoes",
    "shorts",
    "skirt",
    "t-shirt",
]
EACH = {"test": 2, "train": 9, "validation": 2}
MAX_SAMPLE_BYTES = 3_000_000


@pytest.mark.slow
def test_the_demo_converts_verifies_and_reads_the_sample(
    tmp_path: Path, beam_tfr: Callable[..., Run]
) -> None:
    folder = tmp_path / "clothes"
    script = Path(__file__).parents[1] / "examples" / "demo.py"
    path = os.pathsep.join(part for part in sys.path if part)
    command, environment = (
        [sys.executable, str(script), str(folder)],
        {**os.environ, "PYTHONPATH": path},
    )
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    assert "balance: 130 matched = 130 written + 0 rejected" in run.stdout
    assert "130 records in 3 shards" in run.stdout
    assert "OK: the dataset matches its manifest" in run.stdout
    *_, read, look = run.stdout.splitlines()
    assert read == "read:     uint8 [8, 224, 224, 3], int64 [8]"
    page = folder / "report.html"
    assert look == f"look:     {page.as_uri()}"
    assert page.read_text().startswith("<!doctype html>")
    again = beam_tfr(
        "convert", "--input", SAMPLE, "--output", folder, "--layout", "{split}/{label}/*"
    )
    assert (again.code, "nothing was written" in again.out) == (0, True)
    dataset = read_manifest(str(folder))
    assert dataset.counts == {"matched": 130, "written": 130, "rejected": {}, "adjusted": {}}
    assert dataset.class_names == tuple(CLASSES)
    assert all(
        set(split.class_counts.values()) == {EACH[name]} for name, split in dataset.splits.items()
    )


def test_sample_has_every_class_in_every_split(sample: Path) -> None:
    files = sorted(sample.glob("*/*/*.jpg"))
    counts: dict[tuple[str, str], int] = {}
    for file in files:
        group = (file.parts[-3], file.parts[-2])
        counts[group] = counts.get(group, 0) + 1
    assert counts == {(split, label): each for split, each in EACH.items() for label in CLASSES}
    assert len({file.read_bytes() for file in files}) == len(files) == 130


def test_sample_is_small_and_has_its_licence(sample: Path) -> None:
    assert (
        sum(file.stat().st_size for file in sample.rglob("*") if file.is_file()) <= MAX_SAMPLE_BYTES
    )
    assert "CC0 1.0 Universal" in (sample / "LICENSE").read_text()
    assert "clothing-dataset-small" in (sample / "ABOUT.md").read_text()


def test_sample_is_photos(sample: Path) -> None:
    for file in sample.glob("*/*/*.jpg"):
        with PillowImage.open(io.BytesIO(file.read_bytes())) as image:
            assert image.format == "JPEG"
            assert min(image.size) >= 224
            assert np.asarray(image).std() > 10
