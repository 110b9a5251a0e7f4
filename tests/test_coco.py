"""COCO and Create ML as people have them.

Names by address, files without objects, loose types, objects without a box, one bad object, files
of other kinds.
"""

from __future__ import annotations

import collections
import io
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import beam_tfr
from beam_tfr.features.registry import parse_column
from beam_tfr.features.run_lengths import enclose_run_lengths, encode_run_lengths
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import OBJECT_TEXT, SIDES
from beam_tfr.tables import unlabelled
from beam_tfr.tables.annotations import coco as coco_rows
from beam_tfr.tables.annotations import read_annotations
from beam_tfr.tables.annotations.json_kinds import describe_begin
from beam_tfr.tables.annotations.unused_classes import describe_unused_classes
from beam_tfr.tables.base import FileClasses, Note
from tests.cpu_limit import bounded_cpu
from tests.fake_gcs import FakeGcs
from tests.voc_files import write_picture

BOX = [5, 6, 20, 15]  # left, top, width, height


def coco(*names: str, **changes: Any) -> dict[str, Any]:
    """A file with an object in each image; `changes` are merged into each object."""
    numbers = range(1, len(names) + 1)
    one = {"category_id": 1, "bbox": BOX, "area": 300, "iscrowd": 0} | changes
    return {
        "images": [{"id": at, "file_name": name} for at, name in zip(numbers, names, strict=True)],
        "annotations": [{"id": 10 + at, "image_id": at} | one for at in numbers],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    }


def rows(content: Any) -> list[dict[str, Any]]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return [*read_annotations("/none/t.json", io.BytesIO(data))]


def notes_of(content: Any) -> list[str]:
    """What is said of a file."""
    notes = list[Note]()
    data = io.BytesIO(json.dumps(content).encode())
    collections.deque(read_annotations("/none/t.json", data, notes.append), maxlen=0)
    lines = [note for note in notes if isinstance(note, str)]
    classes = [note for note in notes if isinstance(note, FileClasses)]
    return [*lines, *describe_unused_classes(classes, 1)]


def with_sizes(*boxes: list[float]) -> dict[str, Any]:
    """A file with a box in each image of 40x30 pixels."""
    content = coco(*[f"{number}.png" for number in range(1, len(boxes) + 1)])
    for image, annotation, box in zip(
        content["images"], content["annotations"], boxes, strict=True
    ):
        image |= {"width": 40, "height": 30}
        annotation["bbox"] = box
    return content


def test_boxes_that_seem_to_be_corners_are_told(tmp_path: Path) -> None:
    content = with_sizes([30, 20, 39, 29], [5, 6, 25, 21])
    (note,) = [note for note in notes_of(content) if "corners" in note]
    assert "[30.0, 20.0, 39.0, 29.0] of annotation 11" in note
    assert "`feature_columns='box:bbox[xyxy]'`" in note
    convert(tmp_path, content, feature_columns="box:bbox[xyxy]")
    stored = records(tmp_path / "d")
    assert stored["1.png"][SIDES[2]] == [pytest.approx(39 / 40)]
    assert stored["2.png"][SIDES[2]] == [pytest.approx(25 / 40)]


@pytest.mark.parametrize(
    "boxes",
    [
        [[5, 6, 25, 21]],  # inside either way
        [[30, 20, 39, 29], [30, 20, 5, 5]],  # one is none as corners
        [[1, 1, 40, 30]],  # which counts from 1
    ],
)
def test_other_boxes_are_not_told_as_corners(boxes: list[list[float]]) -> None:
    assert not any("corners" in note for note in notes_of(with_sizes(*boxes)))


def convert(folder: Path, content: Any, **options: Any) -> Any:
    """Converts a file; pictures 1.png, 2.png, ... are beside it."""
    for number in range(1, 4):
        write_picture(folder / f"{number}.png", number)
    (folder / "t.json").write_text(json.dumps(content))
    chosen = {"resize": "none", "progress": False, "output": folder / "d"} | options
    return beam_tfr.convert(table=folder / "t.json", **chosen)


