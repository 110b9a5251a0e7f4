"""YOLO as people have it: lines with more numbers, lists of images, splits that share them."""

from __future__ import annotations

import codecs
import contextlib
import io
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import beam_tfr
from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.yolo import label_path
from beam_tfr.sequence import Records
from beam_tfr.tables import first_rows
from beam_tfr.tables.annotations import read_annotations, yolo, yolo_files, yolo_images
from beam_tfr.tables.annotations.yolo_lines import (
    ClassNames,
    LineForm,
    choose_form,
    read_class,
    read_shape,
)
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from tests.fake_gcs import FakeGcs

BOX = "0.5 0.5 0.2 0.4"
LABEL = f"0 {BOX}\n"
NAMES = "names: [cat, dog, bird]\n"


def write_set(
    folder: Path, *labels: str | bytes | None, yaml: str = "train: images/train\n"
) -> Path:
    """Writes a picture for each text of labels, None for no file; returns `data.yaml`."""
    for part in ("images", "labels"):
        (folder / part / "train").mkdir(parents=True)
    for number, text in enumerate(labels, 1):
        write_picture(folder / f"images/train/{number}.png", number)
        data = text.encode() if isinstance(text, str) else text
        if data is not None:
            (folder / f"labels/train/{number}.txt").write_bytes(data)
    (folder / "data.yaml").write_text(yaml + NAMES)
    return folder / "data.yaml"


def write_picture(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 30), (number, 90, 200)).save(path)


