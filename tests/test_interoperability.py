"""Each block of docs/interoperability.md runs with the real packages.

This needs an environment that has them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import beam_tfr as package
from beam_tfr.dataset.manifest import read_manifest
from tests.conftest import Run
from tests.converted import SAMPLE, converted, converted_sample
from tests.pages import DOCS, ROOT, blocks

PACKAGES = (
    "tensorflow-datasets==4.9.10",
    "datasets==5.2.0",
    "webdataset==1.0.2",
    "mlcroissant==1.1.1",
    "tensorflow-metadata==1.21.0",
)
LAYOUT = "--layout {split}/{label}/*"
# After each block of the page, in its order.
CHECKS = (
    """
    assert train.features["label"].names == [*classes]
    assert [row["label"] for row in train] == labels
    assert {row["image"].size for row in train} == {(224, 224)}
    assert [row["class"] for row in train] == [classes[label] for label in labels]
    card = datasets.load_dataset("/data/photos")
    numbers = {split: len(rows) for split, rows in card.items()}
    assert numbers == {"train": 90, "validation": 20, "test": 20}
    assert card["train"].config_name == "contents"
    """,
    """
    pairs = [*samples]
    assert [label for _, label in pairs] == labels
    assert {image.size for image, _ in pairs} == {(224, 224)}
    tars = datasets.load_dataset("webdataset", data_files="/tmp/tars/*.tar", split="train")
    assert [row["cls"] for row in tars] == labels
    folders = datasets.load_dataset("imagefolder", data_files="/tmp/folders/**", split="train")
    folder_classes = sorted(row["class"] for row in folders if row["split"] == "train")
    assert folder_classes == sorted(classes[label] for label in labels)
    assert {row["image"].size for row in folders} == {(224, 224)}
    """,
    """
    assert len(train) == 45
    for split, number in (("train", 90), ("validation", 20), ("test", 20)):
        pairs = [*builder.as_dataset(split=split, as_supervised=True)]
        ours = [label for _, label in beam_tfr.Records("/data/uncompressed", split=split)]
        assert len(pairs) == number
        assert [int(label) for _, label in pairs] == ours
        assert {(*image.shape,) for image, _ in pairs} == {(224, 224, 3)}
    assert builder.info.features["image/class/label"].names == [*classes]
    """,
    """
    assert [int(label) for _, label in train] == labels
    """,
    """
    assert len(rows) == 130
    assert {row["records/class"].decode() for row in rows} == {*classes}
    assert [row["splits/examples"] for row in dataset.records("splits")] == [90, 20, 20]
    assert [row["labels/name"] for row in dataset.records("labels")] == [*classes]
    """,
    """
    feature_names = {feature.name for feature in schema.feature}
    assert feature_names >= {"image/encoded", "image/class/label", "image/height"}
    """,
)
FIRST = """
import beam_tfr
classes = beam_tfr.Records("/data/photos", split="train").class_names
labels = [label for _, label in beam_tfr.Records("/data/photos", split="train", output="encoded")]
"""
# Photos of folders as Parquet: by the options of `datasets`, and in groups of 20 rows.
WRITE_PARQUET = """
import pathlib
import sys
import datasets
import pyarrow
from datasets.table import InMemoryTable

paths = sorted(pathlib.Path(sys.argv[1]).rglob("*.jpg"))
names = ["hat", "dress", *sorted({path.parent.name for path in paths} - {"hat", "dress"})]
features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
images = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
table = {"image": images, "label": [names.index(path.parent.name) for path in paths]}
table = InMemoryTable(pyarrow.Table.from_pydict(table, schema=features.arrow_schema))
rows = datasets.Dataset(table, info=datasets.DatasetInfo(features=features), fingerprint="photos")
rows.to_parquet(f"{sys.argv[2]}/default.parquet")
rows.to_parquet(f"{sys.argv[2]}/groups.parquet", batch_size=20)
"""
# Every image of a dataset, by its kind.
READ_ALL = """
import sys
import tensorflow_datasets as tfds
for folder in sys.argv[1:]:
    builder = tfds.builder_from_directory(folder)
    examples = [*builder.as_dataset(split="train")]
    print(len(examples), examples[0]["image/class/label"].dtype.name)