def records(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for file in folder.glob("*.tfrecord*"):
        for record in map(parse_example, RecordFile(str(file))):
            found[record["image/filename"][0].decode()] = record
    return found


# Names


def test_lvis_names_images_by_their_address(tmp_path: Path) -> None:
    content = coco("1.jpg", "2.jpg", "3.jpg")
    first, second, third = content["images"]
    del first["file_name"]
    first["coco_url"] = "http://images.example.org/train2017/1.png"
    second |= {"file_name": None, "coco_url": "https://example.org/a%20b/train2017/2.png?size=1"}
    third |= {"file_name": "3.png", "coco_url": 7}
    for number in (1, 2):
        write_picture(tmp_path / f"train2017/{number}.png", number)
    done = convert(tmp_path, content)
    assert done.counts["written"] == 3
    assert sorted(records(tmp_path / "d")) == ["3.png", "train2017/1.png", "train2017/2.png"]


def test_an_image_without_a_name_is_a_reject_of_its_own(tmp_path: Path) -> None:
    content = coco("1.png", "2.png", "3.png")
    content["images"][1]["file_name"] = ""
    del content["images"][2]["file_name"]
    done = convert(tmp_path, content, max_rejects=2)
    assert done.counts["rejected"] == {"bad-value": 2}
    lines = (tmp_path / "d/rejects.jsonl").read_text()
    assert "the `file_name` of the image 2 is empty" in lines
    assert "the image 3 has neither `file_name` nor `coco_url`" in lines


@pytest.mark.parametrize("name", ["", None])
def test_files_without_names_are_errors(tmp_path: Path, name: str | None) -> None:
    content = coco("1.png")
    content["images"][0]["file_name"] = name
    with pytest.raises(UsageError, match="file_name"):
        convert(tmp_path, content)


def test_names_without_an_extension_are_found(tmp_path: Path) -> None:
    convert(tmp_path, coco("1", "2.png"))
    assert sorted(records(tmp_path / "d")) == ["1.png", "2.png"]


def test_whole_paths_of_another_machine_are_found(tmp_path: Path) -> None:
    write_picture(tmp_path / "train/3.png", 3)
    convert(tmp_path, coco("/content/data/1.png", "2.png", "/content/train/3.png"))
    assert sorted(records(tmp_path / "d")) == ["1.png", "2.png", "train/3.png"]


def test_categories_of_one_name_are_told(tmp_path: Path) -> None:
    content = coco("1.png", "2.png")
    write_picture(tmp_path / "1.png")
    (tmp_path / "t.json").write_text(json.dumps(content))
    assert not any(
        "share a name" in line for line in beam_tfr.plan(table=tmp_path / "t.json").warnings
    )
    content["categories"] = [{"id": number, "name": "cat"} for number in (1, 7)]
    (tmp_path / "t.json").write_text(json.dumps(content))
    plan = beam_tfr.plan(table=tmp_path / "t.json")
    (line,) = [line for line in plan.warnings if "share a name" in line]
    assert "t.json" in line
    assert "'cat' has the ids [1, 7]" in line


def test_names_of_keypoints_are_told_as_not_stored() -> None:
    content = coco("a.jpg")
    assert not [line for line in notes_of(content) if "keypoints" in line]
    content["categories"][1] |= {"keypoints": ["nose", "tail"], "skeleton": [[1, 2]]}
    (line,) = [line for line in notes_of(content) if "keypoints" in line]
    assert "nose, tail of 'dog'" in line


def test_categories_without_an_object_are_told(tmp_path: Path) -> None:
    content = coco("1.png", "2.png")
    content["categories"] += [{"id": 3, "name": "cat"}]
    result = convert(tmp_path, content)
    assert result.class_names == ("cat",)
    [note] = [note for note in notes_of(content) if "1 of the 2 categories" in note]
    assert "'dog'" in note
    assert "'cat'" not in note
    assert not notes_of(coco("1.png", category_id=9))  # an unknown category is a reject
    assert not notes_of({**content, "annotations": [], "categories": []})


def test_categories_are_told_only_if_no_file_has_an_object_of_them(tmp_path: Path) -> None:
    for number in (1, 2):
        write_picture(tmp_path / f"{number}.png", number)
        content = coco(f"{number}.png", category_id=number)
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    tables = [str(tmp_path / "1.json"), str(tmp_path / "2.json")]
    plan = beam_tfr.plan(table=tables)
    assert not [line for line in plan.warnings if "categories" in line]
    content["categories"].append({"id": 3, "name": "hen"})
    (tmp_path / "2.json").write_text(json.dumps(content))
    (line,) = [line for line in beam_tfr.plan(table=tables).warnings if "categories" in line]
    assert "of the 2 files has 1 of the 3 categories: 'hen'" in line
    (tmp_path / "names.txt").write_text("cat\ndog\nhen\n")
    plan = beam_tfr.plan(table=tables, classes=str(tmp_path / "names.txt"))
    assert not [line for line in plan.warnings if "categories" in line]


def test_categories_of_files_that_were_not_read_may_have_objects() -> None:
    first = FileClasses("a.json", ("cat", "dog"), frozenset({"cat"}))
    (line,) = describe_unused_classes([first], 3)
    assert "of the first 1 of 3 files has 1 of the 2 categories: 'dog'" in line
    assert "another file" in line
    second = FileClasses("b.json", ("cat", "dog"), frozenset({"dog"}))
    assert not [*describe_unused_classes([first, second], 3)]
    assert not [*describe_unused_classes([FileClasses("a.json", ("cat",), frozenset())], 1)]


def test_entries_that_are_repeated_as_they_are_count_once() -> None:
    content = coco("1.png", "2.png")
    once = rows(content)
    content["images"] += [{**content["images"][0], "license": 2}]
    content["categories"] += content["categories"]
    assert rows(content) == once
    (note,) = [note for note in notes_of(content) if "repeated" in note]
    assert "1 of 3" in note


def test_different_entries_of_one_id_reject_only_their_images() -> None:
    content = coco("1.png", "2.png")
    content["images"].append({"id": 1, "file_name": "3.png"})
    content["categories"] += [{"id": 2, "name": "hen"}]
    first, other, sound = rows(content)
    for row in (first, other):
        assert row["class"].problem.count(".png") == 2, row
    assert [row["file"] for row in (first, other, sound)] == ["1.png", "3.png", "2.png"]
    assert sound["class"] == ["cat"]
    content["annotations"][1]["category_id"] = 2
    *_, row = rows(content)
    assert "'dog'; 'hen'" in row["class"][0].problem


@pytest.mark.parametrize("entry", [{"file_name": "1.png"}, {"name": "cat"}])
def test_entries_of_one_id_take_linear_time(entry: dict[str, str]) -> None:
    content = coco("1.png")
    field = "images" if "file_name" in entry else "categories"
    (name,) = entry
    content[field] += [{"id": 7, name: f"{number}.png"} for number in range(50_000)]
    with bounded_cpu():
        assert len(rows(content)) in (1, 50_001)


def test_a_box_that_is_there_twice_is_told(tmp_path: Path) -> None:
    content = coco("1.png", "2.png", "3.png")
    again = [{**obj, "id": 20 + obj["id"]} for obj in content["annotations"]]
    again[0]["category_id"] = 2
    again[1]["bbox"] = [5, 6, 20, 14]
    content["annotations"] += again
    result = convert(tmp_path, content)
    assert result.counts["adjusted"]["boxes-repeated"] == 1
    assert all(len(record[OBJECT_TEXT]) == 2 for record in records(tmp_path / "d").values())


def test_splits_of_images_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = coco("1.png", "2.png")
    convert(tmp_path, content, output=tmp_path / "none")
    assert "'split'" not in capsys.readouterr().err
    for image, split in zip(content["images"], ("train", "val"), strict=True):
        image["split"] = split
    result = convert(tmp_path, content, progress=True)
    assert [*result.splits] == ["train", "val"]
    assert "'split' gives the splits: train, val" in capsys.readouterr().err
    content["images"][0]["split"] = ["any", 7]
    assert [row["split"] for row in rows(content)] == [["any", 7], "val"]


def test_images_below_the_folder_of_each_table_are_found(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "val")):
        (tmp_path / split / "images").mkdir(parents=True)
        write_picture(tmp_path / split / "images" / "1.png", number)
        (tmp_path / split / "annotations.json").write_text(json.dumps(coco("1.png")))
    result = beam_tfr.convert(
        table=tmp_path / "*/annotations.json", output=tmp_path / "d", progress=False
    )
    assert result.counts["written"] == 2
    assert [*result.splits] == ["train", "val"]
    assert sorted(records(tmp_path / "d")) == ["train/images/1.png", "val/images/1.png"]