def read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a set, and what is said of it."""
    notes = list[str]()
    with path.open("rb") as file:
        rows = [*read_annotations(str(path), file, notes.append)]
    return rows, notes


def splits(path: Path) -> dict[str, list[str]]:
    """Split -> the images of its rows, below the folder of the set."""
    found: dict[str, list[str]] = {}
    for row in read(path)[0]:
        name = str(Path(row["file"]).relative_to(path.parent))
        found.setdefault(row["split"], []).append(name)
    return found


def convert(table: Path, output: Path, **options: Any) -> Any:
    defaults = {"resize": "none", "encoding": "png", "num_shards": 1, "name": "d"}
    return beam_tfr.convert(table=table, output=output, progress=False, **(defaults | options))


# Lines


@pytest.mark.parametrize("text", ["1", "1.0", "1.", "1e0", "01", "+1", "1.000000000000000000e+00"])
def test_a_whole_number_is_a_class_however_it_is_written(text: str) -> None:
    assert read_class(text, ClassNames({0: "cat", 1: "dog"})) == "dog"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1.5", "1.5"),
        ("-1", "-1"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("7.0", "7 is not in `names`"),
        ("1_0", "a number"),
        ("dog", "its number"),
        (f"1,{BOX.replace(' ', ',')}", "comma"),
        ("#", "comment"),
    ],
)
def test_what_is_no_class_is_named(text: str, words: str) -> None:
    cell = read_class(text, ClassNames(enumerate(["cat", "dog", *"abcdefghi"][:7])))
    assert isinstance(cell, BadCell)
    assert words in cell.problem


@pytest.mark.parametrize("label", [f"0,{BOX.replace(' ', ',')}", "0;0.5;0.5;0.2;0.4"])
def test_lines_without_spaces_are_named_by_what_they_have_instead(
    tmp_path: Path, label: str
) -> None:
    ((row,), _) = read(write_set(tmp_path / "in", label))
    (box,) = row["box"]
    assert isinstance(box, BadCell)
    assert label[:6] in box.problem
    assert "no box" not in box.problem


def shape_in(line: str, *others: str) -> tuple[Any, float]:
    """The box and the confidence in a line, beside other lines of its set."""
    lines = [[*map(float, text.split())] for text in (line, *others)]
    shape = read_shape(line.split(), choose_form(lines), None)
    if isinstance(shape.box, BadCell):
        return shape.box.problem, math.nan
    return pytest.approx(shape.box), shape.confidence


TRIANGLE = "0.1 0.1 0.5 0.2 0.3 0.75"
SQUARE = "0.1 0.1 0.6 0.1 0.6 0.7 0.1 0.7"


@pytest.mark.parametrize(
    ("line", "others", "confidence"),
    [
        (BOX, [], math.nan),
        (f"{BOX} 0.91", [], 0.91),
        (f"{BOX} 0.91", [BOX], 0.91),
        (f"{BOX} 7", [BOX], math.nan),
        (f"{BOX} 0.91 7", [BOX], 0.91),
        (f"{BOX} 0.91 1", [BOX], 0.91),
        (f"{BOX} 0.91 1", ["0.2 0.2 0.1 0.1 0.88 8"], 0.91),
        (f"{BOX} 0.91", ["0.2 0.2 0.1 0.1 0.88 8"], 0.91),
    ],
)
def test_numbers_behind_a_box_leave_it_as_it_is(
    line: str, others: list[str], confidence: float
) -> None:
    box, found = shape_in(line, *others)
    assert box == [0.5, 0.5, 0.2, 0.4]
    assert found == pytest.approx(confidence, nan_ok=True)


@pytest.mark.parametrize(
    ("line", "others", "box"),
    [
        (TRIANGLE, [BOX], [0.3, 0.425, 0.4, 0.65]),
        ("0.1 0.1 0.5 0.2 0.9 1", [SQUARE], [0.5, 0.55, 0.8, 0.9]),
        ("0 0 1 1 0 1", [], [0.5, 0.5, 1, 1]),
        (SQUARE, [BOX], [0.35, 0.4, 0.5, 0.6]),
        ("0 0 0 1 1 1 1 0", [], [0.5, 0.5, 1, 1]),
        (f"{SQUARE} 0.9", [], [0.35, 0.4, 0.5, 0.6]),
        (f"{SQUARE} 0.9 3", [], [0.35, 0.4, 0.5, 0.6]),
        (f"{SQUARE} 0.9 1", [f"{BOX} 0.8 2"], [0.35, 0.4, 0.5, 0.6]),
    ],
)
def test_polygons_give_the_box_around_them(line: str, others: list[str], box: list[float]) -> None:
    assert shape_in(line, *others)[0] == box


@pytest.mark.parametrize(
    ("line", "others", "words"),
    [
        (f"{BOX} 0.91 7", [TRIANGLE], ["7", "track"]),
        (f"{BOX} 0.91 7", [SQUARE], ["7", "track"]),
        (f"{SQUARE} 0.9 7", [SQUARE], ["7", "track"]),
        (f"{BOX} 0.91", [SQUARE], ["0.91", "confidence"]),
        (f"{BOX} 45.5", [], ["45.5", "confidence"]),
        (f"{BOX} 0.91 0.77", [BOX], ["six numbers", "confidence"]),
        (f"{BOX} 0.91 0.77", [f"{BOX} 0.9 0.5"] * 9, ["six numbers", "confidence"]),
        ("0.91 0.5 0.5 0.2 0.4", [BOX], ["0.4", "confidence"]),
        (f"{BOX} 0.9", [f"{BOX} 45.5"], ["0.9", "confidence"]),
        (f"{SQUARE} 0.9", [SQUARE], ["0.9", "confidence"]),
        ("20 15 8 12", [], ["20", "fractions", "pixels"]),
        ("20 15 8 12 30 20", [], ["fractions"]),
        ("1,5 0.5 0.2 0.4", [BOX], ["1,5", "comma"]),
        ("0.5 x 0.2 0.4", [BOX], ["'x'", "a number"]),
    ],
)
def test_what_cannot_be_told_is_a_bad_box(line: str, others: list[str], words: list[str]) -> None:
    numbers = [[*map(float, text.split())] for text in others]
    with contextlib.suppress(ValueError):
        numbers.append([*map(float, line.split())])
    form = choose_form(numbers)
    box = read_shape(line.split(), form, None).box
    assert isinstance(box, BadCell)
    for word in words:
        assert word in box.problem


@given(st.lists(st.lists(st.floats(0, 1), max_size=11), max_size=6))
def test_any_lines_have_shapes_or_problems(lines: list[list[float]]) -> None:
    form = choose_form(lines)
    for line in lines:
        shape = read_shape([*map(repr, line)], form, None)
        if isinstance(shape.box, list) and len(line) >= 4:
            assert len(shape.box) == 4
    assert choose_form([line for line in lines if len(line) == 4]) == LineForm()


@pytest.mark.parametrize(
    ("behind", "word"), [("0.785", "confidence"), ("45", "track id"), ("7", "track id")]
)
def test_a_number_behind_boxes_may_be_an_angle(behind: str, word: str) -> None:
    form = choose_form([[0.5, 0.5, 0.2, 0.4, float(behind)]])
    assert word in form.describe()
    assert "an angle, which does not rotate the boxes" in form.describe()
    box = read_shape(f"{BOX} -45.5".split(), form, None).box
    assert isinstance(box, BadCell)
    assert "angle" in box.problem


@pytest.mark.parametrize(
    ("more", "names", "cure"),
    [
        ("minival: images/minival", "minival: images/minival", "test: images/minival"),
        ("minival: [images/none, images/minival]", "minival: images/minival", "test:"),
        ("extra: extra.txt", "extra: extra.txt", "`test: extra.txt`"),
        ("all: all.txt", "", ""),
        ("folder: images/train", "", ""),
        ("url: https://example.com/images/minival", "", ""),
        ("other: {a: images/minival}", "", ""),
    ],
)
def test_keys_of_images_that_are_no_splits_are_told(
    tmp_path: Path, more: str, names: str, cure: str
) -> None:
    table = write_set(tmp_path / "in", LABEL, LABEL)
    shutil.copytree(tmp_path / "in/images/train", tmp_path / "in/images/val")
    shutil.copytree(tmp_path / "in/labels/train", tmp_path / "in/labels/val")
    write_picture(tmp_path / "in/images/minival/9.png", 9)
    (tmp_path / "in/extra.txt").write_text("images/minival/9.png\n")
    (tmp_path / "in/all.txt").write_text("images/train/1.png\n")
    table.write_text(f"train: images/train\nval: images/val\n{NAMES}{more}\n")
    notes = [note for note in read(table)[1] if "keys of splits" in note]
    assert [names in note and cure in note for note in notes] == [True] * bool(names)


def test_what_lines_have_behind_boxes_is_said_and_stored(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", f"0 {BOX} 0.91 1\n", LABEL)
    columns = {"box": "bbox[rel_center_xywh]", "confidence": "float[box]"}
    convert(table, tmp_path / "d", feature_columns=columns)
    records = Records(tmp_path / "d", split="train", boxes="rel_xyxy", output="dict")
    confidences = []
    for record in records:
        np.testing.assert_allclose(record["boxes"], [[0.4, 0.3, 0.6, 0.7]], atol=1e-6)
        confidences += [*record["confidence"]]
    assert sorted(confidences)[0] == pytest.approx(0.91)
    assert sum(map(math.isnan, confidences)) == 1
    (note,) = read(table)[1]
    assert "confidence" in note
    assert "track" in note


def test_boxes_in_pixels_are_refused_with_the_reason(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", "0 20 15 8 12\n", "0 20 15 8 12\n")
    with pytest.raises(UsageError, match=r"YOLO uses fractions"):
        convert(table, tmp_path / "d")


# Label files


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"0 0.5 0.5 0.2 0.4 \xff\n", "byte 0xff is not UTF-8"),
        (LABEL.encode("utf-16"), "is not UTF-8"),
        (LABEL.encode() * 70_000, "has more than 1 MiB"),
        (None, "it is a folder"),
        (b"", "is a link to no file"),
        (bytes(20), "is not a number"),
        (b"<html>404</html>\n", "is not a number"),
        (b"0 0.5 0.5 0.", "is not a box"),
        (b"1.5 0.5 0.5 0.2 0.4\n", "1.5"),
    ],
)
def test_a_label_file_that_cannot_be_read_costs_its_image(
    tmp_path: Path, data: bytes | None, problem: str
) -> None:
    table = write_set(tmp_path / "in", None, *[LABEL] * 3, codecs.BOM_UTF8 + LABEL.encode())
    label = tmp_path / "in/labels/train/1.txt"
    if data is None:
        label.mkdir()
    elif data:
        label.write_bytes(data)
    else:
        label.symlink_to("nowhere.txt")
    result = convert(table, tmp_path / "d", max_rejects=0.5)
    assert result.counts["matched"] == 5
    assert result.counts["written"] == 4
    (reject,) = result.rejects
    assert (reject.key, reject.reason) == ("1.png", "bad-value")
    assert "1.txt" in reject.detail or "is not a box" in reject.detail
    assert problem in reject.detail


@pytest.mark.parametrize("place", ["Labels/train/1.txt", "labels/1.txt", "labels/train/1.TXT", ""])
def test_a_split_without_label_files_is_an_error_that_shows_where_they_were_sought(
    tmp_path: Path, place: str
) -> None:
    table = write_set(tmp_path / "in", None, None)
    if place:
        (tmp_path / "in" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / place).write_text(LABEL)
    with pytest.raises(DataError) as error:
        read(table)
    message = str(error.value)
    assert f"{tmp_path}/in/labels/train" in message
    assert f"{tmp_path}/in/{place} is near" in message or not place
    (tmp_path / "in/labels/train/2.txt").write_text("")  # which is the cure for background
    rows, _ = read(table)
    assert [row["class"] for row in rows] == [[], []]


def test_a_split_is_looked_at_beside_others_that_have_labels(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", LABEL, None, yaml="train: images/train\nval: images/val\n")
    write_picture(tmp_path / "in/images/val/3.png", 3)
    with pytest.raises(DataError, match=r"no image of val has a label file"):
        read(table)


@pytest.mark.parametrize("names", [("cat", "dog"), ("n01", "n02", "n03")])
def test_folders_of_classes_without_label_files_are_an_input(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    folder = tmp_path / "in"
    for split in ("train", "val"):
        for name in names:
            write_picture(folder / split / name / "1.png", len(name))
    (folder / "data.yaml").write_text("train: train\nval: val\n" + NAMES)
    with pytest.raises(DataError) as error:
        read(folder / "data.yaml")
    message = str(error.value)
    assert f"`input={folder}` and `layout='{{split}}/{{label}}/*'`" in message
    assert "empty label file" not in message
    result = beam_tfr.convert(
        input=folder, layout="{split}/{label}/*", output=tmp_path / "d", progress=False
    )
    assert result.counts["written"] == 2 * len(names)


def test_folders_that_are_no_classes_are_not_told_as_such(tmp_path: Path) -> None:
    for day in ("monday", "sunday"):
        write_picture(tmp_path / f"train/{day}/1.png", 1)
    (tmp_path / "data.yaml").write_text("train: train\n" + NAMES)
    with pytest.raises(DataError, match="empty label file"):
        read(tmp_path / "data.yaml")


def test_label_files_of_other_splits_are_not_near(tmp_path: Path) -> None:
    yaml = "train: train/images\nval: val/images\n"
    table = write_set(tmp_path / "in", yaml=yaml)
    for split, labels in (("train", "labels"), ("val", "Labels")):
        write_picture(tmp_path / "in" / split / "images/1.png", 1)
        label = tmp_path / "in" / split / labels / "1.txt"
        label.parent.mkdir(parents=True)
        label.write_text(LABEL)
    with pytest.raises(DataError, match=r"/val/Labels/1\.txt is near"):
        read(table)


def test_the_summary_says_how_boxes_are_loaded(tmp_path: Path) -> None:
    result = convert(write_set(tmp_path / "in", LABEL, LABEL), tmp_path / "d")
    assert f"load('{tmp_path}/d', split='train', boxes='xyxy')" in str(result)


def test_labels_are_where_ultralytics_looks_for_them() -> None:
    assert label_path("/a/images/b/images/c/1.2.png") == "/a/images/b/labels/c/1.2.txt"
    assert label_path("/a/obj/1.jpg") == "/a/obj/1.txt"
    assert label_path("gs://a/images/1.jpg") == "gs://a/labels/1.txt"


# Images


@pytest.mark.parametrize(
    ("yaml", "files", "names"),
    [
        ("train: train.txt\n", {"train.txt": "./images/train/1.png\n./images/train/2.png\n"}, "12"),
        ("train: train.txt\n", {"train.txt": "images/train/1.png\r\n\r\nimages/train/2.png"}, "12"),
        ("train: train.txt\n", {"train.txt": "images\\train\\2.png\n"}, "2"),
        ("train: train.txt\n", {"train.txt": "data/images/train/2.png\n"}, "2"),
        ("train: lists/a.txt\n", {"lists/a.txt": "../images/train/3.png\n"}, "3"),
        ("train: lists/a.txt\n", {"lists/a.txt": "images/train/3.png\n"}, "3"),
        ("train: lists/a\n", {"lists/a": "images/train/3.png\n"}, "3"),
        (
            "train: [a.txt, b.txt]\n",
            {"a.txt": "images/train/1.png\n", "b.txt": "images/train/2.png\n"},
            "12",
        ),
        ("train: [a.txt, images/train]\n", {"a.txt": "images/train/1.png\n"}, "123"),
        ("train: [images/train, images/train/]\n", {}, "123"),
        ("train: images/train/*.png\n", {}, "123"),
        ("train: images/train/[12].png\n", {}, "12"),
        ("train: images/train/1.png\n", {}, "1"),
        ("train: ./images/train/\n", {}, "123"),
        ("train:\nvalid: images/train\n", {}, "123"),
        ("train: images\\train\n", {}, "123"),
        ("train: ../images/train\n", {}, "123"),
        ("path:\ntrain: images\n", {}, "123"),
        ("path: .\ntrain: images\n", {}, "123"),
        ("path: in\ntrain: images/train\n", {}, "123"),
        ("path: /elsewhere/in\ntrain: images/train\n", {}, "123"),
        ("path: C:\\data\ntrain: images/train\n", {}, "123"),
        ("path: https://example.org/data\ntrain: images/train\n", {}, "123"),
        ("path: ~/datasets/in\ntrain: images/train\n", {}, "123"),
    ],
)
def test_what_ultralytics_takes_names_images(
    tmp_path: Path, yaml: str, files: dict[str, str], names: str
) -> None:
    table = write_set(tmp_path / "in", LABEL, LABEL, LABEL, yaml=yaml)
    for name, text in files.items():
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    split = "validation" if "valid" in yaml else "train"
    assert splits(table) == {split: [f"images/train/{name}.png" for name in names]}
    rows, notes = read(table)
    assert [row["class"] for row in rows] == [["cat"]] * len(names)
    is_ignored = "path: " in yaml and "path: .\n" not in yaml
    assert any("path" in note and "ignored" in note for note in notes) == is_ignored


def test_absolute_lists_name_images_anywhere_and_those_that_are_gone(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", LABEL, LABEL, yaml="train: train.txt\n")
    write_set(tmp_path / "far", "1 0.5 0.5 0.2 0.4\n")
    far = tmp_path / "far/images/train/1.png"
    lines = [tmp_path / "in/images/train/1.png", far, tmp_path / "in/images/train/9.png"]
    (tmp_path / "in/train.txt").write_text("".join(f"{line}\n" for line in lines))
    result = convert(table, tmp_path / "d", max_rejects=0.5)
    assert result.counts["matched"] == 3
    assert result.counts["written"] == 2
    assert [reject.reason for reject in result.rejects] == ["not-found"]
    assert [row["class"] for row in read(table)[0]] == [["cat"], ["dog"], []]


def test_lists_of_another_machine_are_read_beside_the_file_and_said(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", LABEL, LABEL, yaml="train: train.txt\n")
    lines = "/content/set/images/train/2.png\n/content/set/images/train/1.png\n"
    (tmp_path / "in/train.txt").write_text(lines)
    assert splits(table) == {"train": ["images/train/2.png", "images/train/1.png"]}
    (note,) = read(table)[1]
    assert "/content/set/images/train/2.png" in note
    (tmp_path / "in/train.txt").write_text("/content/set/9.png\n")
    with pytest.raises(DataError, match=r"train names images that do not exist, such as /content"):
        read(table)


def test_images_without_a_label_file_are_counted_and_said(tmp_path: Path) -> None:
    rows, notes = read(write_set(tmp_path / "in", LABEL, None, "", None))
    assert [row["class"] for row in rows] == [["cat"], [], [], []]
    (note,) = notes
    assert "2 of the first 4 images" in note
    assert f"{tmp_path}/in/labels/train/2.txt" in note


@pytest.mark.parametrize("name", ["b.TXT", "b.Txt", "B.txt", "b.png.txt"])
def test_label_files_of_another_spelling_are_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    for number, stem in enumerate("abc"):
        write_picture(tmp_path / "images" / f"{stem}.png", number)
    (tmp_path / "labels" / "a.txt").write_text("0 .5 .5 .2 .2\n")
    (tmp_path / "labels" / "other.txt").write_text("")
    (tmp_path / "data.yaml").write_text("train: images\nnames: [cat]\n")
    _, notes = read(tmp_path / "data.yaml")
    assert not any("rename" in note for note in notes)
    (tmp_path / "labels" / name).write_text("0 .5 .5 .2 .2\n")
    _, notes = read(tmp_path / "data.yaml")
    (note,) = [note for note in notes if "no label file" in note]
    assert str(tmp_path / "labels" / name) in note


def test_images_of_one_label_file_are_told(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", LABEL, LABEL, None)
    write_picture(tmp_path / "in/images/train/3.PNG", 4)
    assert not any("several images" in note for note in read(table)[1])  # neither has labels
    write_picture(tmp_path / "in/images/train/2.bmp", 4)
    [note] = [note for note in read(table)[1] if "several images" in note]
    (tmp_path / "in/labels/train/3.txt").write_text(LABEL)
    [note] = [note for note in read(table)[1] if "several images" in note]
    assert note.split(": ", 1)[1].startswith("2 label files shared by several images, such as ")
    assert f"{tmp_path}/in/labels/train/2.txt" in note


def test_label_files_without_an_image_are_told(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", LABEL, LABEL)
    (tmp_path / "in/labels/train/classes.txt").write_text("cat")
    assert not read(table)[1]
    for stem in ("8", "train_9"):
        (tmp_path / f"in/labels/train/{stem}.txt").write_text(LABEL)
    (note,) = read(table)[1]
    assert "2 label files" in note
    assert f"{tmp_path}/in/labels/train/8.txt" in note


def test_folders_of_splits_that_the_file_does_not_name_are_told(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", LABEL)
    (tmp_path / "in/images/val").mkdir()
    assert not read(table)[1]
    write_picture(tmp_path / "in/images/test/1.png", 2)
    (note,) = read(table)[1]
    assert f"{tmp_path}/in/images/test are left out" in note
    assert note.endswith("`test: images/test`")


def test_the_folder_of_a_split_that_is_told_is_the_one_that_is_there(tmp_path: Path) -> None:
    write_picture(tmp_path / "train/images/1.png", 1)
    write_picture(tmp_path / "valid/images/1.png", 2)
    (tmp_path / "data.yaml").write_text("train: train/images\nnames: [cat]\n")
    images = [yolo_images.YoloImage(f"{tmp_path}/train/images/1.png", "train")]
    assert yolo_images.describe_unnamed(images, str(tmp_path)).endswith("`val: valid/images`")


def test_the_key_of_a_split_that_is_told_is_that_of_its_own_folder(tmp_path: Path) -> None:
    write_picture(tmp_path / "train_set/val/1.png", 1)
    write_picture(tmp_path / "train_set/test/2.png", 2)
    images = [yolo_images.YoloImage(f"{tmp_path}/train_set/val/1.png", "val")]
    note = yolo_images.describe_unnamed(images, str(tmp_path))
    assert note.endswith("`test: train_set/test`")


@pytest.mark.parametrize("begin", ["/content/set-1/", "set-1/", "path: /content\n set-1/"])
def test_places_of_another_machine_are_read_beside_the_file_and_said(
    tmp_path: Path, begin: str
) -> None:
    path, _, begin = begin.rpartition(" ")
    yaml = f"{path}train: {begin}images/train\nval: {begin}images/val\n"
    table = write_set(tmp_path / "in", LABEL, yaml=yaml)
    with pytest.raises(DataError, match=r"no such file or folder: .*images/val"):
        read(table)
    write_picture(tmp_path / "in/images/val/2.png", 2)
    (tmp_path / "in/labels/val").mkdir()
    (tmp_path / "in/labels/val/2.txt").write_text(LABEL)
    assert splits(table) == {"train": ["images/train/1.png"], "validation": ["images/val/2.png"]}
    notes = [note for note in read(table)[1] if "is read as" in note]
    for split, note in zip(["train", "val"], notes, strict=True):
        assert note.endswith(f"{tmp_path}/in/images/{split}")


def test_images_that_the_file_names_are_in_one_place(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", LABEL, yaml="train: images/train\n")
    tables = open_tables(find_content(ConvertOptions(table=(str(table),), output="/o")))
    assert not any("may be" in line for line in tables.warnings)


def test_splits_of_the_same_images_are_one(tmp_path: Path) -> None:
    for number, yaml in enumerate(
        ["train: images/train\nval: ./images/train/\n", "train: a.txt\ntest: images/train\n"]
    ):
        table = write_set(tmp_path / str(number), LABEL, LABEL, yaml=yaml)
        (table.parent / "a.txt").write_text("images/train/2.png\nimages/train/1.png\n")
        found = splits(table)
        assert [*found] == ["train"]
        assert sorted(found["train"]) == ["images/train/1.png", "images/train/2.png"]
        (note,) = read(table)[1]
        for word in ("train", "images/train", yaml.split()[2]):
            assert word.removesuffix(":") in note


def test_images_that_splits_share_are_rejects(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", *[LABEL] * 3, yaml="train: a.txt\nval: b.txt\n")
    for name, numbers in {"a.txt": "12", "b.txt": "23"}.items():
        lines = [f"images/train/{number}.png\n" for number in numbers]
        (table.parent / name).write_text("".join(lines))
    rows, notes = read(table)
    (problem,) = [row["split"].problem for row in rows if isinstance(row["split"], BadCell)]
    assert len(rows) == 3
    assert "in two splits, according to train (a.txt) and val (b.txt)" in problem
    assert any("2.png" in note for note in notes)


def test_splits_within_others_are_refused(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", LABEL, yaml="train: images\nval: images/val\n")
    write_picture(tmp_path / "in/images/val/3.png", 3)
    (tmp_path / "in/labels/val").mkdir()
    (tmp_path / "in/labels/val/3.txt").write_text(LABEL)
    with pytest.raises(DataError, match=r"train \(images\) and val \(images/val\) share") as error:
        read(table)
    assert "images/val/3.png" in str(error.value)


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("train: train.txt\n", "no such file or folder: .*/in/train.txt"),
        ("train: images/none\n", "no such file or folder: .*/in/images/none"),
        ("train: labels/train\n", "there are no images in .*/in/labels/train"),
        (
            "path: /none\ntrain: images/none\n",
            "/none/images/none nor .*/in/images/none exists: .*remove path",
        ),
        ("val:\n", "names no images"),
    ],
)
def test_places_that_are_not_there_are_named(tmp_path: Path, yaml: str, message: str) -> None:
    table = write_set(tmp_path / "in", LABEL, yaml=yaml)
    with pytest.raises(DataError, match=message):
        read(table)


def test_names_that_are_a_text_are_refused_with_the_cure(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", LABEL)
    table.write_text("train: images/train\nnames: coco.names\n")
    with pytest.raises(DataError, match=r"'coco\.names' is a string: .*names: \[cat, dog\]"):
        read(table)
    table.write_text("train: images/train\nnc: 2\nnames:\n")
    assert read(table)[0][0]["class"] == ["class_0"]


def test_spaces_around_names_are_no_part_of_them(tmp_path: Path) -> None:
    table = write_set(tmp_path, LABEL, f"2 {BOX}\n")
    table.write_text('train: images/train\nnames: [cat, Cat, "cat "]\n')
    done = beam_tfr.convert(table=table, output=tmp_path / "out", progress=False)
    assert done.class_names == ("cat", "Cat")
    assert done.splits["train"].class_counts == {"cat": 2, "Cat": 0}


def test_a_name_that_labels_txt_cannot_hold_ends_the_run_at_once(tmp_path: Path) -> None:
    table = write_set(tmp_path, LABEL)
    table.write_text('train: images/train\nnames: [cat, "a\\nb"]\n')
    with pytest.raises(DataError, match="class 1 is named"):
        beam_tfr.plan(table=table, progress=False)


def test_classes_without_names_are_those_of_ultralytics(tmp_path: Path) -> None:
    table = write_set(tmp_path / "in", "1 0.5 0.5 0.2 0.4\n")
    table.write_text("train: images/train\nnc: 3\n")
    rows, notes = read(table)
    assert rows[0]["class"] == ["class_1"]
    assert "class_0" in notes[0]
    table.write_text("train: images/train\nnc: 3\nnames: [cat, dog]\n")
    assert "2 names, but nc: 3" in read(table)[1][0]
    table.write_text("train: images/train\nnames: [cat, dog, cat]\n")
    assert "one class" in read(table)[1][0]
    table.write_text("train: images/train\nnames: {a: cat}\n")
    with pytest.raises(DataError, match=r"'a' is not the number of a class"):
        read(table)
    table.write_text("train: images/train\nnc: 99999999999\n")
    with pytest.raises(DataError, match=r"'99999999999' is not the number of a class"):
        read(table)


@pytest.mark.parametrize(
    ("yaml", "names"),
    [
        ("names: [dog, owl, cat]", ("dog", "owl", "cat")),
        ("names: {2: cat, 0: dog, 1: owl}", ("dog", "owl", "cat")),
        ("names: [10, 9, 8]", ("10", "9", "8")),
        ("nc: 12", tuple(f"class_{number}" for number in range(12))),
    ],
)
def test_classes_have_the_ids_of_the_file(
    tmp_path: Path, yaml: str, names: tuple[str, ...]
) -> None:
    table = write_set(tmp_path / "in", f"2 {BOX}\n", f"0 {BOX}\n")
    table.write_text(f"train: images/train\n{yaml}\n")
    result = convert(table, tmp_path / "d")
    assert result.class_names == names
    [note] = [note for note in result.notes if "no image" in note]
    assert names[1] in note
    assert not {names[0], names[2]} & {*note.replace(",", "").split()}
    assert not any("are not the class ids" in note for note in read(table)[1])


@pytest.mark.parametrize("names", ["{1: cat, 2: dog, 3: owl}", "[cat, cat, dog]"])
def test_numbers_with_gaps_are_told(tmp_path: Path, names: str) -> None:
    table = write_set(tmp_path / "in", f"2 {BOX}\n")
    table.write_text(f"train: images/train\nnames: {names}\n")
    note = read(table)[1][-1]
    assert "are not the class ids" in note
    assert ("'cat'" in note) == ("1:" in names)


@pytest.mark.parametrize(("folder", "up"), [("", ""), ("config/", "../data/")])
def test_darknet_is_refused_with_the_lines_that_read_it(
    tmp_path: Path, beam_tfr: Callable[..., Any], folder: str, up: str
) -> None:
    root = tmp_path
    if folder:
        tmp_path = root / "data"
        (root / folder).mkdir()
    write_picture(tmp_path / "obj_train_data/1.png", 1)
    (tmp_path / "obj_train_data/1.txt").write_text("1 0.5 0.5 0.2 0.4\n")
    (tmp_path / "obj.names").write_text("cat\ndog\n")
    (tmp_path / "train.txt").write_text("data/obj_train_data/1.png\n")
    table = root / folder / "obj.data"
    table.write_text(
        "classes = 2\ntrain = data/train.txt\nvalid = data/none.txt\nnames = data/obj.names\n"
    )
    run = beam_tfr("convert", "--table", table, "--output", root / "d")
    assert run.code == 2
    lines = [f"train: {up}train.txt", 'names: ["cat", "dog"]']
    assert "data.yaml" in run.err
    assert all(line in run.err for line in lines)
    assert "none.txt" not in run.err
    (root / folder / "data.yaml").write_text("\n".join(lines))
    rows, _ = read(root / folder / "data.yaml")
    assert [(row["file"], row["class"]) for row in rows] == [
        (str(tmp_path / "obj_train_data/1.png"), ["dog"])
    ]


def test_sets_on_gs_are_read_as_those_on_a_disk(tmp_path: Path, fake: FakeGcs) -> None:
    yaml = "path: elsewhere\ntrain: [list.txt, '../images/train']\ntest: images/test/*.png\n"
    table = write_set(tmp_path / "in", LABEL, b"0 \xff", f"1 {BOX} 0.9\n", yaml=yaml)
    write_picture(tmp_path / "in/images/test/4.png", 4)
    (tmp_path / "in/list.txt").write_text("/far/images/train/2.png\n/far/images/train/1.png\n")
    for labels in (False, True):
        if labels:
            (tmp_path / "in/labels/test").mkdir()
            (tmp_path / "in/labels/test/4.txt").write_text("")
        for path in (tmp_path / "in").rglob("*"):
            if path.is_file():
                fake.put(f"in/{path.relative_to(tmp_path / 'in')}", path.read_bytes())
        found = []
        for place in (str(tmp_path), "gs://b"):
            notes = list[str]()
            try:
                file = io.BytesIO(table.read_bytes())
                rows = [*read_annotations(f"{place}/in/data.yaml", file, notes.append)]
            except DataError as error:
                rows = [{"error": str(error)}]
            found.append((repr(rows).replace(place, ""), repr(notes).replace(place, "")))
        assert found[0] == found[1]
        assert ("error" in found[0][0]) != labels


def test_few_label_files_are_read_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that show how lines are read; a run reads all of them."""
    path = write_set(tmp_path, *[LABEL] * 8)
    reads = list[str]()
    read_bytes = storage.read_bytes

    def note_read(file: str, **options: Any) -> bytes:
        if file.endswith(".txt"):
            reads.append(file)
        return read_bytes(file, **options)

    monkeypatch.setattr(storage, "read_bytes", note_read)
    monkeypatch.setattr(first_rows, "SAMPLE_FILES", 2)
    monkeypatch.setattr(yolo, "_SAMPLE_FILES", 2)
    monkeypatch.setattr(yolo_files, "READ_AT_A_TIME", 1)
    tables = open_tables(find_content(ConvertOptions(table=(str(path),), output="/o")))
    assert len(reads) <= 3
    assert len([*tables.read(str(path))]) == 8