"""
# Writes a dataset of TensorFlow Datasets; prints its classes, and the split, number, label and hash
# of each image.
WRITE_TFDS = """
import hashlib, json, pathlib, sys
import numpy
import tensorflow_datasets as tfds

class Photos(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(names=["t-shirt", "hat", "shoes", "nothing"]),
            "coarse/label": tfds.features.ClassLabel(num_classes=2),
            "number": tfds.features.Scalar(numpy.int64),
        }
        features, keys = tfds.features.FeaturesDict(features), ("image", "label")
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=keys)

    def _split_generators(self, manager):
        return {split: self._generate_examples(split) for split in ("train", "test")}

    def _generate_examples(self, split):
        for number, path in enumerate(sorted(pathlib.Path(sys.argv[1], split).rglob("*.jpg"))):
            labels = {"label": path.parent.name, "coarse/label": number % 2}
            yield number, {"image": str(path), **labels, "number": number}

builder = Photos(data_dir=sys.argv[2])
builder.download_and_prepare()
found = []
for split in ("train", "test"):
    decoders = {"image": tfds.decode.SkipDecoding()}
    for example in builder.as_dataset(split=split, decoders=decoders):
        sha256 = hashlib.sha256(bytes(example["image"].numpy())).hexdigest()
        found.append((split, int(example["number"]), int(example["label"]), sha256))