def test_images_that_no_file_lists_are_told(tmp_path: Path) -> None:
    for number in range(1, 4):
        write_picture(tmp_path / f"images/{number}.png", number)
        content = coco(f"{number}.png")
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    options = {"image_root": tmp_path / "images"}
    plan = beam_tfr.plan(table=tmp_path / "1.json", **options)
    (line,) = [line for line in plan.warnings if "left out" in line]
    assert line.startswith("2 images ")
    assert f"{tmp_path}/images/2.png" in line
    plan = beam_tfr.plan(table=tmp_path / "*.json", **options)
    assert not any("left out" in line for line in plan.warnings)


def told_of_left_out(table: Any, **options: Any) -> str:
    """What is said of images that are left out."""
    (line,) = [
        text for text in beam_tfr.plan(table=table, **options).warnings if "left out" in text
    ]
    return line


def test_images_beside_large_files_are_told_by_the_names_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 5):
        write_picture(tmp_path / f"a b/{number}.png", number)
    content = coco("a b/1.png", "a b/2.png")
    (tmp_path / "t.json").write_text(json.dumps(content).replace("a b/2", "a\\u0020b/2"))
    monkeypatch.setattr(unlabelled, "_MOST_BYTES", 10)
    for size in (50, 64, 1 << 20):  # names lie across the parts that are read
        monkeypatch.setattr(unlabelled, "_SCANNED_BYTES", size)
        line = told_of_left_out(tmp_path / "t.json")
        assert line.startswith("2 images ")
        assert f"{tmp_path}/a b/3.png" in line
    monkeypatch.setattr(unlabelled, "_MOST_SCANNED", 10)
    assert "is unknown" in told_of_left_out(tmp_path / "t.json")


