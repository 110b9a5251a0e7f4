"""Exports of objects as YOLO and Pascal VOC have them: converted again, they are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import beam_tfr
from beam_tfr.exports import yolo
from beam_tfr.features.pixel_parts import PixelBudget
from beam_tfr.features.polygons import clip_polygon, draw_polygons, join_polygons
from beam_tfr.options import ConvertOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import ENCODED, OBJECT_TEXT, SIDES
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from tests.points import write_photos

OBJECTS = [  # of each image: class, box in pixels
    [("owl & co", [0, 0, 40, 30]), ("cat", [10.5, 3.25, 20.1, 29])],
    [],
    [("dog", [39, 29, 40, 30])],
]


def export(folder: Path, output: Path, form: str, **options: Any) -> list[str]:
    """Exports a dataset, and returns what is said of it."""
    said: list[str] = []
    from beam_tfr import launch

    launch.export(str(folder), str(output), form, say=said.append, **options)
    return said


def convert(table: Path | str, output: Path, **options: Any) -> Any:
    defaults = {"resize": "none", "encoding": "keep", "num_shards": 1, "name": "d"}
    return beam_tfr.convert(table=table, output=output, progress=False, **(defaults | options))


def write_dataset(folder: Path, *, splits: tuple[str, ...] = ("train", "validation")) -> Path:
    """A dataset of `OBJECTS`, once in each split."""
    rows = []
    for split in splits:
        for number, objects in enumerate(OBJECTS):
            name = f"{split}/images/{number}.png"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 30), (number, len(split), 9)).save(folder / name)
            row = {"path": name, "split": split, "size": number}
            row["name"] = [label for label, _ in objects]
            row["box"] = [box for _, box in objects]
            row["image/object/difficult"] = [number % 2 for number in range(len(objects))]
            rows.append(row)
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"box": "bbox[xyxy]", "image/object/difficult": "int64[box]", "size": "int64"}
    convert(
        folder / "t.jsonl",
        folder / "d",
        uri_column="path",
        label_column="name",
        split_column="split",
        feature_columns=columns,
        encoding="jpeg",
    )
    return folder / "d"


def objects_of(folder: Path) -> dict[str, list[Any]]:
    """For each split its images, with the class and corners of each object, sorted."""
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("d-*.tfrecord*")):
        split = path.name.split("-")[1]
        for record in map(parse_example, RecordFile(str(path))):
            corners = np.column_stack([record[side] for side in SIDES]).tolist()
            names = record.get(OBJECT_TEXT, [b"object"] * len(corners))
            objects = [*zip(names, corners, strict=True)]
            found.setdefault(split, []).append((record[ENCODED][0], objects))
    return {split: sorted(images) for split, images in found.items()}


def assert_same_objects(first: Path, second: Path) -> None:
    expected = objects_of(first)
    found = objects_of(second)
    assert found.keys() == expected.keys()
    for split, images in expected.items():
        for (data, objects), (other_data, others) in zip(images, found[split], strict=True):
            assert data == other_data
            assert [name for name, _ in objects] == [name for name, _ in others]
            for (_, corners), (_, other_corners) in zip(objects, others, strict=True):
                np.testing.assert_allclose(corners, other_corners, atol=2e-7)


FORMATS = [("yolo", "data.yaml"), ("voc", "Annotations/*.xml")]


@pytest.mark.parametrize(("form", "table"), FORMATS)
def test_an_export_converts_to_the_same_objects(tmp_path: Path, form: str, table: str) -> None:
    dataset = write_dataset(tmp_path)
    said = export(dataset, tmp_path / form, form)
    (note,) = said
    assert "size" in note
    assert ("difficult" in note) == (form == "yolo")
    options = {"image_root": tmp_path / form / "JPEGImages"} if form == "voc" else {}
    convert(f"{tmp_path}/{form}/{table}", tmp_path / "again", **options)
    assert_same_objects(dataset, tmp_path / "again")


@pytest.mark.parametrize("pattern", ["*.json", "**/*.json"])
def test_the_mark_of_an_export_is_no_table(tmp_path: Path, pattern: str) -> None:
    dataset = write_dataset(tmp_path)
    export(dataset, tmp_path / "out", "folder")
    convert(f"{tmp_path}/out/{pattern}", tmp_path / "again")
    assert_same_objects(dataset, tmp_path / "again")


@pytest.mark.parametrize("split", ["val", "valid", "dev"])
def test_an_export_to_yolo_keeps_the_names_of_splits(tmp_path: Path, split: str) -> None:
    export(write_dataset(tmp_path, splits=("train", split)), tmp_path / "yolo", "yolo")
    convert(tmp_path / "yolo/data.yaml", tmp_path / "again")
    assert objects_of(tmp_path / "again").keys() == {"train", split}


def test_files_of_yolo(tmp_path: Path) -> None:
    export(write_dataset(tmp_path, splits=("train", "valid")), tmp_path / "out", "yolo")
    described = yaml.safe_load((tmp_path / "out/data.yaml").read_text())
    assert described == {
        "train": "images/train",
        "val": "images/valid",
        "names": ["cat", "dog", "owl & co"],
    }
    labels = tmp_path / "out/images/train/train/labels"  # as the key has a folder images
    assert (labels / "0.txt").read_text().splitlines()[0] == "2 0.5 0.5 1 1"
    assert (labels / "1.txt").read_text() == ""
    assert (tmp_path / "out/images/train/train/images/0.jpg").is_file()


def test_files_of_voc(tmp_path: Path) -> None:
    export(write_dataset(tmp_path), tmp_path / "out", "voc")
    root = ElementTree.parse(tmp_path / "out/Annotations/train_images_0.xml").getroot()
    assert root.findtext("filename") == "train_images_0.jpg"
    assert root.findtext("source/database") == "beam_tfr"  # so pixels count from 1
    assert [root.findtext(f"size/{side}") for side in ("width", "height", "depth")] == [
        "40",
        "30",
        "3",
    ]
    first, second = root.findall("object")
    sides = ("xmin", "ymin", "xmax", "ymax")
    assert [first.findtext(f"bndbox/{side}") for side in sides] == ["1", "1", "40", "30"]
    assert [second.findtext(f"bndbox/{side}") for side in sides] == ["11.5", "4.25", "20.1", "29"]
    assert [first.findtext("name"), second.findtext("difficult")] == ["owl & co", "1"]
    names = (tmp_path / "out/ImageSets/Main/validation.txt").read_text().split()
    assert sorted(names) == [f"validation_images_{number}" for number in range(3)]


def test_polygons_are_those_of_the_dataset(tmp_path: Path) -> None:
    labels = [
        "1 0.1 0.1 0.5 0.2 0.3 0.75\n0 0.5 0.5 0.2 0.4\n",
        "0 0.1 0.1 0.9 0.1 0.9 0.8 0.2 1.05\n",
    ]
    for number, text in enumerate(labels):
        for part in ("images", "labels"):
            (tmp_path / part).mkdir(exist_ok=True)
        Image.new("RGB", (40, 30)).save(tmp_path / f"images/{number}.png")
        (tmp_path / f"labels/{number}.txt").write_text(text)
    (tmp_path / "data.yaml").write_text("train: images\nnames: [cat, dog]\n")
    convert(tmp_path / "data.yaml", tmp_path / "d")
    assert export(tmp_path / "d", tmp_path / "out", "yolo") == [
        "yolo has no place for these columns, which are left out: image/source_id"
    ]
    (first,) = (tmp_path / "out/labels/train").glob("0.txt")
    assert first.read_text() == labels[0]
    convert(tmp_path / "out/data.yaml", tmp_path / "again")
    assert_same_objects(tmp_path / "d", tmp_path / "again")


def test_poses_have_as_many_keypoints_as_any_object(tmp_path: Path) -> None:
    coco = write_photos(tmp_path, 3)
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    convert(tmp_path / "coco.json", tmp_path / "d", image_root=tmp_path / "photos", encoding="png")
    said = export(tmp_path / "d", tmp_path / "out", "yolo")
    assert "polygon" in said[0]
    assert "keypoint" not in said[0]
    described = yaml.safe_load((tmp_path / "out/data.yaml").read_text())
    assert described["kpt_shape"] == [3, 3]
    lines = (tmp_path / "out/labels/train/0.txt").read_text().splitlines()
    assert [len(line.split()) for line in lines] == [5 + 9] * 3  # one of them a crowd without any
    convert(tmp_path / "out/data.yaml", tmp_path / "again")
    assert_same_objects(tmp_path / "d", tmp_path / "again")


def test_more_keypoints_than_a_label_file_takes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each object of an image gets as many as any object of the dataset has."""
    coco = write_photos(tmp_path, 3)
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    convert(tmp_path / "coco.json", tmp_path / "d", image_root=tmp_path / "photos", encoding="png")
    monkeypatch.setattr(yolo, "_MOST_KEYPOINTS", 9)  # three objects with three each
    export(tmp_path / "d", tmp_path / "whole", "yolo")
    monkeypatch.setattr(yolo, "_MOST_KEYPOINTS", 8)
    with pytest.raises(
        DataError, match=r"images/train/0\.png'?: 3 objects, each padded to 3 .*more than 8"
    ):
        export(tmp_path / "d", tmp_path / "out", "yolo")
    export(tmp_path / "d", tmp_path / "folder", "folder")


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, splits=("train", "fold1"))
    with pytest.raises(UsageError, match=r"cannot store the split fold1"):
        export(dataset, tmp_path / "out", "yolo")
    export(dataset, tmp_path / "out", "yolo", split="train")
    convert(
        tmp_path / "t.jsonl", tmp_path / "plain/d", uri_column="path", feature_columns="size:int64"
    )
    for form in ("yolo", "voc"):
        with pytest.raises(UsageError, match=r"images with boxes"):
            export(tmp_path / "plain/d", tmp_path / "none", form)