print(json.dumps([builder.info.features["label"].names, found]))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables for a process that has the packages, and no network.

    They are not in `dev`.
    """
    folder = tmp_path_factory.mktemp("packages")
    install = ["pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder)]
    pins = str(ROOT / "requirements.txt")
    subprocess.run([sys.executable, "-m", "uv", *install, "-c", pins, *PACKAGES], check=True)
    path = os.pathsep.join([str(ROOT), str(folder)])
    return os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}


@pytest.mark.slow
def test_the_blocks_of_the_page(
    environment: dict[str, str], beam_tfr: Callable[..., Run], tmp_path: Path
) -> None:
    folders = {}
    for name, flags in (("photos", LAYOUT), ("uncompressed", f"{LAYOUT} --compression none")):
        folders[f"/data/{name}"] = Path(
            shutil.copytree(converted_sample(flags), tmp_path / name)
        )  # without a * in it
    for name in ("index", "tfds", "parquet", "tars", "folders"):
        folders[f"/tmp/{name}"] = tmp_path / name
        (tmp_path / name).mkdir()
    places = {**folders, "/tmp/small": tmp_path / "small", "/tmp/from_hub": tmp_path / "from_hub"}
    lines = []
    for line in "".join(blocks(DOCS / "interoperability.md", "sh")).splitlines():
        for name, folder in places.items():
            line = line.replace(name, str(folder))
        lines.append(shlex.split(line)[1:])
    exports, others = (
        [line for line in lines if (line[0] == "export") == wanted] for wanted in (True, False)
    )
    for arguments in exports:
        assert beam_tfr(*arguments).code == 0
    program = FIRST
    for block, check in zip(blocks(DOCS / "interoperability.md", "python"), CHECKS, strict=True):
        program += block + "\n".join(line[4:] for line in check.splitlines()) + "\n"
    for name, folder in folders.items():
        program = program.replace(name, str(folder))
    program = program.replace(
        'tfds.load("photos"', f'tfds.load("{read_manifest(str(folders["/data/photos"])).name}"'
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr[-3000:]

    kept = tmp_path / "kept"
    keep = ["--encoding", "keep", "--resize", "none", "--layout", "{split}/{label}/*"]
    assert beam_tfr("convert", "--input", tmp_path / "folders", "--output", kept, *keep).code == 0
    assert images_of(kept) == images_of(folders["/data/photos"])
    for arguments in others:
        assert beam_tfr(*arguments).code == 0
    assert [of.shape for of, _ in package.Records(tmp_path / "small", split="train")] == [
        (96, 96, 3)
    ] * 90
    assert (
        package.Records(tmp_path / "from_hub", split="train").class_names
        == package.Records(folders["/data/photos"], split="train").class_names
    )
    for shard in folders["/data/uncompressed"].glob("*.tfrecord"):
        lines = (tmp_path / "index" / f"{shard.stem}.idx").read_text().splitlines()
        places = [tuple(map(int, line.split())) for line in lines]
        data = shard.read_bytes()
        assert [start + size for start, size in places] == [
            *[start for start, _ in places[1:]],
            len(data),
        ]
        assert all(
            int.from_bytes(data[start : start + 8], "little") == size - 16 for start, size in places
        )


def images_of(folder: Path) -> dict[str, bytes]:
    keys = package.contents(folder, "train").to_table(columns=["key"])["key"].to_pylist()
    records = package.Records(folder, split="train", output="encoded")
    return dict(zip(keys, (data for data, _ in records), strict=True))


@pytest.mark.slow
def test_parquet_of_datasets(
    environment: dict[str, str], beam_tfr: Callable[..., Run], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", WRITE_PARQUET, str(SAMPLE / "train"), str(tmp_path)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert (
        beam_tfr("convert", "--input", SAMPLE / "train", "--output", tmp_path / "files").code == 0
    )
    expected = package.Records(tmp_path / "files", split="train", output="encoded")
    for name in ("default", "groups"):
        flags = ["--uri_column", "image", "--label_column", "label", "--output", tmp_path / name]
        run = beam_tfr("convert", "--table", tmp_path / f"{name}.parquet", *flags)
        assert run.code == 0, run.err
        found = package.Records(tmp_path / name, split="train", output="encoded")
        assert found.class_names[:2] == ("hat", "dress")
        assert sorted((found.class_names[label], image) for image, label in found) == sorted(
            (expected.class_names[label], image) for image, label in expected
        )


@pytest.mark.slow
def test_tensorflow_datasets_reads_each_encoding(environment: dict[str, str]) -> None:
    all_flags = (
        "--encoding jpeg --color gray --resize shortest --image_size 32",
        "--encoding jpeg --color keep --resize pad",
        "--encoding png --resize fit",
        "--encoding webp --resize none",
        "--encoding raw --resize stretch",
    )
    folders = [converted(f"{flags} --compression none") for flags in all_flags]
    run = subprocess.run(
        [sys.executable, "-c", READ_ALL, *folders],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout.split()) == (0, ["14", "int64"] * len(folders)), run.stderr[
        -3000:
    ]


@pytest.mark.slow
def test_a_dataset_of_tensorflow_datasets_becomes_ours(
    environment: dict[str, str], beam_tfr: Callable[..., Run], tmp_path: Path, photos: Path
) -> None:
    command = [sys.executable, "-c", WRITE_TFDS, photos, tmp_path / "tfds"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    classes, theirs = json.loads(run.stdout.splitlines()[-1])
    table = tmp_path / "tfds/photos/1.0.0/dataset_info.json"
    keep = [
        "--encoding",
        "keep",
        "--resize",
        "none",
        "--feature_columns",
        "number",
        "--allow_empty",
        "nothing",
    ]
    converted = beam_tfr("convert", "--table", table, *keep, "--output", tmp_path / "d")
    assert converted.code == 0, converted.err
    ours = [
        [split, example["number"], label, hashlib.sha256(encoded).hexdigest()]
        for split in ("train", "test")
        for example, (encoded, label) in zip(
            package.Records(tmp_path / "d", split=split, output="dict"),
            package.Records(tmp_path / "d", split=split, output="encoded"),
            strict=True,
        )
    ]
    assert sorted(ours) == sorted(theirs)
    assert len(ours) == 18
    assert [*package.Records(tmp_path / "d", split="train").class_names] == classes
