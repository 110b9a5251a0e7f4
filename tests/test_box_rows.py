"""Tables with a row for each box."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet

from beam_tfr import convert, storage
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.features.cells import split_boxes
from beam_tfr.options import ConvertOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables import joining
from beam_tfr.tables.box_names import find_box_columns
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.joining import BoxJoin, NumberedRow, group_rows
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables
from beam_tfr.verification import verify
from tests.conftest import Run
from tests.table_rows import records_of

Command = Callable[..., Run]
SIDES = ("xmin", "ymin", "xmax", "ymax")
HEADER = ("filename", "width", "height", "class", *SIDES)
ROWS = [
    ("a.jpg", "40", "30", "cat", "5", "6", "25", "21"),
    ("b.jpg", "40", "30", "cat", "5", "6", "25", "21"),
    ("a.jpg", "40", "30", "dog", "1", "2", "9", "9"),
    ("c.jpg", "40", "30", "", "", "", "", ""),
    ("b.jpg", "40", "30", "cat", "15", "6", "25", "21"),
]
# Key -> classes and boxes of its image.
EXPECTED = {
    "a.jpg": (("cat", "dog"), [[5, 6, 25, 21], [1, 2, 9, 9]]),
    "b.jpg": (("cat", "cat"), [[5, 6, 25, 21], [15, 6, 25, 21]]),
    "c.jpg": ((), []),
}


def as_csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in [header, *rows])


def as_json(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """JSON Lines in which texts of numbers are numbers, and empty ones null."""
    return "".join(
        json.dumps(dict(zip(header, map(as_value, row), strict=True))) + "\n" for row in rows
    )


def as_value(text: str) -> Any:
    if not text:
        return None
    return float(text) if text.replace(".", "").isdigit() else text


def as_parquet(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    columns = [[as_value(cell) for cell in column] for column in zip(*rows, strict=True)]
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(zip(header, columns, strict=True))), file)
    return file.getvalue()


def opened(*paths: Path | str, **options: Any) -> Tables:
    table = tuple(map(str, paths))
    return open_tables(find_content(ConvertOptions(table=table, output="/o", **options)))


def references(tables: Tables) -> dict[str, ImageRef]:
    return {ref.key: ref for file in tables.files for ref in tables.read(file)}


def boxes_of(ref: ImageRef) -> list[list[float]]:
    sides = parse_example(ref.columns or b"")["image/object/bbox"]
    return np.array(sides).reshape(-1, 4).tolist()


def contents_of(tables: Tables) -> dict[str, Any]:
    return {key: (ref.labels, boxes_of(ref)) for key, ref in references(tables).items()}


def write_images(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), "gray").save(path)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_rows_of_a_file_are_joined(tmp_path: Path, name: str, *, named: bool) -> None:
    table = tmp_path / name
    writers: Mapping[str, Callable[..., str | bytes]] = {
        "t.csv": as_csv,
        "t.jsonl": as_json,
        "t.parquet": as_parquet,
    }
    data = writers[name](HEADER, ROWS)
    table.write_bytes(data.encode() if isinstance(data, str) else data)
    options = {"uri_column": "filename", "label_column": "class"} if named else {}
    tables = opened(table, **options)
    assert contents_of(tables) == EXPECTED
    assert "box:bbox[xyxy]=xmin+ymin+xmax+ymax" in " ".join(tables.warnings)
    assert len(tables.warnings) == 1


def test_images_without_a_row_are_told(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg", "c.jpg", "left out.jpg"):
        Image.new("RGB", (40, 30)).save(tmp_path / name)
    table = tmp_path / "t.csv"
    table.write_text(as_csv(HEADER, ROWS))
    content = find_content(ConvertOptions(table=(str(table),), output="/o"))
    (line,) = [line for line in open_tables(content).warnings if "left out.jpg" in line]
    assert "1 image in the folders of the other images is left out" in line
    (tmp_path / "left out.jpg").unlink()
    content = find_content(ConvertOptions(table=(str(table),), output="/o"))
    assert not any("left out" in line for line in open_tables(content).warnings)


def test_copies_of_joined_rows_are_settled(tmp_path: Path) -> None:
    (tmp_path / "boxes.csv").write_text(as_csv(HEADER, ROWS))
    write_images(tmp_path, *EXPECTED)
    made = convert(
        table=tmp_path / "boxes.csv",
        output=tmp_path / "d",
        duplicates="drop",
        max_rejects=0,
        progress=False,
    )
    assert made.counts["written"] == 1  # the three images have the same bytes
    (tmp_path / "prices.csv").write_text("name,price\nhat,3\n")
    with pytest.raises(UsageError, match="look for equal rows in the table"):
        convert(
            table=tmp_path / "prices.csv",
            output=tmp_path / "prices",
            duplicates="drop",
            progress=False,
        )
    assert not (tmp_path / "prices").exists()


@pytest.mark.parametrize(
    ("header", "form", "row", "box"),
    [
        ("file,label,x1,y1,x2,y2", "xyxy", "a.jpg,cat,5,6,25,21", [5, 6, 25, 21]),
        ("Image,Label,XMin,YMin,XMax,YMax", "rel_xyxy", "a.jpg,cat,.125,.2,.625,.7", None),
        (
            "ImageID,LabelName,XMin,XMax,YMin,YMax",
            "rel_xyxy",
            "a.jpg,/m/01,.125,.625,.2,.7",
            [0.125, 0.2, 0.625, 0.7],
        ),
        ("image_path,name,x,y,w,h", "xywh", "a.jpg,cat,5,6,20,15", [5, 6, 25, 21]),
        ("img,x_center,y_center,width,height", "center_xywh", "a.jpg,15,13,20,16", [5, 5, 25, 21]),
        ("img,xc,yc,w,h", "center_xywh", "a.jpg,15,13,20,16", [5, 5, 25, 21]),
        ("img,cx,cy,width,height", "center_xywh", "a.jpg,15,13,20,16", [5, 5, 25, 21]),
        ("filename,class,x1,y1,w,h", "xywh", "a.jpg,cat,5,6,20,15", [5, 6, 25, 21]),
        ("filename,class,x0,y0,w,h", "xywh", "a.jpg,cat,5,6,20,15", [5, 6, 25, 21]),
        ("filename,class,x,y,dx,dy", "xywh", "a.jpg,cat,5,6,20,15", [5, 6, 25, 21]),
        ("filename,class,tl_x,tl_y,width,height", "xywh", "a.jpg,cat,5,6,20,15", [5, 6, 25, 21]),
        ("img,ulx,uly,lrx,lry", "xyxy", "a.jpg,5,6,25,21", [5, 6, 25, 21]),
        (
            "img,top_left_x,top_left_y,bottom_right_x,bottom_right_y",
            "xyxy",
            "a.jpg,5,6,25,21",
            [5, 6, 25, 21],
        ),
        ("path,bbox_x1,bbox_y1,bbox_x2,bbox_y2", "xyxy", "a.jpg,5,6,25,21", [5, 6, 25, 21]),
        (
            "Filename,Annotation tag,Upper left corner X,Upper left corner Y,"
            "Lower right corner X,Lower right corner Y",
            "xyxy",
            "a.jpg,go,5,6,25,21",
            [5, 6, 25, 21],
        ),
        ("path,left,upper,right,lower", "xyxy", "a.jpg,5,6,25,21", [5, 6, 25, 21]),
        ("path,x_start,y_start,x_end,y_end", "xyxy", "a.jpg,5,6,25,21", [5, 6, 25, 21]),
        ("path,left_x,top_y,right_x,bottom_y", "xyxy", "a.jpg,5,6,25,21", [5, 6, 25, 21]),
        ("path,left_top_x,left_top_y,width,height", "xywh", "a.jpg,5,6,20,15", [5, 6, 25, 21]),
    ],
)
def test_names_of_columns(
    tmp_path: Path, header: str, form: str, row: str, box: list[float] | None
) -> None:
    found = find_box_columns(header.split(","))
    assert found is not None
    assert found.form == form.removeprefix("rel_")
    table = tmp_path / "t.csv"
    table.write_text(f"{header}\n{row}\n")
    tables = opened(table)
    assert f"bbox[{form}]=" in " ".join(tables.warnings)
    if box is not None:
        assert np.allclose(boxes_of(references(tables)["a.jpg"]), [box])


@pytest.mark.parametrize("header", ["x,y,width,height", "xmin,ymin", "path,class", "x1,x2,y1"])
def test_names_that_are_not_certain(header: str) -> None:
    assert find_box_columns(header.split(",")) is None


@pytest.mark.parametrize("start", ["x0,y0", "x_1,y_1", "x,y"])
def test_sides_that_may_be_a_point_and_a_size_are_told(tmp_path: Path, start: str) -> None:
    table = tmp_path / "t.csv"
    table.write_text(f"filename,{start},width,height\na.jpg,5,6,20,15\n")
    declaration = f"box:bbox[xywh]={start.replace(',', '+')}+width+height"
    assert declaration in " ".join(opened(table, uri_column="filename").warnings)


def test_boxes_without_a_column_of_files_are_told(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("where,xmin,ymin,xmax,ymax\na.jpg,5,6,25,21\n")
    tables = opened(table)
    assert [*references(tables)] == ["t#1"]
    assert "`uri_column=` names" in " ".join(tables.warnings)
    assert opened(table, encoding="row").warnings == ()


def test_columns_that_are_declared(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("f,l,x,y,width,height\na.jpg,cat,5,6,20,15\na.jpg,dog,1,2,8,7\n")
    tables = opened(
        table,
        uri_column="f",
        label_column="l",
        feature_columns={"thing": "bbox[xywh]=x+y+width+height"},
    )
    assert contents_of(tables) == {"a.jpg": EXPECTED["a.jpg"]}
    assert tables.warnings == ()
    with pytest.raises(UsageError, match="no column 'left'"):
        opened(table, uri_column="f", feature_columns={"b": "bbox[xywh]=left+y+width+height"})


def test_boxes_that_are_declared_without_their_columns(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = ["a.jpg,cat,5,6,25,21,1", "a.jpg,dog,9,2,1,9,2", "b.jpg,dog,1,2,9,9,3"]
    table.write_text("\n".join(["file,class,xmin,ymin,xmax,ymax,sure", *rows, ""]))
    tables = opened(
        table,
        uri_column="file",
        feature_columns="thing:bbox[xyxy],sure:int64[box]",
        bad_boxes="drop",
    )
    refs = references(tables)
    assert refs["a.jpg"].labels == ("cat",)
    assert parse_example(refs["a.jpg"].columns or b"")["sure"] == [1]
    with pytest.raises(UsageError, match="no column 'thing'"):
        opened(table, uri_column="file", feature_columns="thing:bbox[xywh]")


def test_a_column_of_a_box_in_each_row(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = ['a.jpg,"[5, 6, 25, 21]",cat', "b.jpg,,", 'a.jpg,"[1, 2, 9, 9]",dog']
    table.write_text("\n".join(["image_id,bbox,source", *rows, ""]))
    options: Any = {
        "uri_column": "image_id",
        "label_column": "source",
        "feature_columns": {"bbox": "bbox[xyxy]"},
    }
    tables = opened(table, **options)
    assert contents_of(tables) == {"a.jpg": EXPECTED["a.jpg"], "b.jpg": ((), [])}
    assert "joined" in " ".join(tables.warnings)
    table.write_text("\n".join(["image_id,bbox,source", *rows[:2], ""]))
    assert contents_of(opened(table, **options))["a.jpg"] == (("cat",), [[5, 6, 25, 21]])


def test_other_columns_have_a_value_for_each_box_if_they_differ(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = ["a.jpg,cat,5,6,25,21,0.5,7", "a.jpg,dog,1,2,9,9,0.25,7", "b.jpg,,,,,,,8"]
    table.write_text("\n".join(["filename,class,xmin,ymin,xmax,ymax,score,who", *rows, ""]))
    tables = opened(table, uri_column="filename", feature_columns="*")
    assert {feature.name: feature.text for feature in tables.features} == {
        "box": "bbox[xyxy]=xmin+ymin+xmax+ymax",
        "score": "float[box]",
        "who": "int64",
    }
    refs = references(tables)
    assert parse_example(refs["a.jpg"].columns or b"")["score"] == [0.5, 0.25]
    assert parse_example(refs["b.jpg"].columns or b"") == {
        "image/object/bbox": [],
        "score": [],
        "who": [8],
    }


def test_rows_that_contradict_each_other_are_a_reject(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = ["a.jpg,train,5,6,25,21", "b.jpg,test,5,6,25,21", "a.jpg,test,1,2,9,9"]
    table.write_text("\n".join(["filename,split,xmin,ymin,xmax,ymax", *rows, ""]))
    tables = opened(table)
    refs = references(tables)
    assert refs["b.jpg"].split == "test"
    assert refs["a.jpg"].reason == "bad-value"
    assert "row 1 and row 3 of the same image have split 'train' and 'test'" in refs["a.jpg"].detail


def test_sizes_that_contradict_each_other_or_the_image_are_a_reject(
    beam_tfr: Command, tmp_path: Path
) -> None:
    table = tmp_path / "t.csv"
    rows = [*ROWS, ("a.jpg", "30", "40", "dog", "1", "2", "9", "9")]
    rows += [("d.jpg", "80", "60", "cat", "1", "2", "9", "9")]
    table.write_text(as_csv(HEADER, rows))
    write_images(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    output = tmp_path / "o"
    run = beam_tfr(
        "convert",
        "--table",
        table,
        "--output",
        output,
        "--max_rejects",
        "4",
        "--json",
        "--allow_empty",
        "dog",
    )
    assert run.json["rejected"] == {"bad-value": 2}
    rejects = (output / "rejects.jsonl").read_text()
    assert "row 1 and row 6 of the same image have width '40' and '30'" in rejects
    assert "the table says 80x60 pixels, but the image has 40x30" in rejects
    assert "image/width" not in rejects


def test_sizes_of_boxes_are_no_sizes_of_images(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("filename,xmin,ymin,xmax,ymax,width,height\na.jpg,5,6,25,21,20,15\n")
    assert [feature.name for feature in opened(table).features] == ["box"]


def test_a_table_of_automl_has_no_header(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = [
        "TRAIN,images/a.jpg,cat,0.1,0.2,,,0.3,0.4,,",
        "TRAIN,images/a.jpg,dog,0.1,0.2,0.5,0.2,0.5,0.4,0.1,0.4",
        "VALIDATION,images/b.jpg,,,,,,,,,",
    ]
    table.write_text("\n".join([*rows, ""]))
    tables = opened(table)
    refs = references(tables)
    assert "AutoML" in " ".join(tables.warnings)
    assert {key: (ref.split, ref.labels) for key, ref in refs.items()} == {
        "images/a.jpg": ("TRAIN", ("cat", "dog")),
        "images/b.jpg": ("VALIDATION", ()),
    }
    assert np.allclose(boxes_of(refs["images/a.jpg"]), [[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.5, 0.4]])


def test_splits_of_automl_and_columns_that_are_none(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    header = "set,path,label,xmin,ymin,,,xmax,ymax,,"
    table.write_text(
        f"{header}\nTRAIN,a.jpg,cat,0.1,0.2,,,0.3,0.4,,\nTEST,b.jpg,dog,0.1,0.2,,,0.3,0.4,,\n"
    )
    refs = references(opened(table))
    assert {key: ref.split for key, ref in refs.items()} == {"a.jpg": "TRAIN", "b.jpg": "TEST"}
    table.write_text("set,path,xmin,ymin,xmax,ymax\ndishes,a.jpg,5,6,25,21\n")
    assert references(opened(table))["a.jpg"].split == "train"


def test_bad_boxes_are_named_by_their_rows(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = ["a.jpg,cat,5,6,25,21", "a.jpg,dog,9,2,1,9", "b.jpg,cat,5,6,,21", "c.jpg,cat,1,2,3,4"]
    unnamed = ["d.jpg,cat,5,6,25,21", "d.jpg,,1,2,3,4"]
    table.write_text("\n".join(["filename,class,xmin,ymin,xmax,ymax", *rows, *unnamed, ""]))
    refs = references(opened(table))
    assert "column 'class': has no value in row 6" in refs["d.jpg"].detail
    table.write_text("\n".join(["filename,class,xmin,ymin,xmax,ymax", *rows, ""]))
    assert "row 2: " in refs["a.jpg"].detail
    assert "row 3: " in refs["b.jpg"].detail
    declared = {"box": "bbox[xyxy]=xmin+ymin+xmax+ymax"}
    roles: Any = {"uri_column": "filename", "label_column": "class"}
    kept = opened(table, feature_columns=declared, bad_boxes="drop", **roles)
    assert contents_of(kept) == {
        "a.jpg": (("cat",), [[5, 6, 25, 21]]),
        "b.jpg": ((), []),
        "c.jpg": (("cat",), [[1, 2, 3, 4]]),
    }


def test_bad_boxes_of_rows_that_imply_boxes(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(
        "filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,5,6,25,21\nb.jpg,cat,25,6,5,21\n"
    )
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (40, 30)).save(tmp_path / name)
    with pytest.raises(DataError, match="use `bad_boxes=drop` to leave out only boxes that"):
        convert(table=str(table), output=f"{tmp_path}/o")
    result = convert(table=str(table), output=f"{tmp_path}/d", bad_boxes="drop")
    assert result.counts["written"] == 2
    result = convert(
        table=str(table),
        output=f"{tmp_path}/e",
        bad_boxes="drop",
        no_boxes="reject",
        min_visible=0.5,
        max_rejects=1,
    )
    assert result.counts["rejected"] == {"without-boxes": 1}


def test_options_of_boxes_where_columns_imply_none(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("filename,class\na.jpg,cat\n")
    of_boxes: list[dict[str, Any]] = [
        {"bad_boxes": "drop"},
        {"no_boxes": "reject"},
        {"min_visible": 0.5},
    ]
    roles: list[dict[str, Any]] = [{}, {"uri_column": "filename"}]
    for option in of_boxes:
        for role in roles:
            options = option | role
            content = find_content(ConvertOptions(table=(str(table),), output="/o", **options))
            with pytest.raises(UsageError, match="has no effect without boxes"):
                open_tables(content)


def test_classes_of_rows_without_a_box_are_told(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = ["a.jpg,cat,5,6,25,21", "b.jpg,No finding,,,,"]
    table.write_text("\n".join(["filename,class,xmin,ymin,xmax,ymax", *rows, ""]))
    tables = opened(table)
    assert "1 of the first 2 rows have no box: their class, such as 'No finding'" in " ".join(
        tables.warnings
    )


def test_names_without_an_extension(tmp_path: Path) -> None:
    write_images(tmp_path, "0a1.jpg", "0a2.jpg")
    table = tmp_path / "t.csv"
    table.write_text("ImageID,LabelName,XMin,XMax,YMin,YMax\n0a1,cat,0.1,0.2,0.3,0.4\n")
    tables = opened(table)
    assert [*references(tables)] == ["0a1.jpg"]
    assert "0a1.jpg for 0a1" in " ".join(tables.warnings)


def test_boxes_of_a_file_in_two_tables_or_by_two_names_are_a_reject(
    beam_tfr: Command, tmp_path: Path
) -> None:
    write_images(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "t1.csv").write_text(as_csv(HEADER, ROWS[:2]))
    (tmp_path / "t2.csv").write_text(as_csv(HEADER, ROWS[2:3]))
    base = ["convert", "--table", tmp_path / "t?.csv", "--max_rejects", "1"]
    base += ["--allow_empty", "dog", "--output"]
    assert beam_tfr(*base, tmp_path / "o", "--json").json["rejected"] == {"bad-value": 1}
    assert "t1.csv and t2.csv" in (tmp_path / "o" / "rejects.jsonl").read_text()
    (tmp_path / "t2.csv").unlink()
    rows = [*ROWS[:2], ("./a.jpg", *ROWS[2][1:]), (f"{tmp_path}/a.jpg", *ROWS[2][1:])]
    (tmp_path / "t1.csv").write_text(as_csv(HEADER, rows))
    assert beam_tfr(*base, tmp_path / "p", "--json").json["rejected"] == {"bad-value": 1}
    assert "in the same way" in (tmp_path / "p" / "rejects.jsonl").read_text()


def test_a_row_for_each_image_stays_one(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(as_csv(HEADER, ROWS[:2]))
    roles: Any = {"uri_column": "filename", "label_column": "class"}
    plain = opened(table, feature_columns="xmin,ymin,xmax,ymax", **roles)
    assert [ref.labels for ref in references(plain).values()] == [("cat",), ("cat",)]
    assert "declare boxes" in " ".join(plain.warnings)
    rows = opened(table, encoding="row")
    assert [*references(rows)] == ["t#1", "t#2"]
    assert opened(table, key_column="filename").options.uri_column == ""


def test_the_error_about_repeated_files_tells_how_to_declare_boxes(
    beam_tfr: Command, tmp_path: Path
) -> None:
    table = tmp_path / "t.csv"
    table.write_text(as_csv(HEADER, ROWS[:3]))
    write_images(tmp_path, "a.jpg", "b.jpg")
    flags = ["--uri_column", "filename", "--feature_columns", "xmin:float", "--resize", "none"]
    run = beam_tfr("convert", "--table", table, *flags, "--output", tmp_path / "o")
    assert run.code == 1
    assert "--feature_columns 'box:bbox[xyxy]=xmin+ymin+xmax+ymax'" in run.err


def test_a_whole_conversion_its_update_and_its_sources(beam_tfr: Command, tmp_path: Path) -> None:
    write_images(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    table = tmp_path / "boxes.csv"
    table.write_text(as_csv(HEADER, ROWS))
    output = tmp_path / "o"
    flags = ["--table", table]
    plan = beam_tfr("plan", *flags, "--resize", "none", "--output", output)
    assert "label_column class" in plan.out + plan.err
    run = beam_tfr("convert", *flags, "--resize", "none", "--output", output, "--json")
    assert run.json["written"] == 3
    assert run.json["boxes"]["small"] == 4
    records = records_of(output)
    assert records["a.jpg"]["image/object/class/text"] == [b"cat", b"dog"]
    assert np.allclose(records["a.jpg"]["image/object/bbox/xmin"], [5 / 40, 1 / 40])
    assert records["c.jpg"]["image/object/bbox/xmin"] == []
    assert read_manifest(str(output)).options["feature_columns"] == {
        "box": "bbox[xyxy]=xmin+ymin+xmax+ymax",
        "image/source/width": "int64=0",
        "image/source/height": "int64=0",
    }
    assert verify(str(output), sources=[str(table)]).ok
    table.write_text(as_csv(HEADER, ROWS[:4]))
    update = beam_tfr("update", output, "--table", table, "--json")
    assert update.json["changed"]["relabelled"] + update.json["changed"]["changed"] == 1
    assert update.json["boxes"]["small"] == 3
    assert len(records_of(output)["b.jpg"]["image/object/class/text"]) == 1


def test_a_table_on_gs(gcs: str) -> None:
    path = f"{gcs}/photos/t.csv"
    storage.write_bytes(path, as_csv(HEADER, ROWS).encode(), scratch="")
    assert contents_of(opened(path, uri_column="filename", label_column="class")) == EXPECTED


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=30), st.randoms())
def test_joining_does_not_depend_on_the_order_of_files(
    rows: list[tuple[str, int]], order: random.Random
) -> None:
    numbered = [(number, list(row)) for number, row in enumerate(rows, 1)]
    expected = {key: [value for other, value in rows if other == key] for key, _ in rows}
    groups = [*group_rows("t.csv", numbered, 0)]
    assert {group[0][1][0]: [cells[1] for _, cells in group] for group in groups} == expected
    together = sorted(numbered, key=lambda row: row[1][0])
    assert [*group_rows("t.csv", together, 0)] == groups


def test_rows_without_a_key_are_alone() -> None:
    rows = [(1, [""]), (2, [None]), (3, ["row 1"]), (4, ["row 1"]), (5, [7]), (6, ["7"])]
    groups = [[number for number, _ in group] for group in group_rows("t.csv", rows, 0)]
    assert sorted(groups) == [[1], [2], [3, 4], [5], [6]]


def test_joining_keeps_values_that_agree() -> None:
    join = BoxJoin(key="f", box="box", sides=SIDES, per_box=frozenset({"class"}))
    assert join.read_columns(["f", "box", "class", "age"]) == ["f", *SIDES, "class", "age"]


def test_other_columns_are_not_copied_for_each_object() -> None:
    sides = {side: [1] * 5_000 for side in SIDES}
    others = [f"c{number}" for number in range(1_000)]
    row = NumberedRow(1, {"f": "a.jpg", **sides, **dict.fromkeys(others, 1)})
    join = BoxJoin(key="f", box="box", sides=SIDES)
    tracemalloc.start()
    try:
        cells = join.join_cells([row], ["f", "box", *others])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(cells["box"]) == 5_000
    assert peak < 10 << 20  # 200 MB with copies


def test_values_of_boxes_in_all_columns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MOST_BOX_VALUES", 7)
    row = NumberedRow(
        1, {"f": "a.jpg", **{side: [1] * 3 for side in SIDES}, "a": 1, "b": 2, "c": 3}
    )
    join = BoxJoin(key="f", box="box", sides=SIDES, per_box=frozenset("abc"))
    cells = join.join_cells([row], ["a", "b", "c"])
    assert (cells["a"], cells["b"]) == ([1] * 3, [2] * 3)
    assert "more than" in cells["c"].problem


@pytest.mark.parametrize(
    "lengths", [(2_000_000, 1, 1, 1), (2_000_000,) * 4, (200_000, 200_000, 1, 1)]
)
def test_rows_with_too_many_boxes_are_refused_in_little_memory(lengths: tuple[int, ...]) -> None:
    """A row of JSON Lines may hold millions of values in few bytes."""
    sides = {side: [1] * length for side, length in zip(SIDES, lengths, strict=True)}
    rows = [NumberedRow(number, {"f": "a.jpg", **sides, "class": "cat"}) for number in (1, 2)]
    join = BoxJoin(key="f", box="box", sides=SIDES, label="class")
    tracemalloc.start()
    try:
        cells = join.join_cells(rows, ["f", "box", "class"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert cells["f"] == "a.jpg"
    assert "more than 250,000" in cells["box"].problem
    assert peak < 1 << 20


def test_a_list_of_another_length_makes_all_boxes_of_its_row_bad() -> None:
    row = NumberedRow(
        3, {"f": "a.jpg", **{side: [1, 2] for side in SIDES}, SIDES[2]: [5], "class": "c"}
    )
    join = BoxJoin(key="f", box="box", sides=SIDES, label="class")
    boxes = join.join_cells([row], ["box"])["box"]
    assert [box.annotation for box in boxes] == [1, 2]
    assert [box[2].problem for box in boxes] == ["has 1 value for 2 boxes"] * 2


_MEASURE = """
import resource, sys
from beam_tfr.options import ConvertOptions
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from beam_tfr.schema.spelling import spell_option
tables = open_tables(find_content(ConvertOptions(table=(sys.argv[1],), output="/o")))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
images = sum(1 for _ in tables.read(sys.argv[1]))
print(images, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """200,000 rows, 25,000 images, 11 MB: those of an image are far from each other."""
    table = tmp_path / "t.csv"
    with table.open("w") as file:
        file.write(",".join(HEADER) + "\n")
        for number in range(200_000):
            name = f"{number % 25_000:08d}.jpg"
            file.write(f"{name},640,480,cat,{number % 300},{number % 200},500,400\n")
    run = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(table)], capture_output=True, text=True, check=True
    )
    images, kilobytes = map(int, run.stdout.split())
    assert images == 25_000
    assert kilobytes < 10_000