@pytest.mark.parametrize(("form", "table"), FORMATS)
def test_images_of_one_stem_keep_their_objects(tmp_path: Path, form: str, table: str) -> None:
    rows = []
    for number, name in enumerate(("a.png", "a.jpg", "b/a.jpg", "c.png.jpg", "c.png.png")):
        (tmp_path / "b").mkdir(exist_ok=True)
        Image.new("RGB", (40, 30), (9 * number, 9, 9)).save(tmp_path / name)
        rows.append(json.dumps({"path": name, "box": [[1, 2, 9, 9 + number]]}) + "\n")
    (tmp_path / "t.jsonl").write_text("".join(rows))
    columns = {"box": "bbox[xyxy]"}
    convert(tmp_path / "t.jsonl", tmp_path / "d", uri_column="path", feature_columns=columns)
    export(tmp_path / "d", tmp_path / form, form)
    options = {"image_root": tmp_path / form / "JPEGImages"} if form == "voc" else {}
    convert(f"{tmp_path}/{form}/{table}", tmp_path / "again", **options)
    assert_same_objects(tmp_path / "d", tmp_path / "again")


def fill(corners: Any, canvas: np.ndarray) -> None:
    """Draws a polygon, whose corners are shares of a canvas."""
    height, width = canvas.shape
    shown = np.array(corners) * (width, height)
    part = draw_polygons(shown, (width, height), PixelBudget(1 << 20))
    place = part.place_on(canvas)
    place |= part.pixels


