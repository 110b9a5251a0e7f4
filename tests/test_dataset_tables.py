"""A dataset as the input of a conversion: `--table DIR/manifest.json`."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import pytest

import beam_tfr as package
from beam_tfr.dataset.manifest import manifest_digest, read_manifest
from beam_tfr.images import convert_image
from beam_tfr.inputs.reading import read_image
from beam_tfr.launch.starting import run_step
from beam_tfr.options import ConvertOptions, ImageOptions
from beam_tfr.records import examples
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tensors import serialize_tensor
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import BeamTfrError, RejectError, RunError
from beam_tfr.schema.items import ImageRef
from beam_tfr.sources import open_source
from beam_tfr.tables import datasets
from tests.conftest import Run, few_at_once, files_of
from tests.converted import SAMPLE, converted_photos, once, write_photos
from tests.fake_gcs import FakeGcs
from tests.masks import ids, png
from tests.portable_runners import own_prism
from tests.updates import convert, paint

Convert = Callable[..., Run]
# What says of a record how its source became what it is.
OF_SOURCE = ("image/source/height", "image/source/width", "image/source/format", "image/key/sha256")
KEPT = ("--encoding", "keep", "--resize", "none", "--name", "d")
LONG = "a \\ b " * 500  # longer than what contents hold
CLASSES = ("zebra", "ant", "cat")


def records_of(folder: Path, *without: str) -> dict[str, list[dict[str, list[Any]]]]:
    """The records of each shard, without some features.

    None is NaN, which is not equal to itself.
    """
    return {
        path.name: [
            {
                name: [None if value != value else value for value in values]
                for name, values in parse_example(record).items()
                if name not in without
            }
            for record in RecordFile(str(path))
        ]
        for path in sorted(folder.glob("*.tfrecord*"))
    }


def write_rich(place: Path) -> None:
    """A dataset `d` with all kinds of columns.

    Boxes, points, masks, enums, lists, and values of any length.
    """
    place.mkdir()
    rows = []
    for number in range(12):
        chance = np.random.default_rng(number)
        height, width, boxes = 40 + number, 60 - number, number % 4
        name = f"ä \\ {number}.png"
        pixels = chance.integers(0, 255, (height, width, 3)).astype(np.uint8)
        PIL.Image.fromarray(pixels).save(place / name)
        (place / f"mask{number}.png").write_bytes(png(ids(height, width, number)))
        sides = [[3 * at, 2.25, 20.5, 30 + at] for at in range(boxes)]
        outline = [[1, 2, 30, 4, 5, 6], [20, 20, 30, 31.5, 5, 36, 7, 7]]
        rows.append(
            {
                "path": name,
                "split": ("train", "test")[number % 3 == 0],
                "names": [CLASSES[(number + at) % 3] for at in range(boxes)],
                "box": sides,
                "crowd": [at % 2 for at in range(boxes)],
                "joint": [[9.5, 8, 2, 100, 3, 1, 0, 0, 0] if at else [] for at in range(boxes)],
                "outline": [outline[: at + 1] for at in range(boxes)],
                "seg": f"mask{number}.png",
                "depth": f"mask{number}.png",
                "size": ("s", "m", "l")[number % 3],
                "note": LONG if number == 5 else f"note {number}",
                "marks": chance.random(150 if number == 7 else number).tolist(),
            }
        )
    (place / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "classes.txt").write_text("".join(f"{name}\n" for name in (*CLASSES, "nowhere")))


COLUMNS = (
    "box:bbox[xywh],crowd:int64[box],joint:points[xyv],outline:points[xy],seg:mask[255],depth:pair[7],"
    "size:enum(s|m|l),note:bytes,marks:float[]"
)


def rich(compression: str) -> Path:
    def make(place: Path) -> None:
        write_rich(place)
        how: dict[str, Any] = {
            "uri_column": "path",
            "label_column": "names",
            "split_column": "split",
        }
        how |= {"feature_columns": COLUMNS, "classes": place / "classes.txt", "encoding": "png"}
        how |= {
            "image_size": 32,
            "allow_empty": ["nowhere"],
            "num_shards": 2,
            "compression": compression,
        }
        convert(place / "d", table=place / "t.jsonl", **how)

    return once(f"rich_{compression.replace(':', '')}", make) / "d"


@pytest.mark.parametrize("compression", few_at_once(["gzip", "none", "gzip:6"], "gzip"))
def test_records_of_the_same_bytes_are_equal(
    compression: str, beam_tfr: Convert, tmp_path: Path
) -> None:
    there = rich(compression)
    flags = ["--compression", compression, "--num_shards", 2, "--allow_empty", "nowhere"]
    run = beam_tfr(
        "convert", "--table", there / "manifest.json", *KEPT, *flags, "--output", tmp_path / "d"
    )
    assert run.code == 0, run.err
    without = (
        *OF_SOURCE,
        "image/object/visible",
    )  # of boxes, how much of them the source of the dataset showed
    assert records_of(tmp_path / "d", *without) == records_of(there, *without)
    first, second = read_manifest(str(there)), read_manifest(str(tmp_path / "d"))
    assert second.class_names == first.class_names == (*CLASSES, "nowhere")
    assert second.features == first.features
    assert beam_tfr("verify", tmp_path / "d").code == 0
    assert "encoded a second time" not in run.err


def test_photos_in_another_size(beam_tfr: Convert, tmp_path: Path) -> None:
    there, small = converted_photos(), tmp_path / "small"
    call = ["--table", there / "manifest.json", "--image_size", 24, "--name", "d"]
    plan = beam_tfr("plan", *call)
    assert "\n  hat " in plan.out
    told = "the images in this dataset are encoded a second time"
    assert f"warning:   {told}" in plan.out
    run = beam_tfr("convert", *call, "--output", small)
    assert run.code == 0, run.err
    assert told in run.err
    before, after = records_of(there), records_of(small)
    assert before.keys() == after.keys()
    for shard, records in before.items():
        for old, new in zip(records, after[shard], strict=True):
            image = convert_image(
                old["image/encoded"][0], ImageOptions(image_size=(24, 24)), name=""
            )
            assert new["image/encoded"] == [image.encoded]
            for name in ("image/filename", "image/class/label", "image/class/text"):
                assert new[name] == old[name]
    assert json.loads(beam_tfr("convert", *call, "--output", small, "--json").out)[
        "complete_already"
    ]


def test_classes_keep_their_ids_in_a_subset(beam_tfr: Convert, tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("t-shirt\nhat\nshoes\n")
    classes = ["--classes", tmp_path / "classes.txt", "--layout", "{split}/{label}/*"]
    photos = once("photos", write_photos)
    assert beam_tfr("convert", "--input", photos, *classes, "--output", tmp_path / "d").code == 0
    call = [
        "--table",
        tmp_path / "d/manifest.json",
        *KEPT,
        "--limit",
        4,
        "--splits",
        "train=0.5,test=0.5",
    ]
    lost = ["--allow_empty", "t-shirt", "hat", "shoes", "train", "test"]
    assert beam_tfr("convert", *call, *lost, "--output", tmp_path / "few").code == 0
    assert read_manifest(str(tmp_path / "few")).class_names == ("t-shirt", "hat", "shoes")
    old, new = (
        {
            record["image/filename"][0]: record
            for shard in records_of(folder, *OF_SOURCE).values()
            for record in shard
        }
        for folder in (tmp_path / "d", tmp_path / "few")
    )
    assert new == {key: old[key] for key in new}
    assert len(new) == 4


def test_raw_pixels(tmp_path: Path) -> None:
    for color in ("rgb", "gray"):
        for number in range(4):
            paint(tmp_path / "photos" / f"{number}.jpg", number)
        how: dict[str, Any] = {"encoding": "raw", "color": color, "resize": "none"}
        convert(tmp_path / color, input=tmp_path / "photos", layout="*", **how)
        table = tmp_path / color / "manifest.json"
        convert(tmp_path / f"{color}2", table=table, **how)
        assert records_of(tmp_path / color, *OF_SOURCE) == records_of(
            tmp_path / f"{color}2", *OF_SOURCE
        )


def copied(tmp_path: Path, flags: str = "") -> Path:
    return Path(shutil.copytree(converted_photos(flags), tmp_path / "d"))


@pytest.mark.parametrize(
    "flags", few_at_once(["", "--compression none", "--compression gzip:6"], "")
)
def test_a_damaged_record_is_a_reject_with_its_key(
    flags: str, beam_tfr: Convert, tmp_path: Path
) -> None:
    folder = copied(tmp_path, flags)
    (shard,) = folder.glob("d-train-*")
    row = package.contents(folder, "train").to_table().to_pylist()[2]
    data = bytearray(shard.read_bytes())
    data[(row["restart"] or row["offset"]) + 3000] ^= 1
    shard.write_bytes(data)
    call = [
        "convert",
        "--table",
        folder / "manifest.json",
        "--image_size",
        24,
        "--output",
        tmp_path / "small",
    ]
    run = beam_tfr(*call, "--max_rejects", 0)
    assert run.code == 1
    assert f"its record in {shard.name} is damaged" in run.err
    run = beam_tfr(*call, "--max_rejects", 12, "--allow_empty", "hat", "shoes", "t-shirt", "train")
    assert run.code == 0, run.err
    rejects = [
        json.loads(line) for line in (tmp_path / "small/rejects.jsonl").read_text().splitlines()
    ]
    assert {reject["reason"] for reject in rejects} == {"unusable-file"}
    if "gzip:6" not in flags:  # where nobody knows which record a byte belongs to
        assert [reject["key"] for reject in rejects] == [row["key"]]


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        ("image/encoded", None),
        ("image/encoded", ("int64", [1 << 40])),
        ("image/encoded", ("bytes", [])),
        ("image/raw", ("bytes", [b"no tensor"])),
        ("image/raw", ("bytes", [serialize_tensor("uint8", [1, 1, 4], b"rgba")])),
    ],
)
def test_a_record_of_something_else_is_a_reject(
    feature: str, value: tuple[str, list[Any]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = examples.serialize({feature: value}) if value else b"no example"
    monkeypatch.setattr(
        datasets, "_lookup", lambda *_: SimpleNamespace(read_records=lambda _: [record])
    )
    entry = package.storage.Entry("/x/a/1.jpg", 10, 7, 0, f"/d.tfrecord:7:0:{feature}")
    with pytest.raises(RejectError, match=r"its record in d\.tfrecord is damaged") as caught:
        datasets.read_embedded(entry, 10)
    assert caught.value.reason == "unusable-file"


def edit(folder: Path, **fields: Any) -> None:
    """Changes a manifest, with the digest that it then has."""
    path = folder / "manifest.json"
    values = json.loads(path.read_text()) | fields
    values["manifest_digest"] = manifest_digest(values)
    path.write_text(json.dumps(values))


def without_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def without_contents(folder: Path) -> None:
    shutil.rmtree(folder / "contents")


def without_shard(folder: Path) -> None:
    next(folder.glob("d-test-*")).unlink()


def with_other_contents(folder: Path) -> None:
    (first, second) = sorted((folder / "contents").glob("*.parquet"))
    first.write_bytes(second.read_bytes())


def names_elsewhere(folder: Path) -> None:
    splits = json.loads((folder / "manifest.json").read_text())["splits"]
    splits["test"]["shards"][0]["file"] = "../d-test-00000-of-00001.tfrecord.gz"
    edit(folder, splits=splits)


def with_an_edit(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"hat"', '"cap"'))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (without_manifest, "is not a complete dataset: manifest.json is missing"),
        (without_contents, "d-test-00000-of-00001.parquet is missing"),
        (without_shard, "d-test-00000-of-00001.tfrecord.gz is missing"),
        (
            with_other_contents,
            "d-test-00000-of-00001.parquet is damaged: it has 12 rows, expected 6",
        ),
        (
            names_elsewhere,
            "is not a manifest: manifest.splits.test.shards[0].file must match pattern",
        ),
        (with_an_edit, "was changed after it was written"),
    ],
)
def test_what_is_no_dataset_costs_a_message(
    damage: Callable[[Path], None], problem: str, tmp_path: Path
) -> None:
    damage(folder := copied(tmp_path))
    with pytest.raises(BeamTfrError) as caught:
        package.plan(table=folder / "manifest.json", output=tmp_path / "small")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_one_dataset_of_images(tmp_path: Path) -> None:
    table = converted_photos() / "manifest.json"
    with pytest.raises(BeamTfrError, match=r"is a dataset, which must be the only table"):
        package.plan(table=[table, tmp_path / "t.csv"], output=tmp_path / "d")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    convert(tmp_path / "rows", table=tmp_path / "t.csv")
    with pytest.raises(BeamTfrError, match=r"is a dataset of 1 rows, not of images"):
        package.plan(table=tmp_path / "rows/manifest.json", output=tmp_path / "d")


@pytest.mark.parametrize(
    ("option", "pattern"),
    [
        ("table", "d"),
        ("table", "d/*.tfrecord.gz"),
        ("table", "d/*.parquet"),
        ("input", "d"),
        ("input", "d/*.tfrecord.gz"),
        ("input", "d/*.jpg"),
    ],
)
def test_parts_of_a_dataset_name_it(
    option: str, pattern: str, beam_tfr: Convert, tmp_path: Path
) -> None:
    folder = copied(tmp_path)
    run = beam_tfr("convert", f"--{option}", tmp_path / pattern, "--output", tmp_path / "out")
    assert run.code == 2
    assert f"this is a beam_tfr dataset: read it with --table {folder}/manifest.json" in run.err
    (folder / "manifest.json").write_text("{}")
    run = beam_tfr("convert", f"--{option}", tmp_path / pattern, "--output", tmp_path / "out")
    assert (run.code, "beam_tfr dataset" in run.err) == (2, False)


def test_a_pattern_of_datasets(tmp_path: Path) -> None:
    copied(tmp_path)
    with pytest.raises(
        BeamTfrError,
        match=r"/\*/manifest.json`: is a dataset, which must be the only table: give its",
    ):
        package.plan(table=tmp_path / "*/manifest.json", output=tmp_path / "out")


def test_extensions_of_keys_say_nothing_of_images_in_a_dataset(
    beam_tfr: Convert, tmp_path: Path
) -> None:
    write_photos(tmp_path / "photos")
    for path in [*(tmp_path / "photos").rglob("*.jpg")]:
        PIL.Image.open(path).save(path.with_suffix(".png"))
        path.unlink()
    assert (
        beam_tfr(
            "convert", "--input", tmp_path / "photos", "--layout", "*", "--output", tmp_path / "d"
        ).code
        == 0
    )
    convert(tmp_path / "again", table=tmp_path / "d" / "manifest.json", image_size=8)
    assert "wrong-extension" not in read_manifest(str(tmp_path / "again")).counts["adjusted"]


@pytest.mark.parametrize(
    ("table", "output"),
    [
        ("d/manifest.json", "d"),
        ("d/manifest.json", "link"),
        ("link/manifest.json", "d"),
        ("d/dataset_info.json", "d"),
        ("other.tfrecord", "d"),
        ("d/contents/*.parquet", "d"),
        ("d/manifest.json", "d/sub"),
        ("d/dataset_info.json", "link/sub/sub"),
    ],
)
def test_the_output_is_another_folder(
    table: str, output: str, beam_tfr: Convert, tmp_path: Path
) -> None:
    folder = copied(tmp_path, "--compression none")
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "other.tfrecord").symlink_to(folder / "d-test-00000-of-00001.tfrecord")
    before = files_of(folder)
    run = beam_tfr(
        "convert", "--table", tmp_path / table, "--output", tmp_path / output, "--overwrite"
    )
    assert run.code == 2
    problem = (
        "holds files that --table reads, or is below the folder of the dataset; choose another"
    )
    assert f"--output {tmp_path}/{output}: {problem}" in run.err
    assert files_of(folder) == before


@pytest.mark.parametrize("compression", few_at_once(["gzip", "none"], "gzip"))
def test_the_output_is_no_folder_above_the_dataset(
    compression: str, beam_tfr: Convert, tmp_path: Path
) -> None:
    folder = copied(tmp_path / "above", f"--compression {compression}")
    before = files_of(folder)
    run = beam_tfr("convert", "--table", folder / "manifest.json", "--output", tmp_path / "above")
    assert run.code == 2
    problem = (
        "holds files that --table reads, or is below the folder of the dataset; choose another"
    )
    assert f"--output {tmp_path}/above: {problem}" in run.err
    assert files_of(folder) == before


@pytest.mark.parametrize("flags", [(), ("--uri_column", "image/encoded")])
@pytest.mark.parametrize("output", ["out", "d/x", "d"])
def test_shards_of_a_dataset_are_not_read_without_it(
    output: str, flags: tuple[str, ...], beam_tfr: Convert, tmp_path: Path
) -> None:
    folder = copied(tmp_path, "--compression none")
    before = files_of(folder)
    run = beam_tfr(
        "convert", "--table", folder / "*.tfrecord", *flags, "--output", tmp_path / output
    )
    assert run.code == 2
    problem = "is a shard, which does not record its split and classes; this is a beam_tfr dataset"
    shard = f"--table {folder}/d-test-00000-of-00001.tfrecord"
    assert f"{shard}: {problem}: read it with --table {folder}/manifest.json" in run.err
    assert files_of(folder) == before


def test_shards_of_a_dataset_are_tables_of_rows(beam_tfr: Convert, tmp_path: Path) -> None:
    folder = copied(tmp_path, "--compression none")
    columns = ["--encoding", "row", "--feature_columns", "image/class/text:bytes"]
    run = beam_tfr(
        "convert", "--table", folder / "*.tfrecord", *columns, "--output", tmp_path / "out"
    )
    assert run.code == 0, run.err
    written = read_manifest(str(tmp_path / "out")).counts["written"]
    assert written == read_manifest(str(folder)).counts["written"]


def replace(folder: Path) -> None:
    """Puts another dataset into its place."""
    shutil.rmtree(folder)
    shutil.copytree(converted_photos("--image_size 40"), folder)


def test_a_dataset_that_is_replaced_meanwhile_is_not_read(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    options = ConvertOptions(
        table=(str(folder / "manifest.json"),), output=str(tmp_path / "small"), quiet=True
    )
    source = open_source(options)
    ref: ImageRef = next(source.origin.read(source.origin.files[0]))
    file = package.storage.Entry(source.root + ref.key, *ref[1:3], place=ref.place)
    assert read_image(file, read_embedded=datasets.read_embedded).startswith(b"\xff\xd8")
    with pytest.raises(RunError, match="another dataset replaced "):
        read_image(file._replace(generation=7), read_embedded=datasets.read_embedded)
    replace(folder)
    for _ in range(2):  # by a process that has read from the dataset, and by another
        with pytest.raises(BeamTfrError, match="another dataset replaced "):
            read_image(file, read_embedded=datasets.read_embedded)
        datasets._lookup.cache_clear()
    with pytest.raises(BeamTfrError, match="replaced"):
        run_step(options, open_input=lambda _: source)
    assert not (tmp_path / "small/manifest.json").exists()


def test_a_record_that_does_not_fit_its_manifest(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(rich("none"), tmp_path / "d"))
    options = json.loads((folder / "manifest.json").read_text())["options"]
    edit(
        folder,
        options={**options, "feature_columns": {**options["feature_columns"], "size": "enum(s|m)"}},
    )
    convert(
        tmp_path / "small", table=folder / "manifest.json", max_rejects=12, allow_empty=["nowhere"]
    )
    rejects = [
        json.loads(line) for line in (tmp_path / "small/rejects.jsonl").read_text().splitlines()
    ]
    assert {(reject["reason"], reject["detail"].partition(" in ")[0]) for reject in rejects} == {
        ("unusable-file", "its record")
    }
    assert {reject["key"] for reject in rejects} == {
        f"ä \\ {number}.png" for number in (2, 5, 8, 11)
    }


def test_a_damaged_record_with_a_long_value_is_a_reject_too(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(rich("none"), tmp_path / "d"))
    for shard in folder.glob("d-*.tfrecord"):
        data = shard.read_bytes()
        shard.write_bytes(data.replace(LONG.encode(), b"A" + LONG.encode()[1:]))
    convert(
        tmp_path / "small", table=folder / "manifest.json", max_rejects=1, allow_empty=["nowhere"]
    )
    counts = read_manifest(str(tmp_path / "small")).counts
    assert (counts["matched"], counts["written"], counts["rejected"]) == (
        12,
        11,
        {"unusable-file": 1},
    )


def test_own_columns_and_labels(tmp_path: Path) -> None:
    table = rich("gzip") / "manifest.json"
    convert(
        tmp_path / "d", table=table, feature_columns="size,note", label_column="size", image_size=16
    )
    dataset = read_manifest(str(tmp_path / "d"))
    assert dataset.class_names == ("l", "m", "s")
    assert dataset.options["feature_columns"] == {"size": "enum(s|m|l)", "note": "bytes"}
    notes = {record["note"][0] for shard in records_of(tmp_path / "d").values() for record in shard}
    assert notes == {
        LONG.encode(),
        *(f"note {number}".encode() for number in range(12) if number != 5),
    }
    convert(
        tmp_path / "all", table=table, feature_columns="*", image_size=16, allow_empty=["nowhere"]
    )
    assert read_manifest(str(tmp_path / "all")).options["feature_columns"] == {
        "box": "bbox[rel_xyxy]",
        "crowd": "int64[box]",
        "joint": "points[rel_xyv]",
        "outline": "points[rel_xy]",
        "size": "enum(s|m|l)",
        "note": "bytes",
        "marks": "float[]",
        "mask": "mask[255]",
        "depth": "pair[7]",
    }


def test_an_update_copies_what_stayed(beam_tfr: Convert, tmp_path: Path) -> None:
    photos = Path(shutil.copytree(once("photos", write_photos), tmp_path / "photos"))
    first = ["--input", photos, "--layout", "{split}/{label}/*", "--num_shards", 1]
    assert beam_tfr("convert", *first, "--output", tmp_path / "d").code == 0
    call = ["--table", tmp_path / "d/manifest.json", "--image_size", 24, "--name", "small"]
    assert beam_tfr("convert", *call, "--output", tmp_path / "small").code == 0
    shutil.copy(next((SAMPLE / "train/dress").iterdir()), photos / "train/hat/more.jpg")
    assert beam_tfr("update", tmp_path / "d", *first[:2]).code == 0
    run = beam_tfr("update", tmp_path / "small", *call[:2], "--quiet")
    assert run.code == 0, run.err
    assert "update:  1 added" in run.out
    assert beam_tfr("convert", *call, "--output", tmp_path / "fresh").code == 0
    updated = files_of(tmp_path / "small")
    assert updated.pop("history.jsonl")
    assert updated == files_of(tmp_path / "fresh")


@pytest.mark.slow
def test_from_a_bucket(beam_tfr: Convert, tmp_path: Path, fake: FakeGcs) -> None:
    for name, folder in {"d": converted_photos(), "rich": rich("gzip:6")}.items():
        fake.put_folder(folder, name)
        for place, output in ((str(folder), "disk"), (f"gs://b/{name}", "bucket")):
            flags = [*KEPT, "--num_shards", 1, "--allow_empty", *CLASSES, "nowhere"]
            call = [
                "--table",
                f"{place}/manifest.json",
                *flags,
                "--output",
                tmp_path / name / output,
            ]
            assert beam_tfr("convert", *call).code == 0
        disk, bucket = (records_of(tmp_path / name / output) for output in ("disk", "bucket"))
        assert disk == bucket


def test_masks_of_boxes_are_left_out_and_small_boxes_can_be_dropped(
    beam_tfr: Convert, tmp_path: Path
) -> None:
    paint(tmp_path / "1.jpg", 1)
    row = {
        "path": "1.jpg",
        "box": [[1, 1, 12, 9], [2, 2, 14, 9]],
        "segment": [[[1, 1, 12, 1, 12, 9]], []],
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    columns = "box:bbox[xywh],segment:mask[box]"
    convert(
        tmp_path / "d",
        table=tmp_path / "t.jsonl",
        uri_column="path",
        feature_columns=columns,
        resize="none",
    )
    call = [
        "--table",
        tmp_path / "d/manifest.json",
        "--min_visible",
        "0.9",
        "--resize",
        "stretch",
        "--splits",
        "a=1",
    ]
    run = beam_tfr("convert", *call, "--output", tmp_path / "small")
    assert run.code == 0, run.err
    assert "the masks of boxes in this dataset are left out" in run.err
    dataset = read_manifest(str(tmp_path / "small"))
    assert dataset.options["feature_columns"] == {"box": "bbox[rel_xyxy]"}
    ((record,),) = records_of(tmp_path / "small").values()
    ((old,),) = records_of(tmp_path / "d").values()
    assert record["image/object/bbox/xmin"] == old["image/object/bbox/xmin"]
    assert "image/object/mask" not in record


def test_workers_get_what_was_opened(tmp_path: Path) -> None:
    table = str(rich("gzip:6") / "manifest.json")
    source = open_source(ConvertOptions(table=(table,), output=str(tmp_path / "d"), encoding="png"))
    sent = pickle.loads(pickle.dumps(source))
    refs = [ref for path in sent.origin.files for ref in sent.origin.read(path)]
    assert refs == [ref for path in source.origin.files for ref in source.origin.read(path)]
    assert len(refs) == 12


def test_rejects_can_be_tried_again(beam_tfr: Convert, tmp_path: Path) -> None:
    folder = copied(tmp_path, "--compression none")
    (shard,) = folder.glob("d-train-*")
    whole = shard.read_bytes()
    at = package.contents(folder, "train").to_table()["offset"][0].as_py()
    shard.write_bytes(whole[: at + 3000] + bytes([whole[at + 3000] ^ 1]) + whole[at + 3001 :])
    call = ["--table", folder / "manifest.json", "--max_rejects", 1]
    assert beam_tfr("convert", *call, "--image_size", 24, "--output", tmp_path / "small").code == 0
    run = beam_tfr("update", tmp_path / "small", *call)
    assert run.code == 0, run.err
    assert read_manifest(str(tmp_path / "small")).counts["rejected"] == {"unusable-file": 1}


@pytest.mark.slow
def test_prism_writes_the_same_bytes(beam_tfr: Convert, tmp_path: Path, prism: Path) -> None:
    call = ["--table", rich("gzip:6") / "manifest.json", *KEPT, "--allow_empty", "nowhere"]
    assert beam_tfr("convert", *call, "--output", tmp_path / "here").code == 0
    flags = own_prism(prism)
    run = beam_tfr("convert", *call, *flags, "--output", tmp_path / "there")
    assert run.code == 0, run.err
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
