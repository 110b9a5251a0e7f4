"""The files for other programs.

What is in them, when they are written, kept, verified and made again.

test_interoperability.py opens them with those programs.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.dataset.metadata import metadata_files
from beam_tfr.dataset.metadata.card import MAX_CARD_BYTES
from beam_tfr.schema.dataset import METADATA_FILES
from tests.conftest import Run, files_of
from tests.converted import CONVERSIONS, converted, converted_photos, converted_sample

Command = Callable[..., Run]
ALWAYS = {"schema.pbtxt", "croissant.json", "README.md"}
TFDS = {"dataset_info.json", "features.json", "image.class.label.labels.txt"}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Of `converted_photos` without compression, to change."""
    return Path(shutil.copytree(converted_photos("--compression none"), tmp_path / "d"))


def test_they_follow_from_the_manifest_and_change_no_digest(dataset: Path) -> None:
    found = read_manifest(str(dataset))
    files = files_of(dataset)
    assert metadata_files(found) == {name: files[name] for name in files if name in METADATA_FILES}
    assert metadata_files(found).keys() == ALWAYS | TFDS
    assert metadata_files(read_manifest(str(converted_photos()))).keys() == ALWAYS
    of_sample = read_manifest(str(converted_sample())).dataset_digest
    assert of_sample.startswith("d637bf262f1e75a2")


def test_those_of_tensorflow_datasets(dataset: Path) -> None:
    info = json.loads((dataset / "dataset_info.json").read_text())
    assert [(split["name"], split["shardLengths"]) for split in info["splits"]] == [
        ("train", ["12"]),
        ("test", ["6"]),
    ]
    keys = [item["featureKey"] for item in info["supervisedKeys"]["tuple"]["items"]]
    assert keys == ["image/encoded", "image/class/label"]
    features = json.loads((dataset / "features.json").read_text())["featuresDict"]["features"]
    assert features.keys() == read_manifest(str(dataset)).features.keys()
    assert features["image/encoded"]["image"]["shape"] == {"dimensions": ["224", "224", "3"]}
    assert (dataset / "image.class.label.labels.txt").read_text() == "hat\nshoes\nt-shirt\n"


def test_croissant_has_the_checksum_of_each_shard(dataset: Path) -> None:
    croissant = json.loads((dataset / "croissant.json").read_text())
    *shards, contents = croissant["distribution"]
    promised = [
        shard for split in read_manifest(str(dataset)).splits.values() for shard in split.shards
    ]
    assert {(of["contentUrl"], of["sha256"]) for of in shards} == {
        (shard.file, shard.sha256) for shard in promised
    }
    assert {path.name for path in dataset.glob(contents["includes"])} == {
        path.name for path in (dataset / "contents").glob("*.parquet")
    }
    splits, labels, _ = croissant["recordSet"]
    assert splits["data"][0] == {"splits/name": "train", "splits/examples": 12}
    assert labels["data"][2] == {"labels/id": 2, "labels/name": "t-shirt"}


@pytest.mark.parametrize("flags", CONVERSIONS[:2] + CONVERSIONS[5:7])
def test_the_card_tells_classes_counts_options_and_what_parquet_is_there(flags: str) -> None:
    card = (converted(flags) / "README.md").read_text()
    lines = card.splitlines()
    assert lines[0] == "---"
    assert "- config_name: contents" in lines[: lines.index("---", 1)]
    assert '  - split: "train"' in lines[: lines.index("---", 1)]
    assert "| wide.jpg | 1 | 1 |" in lines
    assert f'    encoding = "{flags.split()[1]}"' in lines
    assert "/tmp" not in card


