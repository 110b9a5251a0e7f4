"""What the manifest alone tells, against what is read."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from beam_tfr import cli, reader
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.reader import feature_spec
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import LABEL, TEXT
from tests.pages import DOCS, blocks
from tests.reader_fixtures import add_lists, write_dataset


@pytest.fixture(scope="module")
def converted_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train: 9 hats, 6 shoes, no dress; test: two of each."""
    parent = tmp_path_factory.mktemp("photos")
    sample = Path(cli.__file__).parent / "sample"
    for split, label, count in (
        ("train", "hat", 9),
        ("train", "shoes", 6),
        *(("test", c, 2) for c in CLASSES),
    ):
        folder = parent / "photos" / split / label
        folder.mkdir(parents=True)
        for photo in sorted((sample / split / label).iterdir())[:count]:
            (folder / photo.name).symlink_to(photo)
    output = parent / "out"
    command = [
        "convert",
        "--input",
        f"{parent}/photos/**/*.jpg",
        "--output",
        str(output),
        "--image_size",
        "8x8",
    ]
    assert cli.main([*command, "--layout", "{split}/{label}/*"]) == 0
    return output


CLASSES = ("dress", "hat", "shoes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "d", {"train": [20, 0, 17], "test": [4]})


def test_open(converted_photos: Path) -> None:
    dataset = reader.open(converted_photos)
    assert dataset == read_manifest(str(converted_photos))
    assert dataset.class_names == CLASSES
    assert dataset.counts["written"] == 21
    assert dataset.splits["train"].class_counts == {"dress": 0, "hat": 9, "shoes": 6}
    assert len(dataset.statistics["channel_mean"]) == 3
    assert len(dataset.dataset_digest) == 64
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.name = "other"  # type: ignore[misc]
    with pytest.raises(DataError, match="is not a complete dataset"):
        reader.open(converted_photos.parent)
    with pytest.raises(
        UsageError, match=r"s3://bucket.*: only local paths and gs:// are supported"
    ):
        reader.open("s3://bucket")


def test_class_weights_of_the_docs(converted_photos: Path) -> None:
    (block,) = [
        block for block in blocks(DOCS / "reader.md", "python") if "class_weight = " in block
    ]
    found: dict[str, Any] = {"folder": converted_photos}
    exec(block, found)
    assert found["class_weight"] == {0: 0.0, 1: 15 / (2 * 9), 2: 15 / (2 * 6)}
    exec(block.replace('"train"', '"test"'), found)
    assert found["class_weight"] == {0: 1.0, 1: 1.0, 2: 1.0}


def test_feature_spec(converted_photos: Path) -> None:
    spec = feature_spec(converted_photos)
    assert spec.keys() == read_manifest(str(converted_photos)).features.keys()
    assert spec["image/encoded"] == tf.io.FixedLenFeature([], tf.string)
    assert spec["image/class/label"] == tf.io.FixedLenFeature([], tf.int64)


LABELS = {0: [0, 2], 1: [2], 2: [], 3: [2, 3, 0], 4: [3]}


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Photos 0 to 3 in train, 4 in test, with the labels above."""
    folder = write_dataset(tmp_path / "d", {"train": [3, 1], "test": [1]})
    texts = {TEXT: lambda number: [b"class%05d" % label for label in LABELS[number]]}
    add_lists(folder, {LABEL: LABELS.get, **texts})
    return folder


def test_several_labels(several: Path) -> None:
    spec = feature_spec(several)
    assert spec[LABEL] == tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    records = [
        record for file in sorted(several.glob("*train*")) for record in RecordFile(str(file))
    ]
    parsed = tf.io.parse_example(records, spec)
    assert parsed[LABEL].to_list() == [LABELS[number] for number in range(4)]
    assert parsed[TEXT].to_list()[3] == [b"class00002", b"class00003", b"class00000"]


@pytest.mark.slow
def test_the_manifest_is_asked_without_tensorflow(folder: Path) -> None:
    program = (
        "import sys\n"
        "from beam_tfr import reader\n"
        f"folder = {str(folder)!r}\n"
        "print(len(reader.open(folder).class_names),\n"
        "      sorted({'tensorflow', 'apache_beam'} & {*sys.modules}))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "41 []\n"


def test_all_names_are_there() -> None:
    assert all(callable(getattr(reader, name)) for name in reader.__all__)
    with pytest.raises(AttributeError, match=r"module 'beam_tfr.reader' has no attribute 'laod'"):
        reader.laod  # noqa: B018
