"""A dataset of TensorFlow Datasets as the input of a conversion.

The flag is `--table DIR/dataset_info.json`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import beam_tfr as package
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.options import ConvertOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.tables.finding import find_content
from tests.converted import converted_photos
from tests.image_tables import Convert

KEPT = ("--encoding", "keep", "--resize", "none", "--name", "d")


def records_of(folder: Path) -> dict[str, list[dict[str, list[Any]]]]:
    """The records of each shard."""
    return {
        path.name: [*map(parse_example, RecordFile(str(path)))]
        for path in sorted(folder.glob("*.tfrecord*"))
    }


def tfds_folder(tmp_path: Path, name: str = "dataset_info.json", **fields: Any) -> Path:
    """A dataset with the files of TensorFlow Datasets, of which one has other fields.

    Without our own manifest.
    """
    folder = Path(shutil.copytree(converted_photos("--compression none"), tmp_path / "d"))
    (folder / "manifest.json").unlink()
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


def test_tensorflow_datasets(beam_tfr: Convert, tmp_path: Path) -> None:
    there = converted_photos("--compression none")
    folder = tfds_folder(tmp_path)
    # of other ids, so not sorted
    (folder / "image.class.label.labels.txt").write_text("t-shirt\nhat\nshoes\n")
    call = [
        "--table",
        folder / "dataset_info.json",
        "--feature_columns",
        "image/filename:bytes",
        "--image_size",
        24,
    ]
    run = beam_tfr("convert", *call, "--output", tmp_path / "small")
    assert run.code == 2
    assert (
        "--feature_columns image/filename: records or readers already have a feature with this name"
        in run.err
    )
    assert beam_tfr("convert", *call[:2], *KEPT, "--output", tmp_path / "kept").code == 0
    dataset = read_manifest(str(tmp_path / "kept"))
    assert dataset.class_names == ("t-shirt", "hat", "shoes")
    for split in ("train", "test"):
        old, new = (
            sorted((record["image/encoded"], record["image/class/label"]) for record in records)
            for records in (
                next(of for name, of in records_of(place).items() if split in name)
                for place in (there, tmp_path / "kept")
            )
        )
        assert new == old
    keys = {
        record["image/filename"][0]
        for shard in records_of(tmp_path / "kept").values()
        for record in shard
    }
    assert keys == {
        f"d-{split}-00000-of-00001/{number:08d}".encode()
        for split, records in (("train", 12), ("test", 6))
        for number in range(records)
    }


SPLIT = {
    "name": "train",
    "shardLengths": ["12"],
    "filepathTemplate": "{DATASET}-{SPLIT}-{SHARD_X_OF_Y}.tfrecord",
}


@pytest.mark.parametrize(
    ("name", "fields", "problem"),
    [
        (
            "dataset_info.json",
            {"fileFormat": "array_record"},
            "d-train-{SHARD_X_OF_Y}.tfrecord is not a name of TFRecord files",
        ),
        ("dataset_info.json", {"splits": []}, "there are no records"),
        ("dataset_info.json", {"splits": 7}, "Expected `array`, got `int` - at `$.splits`"),
        (
            "dataset_info.json",
            {"splits": [SPLIT | {"shardLengths": ["6", "6"]}]},
            "d-train-00000-of-00002.tfrecord",
        ),
        (
            "dataset_info.json",
            {"splits": [SPLIT | {"shardLengths": ["0"]}]},
            "there are no records",
        ),
        (
            "dataset_info.json",
            {"splits": [SPLIT | {"shardLengths": ["x"]}]},
            "Expected `int`, got `str` - at `$.splits[0].shardLengths[0]`",
        ),
        (
            "dataset_info.json",
            {"splits": [SPLIT | {"filepathTemplate": "../{SPLIT}"}]},
            "not a name of TFRecord files in its folder",
        ),
        (
            "dataset_info.json",
            {"splits": [SPLIT | {"filepathTemplate": "{SPLIT}" * 9, "name": "n" * 20_000}]},
            "not a name of TFRecord files in its folder",
        ),
        (
            "dataset_info.json",
            {"splits": [SPLIT | {"shardLengths": [1] * 100_001}]},
            "100,001 shards, but at most 100,000 are read",
        ),
        (
            "dataset_info.json",
            {"splits": [SPLIT | {"name": "val"}]},
            "d-val-00000-of-00001.tfrecord",
        ),
        (
            "features.json",
            {"featuresDict": {"features": {"a": {"text": {}}}}},
            "there is no Image among the features a",
        ),
        (
            "features.json",
            {"featuresDict": [1]},
            "Expected `object`, got `array` - at `$.featuresDict`",
        ),
    ],
)
def test_what_is_not_of_tensorflow_datasets(
    name: str, fields: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    folder = tfds_folder(tmp_path, name, **fields)
    with pytest.raises(BeamTfrError) as caught:
        package.plan(table=folder / "dataset_info.json", output=tmp_path / "small")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "column"), [("image/encoded", "uri_column"), ("image/class/label", "label_column")]
)
@pytest.mark.parametrize("other", ["items", "tuple", "featureKey"])
def test_features_called_as_fields_of_the_supervised_keys(
    key: str, column: str, other: str, tmp_path: Path
) -> None:
    """A feature before the supervised one, with a name from the JSON around that."""
    folder = tfds_folder(tmp_path)
    path = folder / "features.json"
    description = json.loads(path.read_text())
    features = description["featuresDict"]["features"]
    description["featuresDict"]["features"] = {other: features[key], **features}
    path.write_text(json.dumps(description))
    table = str(folder / "dataset_info.json")
    content = find_content(ConvertOptions(table=[table], output=str(tmp_path / "small")))
    assert getattr(content.options, column) == key


def test_ids_without_a_name_are_rejects_and_splits_can_be_others(
    beam_tfr: Convert, tmp_path: Path
) -> None:
    folder = tfds_folder(tmp_path)
    (folder / "image.class.label.labels.txt").write_text("hat\nshoes\n")
    call = [
        "--table",
        folder / "dataset_info.json",
        "--splits",
        "a=0.5,b=0.5",
        "--max_rejects",
        18,
        "--image_size",
        24,
    ]
    run = beam_tfr("convert", *call, "--output", tmp_path / "small")
    assert run.code == 0, run.err
    counts = read_manifest(str(tmp_path / "small")).counts
    assert (counts["matched"], counts["written"], counts["rejected"]) == (18, 12, {"bad-value": 6})
    assert read_manifest(str(tmp_path / "small")).splits.keys() >= {"a", "b"}
    assert "2 is not the id of a class" in (tmp_path / "small/rejects.jsonl").read_text()


def test_only_one_dataset(tmp_path: Path) -> None:
    with pytest.raises(BeamTfrError, match="is a dataset, which must be the only table"):
        package.plan(
            table=[tmp_path / "dataset_info.json", tmp_path / "t.csv"], output=tmp_path / "d"
        )


@pytest.mark.parametrize("records", [11, 13])
def test_a_shard_has_as_many_records_as_it_should(
    beam_tfr: Convert, tmp_path: Path, records: int
) -> None:
    folder = tfds_folder(tmp_path, splits=[SPLIT | {"shardLengths": [str(records)]}])
    run = beam_tfr(
        "convert", "--table", folder / "dataset_info.json", *KEPT, "--output", tmp_path / "kept"
    )
    assert run.code == 1
    assert (
        f"has 12 records, but dataset_info.json says {records}; copy the dataset again" in run.err
    )
    assert not (tmp_path / "kept/manifest.json").exists()