POINTS = st.tuples(st.floats(-0.5, 1.5), st.floats(-0.5, 1.5))


@given(st.lists(POINTS, min_size=3, max_size=7))
def test_a_clipped_polygon_covers_the_same_pixels(corners: list[tuple[float, float]]) -> None:
    clipped = clip_polygon(corners)
    assert all(0 <= side <= 1 for corner in clipped for side in corner)
    whole = np.zeros((30, 40), np.uint8)
    part = whole.copy()
    fill(corners, whole)
    if clipped:
        fill(clipped, part)
    assert np.count_nonzero(whole != part) <= 4  # centers on an edge


def test_a_polygon_within_the_image_stays_as_it_is() -> None:
    corners = [(0.0, 0.0), (1.0, 0.25), (0.5, 1.0)]
    assert clip_polygon(corners) == corners
    assert clip_polygon([(2.0, 2.0), (3.0, 2.0), (2.0, 3.0)]) == []


def test_polygons_that_are_joined_cover_what_each_does() -> None:
    squares = []
    for left in (0.1, 0.4, 0.7):
        top = left / 2
        squares.append([(left, top), (left + 0.2, top), (left + 0.2, 0.9), (left, 0.9)])
    for number in (1, 2, 3):
        joined = np.zeros((30, 40), np.uint8)
        apart = joined.copy()
        fill(join_polygons(squares[:number]), joined)
        for square in squares[:number]:
            fill(square, apart)
        np.testing.assert_array_equal(joined, apart)


def test_boxes_without_classes_come_back_from_tars(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "1.png")
    (tmp_path / "t.csv").write_text("path,xmin,ymin,xmax,ymax\n1.png,1,2,20,20\n1.png,3,4,9,9\n")
    convert(tmp_path / "t.csv", tmp_path / "d", encoding="jpeg")
    export(tmp_path / "d", tmp_path / "e", "webdataset")
    convert(f"{tmp_path}/e/*.tar", tmp_path / "again")
    assert [len(objects) for _, objects in objects_of(tmp_path / "again")["train"]] == [2]
    assert_same_objects(tmp_path / "d", tmp_path / "again")


def test_boxes_of_parquet_are_read_again_or_told(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path, splits=("train",))
    export(folder, tmp_path / "e", "parquet")
    table = f"{tmp_path}/e/data/*.parquet"
    roles: dict[str, Any] = {"uri_column": "image", "label_column": "label"}
    convert(table, tmp_path / "again", **roles, feature_columns={"boxes": "bbox[rel_xyxy]"})
    assert_same_objects(folder, tmp_path / "again")
    options = ConvertOptions(table=(table,), output="/o", **roles)
    told = " ".join(open_tables(find_content(options)).warnings)
    assert "no values of boxes" in told
    assert "boxes:bbox[rel_xyxy]" in told


@pytest.mark.parametrize("column", ["objects", "boxes", "bbox", "image/object/bbox"])
@pytest.mark.parametrize("name", ["t.jsonl", "t.csv"])
def test_objects_of_which_nothing_is_stored_are_told(
    tmp_path: Path, name: str, column: str
) -> None:
    table = tmp_path / name
    table.write_text(f'path,label,{column},score\na.jpg,cat,"[[1, 2, 3, 4]]",1\n')
    if name == "t.jsonl":
        row = {"path": "a.jpg", "label": "cat", column: [[1, 2, 3, 4]], "score": 1}
        table.write_text(json.dumps(row))
    roles: dict[str, Any] = {"uri_column": "path", "label_column": "label"}
    for features in (None, {"score": "float"}):
        options = ConvertOptions(
            table=(str(table),), output="/o", feature_columns=features, **roles
        )
        told = " ".join(open_tables(find_content(options)).warnings)
        assert (f"no values of {column} are stored," in told) == (features is None)
