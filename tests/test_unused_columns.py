"""Columns of which nothing is stored are told, whatever else is stored."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import pandas
import PIL.Image
import pytest

from beam_tfr import storage
from beam_tfr.options import ConvertOptions
from beam_tfr.records.examples import parse_example, serialize
from beam_tfr.records.tfrecords import frame
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.tables import base, formats
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from tests.archives import tarred


def unused_lines(table: Path, **columns: Any) -> list[str]:
    content = find_content(ConvertOptions(table=(str(table),), output="/o", **columns))
    warnings = open_tables(content).warnings
    return [line for line in warnings if line.startswith("no values of")]


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([".seg.bin", ".txt"], "seg.bin, txt"),
        ([".json"], "caption, json"),
    ],
)
def test_files_of_a_tar_that_are_not_stored(
    tmp_path: Path, others: Sequence[str], named: str
) -> None:
    content = b'{"caption": "a cat"}'
    files = {f"1{end}": content for end in [".jpg", ".cls", *others]}
    (tmp_path / "t.tar").write_bytes(tarred(files))
    lines = unused_lines(tmp_path / "t.tar")
    assert len(lines) == bool(named)
    assert all(f"columns {named} are stored: `feature_columns=`" in line for line in lines)


def test_images_that_stand_in_for_others_are_not_told(tmp_path: Path) -> None:
    names = ["1.jpg", "1.cls", "2.png", "2.cls", "3.jpeg", "3.cls"]
    (tmp_path / "t.tar").write_bytes(tarred(dict.fromkeys(names, b"x")))
    assert not unused_lines(tmp_path / "t.tar")


@pytest.mark.parametrize("second", ["png", "mask.png"])
def test_a_second_image_of_a_sample_has_a_cure_that_works(tmp_path: Path, second: str) -> None:
    picture = io.BytesIO()
    PIL.Image.new("L", (4, 4)).save(picture, "png")
    files = {name: picture.getvalue() for name in ("1.jpg", f"1.{second}")}
    (tmp_path / "t.tar").write_bytes(tarred({**files, "1.cls": b"cat"}))
    (line,) = unused_lines(tmp_path / "t.tar")
    cure = f"`uri_column=jpg` `label_column=cls` `feature_columns={second}:mask`"
    assert cure in line
    table = tmp_path / "t.tar"
    options = ConvertOptions(
        table=(str(table),),
        output="/o",
        uri_column="jpg",
        label_column="cls",
        feature_columns={second: "mask"},
    )
    (ref,) = open_tables(find_content(options)).read(str(table))
    assert not ref.reason
    assert ref.labels == ("cat",)


def test_a_second_image_that_is_no_png_is_told(tmp_path: Path) -> None:
    files = dict.fromkeys(["1.jpg", "1.jpeg", "1.cls"], b"x")
    (tmp_path / "t.tar").write_bytes(tarred(files))
    (line,) = unused_lines(tmp_path / "t.tar")
    assert "jpeg" in line
    assert "PNG" in line


def test_columns_of_a_table_that_are_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("path,class,age,split,note\n1.jpg,cat,3,train,x\n")
    roles = {"uri_column": "path", "label_column": "class"}
    (line,) = unused_lines(path, **roles)
    assert "columns age, note are stored:" in line
    assert not unused_lines(path, **roles, feature_columns={"age": "int64"})
    assert not unused_lines(path, **roles, feature_columns={})


@pytest.mark.parametrize(
    ("column", "cells", "cure"),
    [
        ("label", ["m/1.png", "", "m/3.PNG"], "`feature_columns=label:mask`"),
        ("it's", ["m/1.png", "m/2.png", "m/3.png"], "`feature_columns='it'\"'\"'s:mask'`"),
        ("label", ["m/1.png", "cat", "dog"], ""),
        ("source", ["http://x/1.png", "http://x/2.png", "http://x/3.png"], ""),
    ],
)
def test_paths_of_other_images_may_be_masks(
    column: str, cells: list[str], cure: str, tmp_path: Path
) -> None:
    names = ["1.jpg", "2.jpg", "3.jpg"]
    for name in names:
        PIL.Image.new("RGB", (4, 4)).save(tmp_path / name)
    table = tmp_path / "t.csv"
    pandas.DataFrame({"path": names, column: cells}).to_csv(table, index=False)
    options = ConvertOptions(table=(str(table),), uri_column="path", output="/o")
    (text,) = open_tables(find_content(options)).warnings
    assert (cure in text) if cure else (":mask" not in text)


def test_images_in_a_second_column_of_parquet_may_be_masks(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    PIL.Image.new("L", (4, 4)).save(buffer, "PNG")
    image = {"bytes": buffer.getvalue(), "path": None}
    table = tmp_path / "t.parquet"
    pandas.DataFrame({"image": [image], "label": [image]}).to_parquet(table)
    cure = "`feature_columns=label:mask`"
    options = ConvertOptions(table=(str(table),), uri_column="image", output="/o")
    assert any(cure in text for text in open_tables(find_content(options)).warnings)
    options = dataclasses.replace(options, label_column="label")
    with pytest.raises(UsageError, match=f"{cure} for masks.* instead of `label_column=`"):
        open_tables(find_content(options))


def test_paths_as_classes_are_told(tmp_path: Path) -> None:
    PIL.Image.new("RGB", (4, 4)).save(tmp_path / "1.jpg")
    table = tmp_path / "t.csv"
    for cell, is_told in (("m/1.png", True), ("1.xml", True), ("cat", False)):
        table.write_text(f"path,label\n1.jpg,{cell}\n")
        options = ConvertOptions(
            table=(str(table),), uri_column="path", label_column="label", output="/o"
        )
        warnings = open_tables(find_content(options)).warnings
        assert any("paths as classes" in text for text in warnings) == is_told


def test_names_of_columns_with_spaces_are_quoted_in_cures(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("Image Index,Finding Label,Bbox [x,y,w,h],Age\n1.png,Mass,5,6,20,15,7\n")
    (line,) = unused_lines(path)
    assert "--uri_column 'Image Index' with --feature_columns 'box:" in spell_as_flags(line)


def test_columns_that_may_be_sides_of_boxes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("filename,x,y,width,height,class\n0.jpg,5,6,20,15,cat\n1.jpg,5,6,20,15,dog\n")
    roles = {"uri_column": "filename", "label_column": "class"}
    cure = "box:bbox[xywh]=x+y+width+height"
    (line,) = unused_lines(path, **roles)
    assert f"`feature_columns='{cure}'`" in line
    name, _, declaration = cure.partition(":")
    options = ConvertOptions(
        table=(str(path),), output="/o", **roles, feature_columns={name: declaration}
    )
    refs = [*open_tables(find_content(options)).read(str(path))]
    assert [ref.labels for ref in refs] == [("cat",), ("dog",)]
    assert not any(ref.reason for ref in refs)


GTSRB = "Width,Height,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId,Path\n40,30,5,6,25,21,3,0.png\n"


@pytest.mark.parametrize(
    ("header", "cure"),
    [
        ("path,class,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2", "box:bbox[xyxy]=Roi.X1+Roi.Y1+Roi.X2+Roi.Y2"),
        ("path,x_1,y_1,width,height,class", "box:bbox[xywh]=x_1+y_1+width+height"),
        ("path,face_x,face_y,face_w,face_h,class", "box:bbox[xywh]=face_x+face_y+face_w+face_h"),
        ("path,class,left_eye_x,left_eye_y,nose_x,nose_y", "joint:points[xyv]"),
        ("path,class,x_1,y_1,x_3,y_3", "joint:points[xyv]"),
        ("path,class,EncodedPixels", "mask:mask"),
        ("path,class,mask_rle", "mask:mask"),
        ("path,class,mask_path", "mask_path:mask"),
        ("path,class,BoxesString", "BoxesString:bbox[xywh]"),
        ("path,class,bboxes", "bboxes:bbox[xywh]"),
    ],
)
def test_what_columns_seem_to_hold_has_a_cure_of_its_own(
    tmp_path: Path, header: str, cure: str
) -> None:
    path = tmp_path / "t.csv"
    columns = header.split(",")
    path.write_text(f"{header}\n" + ",".join("1.jpg" if c == "path" else "7" for c in columns))
    (line,) = unused_lines(path, uri_column="path", label_column="class")
    assert cure in line
    assert all(name in line for name in columns if name not in ("path", "class"))


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("{'x': 5, 'y': 6, 'w': 20, 'h': 15}", "ast.literal_eval"),
        ('[{"xmin": 5, "ymin": 6, "xmax": 20, "ymax": 15, "note": null}]', "json.loads"),
        ("POLYGON ((5 6, 25 6, 25 21, 5 6))", "shapely.from_wkt(text).bounds"),
        ("BOX(5 6,25 21)", "shapely.from_wkt(text).bounds"),
    ],
)
def test_objects_and_shapes_as_text_have_a_cure(tmp_path: Path, text: str, cure: str) -> None:
    table = tmp_path / "t.csv"
    quoted = text.replace('"', '""')
    table.write_text(f'path,class,place\n1.jpg,cat,"{quoted}"\n')
    (line,) = unused_lines(table, uri_column="path", label_column="class")
    assert "no values of place are stored, since " in line
    assert cure in line
    with pytest.raises(UsageError) as caught:
        unused_lines(table, uri_column="path", feature_columns={"place": "bbox[xywh]"})
    assert cure in str(caught.value)
    assert "another type" not in str(caught.value)


@pytest.mark.parametrize("box", ["[[5. 6. 20. 15.]]", "[(5, 6, 20, 15)]", "5 6 20 15"])
def test_lists_of_boxes_are_told_without_a_class_too(tmp_path: Path, box: str) -> None:
    table = tmp_path / "t.csv"
    table.write_text(f'path,bbox\n1.jpg,"{box}"\n')
    (line,) = unused_lines(table, uri_column="path")
    assert "`feature_columns='bbox:bbox[xywh]'`" in line
    table.write_text("path,bbox\n1.jpg,none\n")
    (line,) = unused_lines(table, uri_column="path")
    assert "bbox[xywh]" not in line


def test_the_cure_for_the_sides_of_boxes_works(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(GTSRB)
    features = {"box": "bbox[xyxy]=Roi.X1+Roi.Y1+Roi.X2+Roi.Y2"}
    options = ConvertOptions(
        table=(str(path),),
        output="/o",
        uri_column="Path",
        label_column="ClassId",
        feature_columns=features,
    )
    (ref,) = open_tables(find_content(options)).read(str(path))
    assert parse_example(ref.columns or b"")["image/object/bbox"] == [5, 6, 25, 21]
    assert ref.labels == ("3",)


@pytest.mark.parametrize("columns", ["left_eye_x,left_eye_y", "Roi.X1,Roi.Y1"])
def test_coordinates_that_are_stored_as_numbers_are_told(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"path,{columns}\n1.jpg,5,6\n")
    options = ConvertOptions(
        table=(str(path),), output="/o", uri_column="path", feature_columns={"*": ""}
    )
    warnings = open_tables(find_content(options)).warnings
    assert [line for line in warnings if "are not adjusted when" in line]


def test_columns_beside_those_of_boxes_that_are_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    header = "filename,width,height,class,xmin,ymin,xmax,ymax"
    path.write_text(f"{header}\n1.jpg,40,30,cat,5,6,25,21\n")
    assert not unused_lines(path)
    path.write_text(f"{header},confidence,difficult\n1.jpg,40,30,cat,5,6,25,21,0.5,1\n")
    (line,) = unused_lines(path)
    assert "confidence, difficult" in line
    assert "`feature_columns='box:bbox[xyxy],confidence'`" in line
    features = {"box": "bbox[xyxy]", "confidence": ""}
    assert not unused_lines(path, uri_column="filename", feature_columns=features)


@pytest.mark.parametrize(
    ("row", "cures"),
    [
        (
            {"bbox": {"x": 5, "y": 6, "w": 20, "h": 15}},
            ["box:bbox[xywh]=bbox.x+bbox.y+bbox.w+bbox.h"],
        ),
        ({"objects": [{"bbox": [5, 6, 20, 15], "category": 0}]}, ["objects.bbox:bbox[xywh]"]),
        (
            {"objects": [{"x": 5, "y": 6, "w": 20, "h": 15}]},
            ["box:bbox[xywh]=objects.x+objects.y+objects.w+objects.h"],
        ),
        ({"objects": [{"parts": [{"x": 5, "y": 6, "w": 20, "h": 15}]}]}, ["with four numbers"]),
        ({"region_shape_attributes": "{}", "region_attributes": "{}"}, ["COCO"]),
    ],
)
def test_objects_of_which_nothing_is_stored(
    tmp_path: Path, row: dict[str, Any], cures: Sequence[str]
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"path": "1.jpg", "class": {"name": "cat"}, **row}) + "\n")
    lines = unused_lines(path, uri_column="path", label_column="class.name")
    assert len(lines) == len(cures)
    assert all(cure in line for cure, line in zip(cures, lines, strict=True))


def test_the_cure_for_an_object_with_the_sides_of_a_box_works(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"path": "1.jpg", "bbox": {"x": 5, "y": 6, "w": 20, "h": 15}}\n')
    features = {"box": "bbox[xywh]=bbox.x+bbox.y+bbox.w+bbox.h"}
    options = ConvertOptions(
        table=(str(path),), output="/o", uri_column="path", feature_columns=features
    )
    (ref,) = open_tables(find_content(options)).read(str(path))
    assert parse_example(ref.columns or b"")["image/object/bbox"] == [5, 6, 25, 21]


def test_columns_that_only_a_later_table_has_are_told(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("path,class\n1.jpg,cat\n")
    (tmp_path / "2.csv").write_text("class,path\ndog,2.jpg\n")
    (tmp_path / "3.csv").write_text("path,class,xmin,age\n3.jpg,cat,1,2\n")
    roles = {"uri_column": "path", "label_column": "class"}

    def lines(*names: str, **others: Any) -> list[str]:
        table = tuple(str(tmp_path / name) for name in names)
        options = ConvertOptions(table=table, output="/o", **roles, **others)
        warnings = open_tables(find_content(options)).warnings
        return [line for line in warnings if "first table" in line]

    (line,) = lines("1.csv", "2.csv", "3.csv")
    assert line.startswith(f"{tmp_path}/3.csv has columns")
    assert "xmin, age" in line
    assert not lines("1.csv", "2.csv")
    assert not lines("1.csv", "3.csv", feature_columns={})


@pytest.mark.parametrize(
    ("rows", "classes"),
    [
        ("1,0,0", "cat"),
        ("0.0,1.0,0.0", "dog"),
        ("1,0,1", "cat|hat"),
        ("1.0,-1.0,", "cat"),
    ],
)
def test_a_column_for_each_class_has_a_cure_that_works(
    tmp_path: Path, rows: str, classes: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"path,cat,dog,hat,age\n1.jpg,{rows},7\n2.jpg,0,1,0,8\n")
    line, others = unused_lines(path, uri_column="path")
    assert ("they have -1, 0, 1 or nothing" in line) == ("-1" in rows)
    assert "age" in others
    assert not unused_lines(path, uri_column="path", label_column="age")[0].startswith(line[:40])
    cure = line.partition("with pandas: ")[2]
    assert cure in unused_lines(path, uri_column="path", label_column="cat")[0]
    table = pandas.read_csv(path)
    exec(cure, {"table": table})
    assert [*table["class"]] == [classes, "dog"]
    assert ("label_separator='|'" in line) == ("|" in classes)


def test_a_column_for_each_class_after_spaces_has_a_cure_that_works(tmp_path: Path) -> None:
    """As of Roboflow."""
    path = tmp_path / "t.csv"
    path.write_text("filename, cat, dog , hat\n1.jpg, 1, 0, 1\n2.jpg, 0, 1, 0\n")
    (line,) = unused_lines(path, uri_column="filename")
    cure = line.partition("with pandas: ")[2].replace("FILE", repr(str(path)))
    scope = {"pandas": pandas}
    exec(cure, scope)
    assert [*scope["table"]["class"]] == ["cat|hat", "dog"]  # type: ignore[index]


def test_ids_of_images_in_a_folder_beside_the_table_are_told(tmp_path: Path) -> None:
    """As of CIFAR-10: trainLabels.csv beside train/1.png."""
    path = tmp_path / "trainLabels.csv"
    path.write_text("id,label\n1,cat\n2,dog\n")
    write = {"train": "12", "test": "1"}
    for folder, stems in write.items():
        (tmp_path / folder).mkdir()
        for stem in stems:
            (tmp_path / folder / f"{stem}.png").write_bytes(b"")
    (line,) = open_tables(find_content(ConvertOptions(table=(str(path),), output="/o"))).warnings
    assert f"`uri_column=id` `label_column=label` with `image_root={tmp_path}/train`" in line
    options = ConvertOptions(table=(str(path),), output="/o", uri_column="id", label_column="label")
    assert f"such as `image_root={tmp_path}/train`" in open_tables(find_content(options)).missing


@pytest.mark.parametrize(
    ("numbers", "is_told"), [((0, 1), False), ((1, 0), True), ((1, 2), True), ((0, 3), True)]
)
def test_numbers_of_classes_that_are_not_their_ids_are_told(
    tmp_path: Path, numbers: Sequence[int], is_told: bool
) -> None:
    path = tmp_path / "t.tfrecord"
    records = []
    for name, number in zip((b"cat", b"dog"), numbers, strict=True):
        texts = {"image/encoded": ("bytes", [b"x"]), "image/class/text": ("bytes", [name])}
        records.append(serialize(texts | {"image/class/label": ("int64", [number])}))
    path.write_bytes(b"".join(map(frame, records)))
    lines = open_tables(find_content(ConvertOptions(table=(str(path),), output="/o"))).warnings
    assert any("image/class/label" in line for line in lines) == is_told
    (tmp_path / "names.txt").write_text("dog\ncat\n")
    options = ConvertOptions(table=(str(path),), output="/o", classes=str(tmp_path / "names.txt"))
    lines = open_tables(find_content(options)).warnings
    assert not any("image/class/label" in line for line in lines)


@pytest.mark.parametrize(
    ("others", "cure"),
    [
        (["image/filename", "image/object/area"], "image/object/area:int64[box]'"),
        (["image/source_id"], "label_column=image/object/class/text"),
        (["image/object/mask"], "no option"),
        (["image/height", "image/format"], ""),
    ],
)
def test_columns_beside_the_boxes_of_tfrecords(
    tmp_path: Path, others: Sequence[str], cure: str
) -> None:
    path = tmp_path / "t.tfrecord"
    values: dict[str, Any] = {"image/encoded": ("bytes", [b"x"])}
    values["image/object/class/text"] = ("bytes", [b"cat"])
    for number, side in enumerate(("xmin", "ymin", "xmax", "ymax")):
        values[f"image/object/bbox/{side}"] = ("float", [0.2 * (number + 1)])
    values |= {name: ("int64", [7]) for name in others}
    path.write_bytes(frame(serialize(values)))
    lines = unused_lines(path)
    assert len(lines) == bool(cure)
    assert all(cure in line and name in line for line in lines for name in others)


def test_tfrecords_of_which_the_first_lack_the_class(tmp_path: Path) -> None:
    image = {"image": ("bytes", [b"x"])}
    (tmp_path / "a.tfrec").write_bytes(frame(serialize(image)))
    (tmp_path / "b.tfrec").write_bytes(frame(serialize(image | {"class": ("int64", [1])})))
    options = ConvertOptions(table=(f"{tmp_path}/*.tfrec",), output="/o", uri_column="image")
    lines = [*open_tables(find_content(options)).warnings]
    assert any("class; to have them read, omit" in line for line in lines)


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_one_of_two_tables_lacks_the_class(tmp_path: Path, names: str) -> None:
    first, second = names
    (tmp_path / f"{first}.csv").write_text("image,label\n1.jpg,cat\n")
    (tmp_path / f"{second}.csv").write_text("image\n2.jpg\n")
    options = ConvertOptions(
        table=(f"{tmp_path}/*.csv",), output="/o", uri_column="image", label_column="label"
    )
    with pytest.raises(UsageError, match=f"{second}.csv`: .*omit from `table=` those that lack it"):
        open_tables(find_content(options))


PIXELS = [str(number % 256) for number in range(784)]


@pytest.mark.parametrize(
    ("suffix", "header", "row", "shape"),
    [
        ("csv", "label," + ",".join(f"pixel{n}" for n in range(784)), PIXELS, "28, 28"),
        ("csv", ",".join(f"{n // 28 + 1}x{n % 28 + 1}" for n in range(784)), PIXELS, "28, 28"),
        ("csv", ",".join(f"pixel{n:04}" for n in range(2352)), PIXELS * 3, "28, 28, 3"),
        ("csv", "emotion,pixels,Usage", [" ".join(PIXELS)], "28, 28"),
        ("jsonl", "label,digit", [[7] * 64], "8, 8"),
    ],
)
def test_pixels_in_cells_are_told(
    tmp_path: Path, suffix: str, header: str, row: Sequence[Any], shape: str
) -> None:
    path = tmp_path / f"t.{suffix}"
    columns = header.split(",")
    values = [*row, *"3" * (len(columns) - len(row))]
    if len(columns) > len(row):  # the pixels come behind the first column
        values = [*"3", *row, *"3" * (len(columns) - len(row) - 1)]
    if suffix == "csv":
        path.write_text(f"{header}\n" + ",".join(values) + "\n")
    else:
        path.write_text(json.dumps(dict(zip(columns, values, strict=True))) + "\n")
    content = find_content(ConvertOptions(table=(str(path),), output="/o"))
    (line,) = [line for line in open_tables(content).warnings if "pixels of images" in line]
    assert f".reshape({shape})" in line


def test_pixels_beside_paths_are_told_and_other_numbers_are_not(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("path,class,pixels\n1.jpg,cat," + " ".join(PIXELS) + "\n")
    (line,) = unused_lines(path, uri_column="path", label_column="class")
    assert "column 'pixels'" in line
    header = ",".join(f"score_{number}" for number in range(100))
    for cell in ("0.5", "1", "300"):
        path.write_text(f"{header}\n{','.join([cell] * 100)}\n")
        content = find_content(ConvertOptions(table=(str(path),), output="/o"))
        assert not [line for line in open_tables(content).warnings if "pixels" in line]


@pytest.mark.parametrize(
    ("rows", "cures"),
    [
        (
            "patientId,x,y,width,height,Target\na,,,,,0\nb,5,6,20,15,1",
            ["`uri_column=` names the column of images", "box:bbox[xywh]=x+y+width+height"],
        ),
        (
            'image_id,width,height,bbox,source\na,40,30,"[5, 6, 20, 15]",x',
            ["`uri_column=image_id`", "'bbox:bbox[xywh]'"],
        ),
        (
            "Image Index,Finding Label,Bbox [x,y,w,h],,,\n1.png,Mass,5,6,20,15,,,",
            [],  # which are boxes without a doubt
        ),
        ("patient,xmin,ymin,xmax,ymax\na,5,6,25,21", ["=xmin+ymin+xmax+ymax'"]),
        ("name,age\na,7", []),
    ],
)
def test_rows_that_may_be_boxes_of_images(tmp_path: Path, rows: str, cures: Sequence[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{rows}\n")
    options = find_content(ConvertOptions(table=(str(path),), output="/o"))
    lines = [line for line in options.warnings if "look like boxes" in line]
    assert len(lines) == bool(cures)
    assert all(cure in line for line in lines for cure in cures)


def test_columns_without_name_and_value_are_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,size,,\n7,8,,\n9,10,,\n")
    tables = open_tables(find_content(ConvertOptions(table=(str(path),), output="/o")))
    assert tables.columns == ["age", "size"]
    assert len([*tables.read(str(path))]) == 2
    later = tmp_path / "u.csv"
    later.write_text("age,size,\n7,8,x\n")
    with pytest.raises(DataError, match=r"row 1 after the header`: has 'x' in a column without"):
        [*tables.read(str(later))]
    path.write_text("age,size,,\n7,8,,x\n")
    with pytest.raises(UsageError, match="a column has no name"):
        open_tables(find_content(ConvertOptions(table=(str(path),), output="/o")))


STUDIO = {"x": 10.0, "y": 20.0, "width": 20.0, "height": 10.0, "original_width": 40}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_regions_of_label_studio_are_told(tmp_path: Path, form: str) -> None:
    """Their sides are in percent, which no option reads."""
    rows = [{"photo": "1.jpg", "id": 1, "tag": [{**STUDIO, "rectanglelabels": ["cat"]}]}]
    path = tmp_path / f"t.{form}"
    if form == "csv":
        rows[0]["tag"] = json.dumps(rows[0]["tag"])
        pandas.DataFrame(rows).to_csv(path, index=False)
    else:
        path.write_text(json.dumps(rows[0]))
    line, others = unused_lines(path, uri_column="photo")
    assert "tag, from Label Studio, are stored: export the regions there in COCO's format" in line
    assert "id" in others


def test_sides_in_percent_are_no_boxes(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    region = {**STUDIO, "rectanglelabels": "cat"}
    path.write_text(json.dumps({"photo": "1.jpg", "tag": [region]}))
    (line,) = unused_lines(path, uri_column="photo", label_column="tag.rectanglelabels")
    assert "tag.x" in line
    assert "bbox" not in line


def test_regions_of_via_are_told_where_rows_become_records(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    region = '"{""name"":""rect"",""x"":5}"'
    path.write_text(f"filename,region_shape_attributes,region_attributes\n1.jpg,{region},{{}}\n")
    content = find_content(ConvertOptions(table=(str(path),), output="/o"))
    lines = [line for line in open_tables(content).warnings if "region_shape_attributes" in line]
    assert "regions from VIA: export the regions there in COCO's format" in lines[0]
    assert not any("write lists as JSON" in line for line in lines)


IMAGE_OF_SAGEMAKER = {"source-ref": "s3://bucket/1.jpg"}
SAGEMAKER_CLASS = {
    **IMAGE_OF_SAGEMAKER,
    "animal": 1,
    "animal-metadata": {"class-name": "cat", "type": "groundtruth/image-classification"},
}
SAGEMAKER_CLASSES = {
    **IMAGE_OF_SAGEMAKER,
    "animals": [0, 1],
    "animals-metadata": {"class-map": {"0": "dog", "1": "cat"}, "type": "groundtruth"},
}
VERTEX_CLASS = {
    "imageGcsUri": "gs://bucket/1.jpg",
    "classificationAnnotation": {"displayName": "cat", "annotationResourceLabels": {"a/b": "c"}},
}


@pytest.mark.parametrize(
    ("row", "image", "label"),
    [
        (SAGEMAKER_CLASS, "source-ref", "animal-metadata.class-name"),
        (SAGEMAKER_CLASSES, "source-ref", "animals"),
        (VERTEX_CLASS, "imageGcsUri", "classificationAnnotation.displayName"),
    ],
)
def test_rows_of_clouds_are_offered_as_images_with_classes(
    tmp_path: Path, row: dict[str, Any], image: str, label: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(row))
    options = ConvertOptions(table=(str(path),), output="/o")
    with pytest.raises(UsageError, match=f"`uri_column={image}` `label_column={label}`"):
        open_tables(find_content(options))


def test_names_beside_numbers_of_classes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"

    def lines_of(row: dict[str, Any], label: str) -> list[str]:
        path.write_text(json.dumps(row))
        options = ConvertOptions(
            table=(str(path),), output="/o", uri_column="source-ref", label_column=label
        )
        warnings = open_tables(find_content(options)).warnings
        return [line for line in warnings if "are numbers" in line]

    (line,) = lines_of(SAGEMAKER_CLASS, "animal")
    assert "`label_column=animal-metadata.class-name` uses the names" in line
    assert not lines_of(SAGEMAKER_CLASS, "animal-metadata.class-name")
    (line,) = lines_of(SAGEMAKER_CLASSES, "animals")
    program = re.search("jq -c '([^']*)'", line)
    assert program is not None
    assert program[1] == (
        '."animals-metadata"."class-map" as $names | ."animals"[] |= $names[tostring]'
    )


def test_a_table_without_a_header_is_offered_with_its_options(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("TRAIN,gs://b/0.jpg,cat\nTEST,gs://b/1.jpg,dog\n")
    with pytest.raises(UsageError, match="set,path,class, and give `uri_column=path` `label_"):
        find_content(ConvertOptions(table=(str(path),), output="/o"))
    path.write_text(f"set,path,class\n{path.read_text()}")
    content = find_content(ConvertOptions(table=(str(path),), output="/o"))
    (line,) = [line for line in open_tables(content).warnings if "names images" in line]
    assert "`uri_column=path` `label_column=class` reads the images" in line


def test_a_legend_of_masks_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "_classes.csv"
    path.write_text("Pixel Value, Class\n0, background\n1, road\n")
    with pytest.raises(UsageError, match="names the values of masks"):
        find_content(ConvertOptions(table=(str(path),), output="/o"))
    assert find_content(ConvertOptions(table=(str(path),), output="/o", encoding="row"))


def write_objects(path: Path, number: int) -> ConvertOptions:
    """A table of JSON Lines with so many columns of objects, and its options."""
    objects = {f"o{at}": [{"name": "cat", "bbox": [1, 2, 3, 4]}] for at in range(number)}
    path.write_text(json.dumps({**objects, "path": "1.jpg"}) + "\n")
    return ConvertOptions(table=(str(path),), output="/o")


def write_nested_sides(path: Path, number: int) -> ConvertOptions:
    """A table of JSON Lines with so many columns of lists of objects in lists."""
    sides = {"xmin": 1, "ymin": 1, "xmax": 2, "ymax": 2}
    path.write_text(json.dumps({f"o{at}": [[sides]] for at in range(number)}) + "\n")
    return ConvertOptions(table=(str(path),), output="/o")


def write_boxes(path: Path, number: int) -> ConvertOptions:
    """A CSV with so many columns that are named like boxes, and hold none."""
    path = path.with_suffix(".csv")
    names = [f"b{at}.bbox" for at in range(number)]
    path.write_text(",".join(["path", *names]) + "\n" + "1.jpg" + ",1" * number + "\n")
    return ConvertOptions(table=(str(path),), output="/o", uri_column="path")


@pytest.mark.parametrize("write", [write_objects, write_nested_sides, write_boxes])
def test_a_table_is_read_as_often_whatever_its_number_of_columns(
    write: Callable[[Path, int], ConvertOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = list[str]()

    def open_binary(path: str) -> IO[bytes]:
        paths.append(path)
        return open_file(path)

    open_file = storage.open_binary
    monkeypatch.setattr(storage, "open_binary", open_binary)
    (tmp_path / "1.jpg").write_bytes(b"\xff\xd8")
    numbers = []
    for number in (25, 50):
        paths.clear()
        with contextlib.suppress(UsageError):  # objects are no features
            open_tables(find_content(write(tmp_path / "t.jsonl", number)))
        numbers.append(len(paths))
    assert numbers[0] == numbers[1]


def test_a_few_long_rows_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_FIRST_BYTES", 1 << 20)
    cells = f'{{"a": 1, "b": "{"x" * 200_000}"}}\n'
    (tmp_path / "t.jsonl").write_text(cells * 50)
    (tmp_path / "t.csv").write_text("a,b\n" + f"1,{'x' * 200_000}\n" * 50)
    for name in ("t.jsonl", "t.csv"):
        rows = [*formats.read_first_rows(str(tmp_path / name), ["a"], 50)]
        assert 5 <= len(rows) < 15


def test_fields_of_many_objects_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MAX_VALUES", 100)
    objects = [{f"f{number}": 1 for number in range(9)}, *[{}] * 29]
    (tmp_path / "t.jsonl").write_text(json.dumps({"o": objects, "a": 5}) + "\n")
    names = [f"o.f{number}" for number in range(9)]
    ((_, cells),) = formats.read_rows(str(tmp_path / "t.jsonl"), [*names, "a"])
    assert [cell[0] for cell in cells[:4]] == [1] * 4
    assert all("more than 100 values" in cell.problem for cell in cells[4:9])
    assert cells[9] == 5
