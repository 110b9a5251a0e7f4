"""The demo as a user meets it, and the photos that come with the package."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

from beam_tfr.commands.demo import demo
from beam_tfr.dataset import manifest
from beam_tfr.schema.errors import UsageError
from tests.conftest import Run

CLASSES = ["dress", "hat", "longsleeve", "outwear", "pants", "shirt", "shoes", "shorts", "skirt", "t-shirt"]
EACH = {"test": 2, "train": 9, "validation": 2}
MAX_SAMPLE_BYTES = 3_000_000


def run_demo(folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "beam_tfr", "demo", "--output", folder.name],
        cwd=folder.parent,
        env={**os.environ, "HOME": str(home), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_demo(
    tmp_path: Path,
    beam_tfr: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("tensorflow", reason="the demo reads the dataset: pip install 'beam_tfr[reader]'")
    work, home = tmp_path / "my work", tmp_path / "home"
    work.mkdir()
    folder = work / "clothes"
    run = run_demo(folder, home)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines[:4]] == ["converted", "verified", "read", ""]
    assert re.fullmatch(
        r"converted   130 photos of 10 classes of clothes: 90 train, 20 validation, 20 test; \d+\.\d s", lines[0]
    )
    assert lines[1] == "verified    130 records in 3 files: checksums, images, labels, counts"
    assert lines[2] == "read back   batches of uint8 [8, 224, 224, 3] and int64 [8]"
    assert str(folder) in lines[4]
    assert len(lines) <= 13

    assert os.listdir(home) == []
    assert os.listdir(work) == ["clothes"]
    dataset = manifest.read(str(folder))
    assert dataset.counts == {"matched": 130, "written": 130, "rejected": {}, "adjusted": {}}
    assert {name: split.num_examples for name, split in dataset.splits.items()} == {
        "test": 20,
        "train": 90,
        "validation": 20,
    }
    assert dataset.class_names == tuple(CLASSES)
    assert all(set(split.class_counts.values()) == {EACH[name]} for name, split in dataset.splits.items())

    # The commands that it names work; the first is for the user's own photos.
    convert, verify = (shlex.split(line) for line in lines[-2:])
    assert convert[1:] == ["-m", "beam_tfr", "convert", "--input", "photos", "--output", "photos_dataset"]
    assert beam_tfr(*verify[3:]).code == 0

    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    monkeypatch.setenv("KERAS_HOME", "")  # which it sets
    again = beam_tfr("demo", "--output", folder)
    assert again.code == 0
    assert again.out.splitlines()[0].endswith("20 test; already converted")
    assert again.out.splitlines()[1:3] == lines[1:3]
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_demo_without_tensorflow_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs TensorFlow: pip install 'beam_tfr\[convert,reader\]'"):
        demo(str(tmp_path / "out"))
    assert os.listdir(tmp_path) == []


def test_sample_has_every_class_in_every_split(sample: Path) -> None:
    files = sorted(sample.glob("*/*/*.jpg"))
    counts: dict[tuple[str, str], int] = {}
    for file in files:
        group = (file.parts[-3], file.parts[-2])
        counts[group] = counts.get(group, 0) + 1
    assert counts == {(split, label): each for split, each in EACH.items() for label in CLASSES}
    assert len({file.read_bytes() for file in files}) == len(files) == 130


def test_sample_is_small_and_has_its_licence(sample: Path) -> None:
    assert sum(file.stat().st_size for file in sample.rglob("*") if file.is_file()) <= MAX_SAMPLE_BYTES
    assert "CC0 1.0 Universal" in (sample / "LICENSE").read_text()
    assert "clothing-dataset-small" in (sample / "ABOUT.md").read_text()


def test_sample_is_photos(sample: Path) -> None:
    for file in sample.glob("*/*/*.jpg"):
        with PillowImage.open(io.BytesIO(file.read_bytes())) as image:
            assert image.format == "JPEG"
            assert min(image.size) >= 224
            assert np.asarray(image).std() > 10