def test_markup_in_names_of_classes_stays_text(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    (photos / "train" / "hat").rename(photos / "train" / "<b> | [x](y)")
    command = [
        "convert",
        "--input",
        f"{photos}/train/*/*.jpg",
        "--output",
        tmp_path / "d",
        "--compression",
        "none",
    ]
    assert beam_tfr(*command).code == 0
    assert (
        "| &#60;b&#62; &#124; &#91;x&#93;&#40;y&#41; | 4 | 4 |"
        in (tmp_path / "d" / "README.md").read_text()
    )
    assert 'value: "<b> | [x](y)"' in (tmp_path / "d" / "schema.pbtxt").read_text()


@pytest.mark.parametrize("license_id", ["cc-by-4.0", "https://example.org/terms?a=1"])
def test_license_description_and_citation(
    beam_tfr: Command, dataset: Path, license_id: str
) -> None:
    before = read_manifest(str(dataset)).dataset_digest
    texts = {
        "description": "Hats, <b>shoes</b>\nand shirts",
        "license": license_id,
        "citation": "A. Photographer, 2026",
    }
    run = beam_tfr(
        "update", dataset, *(part for name, text in texts.items() for part in (f"--{name}", text))
    )
    assert run.code == 0, run.err
    assert read_manifest(str(dataset)).dataset_digest == before
    croissant = json.loads((dataset / "croissant.json").read_text())
    link = license_id if "/" in license_id else f"https://choosealicense.com/licenses/{license_id}/"
    assert [croissant[name] for name in ("description", "license", "citeAs")] == [
        *(texts | {"license": link}).values()
    ]
    card = (dataset / "README.md").read_text()
    front, text = card.split("\n---\n", 1)
    link = [] if license_id == "cc-by-4.0" else [f'license_link: "{license_id}"']
    assert front.splitlines()[2 : 3 + len(link)] == [
        f"license: {'other' if link else license_id}",
        *link,
    ]
    assert "Description: Hats, &#60;b&#62;shoes&#60;&#47;b&#62;&#10;and shirts" in text
    assert "\nCitation: A. Photographer, 2026\n" in text
    assert "not stated here" not in text
    assert "    license = " not in text
    assert beam_tfr("verify", dataset).code == 0


@pytest.mark.parametrize("name", sorted(ALWAYS | TFDS))
def test_verify_names_one_that_was_edited_and_repair_makes_it_again(
    beam_tfr: Command, photos: Path, dataset: Path, name: str
) -> None:
    before = files_of(dataset)
    (dataset / name).write_bytes(before[name] + b"\n")
    run = beam_tfr("verify", dataset)
    assert (run.code, f"{name}: its SHA-256 is " in run.err + run.out) == (1, True)
    (dataset / name).unlink()
    assert f"{name}: is missing" in beam_tfr("verify", dataset).err
    run = beam_tfr("repair", dataset, "--input", f"{photos}/**/*.jpg", "--json")
    assert (run.code, run.json["repaired"]) == (0, [name])
    assert files_of(dataset) == before


def test_another_compression_replaces_them_all(beam_tfr: Command, dataset: Path) -> None:
    run = beam_tfr("update", dataset, "--compression", "gzip")
    assert run.code == 0, run.err
    files = files_of(dataset)
    del files["history.jsonl"]
    assert files == files_of(converted_photos())


def test_a_huge_readme_stays_unread(beam_tfr: Command, dataset: Path) -> None:
    readme = dataset / "README.md"
    os.truncate(readme, MAX_CARD_BYTES + 1)
    assert beam_tfr("update", dataset, "--compression", "gzip").code == 0
    assert readme.stat().st_size == MAX_CARD_BYTES + 1
    os.truncate(readme, MAX_CARD_BYTES)
    assert beam_tfr("update", dataset, "--compression", "none").code == 0
    assert readme.stat().st_size < 100_000


def test_a_readme_of_somebody_stays(beam_tfr: Command, photos: Path, dataset: Path) -> None:
    (dataset / "README.md").write_text("mine")
    assert beam_tfr("verify", dataset).code == 0
    assert beam_tfr("update", dataset, "--compression", "gzip").code == 0
    assert (dataset / "README.md").read_text() == "mine"
    assert beam_tfr("verify", dataset).code == 0
    other = dataset.parent / "other"
    other.mkdir()
    (other / "README.md").write_text("mine")
    assert beam_tfr("convert", "--input", photos / "test", "--output", other).code == 0
    assert (other / "README.md").read_text() == "mine"