def test_images_in_a_bucket_are_told_too(
    tmp_path: Path, fake: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        write_picture(tmp_path / f"{number}.png", number)
    (tmp_path / "t.json").write_text(json.dumps(coco("1.png", "2.png")))
    fake.put_folder(tmp_path, "set")
    line = told_of_left_out("gs://b/set/t.json", output=tmp_path / "d")
    assert line.startswith("1 image ")
    assert "gs://b/set/3.png" in line
    monkeypatch.setattr(unlabelled, "_MOST_REMOTE", 2)
    line = told_of_left_out("gs://b/set/t.json", output=tmp_path / "d")
    assert "unknown whether images in gs://b/set are left out" in line


# Files without objects


@pytest.mark.parametrize("left", [["images", "categories"], ["images"]])
def test_a_test_set_has_images_without_boxes(tmp_path: Path, left: list[str]) -> None:
    content = coco("1.png", "2.png")
    done = convert(tmp_path, {key: content[key] for key in left})
    assert done.counts["adjusted"] == {"no-boxes": 2}
    assert [record[SIDES[0]] for record in records(tmp_path / "d").values()] == [[], []]


def test_no_annotations_may_be_null_but_objects_need_categories() -> None:
    assert [row["box"] for row in rows(coco("1.png") | {"annotations": None})] == [[]]
    content = coco("1.png")
    for categories in ({}, {"categories": None}):
        with pytest.raises(DataError, match="`categories`"):
            rows({key: content[key] for key in ("images", "annotations")} | categories)


@pytest.mark.parametrize("name", ["annotation", "objects", "labels"])
def test_annotations_of_another_name_are_not_taken_for_background(name: str) -> None:
    content = coco("1.png", "2.png")
    content[name] = content.pop("annotations")
    for images in (content["images"], [*content["images"], {"file_name": 3}]):
        with pytest.raises(DataError, match=f"holds `{name}`, but no list `annotations`"):
            rows(content | {"images": images})


def run_jq(content: Any, folder: Path) -> Any:
    """Returns the JSON that the command makes of a file which the message about it offers."""
    (folder / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError) as raised:
        rows(content)
    command = re.search(r"jq (?:-\w )?'[^']*' [a*]\.json > ([./a-z]+)", str(raised.value))
    assert command
    subprocess.run(command[0], shell=True, check=True, cwd=folder)
    text = (folder / command[1]).read_text()
    return [*map(json.loads, text.splitlines())] if command[1] == "a.jsonl" else json.loads(text)


def test_lists_of_coco_under_other_names_are_renamed_by_the_command_told(tmp_path: Path) -> None:
    content = coco("1.png", "2.png")
    renamed = content | {"objects": content["annotations"]}
    del renamed["annotations"]
    capitals = {key.capitalize(): value for key, value in content.items()}
    one_capital = content | {"Categories": content["categories"]}
    del one_capital["categories"]
    empty = renamed | {"annotations": []}
    by_id = content | {
        "images": {str(image["id"]): image for image in content["images"]},
        "annotations": {str(obj["image_id"]): [obj] for obj in content["annotations"]},
    }
    for other in (renamed, capitals, one_capital, empty, by_id):
        assert run_jq(other, tmp_path) == content
    without = {key: content[key] for key in ("images", "annotations")}
    named = run_jq(without, tmp_path)
    assert [row["box"] for row in rows(named)] == [row["box"] for row in rows(content)]
    assert [row["class"] for row in rows(named)] == [["1"], ["1"]]


def test_names_of_images_by_id_become_coco_by_the_command_told(tmp_path: Path) -> None:
    """As of Animal-Pose."""
    annotation = {"bbox": [1, 2, 9, 8], "keypoints": [[3, 4, 1], [0, 0, 0]], "num_keypoints": 1}
    content = {
        "images": {"1": "a.jpg", "2": "b.jpg"},
        "annotations": [annotation | {"image_id": 2, "category_id": 1}],
        "categories": [{"id": 1, "name": "dog", "keypoints": ["left_eye", "right_eye"]}],
    }
    written = run_jq(content, tmp_path)
    read = rows(written)
    assert [(row["file"], row["class"], row["box"]) for row in read] == [
        ("a.jpg", [], []),
        ("b.jpg", ["dog"], [[1, 2, 8, 6]]),
    ]
    assert written["annotations"][0]["keypoints"] == [3, 4, 1, 0, 0, 0]


def test_files_of_one_image_are_joined_by_the_command_told(tmp_path: Path) -> None:
    """As of SODA-A."""
    folder = tmp_path / "test"
    folder.mkdir()
    members = []
    for number in range(2):
        corners = [1, 2, 9 + number, 2, 5, 8]
        annotation = {"id": 0, "image_id": 0, "category_id": number, "poly": corners}
        members.append(
            {
                "images": {"file_name": f"{number}.png", "height": 30, "width": 40, "id": 0},
                "categories": [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}],
                "annotations": [annotation],
            }
        )
    (folder / "1.json").write_text(json.dumps(members[1]))
    read = rows(run_jq(members[0], folder))
    assert [row["file"] for row in read] == ["1.png", "0.png"]
    assert [row["class"] for row in read] == [["dog"], ["cat"]]
    assert [row["box"] for row in read] == [[[1, 2, 9, 6]], [[1, 2, 8, 6]]]


