"""`beam-tfr export` writes every record in each format.

The bytes of its image are as they were. It is resumed and refused, on every engine.
"""

import io
import json
import os
import re
import shutil
import signal
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest
from pycocotools.coco import COCO

import beam_tfr as package
from beam_tfr import Records, storage
from beam_tfr.dataset.conditions import value_text
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.engine import interrupt
from beam_tfr.exports import export_formats, image_names, shard
from beam_tfr.exports.image_names import NameCheck, NamedImage, file_name, unique_file_name
from beam_tfr.exports.shard import sample_of
from beam_tfr.output import lock
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile, frame
from beam_tfr.schema.dataset import TFDS_FILES
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.feature_names import FILENAME, MASK, OBJECT_LABEL, OBJECT_MASK, SIDES
from beam_tfr.storage.names import REFUSED_BY_WINDOWS, NameRules, rules_of_gcs
from beam_tfr.transforms.shards import ExportShards
from tests import instances, points
from tests.box_fixtures import some_images, write_boxes
from tests.conftest import Run, few_at_once, files_of, wait_for
from tests.converted import converted_sample, spoiled_photos
from tests.dataflow_fixtures import job_served
from tests.fake_dataflow import FakeDataflow
from tests.fake_gcs import FakeGcs
from tests.masks import png, write_masks
from tests.pages import ROOT
from tests.portable_runners import own_prism

Command = Callable[..., Run]
SAMPLE = ROOT / "beam_tfr" / "sample"

FORMATS = ("folder", "parquet", "webdataset")
ALL = (*FORMATS, "tfds", "dali-index", "yolo", "voc")
DATAFLOW = ["--runner=DataflowRunner"]


def export(folder: object, output: object, form: str, **how: Any) -> int:
    """Exports and returns the number of images."""
    return package.export(folder, output, format=form, progress=False, **how).images


def uncompressed(folder: Path, output: Path) -> Path:
    """A copy of a dataset, without compression."""
    shutil.copytree(folder, output)
    package.update(output, compression="none", progress=False)
    return output


def read_folder(folder: Path) -> dict[str, tuple[bytes, dict[str, Any]]]:
    lines = map(json.loads, (folder / "metadata.jsonl").read_text().splitlines())
    return {line["file_name"]: ((folder / line["file_name"]).read_bytes(), line) for line in lines}


def read_tars(folder: Path) -> dict[str, tuple[bytes, dict[str, Any]]]:
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            files = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
        for name in [name for name in files if name.endswith(".json")]:
            about = json.loads(files[name])
            stem = name.removesuffix(".json")
            about |= {"cls": files.get(f"{stem}.cls"), "mask": files.get(f"{stem}.mask.png")}
            found[about["key"]] = (files.get(f"{stem}.jpg") or files[f"{stem}.png"], about)
    return found