def test_columns_of_boxes_with_a_mark(tmp_path: Path) -> None:
    """As makesense.ai writes them; `width` beside them is that of the image."""
    table = tmp_path / "t.csv"
    sides = "bbox_x,bbox_y,bbox_width,bbox_height"
    table.write_text(
        f"label_name,width,height,{sides},image_name\ncat,40,30,5,6,20,15,a.jpg\n"
        "dog,40,30,1,2,8,7,a.jpg\n"
    )
    tables = opened(table)
    assert contents_of(tables) == {"a.jpg": EXPECTED["a.jpg"]}
    assert find_box_columns(["x", "y", "width", "height"]) is None


@pytest.mark.parametrize(
    ("cells", "is_told"),
    [(["a.jpg", "b.jpg"], True), (["a", "b"], True), (["a", "c"], False), (["u", "v"], False)],
)
def test_images_that_no_option_names_are_told(
    tmp_path: Path, cells: Sequence[str], *, is_told: bool
) -> None:
    write_images(tmp_path, "a.jpg", "b.jpg")
    table = tmp_path / "t.csv"
    table.write_text("number,photo\n" + "".join(f"1,{cell}\n" for cell in cells))
    cure = "`uri_column=photo`"
    assert (cure in " ".join(opened(table).warnings)) == is_told
    for options in ({"encoding": "row"}, {"uri_column": "photo", "label_column": "number"}):
        assert cure not in " ".join(opened(table, **options).warnings)