def test_an_export_of_superannotate_is_written_as_lines_by_the_command_told(tmp_path: Path) -> None:
    box = {"type": "bbox", "className": "cat", "points": {"x1": 1, "y1": 2, "x2": 9, "y2": 8}}
    polygon = {"type": "polygon", "className": "dog", "points": [3, 4, 9, 4, 5, 7]}
    point = {"type": "point", "className": "eye", "points": {"x": 1, "y": 2}}
    content = {
        "1.png": {"metadata": {}, "instances": [box, point, polygon]},
        "2.png": {"metadata": {}, "instances": []},
    }
    assert run_jq(content, tmp_path) == [
        {"path": "1.png", "class": ["cat", "dog"], "box": [[1, 2, 9, 8], [3, 4, 9, 7]]},
        {"path": "2.png", "class": [], "box": []},
    ]


def test_objects_by_the_names_of_images_are_written_as_lines(tmp_path: Path) -> None:
    fields = {"label": "cat", "split": "test"}
    assert run_jq({"1.png": fields}, tmp_path) == [{"path": "1.png", **fields}]
    assert run_jq({"1.png": [fields]}, tmp_path) == [{"path": "1.png", "objects": [fields]}]
    assert run_jq({"1.png": "cat"}, tmp_path) == [{"path": "1.png", "label": "cat"}]
    row = {"path": "data/1.jpg", "label": "dog"}
    assert run_jq({"classes": ["cat", "dog"], "labels": {"1": 1}}, tmp_path) == [row]
    assert run_jq({"classes": None, "labels": {"1": "dog"}}, tmp_path) == [row]


def test_annotations_in_images_are_not_taken_for_background() -> None:
    images = [{"id": 1, "file_name": "1.png", "annotations": [SEGMENT]}]
    with pytest.raises(DataError, match="no list `annotations` next to `images`"):
        rows({"images": images, "categories": []})
    assert [row["box"] for row in rows({"images": images, "annotations": []})] == [[]]


# Loose types


def test_names_of_classes_may_be_numbers() -> None:
    content = coco("1.png", "2.png")
    content["annotations"][1]["category_id"] = 2
    content["categories"] = [{"id": 1, "name": 1}, {"id": 2, "name": "01"}]
    assert [row["class"] for row in rows(content)] == [["1"], ["01"]]


@pytest.mark.parametrize("name", [None, True, 2.5, ["cat"]])
def test_names_of_classes_must_be_texts_or_numbers(name: Any) -> None:
    content = coco("1.png")
    content["categories"][0]["name"] = name
    with pytest.raises(DataError, match=r"categories\[0\]\.name"):
        rows(content)


def test_what_is_null_is_not_there() -> None:
    (row,) = rows(coco("1.png", iscrowd=None, area=None, segmentation=[None], keypoints=None))
    assert row["image/object/is_crowd"] == [0]
    assert row["image/object/area"] == [300]
    assert row["polygon"] == row["segment"] == [[]]
    assert parse_column("polygon", "points[xy]").parse(row["polygon"]) == [[]]


@pytest.mark.parametrize(("of_image", "of_object"), [(1, "1"), ("1", 1), ("-3", -3), ("a", "a")])
def test_ids_are_the_same_as_texts_and_as_numbers(of_image: Any, of_object: Any) -> None:
    content = coco("1.png", "2.png")
    content["images"][0]["id"] = of_image
    content["annotations"][0]["image_id"] = of_object
    content["annotations"].append({"image_id": of_image, "category_id": 2, "bbox": BOX})
    assert [sorted(row["class"]) for row in rows(content)] == [["cat", "dog"], ["cat"]]


def test_ids_of_other_digits_are_others() -> None:
    content = coco("1.png")
    content["annotations"][0]["image_id"] = "01"
    image, stray = rows(content)
    assert image["class"] == []
    assert "'01', which no image has" in stray["file"].problem


# Objects without a box

POLYGON = [[5, 6, 25, 6, 25, 21], [7, 8, 9, 8, 9, 9]]


def mask() -> Any:
    pixels = np.zeros((30, 40), np.uint8)
    pixels[6:21, 5:25] = 1
    pixels[6:9, 5:9] = 0
    return pixels


@pytest.mark.parametrize("segment", [POLYGON, POLYGON[0], encode_run_lengths(mask())])
@pytest.mark.parametrize("box", [{"bbox": None}, {"bbox": []}, {}])
def test_a_mask_gives_the_box_around_it(segment: Any, box: dict[str, Any]) -> None:
    content = coco("1.png", segmentation=segment)
    for annotation in content["annotations"]:
        del annotation["bbox"], annotation["area"]
        annotation |= box
    (row,) = rows(content)
    assert row["box"] == [BOX]
    assert row["image/object/area"] == [300]


