"""A folder with photos, a config, the dataset that they become, and what a failed run leaves."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import PIL.Image

from beam_tfr import cli
from beam_tfr.output import sidecars
from tests.converted import once

CONFIG = """input = ["photos"]
output = "dataset"
name = "pets"
layout = "{split}/{label}/*"
num_shards = "train=3,test=1"
image_size = 8
encoding = "raw"
compression = "gzip:0"
max_rejects = 1
"""
FIRST = "pets-train-00000-of-00003.tfrecord.gz"


def _write_photos(folder: Path) -> None:
    """Writes 4 PNGs of each of 2 classes, and a file that is not an image."""
    for number in range(8):
        split = "test" if number > 5 else "train"
        path = folder / split / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        PIL.Image.fromarray(pixels).save(path)
    (folder / "train" / "dog" / "text.png").write_text("not an image")


def _fail_after(finished: int) -> contextlib.AbstractContextManager[object]:
    """Lets a run write so many shards and fail at the next."""
    write = sidecars.write_sidecar
    kept = [write] * finished

    def write_or_fail(*arguments: object, **named: object) -> object:
        if not kept:
            raise OSError("no more shards")
        return kept.pop()(*arguments, **named)  # type: ignore[arg-type]

    return mock.patch.object(sidecars, "write_sidecar", write_or_fail)


def _make(folder: Path) -> None:
    folder.mkdir()
    _write_photos(folder / "photos")
    (folder / "convert.toml").write_text(CONFIG)
    with contextlib.chdir(folder):
        assert cli.main(["convert", "--config", "convert.toml"]) == 0
        with _fail_after(3):
            assert cli.main(["convert", "--config", "convert.toml", "--output", "unfinished"]) == 1


def copy_to(folder: Path) -> Path:
    """Copies `photos`, `convert.toml`, `dataset`, and `unfinished`.

    3 of the 4 shards of `unfinished` are finished.
    """
    return Path(shutil.copytree(once("pets", _make), folder))