@pytest.mark.parametrize(
    "given", [{"resize": "none"}, {"image_size": 96}, {"quality": 80}, {"max_aspect": 3}]
)
def test_options_for_images_wait_for_the_columns(tmp_path: Path, given: Mapping[str, Any]) -> None:
    table = tmp_path / "t.csv"
    table.write_text(as_csv(HEADER, ROWS))
    assert contents_of(opened(table, **given)) == EXPECTED
    table.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="uri_column"):
        opened(table, **given)
    with pytest.raises(UsageError):
        opened(table, encoding="row", **given)


@pytest.mark.parametrize("encoding", ["png", "raw", "jpeg"])
def test_an_encoding_of_images_leaves_the_columns_to_be_found(
    tmp_path: Path, encoding: str
) -> None:
    table = tmp_path / "t.csv"
    table.write_text(as_csv(HEADER, ROWS))
    tables = opened(table, encoding=encoding)
    assert contents_of(tables) == EXPECTED
    assert tables.options == opened(table, uri_column="filename", encoding=encoding).options
    table.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="uri_column"):
        opened(table, encoding=encoding)


@pytest.mark.parametrize("text", ["NA", "n/a", "-", "?"])
def test_a_missing_side_names_what_cures_it(tmp_path: Path, text: str) -> None:
    table = tmp_path / "t.csv"
    background = ("c.jpg", "40", "30", *[text] * 5)
    table.write_text(as_csv(HEADER, [*ROWS[:3], background]))
    detail = references(opened(table))["c.jpg"].detail
    assert spell_option("na_values", text) in detail
    assert contents_of(opened(table, na_values=(text,)))["c.jpg"] == ((), [])