def test_run_lengths_of_another_size_give_no_box() -> None:
    content = coco("1.png", bbox=None, segmentation=encode_run_lengths(mask()))
    for size, has_box in (((40, 30), True), ((30, 40), False), ((0, 0), True)):
        content["images"][0] |= {"width": size[0], "height": size[1]}
        (row,) = rows(content)
        assert (row["box"] == [BOX]) == has_box


def test_the_box_of_run_lengths_is_that_of_their_pixels() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        height, width = (int(side) for side in random.integers(1, 9, 2))
        pixels = (random.random((height, width)) < 0.2).astype(np.uint8)
        lengths = encode_run_lengths(pixels)
        box = enclose_run_lengths(lengths["counts"], lengths["size"])
        down, across = np.nonzero(pixels)
        if not len(down):
            assert box == []
            continue
        sides = [int(across.min()), int(down.min()), int(np.ptp(across)) + 1, int(np.ptp(down)) + 1]
        assert box == sides


def test_an_object_without_any_place_is_a_bad_box() -> None:
    (row,) = rows(coco("1.png", bbox=None))
    with pytest.raises(ValueError, match="annotation 11 has no bbox"):
        parse_column("box", "bbox[xywh]").parse(row["box"])


# One bad object


@pytest.mark.parametrize(
    "change",
    [
        {"bbox": None},
        {"bbox": [None, 1, 2, 3]},
        {"bbox": {"x": 1}},
        {"iscrowd": 0.5},
        {"category_id": None},
        {"area": "large"},
    ],
)
def test_one_bad_object_costs_its_image(tmp_path: Path, change: dict[str, Any]) -> None:
    content = coco("1.png", "2.png", "3.png")
    content["annotations"][1] |= change
    done = convert(tmp_path, content, max_rejects=1)
    assert done.counts["matched"] == 3
    assert sorted(records(tmp_path / "d")) == ["1.png", "3.png"]
    (line,) = map(json.loads, (tmp_path / "d/rejects.jsonl").read_text().splitlines())
    assert (line["key"], line["reason"]) == ("2.png", "bad-value")
    assert "$.annotations[1]" in line["detail"] or "annotation 12" in line["detail"]


def test_a_bad_object_can_be_dropped(tmp_path: Path) -> None:
    content = coco("1.png", "2.png")
    content["annotations"].append({"image_id": 1, "category_id": 2, "bbox": [None, 1, 2, 3]})
    done = convert(tmp_path, content, bad_boxes="drop")
    assert done.counts["written"] == 2
    assert records(tmp_path / "d")["1.png"][OBJECT_TEXT] == [b"cat"]


def test_one_bad_image_is_one_reject() -> None:
    content = coco("1.png", "2.png", "3.png")
    content["images"][1]["file_name"] = 2
    del content["annotations"][2]["image_id"]
    first, third, *others = rows(content)
    assert (first["file"], third["file"]) == ("1.png", "3.png")
    assert [row["file"].problem for row in others] == [
        "Expected `str | null`, got `int` - at `$.images[1].file_name`",
        "Object missing required field `image_id` - at `$.annotations[2]`",
    ]


def test_python_writes_nan(tmp_path: Path) -> None:
    content = coco("1.png", "NaN of 2.png", "3.png", area=float("nan"))
    content["annotations"][2]["bbox"] = [1, float("inf"), 2, 3]
    first, second, third = rows(content)
    assert (first["image/object/area"], second["file"]) == ([300], "NaN of 2.png")
    assert third["box"] == [[1, float("inf"), 2, 3]]
    content["annotations"][0]["category_id"] = float("nan")
    first, *_ = rows(content)
    assert first["class"][0].problem.startswith("Expected `int`, got NaN - at `$.annotations[0]")


def test_of_files_with_an_image_each_a_cut_one_is_a_reject(tmp_path: Path) -> None:
    for number in range(1, 4):
        write_picture(tmp_path / f"{number}.png", number)
        text = json.dumps(coco(f"{number}.png"))
        (tmp_path / f"{number}.json").write_text(text[:60] if number == 1 else text)
    options = {"resize": "none", "progress": False, "output": tmp_path / "d"}
    done = beam_tfr.convert(table=tmp_path / "*.json", max_rejects=1, **options)
    assert (done.counts["matched"], done.counts["rejected"]) == (3, {"bad-value": 1})
    assert "1.json: cannot be read as COCO" in (tmp_path / "d/rejects.jsonl").read_text()


def test_of_files_with_many_images_a_cut_one_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(json.dumps(coco("1.png"))[:60])
    (tmp_path / "2.json").write_text(json.dumps(coco("2.png", "3.png")))
    with pytest.raises(DataError, match=r"1\.json`: cannot be read as COCO"):
        beam_tfr.convert(table=tmp_path / "*.json", output=tmp_path / "d", progress=False)


def test_json_may_be_utf_16() -> None:
    content = coco("1.png")
    content["categories"][0]["name"] = "狗"
    data = json.dumps(content, ensure_ascii=False).encode("utf-16")
    assert [row["class"] for row in rows(data)] == [["狗"]]


# Files of which several are wrong