def read_parquet(folder: Path) -> dict[str, tuple[bytes, dict[str, Any]]]:
    rows = [
        row
        for path in sorted(folder.glob("data/*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]
    return {row["key"]: (row["image"]["bytes"], row) for row in rows}


READ: dict[str, Callable[[Path], dict[str, tuple[bytes, dict[str, Any]]]]] = {
    "folder": read_folder,
    "webdataset": read_tars,
    "parquet": read_parquet,
}


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_boxes(tmp_path_factory.mktemp("boxes"), some_images())


@pytest.mark.parametrize("form", FORMATS)
def test_every_record_with_its_boxes(form: str, boxes: Path, tmp_path: Path) -> None:
    assert export(boxes, tmp_path / "out", form) == 24
    found = READ[form](tmp_path / "out")
    expected = {one[FILENAME].decode(): one for one in Records(boxes, split="train", output="dict")}
    encoded = [data for data, _ in Records(boxes, split="train", output="encoded")]
    assert found.keys() == expected.keys()
    assert [found[key][0] for key in expected] == encoded
    for key, one in expected.items():
        about = found[key][1]
        assert about["class"] == [of.decode() for of in one["image/class/text"]]
        assert about["boxes"] == [
            list(box) for box in zip(*(one[side].tolist() for side in SIDES), strict=True)
        ]
        assert about["image/object/is_crowd"] == one["image/object/is_crowd"].tolist()
        assert about["image/source_id"] == key
        assert about["split"] == "train"
    mark = json.loads((tmp_path / "out" / "export.json").read_text())
    assert (mark["format"], mark["splits"], mark["complete"]) == (form, ["train"], True)
    assert not (tmp_path / "out" / ".beam_tfr").exists()


def test_a_folder_is_a_table_that_gives_the_same_records(boxes: Path, tmp_path: Path) -> None:
    export(boxes, tmp_path / "out", "folder")
    again = package.convert(
        table=str(tmp_path / "out" / "metadata.jsonl"),
        uri_column="file_name",
        label_column="class",
        split_column="split",
        feature_columns={
            "boxes": "bbox[rel_xyxy]",
            "image/object/is_crowd": "int64[box]",
            "image/source_id": "bytes",
        },
        output=str(tmp_path / "again"),
        encoding="keep",
        resize="none",
        classes=str(boxes),
        progress=False,
    )
    pairs = [
        {one[FILENAME]: one for one in Records(of, split="train", output="dict")}
        for of in (boxes, again.folder)
    ]
    assert pairs[0].keys() == pairs[1].keys()
    for key, one in pairs[0].items():
        other = pairs[1][key]
        assert (one["image"] == other["image"]).all()
        assert one["image/class/label"].tolist() == other["image/class/label"].tolist()
        assert all(abs(one[side] - other[side]).max(initial=0) < 1e-6 for side in SIDES)


@pytest.mark.parametrize("form", FORMATS)
def test_masks_go_along(form: str, tmp_path: Path) -> None:
    folder = write_masks(tmp_path / "masks")
    export(folder, tmp_path / "out", form)
    found = READ[form](tmp_path / "out")
    for record in Records(folder, split="train", output="raw_record"):
        one = {name: values[0] for name, values in parse_example(record).items()}
        about = found[one[FILENAME].decode()][1]
        mask = about["mask"]
        if form == "folder":
            mask = (tmp_path / "out" / mask).read_bytes()
        elif form == "parquet":
            mask = mask["bytes"]
        assert mask == one[MASK]
        assert about["class"] == one["image/class/text"].decode()


def test_points_go_along(tmp_path: Path) -> None:
    (tmp_path / "coco.json").write_text(json.dumps(points.write_photos(tmp_path, 8)))
    points.convert(tmp_path, resize="pad")
    found = {}
    for form in FORMATS:
        export(tmp_path / "d", tmp_path / form, form)
        rows = READ[form](tmp_path / form)
        found[form] = {
            key: (about["keypoint"], about["polygon"]) for key, (_, about) in rows.items()
        }
        assert not [name for _, about in rows.values() for name in about if "/num" in name]
    assert found["folder"] == found["webdataset"] == found["parquet"]
    keypoints, polygons = found["folder"]["0.png"]
    assert [len(of) for of in keypoints] == [9, 6, 0]
    assert [[len(ring) for ring in of] for of in polygons] == [[6], [6, 6], []]
    again = package.convert(
        table=str(tmp_path / "folder" / "metadata.jsonl"),
        uri_column="file_name",
        feature_columns={
            "boxes": "bbox[rel_xyxy]",
            "keypoint": "points[rel_xyv]",
            "polygon": "points[rel_xy]",
        },
        output=str(tmp_path / "again"),
        encoding="keep",
        resize="none",
        progress=False,
    )
    options: dict[str, Any] = {"split": "train", "output": "dict", "boxes": "xyxy"}
    by_coco = package.convert(
        table=str(tmp_path / "folder" / "instances_train.json"),
        image_root=str(tmp_path / "folder"),
        output=str(tmp_path / "by_coco"),
        encoding="keep",
        resize="none",
        progress=False,
    )
    for folder in (again.folder, by_coco.folder):
        for one, other in zip(
            Records(tmp_path / "d", **options), Records(folder, **options), strict=True
        ):
            assert one["classes"].tolist() == other["classes"].tolist() or folder == again.folder
            for name in ("keypoint", "polygon"):
                for here, there in zip(one[name], other[name], strict=True):
                    np.testing.assert_allclose(here, there, atol=1e-3)
    read = COCO(str(tmp_path / "folder" / "instances_train.json"))
    for annotation in read.dataset["annotations"]:
        keypoints = annotation.get("keypoints", [])
        assert annotation.get("num_keypoints", 0) == sum(
            visibility > 0 for visibility in keypoints[2::3]
        )
        if "segmentation" in annotation:
            assert read.annToMask(annotation).any()
        else:
            assert annotation["iscrowd"]


def test_masks_of_boxes_go_along_as_run_lengths(tmp_path: Path) -> None:
    folder = instances.write_instances(tmp_path, 8)
    found = {}
    for form in FORMATS:
        export(folder, tmp_path / form, form)
        found[form] = {
            key: about["masks"] for key, (_, about) in READ[form](tmp_path / form).items()
        }
    assert found["folder"] == found["webdataset"] == found["parquet"]
    keep: dict[str, Any] = {
        "encoding": "keep",
        "resize": "none",
        "min_visible": 0.01,
        "progress": False,
    }
    by_table = package.convert(
        table=str(tmp_path / "folder" / "metadata.jsonl"),
        uri_column="file_name",
        feature_columns={"boxes": "bbox[rel_xyxy]", "masks": "mask[box]"},
        output=str(tmp_path / "by_table"),
        **keep,
    )
    by_coco = package.convert(
        table=str(tmp_path / "folder" / "instances_train.json"),
        image_root=str(tmp_path / "folder"),
        feature_columns={"box": "bbox[xywh]", "segment": "mask[box]"},
        output=str(tmp_path / "by_coco"),
        **keep,
    )
    options: dict[str, Any] = {"split": "train", "output": "dict", "boxes": "xyxy"}
    masks = [one["masks"] for one in Records(folder, **options)]
    assert sum(mask.any() for mask in masks) > 1
    for again in (by_table, by_coco):
        for one, other in zip(masks, Records(again.folder, **options), strict=True):
            np.testing.assert_array_equal(one, other["masks"])
    read = COCO(str(tmp_path / "folder" / "instances_train.json"))
    drawn = {image["file_name"]: [] for image in read.dataset["images"]}
    for annotation in read.dataset["annotations"]:
        mask = read.annToMask(annotation)
        assert annotation["area"] == mask.sum()
        drawn[read.imgs[annotation["image_id"]]["file_name"]].append(mask)
    for record in Records(folder, split="train", output="dict"):
        stored = [np.asarray(PIL.Image.open(io.BytesIO(mask))) for mask in record[OBJECT_MASK]]
        np.testing.assert_array_equal(drawn[record[FILENAME].decode()], stored)


def test_a_damaged_mask_of_a_box_is_reported(tmp_path: Path) -> None:
    folder = instances.write_instances(tmp_path, 2)
    values = parse_example(Records(folder, split="train", output="raw_record")[0])
    whole = values[OBJECT_MASK][0]
    for mask in (b"", whole[:40], png(np.zeros((3, 3), np.uint8))):
        with pytest.raises(ValueError, match="not a valid gray PNG"):
            sample_of(read_manifest(str(folder)), "train", values | {OBJECT_MASK: [mask]})


def test_splits_labels_and_names(beam_tfr: Command, tmp_path: Path) -> None:
    folder = converted_sample()
    call = ["--format", "webdataset", "--split", "test+validation"]
    done = beam_tfr("export", folder, tmp_path / "out", *call)
    assert (done.code, done.err) == (0, "")
    out = tmp_path / "out"
    load = (
        f"load:     webdataset.WebDataset(sorted(glob.glob('{out}' + '/*.tar')), "
        f"shardshuffle=False)"
    )
    assert done.out == f"exported: 40 images to {out}\n{load}\n"
    done = beam_tfr("export", folder, tmp_path / "out", *call)
    complete = (
        f"complete: {out} already has these 40 images; "
        "only the number and size of its files were compared"
    )
    assert (done.code, done.out) == (0, f"{complete}\n{load}\n")
    files = files_of(tmp_path / "out")
    assert sorted(files) == [
        "export.json",
        "test-00000-of-00001.tar",
        "validation-00000-of-00001.tar",
    ]
    with tarfile.open(fileobj=io.BytesIO(files["test-00000-of-00001.tar"])) as tar:
        infos = tar.getmembers()
    assert [info.name for info in infos[:3]] == ["00000000.jpg", "00000000.json", "00000000.cls"]
    assert {(info.mtime, info.uid, info.gid, info.uname, info.mode) for info in infos} == {
        (0, 0, 0, "", 0o644)
    }
    found = read_tars(tmp_path / "out")
    labels = [
        label
        for name in ("test", "validation")
        for _, label in Records(folder, split=name, output="encoded")
    ]
    assert [int(about["cls"]) for _, about in found.values()] == labels
    assert beam_tfr("export", folder, tmp_path / "again", *call).code == 0
    assert files == files_of(tmp_path / "again")
    again = beam_tfr("export", folder, tmp_path / "again", *call, "--json", "--quiet")
    assert again.json == {
        "output": str(tmp_path / "again"),
        "format": "webdataset",
        "images": 40,
        "splits": {"test": 20, "validation": 20},
        "complete_already": True,
    }


def test_names_get_the_extension_of_their_format(tmp_path: Path) -> None:
    """Photos in many formats, of which a conversion makes JPEGs."""
    package.convert(
        input=str(spoiled_photos()),
        output=str(tmp_path / "d"),
        layout="{label}/*",
        max_rejects=1.0,
        progress=False,
    )
    export(tmp_path / "d", tmp_path / "out", "folder")
    expected = dict(package.contents(tmp_path / "d").to_table(columns=["key", "bytes"]).to_pydict())
    found = read_folder(tmp_path / "out")
    names = [key if key.endswith((".jpg", ".jpeg")) else f"{key}.jpg" for key in expected["key"]]
    assert sorted(found) == sorted(names)
    assert sorted(len(data) for data, _ in found.values()) == sorted(expected["bytes"])


@pytest.mark.slow
def test_a_folder_converts_to_the_same_dataset(tmp_path: Path) -> None:
    how: dict[str, Any] = {
        "encoding": "keep",
        "resize": "none",
        "layout": "{split}/{label}/*",
        "progress": False,
    }
    first = package.convert(input=str(SAMPLE), output=str(tmp_path / "first"), **how)
    export(first.folder, tmp_path / "out", "folder")
    again = package.convert(input=str(tmp_path / "out"), output=str(tmp_path / "again"), **how)
    assert again.digest == first.digest


def test_tars_convert_to_the_same_images_classes_and_splits(tmp_path: Path) -> None:
    first, keep = converted_sample(), {"encoding": "keep", "resize": "none", "progress": False}
    export(first, tmp_path / "tars", "webdataset")
    again = package.convert(
        table=str(tmp_path / "tars" / "*.tar"),
        split_column="split",
        output=str(tmp_path / "again"),
        **keep,
    )
    assert again.class_names == read_manifest(str(first)).class_names
    for split in ("train", "validation", "test"):
        images = [
            sorted(Records(folder, split=split, output="encoded"))
            for folder in (first, again.folder)
        ]
        assert images[0] == images[1]


def test_annotations_of_coco(boxes: Path, tmp_path: Path) -> None:
    export(boxes, tmp_path / "out", "folder")
    (path,) = (tmp_path / "out").glob("instances*")
    assert path.name == "instances_train.json"
    read = COCO(str(path))
    assert {one["name"] for one in read.loadCats(read.getCatIds())} == {"red", "green", "blue"}
    again = package.convert(
        table=str(path),
        image_root=str(tmp_path / "out"),
        output=str(tmp_path / "again"),
        encoding="keep",
        resize="none",
        classes=str(boxes),
        progress=False,
    )
    crowds = 0
    pairs = [
        {one[FILENAME]: one for one in Records(of, split="train", output="dict")}
        for of in (boxes, again.folder)
    ]
    assert pairs[0].keys() == pairs[1].keys()
    images = {image["file_name"].encode(): image for image in read.dataset["images"]}
    for key, one in pairs[0].items():
        other, image = pairs[1][key], images[key]
        assert (one["image"] == other["image"]).all()
        for name in (OBJECT_LABEL, "image/class/label", "image/object/is_crowd"):
            assert one[name].tolist() == other[name].tolist()
        for side in SIDES:
            np.testing.assert_allclose(one[side], other[side], atol=1e-6)
        found = read.loadAnns(read.getAnnIds(imgIds=[image["id"]]))
        labels = [annotation["category_id"] - 1 for annotation in found]
        assert labels == one[OBJECT_LABEL].tolist()
        crowds += sum(annotation["iscrowd"] for annotation in found)
        for annotation in found:
            left, top, width, height = (round(side) for side in annotation["bbox"])
            label = annotation["category_id"] - 1
            pixels = one["image"][top : top + height, left : left + width, label]
            assert (pixels == 255).all()
            assert annotation["area"] == pytest.approx(width * height)
    assert crowds


def test_annotations_of_each_split(tmp_path: Path) -> None:
    """Without classes; what `--where` leaves out is in none."""
    for number in range(20):
        PIL.Image.new("RGB", (40, 30)).save(tmp_path / f"{number}.png")
    rows = [
        {
            "path": f"{number}.png",
            "split": "test" if number % 2 else "train",
            "box": [[5, 6, 10, 12]],
            "size": number % 5,
        }
        for number in range(20)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    package.convert(
        table=str(tmp_path / "t.jsonl"),
        uri_column="path",
        split_column="split",
        feature_columns={"box": "bbox[xywh]", "size": "int64"},
        image_size=20,
        resize="pad",
        num_shards=2,
        output=str(tmp_path / "d"),
        progress=False,
    )
    assert export(tmp_path / "d", tmp_path / "out", "folder", where="size=3") == 4
    found = {
        split: COCO(str(tmp_path / "out" / f"instances_{split}.json")).dataset
        for split in ("train", "test")
    }
    assert {image["file_name"] for image in found["train"]["images"]} == {"8.jpg", "18.jpg"}
    assert {image["file_name"] for image in found["test"]["images"]} == {"3.jpg", "13.jpg"}
    assert {(image["width"], image["height"]) for image in found["test"]["images"]} == {(20, 20)}
    assert found["train"]["categories"] == [{"id": 1, "name": "object"}]
    assert [one["bbox"] for one in found["train"]["annotations"]] == [
        pytest.approx([2.5, 5.2, 5, 6.4])
    ] * 2
    assert [one["id"] for one in found["train"]["annotations"]] == [1, 2]


@pytest.mark.parametrize("form", few_at_once(ALL, "folder", "webdataset"))
def test_a_run_that_failed_resumes_from_the_finished_shards(
    form: str, boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, failures = uncompressed(boxes, tmp_path / "d"), list[str]()
    create = storage.create

    def failing(path: str, **how: Any) -> Any:
        if "00001-of" in path and path.startswith(str(tmp_path / "out")) and len(failures) < 2:
            failures.append(path)
            raise OSError("the disk is gone")
        return create(path, **how)

    monkeypatch.setattr(storage, "create", failing)
    flags = ["--direct_running_mode=in_memory", "--direct_num_workers=1"]
    with pytest.raises(
        package.RunError, match=r"the disk is gone.*run the same command again to resume"
    ):
        export(folder, tmp_path / "out", form, beam_flags=flags)
    assert not json.loads((tmp_path / "out" / "export.json").read_text())["complete"]
    with pytest.raises(
        package.UsageError,
        match=r"holds another export; .*\n  where.key: not given before, 00.png now",
    ):
        export(folder, tmp_path / "out", form, where="key=00.png")
    (tmp_path / "out" / ".beam_tfr").mkdir(exist_ok=True)
    (tmp_path / "out" / ".beam_tfr" / "of a killed run").write_text("cut")
    monkeypatch.undo()
    assert export(folder, tmp_path / "out", form) == 24
    export(folder, tmp_path / "whole", form)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    assert failures
    assert not (tmp_path / "out" / ".beam_tfr").exists()


@pytest.mark.parametrize("form", ALL)
def test_an_export_that_was_changed_is_not_complete(form: str, boxes: Path, tmp_path: Path) -> None:
    folder, out = uncompressed(boxes, tmp_path / "d"), tmp_path / "out"
    export(folder, out, form)
    (out / ".DS_Store").write_text("of a file manager")
    assert not package.export(folder, out, format=form, progress=False).fresh
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "export.json"]
    largest = max(files, key=lambda path: path.stat().st_size)
    data = largest.read_bytes()
    largest.write_bytes(data[:-1])
    with pytest.raises(
        package.UsageError,
        match=r"has changed since the export was completed; .*\n  bytes: \d+ before, \d+ now",
    ):
        export(folder, out, form)
    largest.unlink()
    with pytest.raises(package.UsageError, match=r"bytes: .*\n  files: \d+ before, \d+ now"):
        export(folder, out, form)
    largest.write_bytes(data)
    assert not package.export(folder, out, format=form, progress=False).fresh


def test_images_that_go_before_the_end_are_missed(
    boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = uncompressed(boxes, tmp_path / "d"), tmp_path / "out"
    complete = export_formats.EXPORT_FORMATS["folder"].complete

    def spoiled(dataset: Any, output: str, counts: Any) -> None:
        (out / "03.png").unlink()
        complete(dataset, output, counts)

    monkeypatch.setitem(
        export_formats.EXPORT_FORMATS,
        "folder",
        export_formats.EXPORT_FORMATS["folder"]._replace(complete=spoiled),
    )
    with pytest.raises(
        DataError, match=r"1 files of finished shards are no longer in .*: empty the folder"
    ):
        export(folder, out, "folder")
    assert not json.loads((out / "export.json").read_text())["complete"]
    assert not (out / "metadata.jsonl").exists()


@pytest.mark.parametrize("form", ["folder", "tfds"])
def test_an_export_that_somebody_began_does_not_lead_elsewhere(
    form: str, boxes: Path, tmp_path: Path
) -> None:
    """A folder from elsewhere may hold a mark that fits, and links to files of the user."""
    out, victims = tmp_path / "out", tmp_path / "victims"
    export(boxes, out, form)
    mark = json.loads((out / "export.json").read_text())
    folder = min((path.parent for path in out.rglob("*") if path.parent != out), default=out / "a")
    shutil.rmtree(out)
    victims.mkdir()
    for begun in (True, False):
        folder.parent.mkdir(parents=True)
        folder.symlink_to(victims)
        if begun:
            (out / "export.json").write_text(json.dumps({**mark, "complete": False}))
        with pytest.raises(package.UsageError, match=rf"{folder} is a link, .* remove it"):
            export(boxes, out, form)
        assert not [*victims.iterdir()]
        shutil.rmtree(out)


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", "null"])
def test_a_file_named_like_the_mark_is_not_overwritten(
    text: str, boxes: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "export.json").write_text(text)
    with pytest.raises(
        package.UsageError, match=r"export\.json does not belong to an export|holds another export"
    ):
        export(boxes, tmp_path / "out", "folder")
    assert (tmp_path / "out" / "export.json").read_text() == text


def test_ctrl_c_ends_a_run_that_the_same_command_resumes(
    boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = interrupt.check_interrupt

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        wait_for(interrupt.requested.is_set)
        check()

    monkeypatch.setattr(interrupt, "check_interrupt", interrupted)
    with pytest.raises(package.InterruptedRunError):
        export(boxes, tmp_path / "out", "webdataset")
    monkeypatch.undo()
    assert export(boxes, tmp_path / "out", "webdataset") == 24


def test_a_damaged_shard_is_no_export(boxes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    shutil.copytree(boxes, folder)
    shard = sorted(folder.glob("*.tfrecord.gz"))[0]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    for form in (*FORMATS, "tfds"):
        with pytest.raises((DataError, package.RunError), match=r"00000-of-00002\.tfrecord\.gz"):
            export(folder, tmp_path / form, form)
        assert not (tmp_path / form / "metadata.jsonl").exists()
        assert len([*(tmp_path / form).rglob("*train-00000-of-*")]) == 0
        assert not json.loads((tmp_path / form / "export.json").read_text())["complete"]


@pytest.mark.parametrize(
    "key", ["../../x.png", "/x.png", "a/../../x", "a//x.png", "./x.png", ".beam_tfr/x.png", "\0"]
)
def test_a_key_that_is_no_name_is_refused(key: str) -> None:
    with pytest.raises(DataError, match=re.escape(f"the key {key!r} cannot be the name of a file")):
        file_name(NamedImage(key, "train", "png"))


@pytest.mark.parametrize(
    ("key", "form", "shares_stem", "name", "unique_name"),
    [
        ("1.png", "jpeg", False, "1.jpg", "1.jpg"),
        ("1.png", "jpeg", True, "1.png.jpg", "1_png.jpg"),
        ("1.jpeg", "jpeg", True, "1.jpeg", "1_jpeg.jpeg"),
        ("a/1.x", "webp", False, "a/1.x.webp", "a/1.x.webp"),
        ("a/.png", "jpeg", False, "a/.png.jpg", "a/.png.jpg"),
    ],
)
def test_a_key_gives_a_name(
    key: str, form: str, shares_stem: bool, name: str, unique_name: str
) -> None:
    image = NamedImage(key, "train", form, shares_stem)
    assert (file_name(image), unique_file_name(image)) == (name, unique_name)


OWN_FILES = ["metadata.jsonl", "ImageSets/Main/train.txt"]
DISK = NameRules(name_bytes=255, path_bytes=4095)
BUCKET = rules_of_gcs("b")
OF_WINDOWS = DISK._replace(
    refused=REFUSED_BY_WINDOWS, takes_any_bytes=False, ignores_case=True, ignores_form=True
)


@pytest.mark.parametrize(
    ("rules", "names", "problem"),
    [
        (DISK, ["a", "A", "b/a", "\u00e9", "e\u0301", "\udcff", 'a"\n:', "n" * 255], ""),
        (DISK, ["a/" * 1000 + "x"], ""),
        (DISK, ["a", "a"], "two images would have this name"),
        (DISK, ["n" * 256], "a name has 256 bytes, but at most 255 fit there"),
        (DISK, ["\u00e9" * 128], "a name has 256 bytes"),
        (DISK, ["a/" * 2048 + "x"], "the path has 4,100 bytes, but at most 4,095 fit"),
        (DISK, ["a.jpg", "a.jpg/b/c.jpg"], "'a.jpg' would be both a file and a folder"),
        (DISK, ["a.jpg/b/c.jpg", "a.jpg"], "it would be both a file and a folder"),
        (DISK, ["metadata.jsonl"], "a file that describes all images has this name"),
        (
            DISK,
            ["export.json/a.jpg"],
            "export.json has the name of a file that describes all images",
        ),
        (DISK, ["metadata.jsonl/a/b.jpg"], "metadata.jsonl has the name of a file"),
        (DISK, ["ImageSets/Main/train.txt/b.jpg"], "ImageSets/Main/train.txt has the name of"),
        (DISK, ["ImageSets/Main"], "it would be both a file and a folder"),
        (BUCKET, ["a.jpg", "a.jpg/b.jpg", "n" * 1022], ""),
        (BUCKET, ["n" * 1023], "the path has 1,032 bytes, but at most 1,031 fit"),
        (BUCKET, ["a\nb"], r"names cannot contain '\n' there"),
        (BUCKET, ["\udcff"], "names must be UTF-8 there"),
        (
            OF_WINDOWS,
            ["a", "A"],
            "names that differ only by case or Unicode form are the same there",
        ),
        (OF_WINDOWS, ["\u00e9", "e\u0301"], "two images would have this name"),
        (OF_WINDOWS, ["A", "a/b"], "'a' would be both a file and a folder"),
        (OF_WINDOWS, ["METADATA.jsonl/a.jpg"], "metadata.jsonl has the name of a file"),
        (OF_WINDOWS, ["a:b"], "names cannot contain ':' there"),
        (OF_WINDOWS, ["a./b"], "names cannot contain '.' there"),
    ],
)
def test_files_that_cannot_be_beside_each_other(
    rules: NameRules, names: list[str], problem: str
) -> None:
    check = NameCheck("gs://b/o" if rules is BUCKET else "/o", rules, OWN_FILES)
    if not problem:
        for name in names:
            check.add(name)
        return
    for name in names[:-1]:
        check.add(name)
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        check.add(names[-1])
    assert "`format=webdataset` or `format=parquet`" in str(caught.value)


def test_folders_of_names_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    check = NameCheck("/o", DISK, OWN_FILES)
    tracemalloc.start()
    for number in range(10):
        check.add(f"{number}/" + "a/" * 1_900 + "b.jpg")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 << 20  # the paths of all folders have 36 MB
    monkeypatch.setattr(image_names, "_FREE_FOLDERS", 30_000)
    for number in range(10, 15):
        check.add(f"{number}/" + "a/" * 1_900 + "b.jpg")
    with pytest.raises(DataError, match=r"there would be 30,\d{3} folders for "):
        check.add("15/" + "a/" * 1_900 + "b.jpg")


def test_what_names_a_disk_takes(tmp_path: Path) -> None:
    rules = storage.name_rules(str(tmp_path))
    longest = tmp_path / ("n" * rules.name_bytes)
    longest.touch()
    with pytest.raises(OSError, match="too long"):
        (tmp_path / ("n" * (rules.name_bytes + 1))).touch()
    assert rules.ignores_case == (tmp_path / longest.name.upper()).exists()
    assert [*tmp_path.iterdir()] == [longest]


@pytest.mark.parametrize("form", ["folder", "yolo", "voc"])
@pytest.mark.parametrize("key", ["n" * 255, "long", "\u00e9.png"])
def test_an_export_that_cannot_be_complete_writes_nothing(
    form: str, key: str, boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [NamedImage(name, "train", "png") for name in (key, "e\u0301.png", "long/a.png")]
    if key == "long":
        images[0] = NamedImage("long/a.png/b.png", "train", "png")
    rules = DISK._replace(ignores_form=True)
    monkeypatch.setattr(storage, "name_rules", lambda _: rules)
    monkeypatch.setattr(image_names, "read_images", lambda *_: iter(images))
    if form == "voc" and key == "long":
        return  # its names are flat
    with pytest.raises(DataError, match=r"`format=webdataset`"):
        export(boxes, tmp_path / "out", form)
    assert not (tmp_path / "out").exists()


def test_long_keys_and_those_of_any_bytes_are_read_from_records(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "/".join(["d" * 200] * 6)
    folder.mkdir(parents=True)
    for name in (b"long.png", b"caf\xe9.png", b"caf\xe9.jpg"):
        PIL.Image.new("RGB", (9, 9)).save(os.fsencode(folder) + b"/" + name, "png")
    (tmp_path / "in/a.png").write_bytes((folder / "long.png").read_bytes())
    package.convert(
        input=tmp_path / "in",
        output=tmp_path / "d",
        layout="**",
        encoding="png",
        resize="none",
        progress=False,
    )
    assert export(tmp_path / "d", tmp_path / "out", "folder") == 4
    below = tmp_path / "out" / folder.relative_to(tmp_path / "in")
    names = {os.fsencode(path.name) for path in below.iterdir()}
    assert names == {b"long.png", b"caf\xe9.png", b"caf\xe9.jpg.png"}


@pytest.mark.parametrize("key", [b"a/" * 20_000 + b"1.jpg", b"other.jpg", 5])
def test_a_record_with_another_key_than_its_contents_is_an_error(
    key: Any, boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key of 100 kB took 2.8 GB, since the names of files are checked with the contents."""
    monkeypatch.setattr(
        shard, "parse_example", lambda data: parse_example(data) | {FILENAME: [key]}
    )
    with pytest.raises(DataError, match=r"tfrecord\.gz: .*`beam-tfr repair`"):
        export(boxes, tmp_path / "out", "folder")
    assert not [*(tmp_path / "out").rglob("*.jpg")]


@pytest.mark.parametrize("same", [True, False], ids=["of the same bytes", "of others"])
def test_two_images_of_one_name_are_refused(same: bool, tmp_path: Path) -> None:
    """`a.jpg` is stored as a PNG beside one of its stem, so that it would be a.jpg.png."""
    for name, color in (
        ("a.jpg", "red"),
        ("a.png", "red"),
        ("a.jpg.png", "red" if same else "blue"),
        ("metadata.jsonl.png", "red"),
    ):
        PIL.Image.new("RGB", (9, 9), color).save(tmp_path / name, "png")
    package.convert(
        input=f"{tmp_path}/*",
        output=str(tmp_path / "d"),
        layout="*",
        encoding="png",
        resize="none",
        progress=False,
    )
    with pytest.raises(
        DataError, match=r"a\.jpg\.png: two images would have this name.*`format=webdataset`"
    ):
        export(tmp_path / "d", tmp_path / "out", "folder")
    assert not (tmp_path / "out").exists()
    assert export(tmp_path / "d", tmp_path / "tars", "webdataset") == 4


def test_names_have_the_extension_of_their_format_once(tmp_path: Path) -> None:
    names = ("a.jpg", "b.jpg", "b.png", "c.gif", "d.e", "sub/a.bmp", "f.PNG")
    for name in names:
        (tmp_path / "in/sub").mkdir(parents=True, exist_ok=True)
        PIL.Image.new("RGB", (9, 9)).save(tmp_path / "in" / name, "png")
    package.convert(
        input=f"{tmp_path}/in/**",
        output=str(tmp_path / "d"),
        layout="**",
        encoding="png",
        resize="none",
        num_shards=2,
        progress=False,
    )
    export(tmp_path / "d", tmp_path / "out", "folder")
    found = {path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.*")}
    expected = ("a.png", "b.jpg.png", "b.png", "c.png", "d.e.png", "sub/a.png", "f.PNG")
    assert {str(path) for path in found} >= {*expected}
    assert len(found) == len(names) + 2  # metadata.jsonl and export.json


def test_conditions(beam_tfr: Command, tmp_path: Path) -> None:
    folder = converted_sample()
    table = (
        package.contents(folder, "test")
        .to_table(columns=["key", "class", "source_width"])
        .to_pylist()
    )
    hats = {row["key"] for row in table if row["class"] == "hat"}
    width = table[0]["source_width"]
    for number, (where, keys) in enumerate(
        (
            ("label=hat", hats),
            ("class=hat", hats),
            ("image/class/text=hat", hats),
            ({"label": "hat", "key": min(hats)}, {min(hats)}),
            (
                {"source_width": width},
                {row["key"] for row in table if row["source_width"] == width},
            ),
        )
    ):
        assert export(
            folder, tmp_path / str(number), "webdataset", split="test", where=where
        ) == len(keys)
        assert set(read_tars(tmp_path / str(number))) == keys
    for where, message in (
        ("colour=red", "--where: there is no column 'colour'; the columns are: split, shard, key"),
        ("label=cat", "--where label=cat: matches no record"),
        ("label", "must be NAME=VALUE"),
    ):
        done = beam_tfr("export", folder, tmp_path / "none", "--format", "folder", "--where", where)
        assert done.code == 2
        assert message in done.err
    assert not (tmp_path / "none").exists()
    several = ["--where", "label=hat", "--where", f"key={min(hats)}"]
    assert (
        beam_tfr("export", folder, tmp_path / "both", "--format", "webdataset", *several).code == 0
    )
    assert set(read_tars(tmp_path / "both")) == {min(hats)}


def test_numbers_are_compared_with_seven_digits() -> None:
    assert [value_text(value) for value in (float(np.float32(0.1)), 1e-9, 2.0, 3)] == [
        "0.1",
        "1e-09",
        "2",
        "3",
    ]


def records_in(folder: Path) -> list[bytes]:
    return [
        record for path in sorted(folder.rglob("*.tfrecord*")) for record in RecordFile(str(path))
    ]


def test_tensorflow_datasets_gets_uncompressed_shards(boxes: Path, tmp_path: Path) -> None:
    """Its own package reads them in `test_interoperability`."""
    plain = uncompressed(boxes, tmp_path / "plain")
    dataset = read_manifest(str(plain))
    assert (
        export(boxes, tmp_path / "written", "tfds")
        == export(plain, tmp_path / "plain again", "tfds")
        == 24
    )
    folders = {
        name: tmp_path / name / dataset.name / "1.0.0" for name in ("written", "plain again")
    }
    for entry in dataset.splits["train"].shards:
        files = [folder / entry.file for folder in folders.values()]
        assert {path.read_bytes() for path in files} == {(plain / entry.file).read_bytes()}
    for name in (*TFDS_FILES[:3],):
        assert {(folder / name).read_bytes() for folder in folders.values()} == {
            (plain / name).read_bytes()
        }
    assert export(plain, tmp_path / "some", "tfds", where="key=03.png") == 1
    (record,) = records_in(tmp_path / "some")
    assert parse_example(record)[FILENAME] == [b"03.png"]
    info = json.loads(
        (tmp_path / "some" / dataset.name / "1.0.0" / "dataset_info.json").read_text()
    )
    assert sorted(info["splits"][0]["shardLengths"]) == ["0", "1"]


def test_index_of_dali(boxes: Path, tmp_path: Path) -> None:
    plain = uncompressed(boxes, tmp_path / "plain")
    dataset = read_manifest(str(plain))
    assert export(plain, tmp_path / "all", "dali-index") == 24
    assert export(plain, tmp_path / "some", "dali-index", where="key=03.png") == 1
    framed = []
    for entry in dataset.splits["train"].shards:
        index = (tmp_path / "all" / entry.file).with_suffix(".idx").read_text().splitlines()
        data = (plain / entry.file).read_bytes()
        places = [tuple(map(int, line.split())) for line in index]
        framed += [data[begin : begin + size] for begin, size in places]
        assert b"".join(framed[-len(places) :]) == data
    assert framed == [frame(record) for record in records_in(plain)]
    (index,) = (path for path in (tmp_path / "some").glob("*.idx"))
    begin, size = map(int, index.read_text().split())
    found = (plain / index.name).with_suffix(".tfrecord").read_bytes()[begin : begin + size]
    assert parse_example(found[12:-4])[FILENAME] == [b"03.png"]


def test_wrong_calls(beam_tfr: Command, boxes: Path, tmp_path: Path) -> None:
    (tmp_path / "full" / "below").mkdir(parents=True)
    (tmp_path / "full" / "below" / "a.txt").write_text("a")
    (tmp_path / "file").write_text("a")
    (tmp_path / "link").symlink_to(boxes)
    export(boxes, tmp_path / "done", "webdataset")
    rows = tmp_path / "t.csv"
    rows.write_text("a,b\n1,2\n")
    package.convert(table=str(rows), output=str(tmp_path / "rows"))
    for code, message, folder, output, *more in (
        (
            2,
            f"holds other files, such as {tmp_path}/full/below/a.txt; choose an empty",
            boxes,
            tmp_path / "full",
        ),
        (2, "cannot be written to: Not a directory; choose a folder", boxes, tmp_path / "file"),
        (
            2,
            "cannot be written to: Not a directory; choose a folder",
            boxes,
            tmp_path / "file" / "below",
        ),
        (2, "must not be in the dataset", boxes, boxes / "out"),
        (2, "must not be in the dataset", boxes, boxes),
        (2, "must not be in the dataset", boxes, tmp_path / "link" / "out"),
        (2, "must not be in the dataset", tmp_path / "link", boxes / "out"),
        (2, "--output: choose an empty folder for the export", boxes, ""),
        (
            2,
            "must be one of folder, yolo, voc, webdataset",
            boxes,
            tmp_path / "x",
            "--format",
            "zip",
        ),
        (2, "the splits are: train", boxes, tmp_path / "x", "--split", "tset"),
        (2, "must name whole splits", boxes, tmp_path / "x", "--split", "train[:5]"),
        (2, 'several such as "train+test", ', boxes, tmp_path / "x", "--split", ""),
        (2, "must name whole splits", boxes, tmp_path / "x", "--split", "train+"),
        (2, "only local paths and gs://", boxes, "s3://a/b"),
        (2, "holds another export", boxes, tmp_path / "done"),
        (2, "holds other files, such as /", boxes, "/"),
        (2, "runer", boxes, tmp_path / "x", "--runer", "a"),
        (2, "must be on gs://, where Dataflow's workers", boxes, tmp_path / "x", *DATAFLOW),
        (
            2,
            "--template_location and --dry_run export nothing",
            "gs://b/d",
            "gs://b/x",
            *DATAFLOW,
            "--dry_run=True",
        ),
        (2, "--compression none`, which copies", boxes, tmp_path / "x", "--format", "dali-index"),
        (1, "none", tmp_path / "none", tmp_path / "x"),
        (
            2,
            "has no encoded images (--encoding row): use --format tfds",
            tmp_path / "rows",
            tmp_path / "x",
        ),
    ):
        form = [] if "--format" in more else ["--format", "folder"]
        done = beam_tfr("export", folder, output, *form, *more)
        assert done.code == code, message
        assert message in done.err
    assert not (tmp_path / "x").exists()
    assert export(boxes, tmp_path / "done", "webdataset") == 24
    assert export(tmp_path / "rows", tmp_path / "of rows", "tfds") == 1


def test_two_exports_at_once_are_refused(boxes: Path, tmp_path: Path) -> None:
    with (
        lock.hold_lock(str(tmp_path / "out"), "another"),
        pytest.raises(package.RunError, match="another run holds"),
    ):
        export(boxes, tmp_path / "out", "folder")


@pytest.mark.slow
@pytest.mark.parametrize("form", ALL)
def test_from_and_to_gs(form: str, boxes: Path, fake: FakeGcs, tmp_path: Path) -> None:
    folder = uncompressed(boxes, tmp_path / "d")
    fake.put_folder(folder, "d")
    export("gs://b/d", "gs://b/out", form)
    export(folder, tmp_path / "out", form)
    there = {
        name.removeprefix("out/"): fake.get(name)
        for name in fake.names()
        if name.startswith("out/")
    }
    assert there == files_of(tmp_path / "out")
    export("gs://b/d", tmp_path / "from", form)
    assert there == files_of(tmp_path / "from")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["processes", "prism"])
def test_on_other_engines(
    boxes: Path, tmp_path: Path, prism: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = [
        "--runner=DirectRunner",
        "--direct_num_workers=2",
        "--direct_running_mode=multi_processing",
    ]
    to_prism = own_prism(prism)
    folder = uncompressed(boxes, tmp_path / "d")
    monkeypatch.chdir(tmp_path)  # where workers start
    for form in (
        ("folder", "webdataset", "parquet") if engine == "processes" else ALL
    ):  # which start anew for each
        export(
            folder, tmp_path / form, form, beam_flags=to_prism if engine == "prism" else processes
        )
        export(folder, tmp_path / "here" / form, form)
        assert files_of(tmp_path / form) == files_of(tmp_path / "here" / form)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_on_dataflow_whose_workers_have_only_beam(
    boxes: Path,
    service: FakeDataflow,
    prism: Path,
    tmp_path: Path,
    beam_tfr: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service.put_folder(boxes, "d")
    with job_served(service, prism, tmp_path, monkeypatch):
        done = beam_tfr("export", "gs://b/d", "gs://b/out", "--format", "folder", *service.flags)
    assert done.code == 0, done.err
    storage.gcs_client.make_client.cache_clear()
    export(boxes, tmp_path / "here", "folder")
    assert {
        name.removeprefix("out/"): service.get(name)
        for name in service.names()
        if name.startswith("out/")
    } == (files_of(tmp_path / "here"))


def test_classes_of_any_text_go_to_yolo_and_back_and_not_to_voc(tmp_path: Path) -> None:
    PIL.Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    name = "a\ufffeb\U0001f600"
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 20, "height": 20}],
        "categories": [{"id": 1, "name": name}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9]}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(document))
    options = {"image_size": 16, "resize": "pad", "progress": False}
    package.convert(table=tmp_path / "coco.json", output=tmp_path / "d", **options)
    export(tmp_path / "d", tmp_path / "yolo", "yolo")
    again = package.convert(table=tmp_path / "yolo/data.yaml", output=tmp_path / "d2", **options)
    assert again.class_names == (name,)
    with pytest.raises(package.UsageError, match="XML, which cannot represent the class"):
        export(tmp_path / "d", tmp_path / "voc", "voc")
    assert not (tmp_path / "voc").exists()


def test_an_engine_that_loses_a_shard_does_not_complete_an_export(
    boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expand = ExportShards.expand

    def losing(self: Any, begin: Any) -> Any:
        self.shards = self.shards[1:]
        return expand(self, begin)

    for form in ("folder", "webdataset"):
        with monkeypatch.context() as patch:
            patch.setattr(ExportShards, "expand", losing)
            with pytest.raises(
                package.RunError,
                match=r"the engine reports success, but .*train-00000-of-00002\S* is",
            ):
                export(boxes, tmp_path / form, form)
        assert not json.loads((tmp_path / form / "export.json").read_text())["complete"]
        assert export(boxes, tmp_path / form, form) == 24


def test_help_names_every_format(beam_tfr: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        beam_tfr("export", "--help")
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert {*re.findall(r"--format ([a-z]\S+)", text)} == {*export_formats.EXPORT_FORMATS} == {*ALL}
    assert "--where NAME=VALUE" in text