def test_rows_behind_blank_lines_are_named_by_their_lines(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    lines = as_csv(HEADER, ROWS).splitlines()
    lines[4:4] = ["", "", 'd.jpg,40,30,"a\nb",5,6,25,21', "e.jpg,40,30,,5,6,nan,21"]
    table.write_text("\n".join(lines))
    refs = references(opened(table))
    assert refs["d.jpg"].detail.startswith("t.csv, line 7: ")
    assert refs["e.jpg"].detail.startswith("t.csv, line 9: ")
    assert "has no value in line 9" in refs["e.jpg"].detail
    assert boxes_of(refs["a.jpg"]) == EXPECTED["a.jpg"][1]
    table.write_text("filename,age\na.jpg,1\n\n\nb.jpg\n")
    *_, last = opened(table, uri_column="filename").read(str(table))
    assert last.detail.startswith("t.csv, line 5: 1 cell instead of 2")


def test_a_box_without_numbers_and_class_names_what_cures_it(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(as_csv(HEADER, [*ROWS[:3], ("c.jpg", "40", "30", "", *["NA"] * 4)]))
    assert "`na_values=NA`" in references(opened(table))["c.jpg"].detail
    assert contents_of(opened(table, na_values=("NA",)))["c.jpg"] == ((), [])


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        ("5 6 20 15", ["5", "6", "20", "15"]),
        ("5,6, 20 ,15.5", ["5", "6", "20", "15.5"]),
        ("(5, -6.5, 2e1, .5)", ["5", "-6.5", "2e1", ".5"]),
        ("5;6;20;15", ["5", "6", "20", "15"]),
        ("5|6|20|15", ["5", "6", "20", "15"]),
        ("1 2 20 25;3 4 20 21", [["1", "2", "20", "25"], ["3", "4", "20", "21"]]),
        ("[5 6 20 15]", [5, 6, 20, 15]),
        ("[[5, 6, 20, 15]]", [[5, 6, 20, 15]]),
        ("", []),
        ("5 6 20", ["5 6 20"]),
        ("1 2 3 4;5", ["1 2 3 4;5"]),
        ("no_box", ["no_box"]),
    ],
)
def test_boxes_in_a_text(text: str, boxes: list[Any]) -> None:
    assert split_boxes(text) == boxes


def test_long_texts_of_blanks_are_no_boxes() -> None:
    blanks = " " * 100_000
    for text in (f"1{blanks}", f"({blanks}1{blanks}2{blanks}3{blanks}", f"1{blanks},{blanks}2"):
        assert split_boxes(text) == [text]


def test_a_text_of_a_box_in_each_row_is_joined(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text('f,l,bbox\na.jpg,cat,"5,6,25,21"\nb.jpg,,\na.jpg,dog,"(1, 2, 9, 9)"\n')
    columns: Any = {"uri_column": "f", "label_column": "l"}
    tables = opened(table, feature_columns={"bbox": "bbox[xyxy]"}, **columns)
    assert contents_of(tables) == {"a.jpg": EXPECTED["a.jpg"], "b.jpg": ((), [])}