IMAGES = [{"id": 1, "file_name": "1.png"}]
SEGMENT = {"id": 3, "category_id": 1, "bbox": BOX}
KINDS: dict[str, tuple[Any, str]] = {
    "panoptic": (
        {"images": IMAGES, "annotations": [{"image_id": 1, "segments_info": [SEGMENT]}]},
        r"panoptic.*instances_\*\.json",
    ),
    "captions": (
        {"images": IMAGES, "annotations": [{"id": 1, "image_id": 1, "caption": "A cat."}]},
        r"captions.*instances_\*\.json",
    ),
    "captions of Datumaro": (
        {
            "images": IMAGES,
            "categories": [],
            "annotations": [{"id": 1, "image_id": 1, "category_id": 0, "caption": "A cat."}],
        },
        r"captions.*jq -c",
    ),
    "results": ([{"image_id": 1, "category_id": 1, "bbox": BOX, "score": 0.9}], "results"),
    "Supervisely": ({"objects": [], "size": {"height": 30, "width": 40}}, "Supervisely"),
    "FiftyOne": ({"classes": ["cat"], "labels": {"0": 0}}, "FiftyOne.*jq -c"),
    "boxes of FiftyOne": ({"classes": [], "labels": {"0": [{"label": 0}]}}, "COCODetection"),
    "samples": ({"samples": [{"filepath": "1.png"}]}, "FiftyOne"),
    "Edge Impulse": ({"version": 1, "files": [{"path": "1.png"}]}, "Edge Impulse"),
    "VoTT": ({"asset": {"name": "1.png"}, "regions": []}, "VoTT"),
    "VOC": ({"annotation": {"filename": "1.png", "object": []}}, "xmltodict.unparse"),
    "VoTT, exported": ({"name": "x", "assets": {}, "tags": []}, "VoTT"),
    "Datumaro": ({"info": {}, "categories": {}, "items": []}, "Datumaro"),
    "a mapping": ({"a/1.png": "cat"}, "jq -c"),
    "LabelMe": ({"shapes": [], "imagePath": "1.png", "imageData": None}, "LabelMe"),
    "Cityscapes": ({"imgHeight": 9, "imgWidth": 9, "objects": []}, "Cityscapes"),
    "SA-1B": (
        {"image": {"file_name": "a.jpg"}, "annotations": [{"bbox": [0, 0, 2, 2]}]},
        "SA-1B.*jq -c",
    ),
    "VIA": ({"1.png123": {"filename": "1.png", "regions": []}}, "VIA"),
    "project of VIA": ({"_via_settings": {}, "_via_img_metadata": {}}, "VIA"),
    "Label Studio": ([{"id": 1, "data": {}, "annotations": []}], "Label Studio"),
    "Labelbox": ([{"data_row": {}, "projects": {}}], "Labelbox"),
    "Labelbox, old": ([{"Labeled Data": "x", "Label": {}}], "Labelbox"),
    "rows": ([{"path": "1.png", "class": "cat"}], r"\.jsonl"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_other_kinds_are_named(kind: str) -> None:
    content, word = KINDS[kind]
    with pytest.raises(DataError, match=f"cannot be read as COCO or Create ML: .*{word}"):
        rows(content)


def test_captions_have_a_cure_that_works(tmp_path: Path) -> None:
    images = [*IMAGES, {"id": 2, "file_name": "2.png"}]
    texts = [(1, "A cat."), (2, "A dog."), (1, "A black cat.")]
    annotations = [
        {"id": number, "image_id": image_id, "caption": text}
        for number, (image_id, text) in enumerate(texts)
    ]
    (tmp_path / "a.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    with pytest.raises(DataError) as raised:
        rows({"images": images, "annotations": annotations})
    message = str(raised.value)
    command = message[message.index("jq -c") :].partition(", and give ")[0]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert "`uri_column=file` and `feature_columns='captions:bytes[]'`" in message
    lines = (tmp_path / "captions.jsonl").read_text().splitlines()
    assert [*map(json.loads, lines)] == [
        {"file": "1.png", "captions": ["A cat.", "A black cat."]},
        {"file": "2.png", "captions": ["A dog."]},
    ]


def test_questions_and_answers_of_vqa_have_a_cure_that_works(tmp_path: Path) -> None:
    questions = [
        {"image_id": image_id, "question": f"What is {number}?", "question_id": number}
        for number, image_id in ((90, 9), (91, 9), (5240, 524))
    ]
    answers = [
        {
            "image_id": question["image_id"],
            "question_id": question["question_id"],
            "question_type": "what is",
            "multiple_choice_answer": f"net {question['question_id']}",
            "answers": [{"answer": "net", "answer_confidence": "maybe", "answer_id": 1}],
        }
        for question in questions[::-1]
    ]
    begin = {"info": {}, "license": {}, "data_subtype": "val2014"}
    files = {"v2_mscoco_val2014_annotations.json": begin | {"annotations": answers}}
    files["v2_OpenEnded_mscoco_val2014_questions.json"] = begin | {"questions": questions}
    messages = set[str]()
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
        with pytest.raises(DataError) as raised:
            rows(content)
        messages.add(str(raised.value))
    (message,) = messages
    long_file = json.dumps(begin | {"annotations": answers * 1_000}).encode()
    assert describe_begin(long_file[:9_000]) in message
    command = message[message.index("jq -sc") :].partition(", and give ")[0]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    (tmp_path / "val2014").mkdir()
    for image_id in ("009", "524"):
        write_picture(tmp_path / f"val2014/COCO_val2014_000000000{image_id}.jpg", 1)
    result = beam_tfr.convert(
        table=tmp_path / "vqa.jsonl",
        output=tmp_path / "d",
        uri_column="file",
        split_column="split",
        feature_columns="question:bytes[],answer:bytes[]",
        progress=False,
    )
    found = records(tmp_path / "d")
    assert {
        name[-7:]: [*zip(record["question"], record["answer"], strict=True)]
        for name, record in found.items()
    } == {
        "009.jpg": [(b"What is 91?", b"net 91"), (b"What is 90?", b"net 90")],
        "524.jpg": [(b"What is 5240?", b"net 5240")],
    }
    assert [*result.splits] == ["val"]


def test_classes_of_images_without_boxes_are_told_with_what_takes_them(tmp_path: Path) -> None:
    content = coco("1.png", "2.png", bbox=[])
    with pytest.raises(UsageError, match="feature_columns=image/source_id:bytes"):
        convert(tmp_path, content)
    result = convert(tmp_path, content, feature_columns="image/source_id:bytes")
    assert result.class_names == ("cat",)
    content["annotations"][0]["bbox"] = BOX
    assert rows(content)[0]["box"] == [BOX]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_keypoints": 0, "area": 3.0}, []),
        ({"ignore": 1, "score": 0.5}, ["ignore, score"]),
        ({"attributes": {"occluded": False, "rotation": 0.0}}, ["attributes"]),
        ({"attributes": {"rotation": 30.5}}, ["attributes", "rotation"]),
        ({"attributes": {"rotation": 0.5}}, ["attributes", "rotation"]),
    ],
)
def test_fields_of_annotations_that_are_not_stored_are_told(
    fields: dict[str, Any], words: list[str]
) -> None:
    content = coco("1.png")
    content["annotations"][0].update(fields)
    lines = [note for note in notes_of(content) if "categories" not in note]
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))


