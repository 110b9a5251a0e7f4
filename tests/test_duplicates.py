"""`duplicates`: the copies in a dataset, from the command line and in Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import beam_tfr as package
from beam_tfr.copies.images import read_images
from beam_tfr.copies.search import find_duplicates
from beam_tfr.dataset.manifest import read_manifest
from tests.conftest import Run
from tests.converted import SAMPLE, converted_photos
from tests.converted_contents import converted_files, converted_rows
from tests.updates import convert

Command = Callable[..., Run]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Three photos in train; in test a copy of one, of another class, and another twice."""
    photos = sorted((SAMPLE / "train" / "hat").iterdir())[:4]
    for name in ("train/hat", "test/hat", "test/shoes"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    for photo in photos[:3]:
        shutil.copy(photo, tmp_path / "photos/train/hat" / photo.name)
    Image.open(photos[0]).convert("L").resize((90, 120)).save(
        tmp_path / "photos/test/shoes" / "gray.png"
    )
    for name in ("one.jpg", "same.jpg"):
        shutil.copy(photos[3], tmp_path / "photos/test/hat" / name)
    convert(tmp_path / "d", input=tmp_path / "photos", layout="{split}/{label}/*", image_size=64)
    return tmp_path / "d"


def test_copies_are_told_in_json_in_python_and_as_pictures(
    beam_tfr: Command, copied: Path, tmp_path: Path
) -> None:
    sheet = tmp_path / "copies.png"
    run = beam_tfr("duplicates", copied, "--json", "--contact_sheet", sheet)
    assert run.code == 0
    found = json.loads(run.out)
    expected = package.duplicates(copied)
    assert found == expected.as_json()
    assert found["counts"] == {
        "images": 6,
        "copies": 4,
        "clusters": 2,
        "across_splits": 1,
        "across_classes": 1,
        "too_large": 0,
        "crowded": 0,
        "flat": 0,
        "unhashed": 0,
    }
    [across, same] = found["clusters"]
    assert [image["class"] for image in across["images"]] == ["hat", "shoes"]
    assert [image["split"] for image in across["images"]] == ["train", "test"]
    assert 0 <= across["images"][1]["distance"] <= 31
    assert [image["key"] for image in same["images"]] == ["test/hat/one.jpg", "test/hat/same.jpg"]
    with Image.open(sheet) as drawn:
        assert drawn.size == (2 * 120 + 8, 2 * 138 + 8)
    text = beam_tfr("duplicates", copied).out
    assert "4 images in 2 clusters" in text
    assert "test/shoes/gray.png" in text
    report = package.verify(copied, progress=False)
    assert any("4 images are copies" in note for note in report.notes)


@pytest.mark.parametrize(
    ("flags", "cures"),
    [
        (["--distance", "49"], ["--distance 49", "0 to 48"]),
        (["--distance", "-1"], ["--distance=-1"]),
        (["--contact_sheet", "/nowhere/x.png"], ["--contact_sheet /nowhere/x.png"]),
    ],
)
def test_wrong_calls_name_flag_and_value(
    beam_tfr: Command, flags: list[str], cures: list[str]
) -> None:
    run = beam_tfr("duplicates", converted_photos(), *flags)
    assert run.code == 2
    for cure in cures:
        assert cure in run.err


def test_of_files_only_bytes_are_compared_and_of_rows_nothing(beam_tfr: Command) -> None:
    run = beam_tfr("duplicates", converted_files())
    assert run.code == 0
    assert "only the bytes of files were compared" in run.out
    assert package.duplicates(converted_files()).counts["copies"] == 2
    run = beam_tfr("duplicates", converted_files(), "--distance", 3)
    assert run.code == 2
    assert "omit it" in run.err
    run = beam_tfr("duplicates", converted_rows())
    assert run.code == 2
    assert "look for equal rows in the table" in run.err


def test_contents_without_hashes_are_told_with_the_cure(copied: Path) -> None:
    dataset = read_manifest(str(copied))
    images = read_images(dataset)
    hashed = images.hashed._replace(has_hash=np.zeros(images.number, bool))
    unhashed = images._replace(hashed=hashed)
    found = find_duplicates(dataset, unhashed, 31)
    assert found.counts["clusters"] == 1  # of equal bytes
    assert found.counts["unhashed"] == 6
    assert "`beam-tfr repair`" in str(found)


def test_copies_with_more_boxes_of_the_same_classes_agree(tmp_path: Path) -> None:
    photo = next(iter(sorted((SAMPLE / "train" / "hat").iterdir())))
    rows = ["filename,xmin,ymin,xmax,ymax,class"]
    for name, boxes in (("a.jpg", 1), ("b.jpg", 3)):
        shutil.copy(photo, tmp_path / name)
        rows += [f"{name},5,5,20,{20 + number},cat" for number in range(boxes)]
    (tmp_path / "boxes.csv").write_text("\n".join(rows) + "\n")
    convert(tmp_path / "d", table=tmp_path / "boxes.csv", image_size=64)
    counts = package.duplicates(tmp_path / "d").as_json()["counts"]
    assert (counts["clusters"], counts["across_classes"]) == (1, 0)
