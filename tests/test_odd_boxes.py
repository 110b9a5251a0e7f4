"""Boxes of tables that are turned, quadrangles, percents, corners or run lengths are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from beam_tfr.schema.errors import UsageError
from beam_tfr.tables.box_names import find_box_columns, find_corners
from tests.cpu_limit import bounded_cpu
from tests.table_files import open_input, references, write_images

SIDES = "xmin,ymin,xmax,ymax"


def write_boxes(path: Path, columns: str, *rows: str) -> dict[str, Any]:
    lines = [f"{number}.jpg,cat,{row}" for number, row in enumerate(rows)]
    path.write_text("\n".join([f"filename,class,{columns}", *lines]))
    return {"table": str(path)}


def lines_about(text: str, **options: Any) -> list[str]:
    return [line for line in open_input(**options).warnings if text in line]


@pytest.mark.parametrize("name", ["rotation", "angle", "Theta", "bbox_rotation"])
@pytest.mark.parametrize(("angle", "is_told"), [("30", True), ("0.5", True), ("0", False)])
def test_boxes_are_not_turned_by_a_column(
    tmp_path: Path, name: str, angle: str, is_told: bool
) -> None:
    table = write_boxes(tmp_path / "t.csv", f"{SIDES},{name}", f"0,0,2,2,{angle}", "1,1,3,3,0")
    assert bool(lines_about("is not applied", **table)) == is_told


def test_boxes_are_not_turned_by_a_field_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    box = {"x": 1, "y": 1, "width": 2, "height": 2, "label": "cat", "angle": 45}
    path.write_text(json.dumps({"file": "0.jpg", "boxes": [box]}))
    assert lines_about("rotation in column 'boxes.angle' is not applied", table=str(path))


@pytest.mark.parametrize("first", [0, 1])
def test_corners_of_quadrangles_are_no_boxes(tmp_path: Path, first: int) -> None:
    names = [f"{side}{first + number}" for number in range(4) for side in "xy"]
    assert find_box_columns(names) is None
    assert find_box_columns(names[:4]) is not None
    table = write_boxes(tmp_path / "t.csv", ",".join(names), "2,0,4,3,2,5,0,3")
    with pytest.raises(UsageError, match="corners of quadrangles") as error:
        open_input(**table)
    frame = pandas.read_csv(table["table"])
    corners = find_corners(names)
    assert json.dumps(corners["x"]) in str(error.value)
    for side, columns in corners.items():
        frame[f"{side}min"] = frame[columns].min(axis=1)
        frame[f"{side}max"] = frame[columns].max(axis=1)
    frame.to_csv(table["table"], index=False)
    assert "xmin+ymin+xmax+ymax" in open_input(**table).features[0].text


def test_percents_of_sides_are_told_with_a_cure(tmp_path: Path) -> None:
    table = write_boxes(tmp_path / "t.csv", SIDES, "12.5%,20%,50%,66%")
    with pytest.raises(UsageError, match=r"'12.5%' is not a number.*fractions of 1.*/ 100$"):
        open_input(**table)


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        (["0.2 0.2 0.9 0.95", "0.1 0.5 0.6 0.9"], True),
        (["0.2 0.2 0.9 0.95", "0.5 0.5 0.4 0.4"], False),
        (["0.5 0.5 1 1"], False),
        (["0.2 0.2 0.3 0.3"], False),
    ],
)
def test_corners_in_files_of_yolo_are_told(tmp_path: Path, lines: list[str], is_told: bool) -> None:
    write_images(tmp_path, "images/train/0.jpg")
    (tmp_path / "labels" / "train").mkdir(parents=True)
    (tmp_path / "labels" / "train" / "0.txt").write_text("\n".join(f"0 {line}" for line in lines))
    (tmp_path / "data.yaml").write_text("train: images/train\nnames: [cat]\n")
    table = {"table": f"{tmp_path}/data.yaml"}
    assert bool(lines_about("`feature_columns='box:bbox[rel_xyxy]'`", **table)) == is_told


@pytest.mark.parametrize(
    ("cell", "is_told"),
    [
        ("100 5 200 3", True),
        ("1 22 3", False),
        ("masks/0.png", False),
        ("", False),
        ("1234 " * 100_001 + "x", False),
    ],
)
def test_run_lengths_are_known_by_what_they_are(tmp_path: Path, cell: str, is_told: bool) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"file,segmentation\n0.jpg,{cell}\n")
    with bounded_cpu():
        lines = lines_about("run lengths", table=str(path), uri_column="file")
    assert bool(lines) == is_told


def test_names_with_a_class_behind_them_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("ImageId_ClassId,EncodedPixels\n0.jpg_1,1 3\n0.jpg_2,8 9\n")
    (line,) = lines_about("pandas", table=str(path))
    table = pandas.read_csv(path)
    exec(line[line.index("table[") :])
    table.to_csv(path, index=False)
    refs = references(open_input(table=str(path), uri_column="image", label_column="class"))
    assert [(ref.key, ref.labels) for ref in refs] == [("0.jpg", ("1",)), ("0.jpg", ("2",))]


@pytest.mark.parametrize("text", ["#N/A", "#REF!", "#DIV/0!", "NaT", "#n/a"])
def test_what_spreadsheets_write_for_no_value_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"image,label\n0.jpg,cat\n1.jpg,{text}\n")
    options = {"table": str(path), "uri_column": "image", "label_column": "label"}
    assert lines_about(f"{text} become", **options)
    assert not lines_about(f"{text} become", **options, na_values=text)


@pytest.mark.parametrize(
    ("flags", "is_told"),
    [
        ({"ignore_orientation": True}, True),
        ({}, False),
        ({"ignore_orientation": True, "feature_columns": "x:float"}, False),
    ],
)
def test_boxes_beside_an_orientation_that_is_ignored_are_told(
    tmp_path: Path, flags: dict[str, Any], is_told: bool
) -> None:
    path = tmp_path / "t.csv"
    path.write_text('file,box,x\n0.jpg,"5 6 20 15",1\n')
    given = {"uri_column": "file", "feature_columns": "box:bbox[xyxy]", **flags}
    assert bool(lines_about("exiftool", table=str(path), **given)) == is_told