def test_one_file_under_two_ids_is_named_with_both(
    tmp_path: Path, beam_tfr: Callable[..., Any]
) -> None:
    for number in (1, 2):
        write_picture(tmp_path / f"{number}.png", number)
    (tmp_path / "t.json").write_text(json.dumps(coco("1.png", "./1.png", "2.png")))
    (tmp_path / "u.json").write_text(json.dumps(coco("2.png")))
    output = ("--output", tmp_path / "d", "--resize", "none")
    run = beam_tfr("convert", "--table", tmp_path / "t.json", *output)
    assert run.code == 1
    assert "1.png: 2 rows have this key" in run.err
    assert (
        "the image has the ids 1 and 2; join their objects under one id, or remove one" in run.err
    )
    (tmp_path / "t.json").write_text(json.dumps(coco("1.png", "2.png")))
    run = beam_tfr("convert", "--table", tmp_path / "t.json", tmp_path / "u.json", *output)
    assert (
        "in t.json, row 2 and u.json, row 1, but differ: the image has the ids 1 and 2" in run.err
    )


# Create ML


def test_create_ml_is_read_in_either_spelling() -> None:
    boxes = [{"label": "cat", "coordinates": {"x": 15, "y": 13.5, "width": 20, "height": 15}}]
    found = rows(
        [
            {"image": "1.png", "annotations": boxes},
            {"imagefilename": "2.png", "annotation": boxes},
            {"imagefilename": "3.png"},
        ]
    )
    assert [row["file"] for row in found[:2]] == ["1.png", "2.png"]
    assert [row["box"] for row in found[:2]] == [[BOX], [BOX]]
    assert "`annotations` - at `$[2]`" in found[2]["file"].problem


@pytest.mark.parametrize(
    ("limit", "message"),
    [("MOST_BOXES", "2 annotations, more than 1"), ("MOST_SHAPE_BYTES", "masks and keypoints")],
)
def test_an_image_with_too_much_is_a_reject_of_its_own(
    monkeypatch: pytest.MonkeyPatch, limit: str, message: str
) -> None:
    content = coco("1.png", segmentation=POLYGON)
    content["images"].append({"id": 99, "file_name": "2.png"})
    content["annotations"].append(content["annotations"][0] | {"id": 12})
    monkeypatch.setattr(coco_rows, limit, 1)
    first, second = rows(content)
    assert first["file"] == "1.png"
    assert message in first["box"].problem
    assert "the image 1 " in first["box"].problem
    assert second["box"] == []