@pytest.mark.timeout(100)
def test_a_place_that_is_named_many_times_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_set(tmp_path, LABEL, LABEL)
    text = path.read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("train:"))
    place = line.removeprefix("train:").strip()
    once, _ = read(path)
    path.write_text(text.replace(line, f"train: [{', '.join([place] * 20_000)}]"))
    rows, said = read(path)
    assert rows == once
    assert any("train lists images again" in note for note in said)
    monkeypatch.setattr(yolo_images, "_MOST_REPEATS", 3)
    spellings = ", ".join(f"{place}{'/.' * number}" for number in range(50))
    path.write_text(text.replace(line, f"train: [{spellings}]"))
    with pytest.raises(DataError, match="train names images more than once"):
        read(path)


@pytest.mark.parametrize(
    "lines", ["nc: " + "9" * 5000, "kpt_shape: [" + "9" * 5000 + ", 3]\nnames: [a]"]
)
def test_numbers_of_thousands_of_digits_are_none(lines: str, tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text(f"train: images\n{lines}\n")
    with pytest.raises(DataError, match=r"is not .*number") as caught:
        read(path)
    assert "set_int_max" not in str(caught.value)
    assert len(str(caught.value)) < 500


def count_finds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are looked for from now on."""
    paths = list[str]()
    find = storage.find

    def note_and_find(path: str) -> storage.Entry | None:
        paths.append(path)
        return find(path)

    monkeypatch.setattr(storage, "find", note_and_find)
    return paths


def test_a_list_is_read_once_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spellings = [f"{'./' * number}l.txt" for number in range(1, 50)]
    path = write_set(tmp_path, LABEL, yaml=f"train: [images/train, {', '.join(spellings)}]\n")
    (tmp_path / "l.txt").write_text(f"{'a/' * 200}1.png\n" * 10)
    paths = count_finds(monkeypatch)
    read(path)
    of_lines = [path for path in paths if path.endswith("a/1.png")]
    assert len(of_lines) < 1_000  # 39,200 if it is read for each spelling, to its last folder


def test_ends_of_a_deep_place_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_set(tmp_path, LABEL, yaml=f"train: {'a/' * 500}b\n")
    paths = count_finds(monkeypatch)
    with pytest.raises(DataError, match="no such file"):
        read(path)
    assert len(paths) < 100


@pytest.mark.parametrize("key", ["path", "train"])
def test_a_place_that_is_longer_than_paths_is_refused(tmp_path: Path, key: str) -> None:
    other = "" if key == "train" else "train: images/train\n"
    path = write_set(tmp_path, LABEL, yaml=f"{key}: {'a/' * 3_000}b\n{other}")
    with pytest.raises(DataError, match=f"{key} names a place of 6,001 characters"):
        read(path)
