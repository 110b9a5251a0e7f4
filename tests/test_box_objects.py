"""Tables with a list of objects in each row, whose fields are the sides of boxes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow
import pytest
from pyarrow import parquet

from beam_tfr import convert
from beam_tfr.options import ConvertOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables
from tests.table_rows import records_of

Rows = Sequence[Mapping[str, Any]]
SAGEMAKER = {
    "source-ref": "s3://bucket/set/a.jpg",
    "bounding-box": {
        "image_size": [{"width": 40, "height": 30, "depth": 3}],
        "annotations": [
            {"class_id": 0, "left": 5, "top": 6, "width": 20, "height": 15},
            {"class_id": 1, "left": 1, "top": 2, "width": 8, "height": 7},
        ],
    },
    "bounding-box-metadata": {"class-map": {"0": "cat", "1": "dog"}, "type": "groundtruth"},
}
VERTEX = {
    "imageGcsUri": "a.jpg",
    "boundingBoxAnnotations": [
        {"displayName": "cat", "xMin": 0.125, "yMin": 0.25, "xMax": 0.625, "yMax": 0.75},
        {"displayName": "dog", "xMin": 0, "yMin": 0, "xMax": 0.25, "yMax": 0.25},
    ],
    "dataItemResourceLabels": {"aiplatform.googleapis.com/ml_use": "test"},
}
AZURE = {
    "image_url": "a.jpg",
    "label": [
        {"label": "cat", "topX": 0.125, "topY": 0.25, "bottomX": 0.625, "bottomY": 0.75},
        {"label": "dog", "topX": 0, "topY": 0, "bottomX": 0.25, "bottomY": 0.25},
    ],
}
BDD = {
    "name": "a.jpg",
    "attributes": {"weather": "clear"},
    "labels": [
        {"category": "cat", "box2d": {"x1": 5, "y1": 6, "x2": 25, "y2": 21}},
        {"category": "lane", "poly2d": [[1, 2], [3, 4]]},
        {"category": "dog", "box2d": {"x1": 1, "y1": 2, "x2": 9, "y2": 9}},
    ],
}
PIXELS = [[5, 6, 25, 21], [1, 2, 9, 9]]
SHARES = [[0.125, 0.25, 0.625, 0.75], [0, 0, 0.25, 0.25]]
# Row -> its classes and boxes, and what its declaration begins with.
KINDS: dict[str, tuple[Mapping[str, Any], tuple[str, ...], Any, str]] = {
    "sagemaker": (SAGEMAKER, ("0", "1"), PIXELS, "bbox[xywh]=bounding-box.annotations.left+"),
    "vertex": (VERTEX, ("cat", "dog"), SHARES, "bbox[rel_xyxy]=boundingBoxAnnotations.xMin+"),
    "azure": (AZURE, ("cat", "dog"), SHARES, "bbox[rel_xyxy]=label.topX+"),
    "bdd": (BDD, ("cat", "dog"), PIXELS, "bbox[xyxy]=labels.box2d.x1+"),
}


def write_image(folder: Path) -> None:
    PIL.Image.new("RGB", (40, 30), "gray").save(folder / "a.jpg")


def write_rows(folder: Path, rows: Rows, name: str = "t.jsonl") -> Path:
    write_image(folder)
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def opened(path: Path, **options: Any) -> Tables:
    given = ConvertOptions(table=(str(path),), output="/o", **options)
    return open_tables(find_content(given))


def references(tables: Tables) -> list[ImageRef]:
    return [ref for file in tables.files for ref in tables.read(file)]


def boxes_of(ref: ImageRef) -> list[list[float]]:
    sides = parse_example(ref.columns or b"")["image/object/bbox"]
    return np.array(sides).reshape(-1, 4).round(6).tolist()


@pytest.mark.parametrize("kind", [*KINDS])
def test_objects_are_boxes(tmp_path: Path, kind: str) -> None:
    row, classes, boxes, declaration = KINDS[kind]
    tables = opened(write_rows(tmp_path, [row]))
    (ref,) = references(tables)
    assert (ref.key, ref.labels, boxes_of(ref)) == ("a.jpg", classes, boxes)
    assert declaration in " ".join(tables.warnings)


def test_boxes_in_records(tmp_path: Path) -> None:
    table = write_rows(tmp_path, [AZURE])
    convert(table=table, output=tmp_path / "d", resize="stretch", progress=False)
    record = records_of(tmp_path / "d")["a.jpg"]
    assert record["image/object/bbox/xmin"] == [0.125, 0]
    assert record["image/object/class/text"] == [b"cat", b"dog"]


def test_the_split_of_vertex_is_taken(tmp_path: Path) -> None:
    (ref,) = references(opened(write_rows(tmp_path, [VERTEX])))
    assert ref.split == "test"
    (ref,) = references(opened(write_rows(tmp_path, [VERTEX]), splits="train=1"))
    assert ref.split == "train"


def test_the_names_of_numbers_are_told_and_the_cure_works(tmp_path: Path) -> None:
    tables = opened(write_rows(tmp_path, [SAGEMAKER]))
    (line,) = [line for line in tables.warnings if "jq -c" in line]
    command = line[line.index("jq -c") :].partition(" writes ")[0]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    (named,) = tmp_path.glob("named-*.jsonl")
    tables = opened(named)
    (ref,) = references(tables)
    assert ref.labels == ("cat", "dog")
    assert not [line for line in tables.warnings if "jq -c" in line]


@pytest.mark.parametrize(
    "polygon", [[[0.125, 0.25, 0.625, 0.25, 0.5, 0.75]], [[0.125, 0.75], [0.625, 0.25]]]
)
def test_polygons_are_told_and_the_cure_works(tmp_path: Path, polygon: list[list[float]]) -> None:
    """As of Azure ML's instance segmentation."""
    row = {"image_url": "a.jpg", "label": [{"label": "cat", "polygon": polygon}]}
    given = {"uri_column": "image_url", "label_column": "label.label"}
    tables = opened(write_rows(tmp_path, [row]), **given)
    (line,) = [line for line in tables.warnings if "jq -c" in line]
    assert "no values of label.polygon" in line
    command = line[line.index("jq -c") :].partition(" writes ")[0]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    (ref,) = references(opened(tmp_path / "boxes.jsonl"))
    assert ref.labels == ("cat",)
    assert boxes_of(ref)[0] == SHARES[0]


def test_quadrangles_are_told_and_the_cure_works(tmp_path: Path) -> None:
    """As of mmocr's WildReceipt."""
    corners = [0.125, 0.25, 0.625, 0.25, 0.625, 0.75, 0.125, 0.75]
    row = {"file_name": "a.jpg", "annotations": [{"box": corners, "label": "cat"}]}
    path = write_rows(tmp_path, [row])
    with pytest.raises(UsageError, match=r"annotations\.box has the corners of quadrangles"):
        opened(path)
    tables = opened(path, uri_column="file_name", label_column="annotations.label")
    (line,) = [line for line in tables.warnings if "jq -c" in line]
    command = line[line.index("jq -c") :].partition(" writes ")[0]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    (ref,) = references(opened(tmp_path / "boxes.jsonl"))
    assert ref.labels == ("cat",)
    assert boxes_of(ref)[0] == SHARES[0]


def test_objects_without_boxes_are_told(tmp_path: Path) -> None:
    tables = opened(write_rows(tmp_path, [BDD]))
    assert any("1 objects in the first 1 rows have no box" in line for line in tables.warnings)


@pytest.mark.parametrize("annotations", [[], None])
def test_images_without_objects(tmp_path: Path, annotations: Any) -> None:
    rows = [AZURE, {"image_url": "b.jpg", "label": annotations}]
    _, ref = references(opened(write_rows(tmp_path, rows)))
    assert (ref.key, ref.labels, boxes_of(ref)) == ("b.jpg", (), [])


def test_a_bad_object_rejects_its_image_alone(tmp_path: Path) -> None:
    bad = {"label": "cat", "topX": 0.5, "topY": 0.5, "bottomX": None, "bottomY": 0.6}
    nameless = {**AZURE["label"][0], "label": None}
    rows = [
        AZURE,
        {"image_url": "b.jpg", "label": [AZURE["label"][0], bad]},
        {"image_url": "c.jpg", "label": [nameless]},
    ]
    first, second, third = references(opened(write_rows(tmp_path, rows)))
    assert not first.reason
    assert second.reason == third.reason == "bad-value"
    assert "object 2" in second.detail
    assert "object 1 of row 3" in third.detail


def test_parquet_with_lists_of_structs(tmp_path: Path) -> None:
    write_image(tmp_path)
    parquet.write_table(pyarrow.Table.from_pylist([AZURE]), tmp_path / "t.parquet")
    (ref,) = references(opened(tmp_path / "t.parquet"))
    assert (ref.labels, boxes_of(ref)) == (("cat", "dog"), SHARES)


def test_boxes_may_be_declared(tmp_path: Path) -> None:
    sides = "+".join(f"boundingBoxAnnotations.{name}" for name in ("xMin", "yMin", "xMax", "yMax"))
    tables = opened(
        write_rows(tmp_path, [VERTEX]),
        uri_column="imageGcsUri",
        label_column="boundingBoxAnnotations.displayName",
        feature_columns={"box": f"bbox[rel_xyxy]={sides}"},
    )
    (ref,) = references(tables)
    assert (ref.labels, boxes_of(ref)) == (("cat", "dog"), SHARES)


def test_objects_may_stay_text(tmp_path: Path) -> None:
    tables = opened(
        write_rows(tmp_path, [VERTEX]),
        uri_column="imageGcsUri",
        feature_columns={"boundingBoxAnnotations": "bytes"},
    )
    (ref,) = references(tables)
    assert b"displayName" in parse_example(ref.columns or b"")["boundingBoxAnnotations"][0]


def test_percents_of_label_studio_are_no_boxes(tmp_path: Path) -> None:
    label = {"x": 1, "y": 2, "width": 3, "height": 4, "original_width": 40, "original_height": 30}
    tables = opened(
        write_rows(tmp_path, [{"image": "a.jpg", "label": [label]}]), uri_column="image"
    )
    assert not any("bbox" in line for line in tables.warnings)


# Name -> content, and the classes of what the command of its message writes.
JSON = {
    "kvasir.json": (
        {
            "a": {
                "height": 30,
                "width": 40,
                "bbox": [{"label": "polyp", "xmin": 5, "ymin": 6, "xmax": 25, "ymax": 21}],
            }
        },
        ("polyp",),
    ),
    "bdd.json": ([BDD], ("cat", "dog")),
    "frame.json": (
        {
            "name": "a",
            "frames": [
                {
                    "timestamp": 1,
                    "objects": [
                        {"category": "cat", "box2d": {"x1": 5, "y1": 6, "x2": 25, "y2": 21}}
                    ],
                }
            ],
        },
        ("cat",),
    ),
}


@pytest.mark.parametrize("name", [*JSON])
def test_the_cure_for_other_json_works(tmp_path: Path, name: str) -> None:
    content, classes = JSON[name]
    write_image(tmp_path)
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(DataError) as raised:
        opened(tmp_path / name)
    run_jq(str(raised.value), tmp_path, name)
    (ref,) = references(opened(tmp_path / "a.jsonl"))
    assert ref.key == "a.jpg"
    assert ref.labels == classes
    assert boxes_of(ref)[0] == PIXELS[0]


def run_jq(message: str, folder: Path, name: str) -> None:
    """Runs the command of a message, which names a.json, with another file."""
    command = message[message.index("jq ") :].partition(", and give ")[0]
    for shown in ("a.json >", "*.json >"):
        command = command.replace(shown, f"{name} >")
    subprocess.run(command, shell=True, check=True, cwd=folder)


def test_the_cure_for_geojson_works(tmp_path: Path) -> None:
    feature = {"bounds_imcoords": "5,6,25,21", "type_id": 73, "image_id": "a.jpg"}
    other = {**feature, "bounds_imcoords": "1,2,9,9", "type_id": 11}
    features = [{"type": "Feature", "properties": each} for each in (feature, other)]
    write_image(tmp_path)
    (tmp_path / "x.geojson").write_text(
        json.dumps({"type": "FeatureCollection", "features": features})
    )
    with pytest.raises(UsageError, match="GeoJSON") as raised:
        opened(tmp_path / "x.geojson")
    run_jq(str(raised.value), tmp_path, "x.geojson")
    tables = opened(
        tmp_path / "a.jsonl",
        uri_column="image",
        label_column="class",
        feature_columns={"box": "bbox[xyxy]"},
    )
    (ref,) = references(tables)
    assert (ref.labels, boxes_of(ref)) == (("73", "11"), PIXELS)


def test_the_cure_for_ids_of_other_names_works(tmp_path: Path) -> None:
    """As of Herbarium."""
    content = {
        "images": [{"image_id": "0", "file_name": "a.jpg"}],
        "categories": [{"category_id": 7, "scientificName": "Abies alba"}],
        "annotations": [{"image_id": "0", "category_id": 7, "bbox": [5, 6, 20, 15]}],
    }
    write_image(tmp_path)
    (tmp_path / "meta.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="Herbarium") as raised:
        opened(tmp_path / "meta.json")
    run_jq(str(raised.value), tmp_path, "meta.json")
    (ref,) = references(opened(tmp_path / "b.json"))
    assert (ref.labels, boxes_of(ref)) == (("Abies alba",), PIXELS[:1])


@pytest.mark.parametrize(
    ("name", "content", "cure"),
    [
        ("output.manifest", json.dumps(SAGEMAKER), "name it .jsonl"),
        ("train.odgt", '{"ID": "a", "gtboxes": []}\n{"ID": "b", "gtboxes": []}\n', ".jsonl"),
        ("train.lst", "0\t1.0\ta.jpg\n1\t0.0\tb.jpg\n", "number<TAB>label<TAB>path"),
        ("info.labels", '{"version": 1, "files": []}', "Edge Impulse"),
        ("coco.labels", '{\n"images": [],\n"annotations": []}', "name it .json"),
        ("long.geojson", '{"type": "FeatureCollection", "features": [', "GeoJSON"),
    ],
)
def test_other_names_of_text_are_told(tmp_path: Path, name: str, content: str, cure: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=cure):
        opened(tmp_path / name)


def test_fields_beside_the_boxes_are_told_and_the_cure_works(tmp_path: Path) -> None:
    row = {**AZURE, "label": [{**label, "isCrowd": 1} for label in AZURE["label"]]}
    table = write_rows(tmp_path, [row])
    (line,) = [line for line in opened(table).warnings if "no values of" in line]
    assert "columns label.isCrowd are stored:" in line
    assert "box:bbox[rel_xyxy],label.isCrowd:int64[box]" in line
    features = {"box": "bbox[rel_xyxy]", "label.isCrowd": "int64[box]"}
    (ref,) = references(opened(table, uri_column="image_url", feature_columns=features))
    assert (ref.labels, boxes_of(ref)) == (("cat", "dog"), SHARES)
    assert parse_example(ref.columns or b"")["label.isCrowd"] == [1, 1]


def test_the_cure_for_lists_of_four_numbers_works(tmp_path: Path) -> None:
    """As of CrowdHuman."""
    objects = [
        {"tag": "person", "hbox": [5, 6, 4, 4], "fbox": [5, 6, 20, 15], "extra": {"box_id": 0}},
        {"tag": "mask", "hbox": [1, 2, 4, 4], "fbox": [1, 2, 8, 7], "extra": {"box_id": 1}},
    ]
    table = write_rows(tmp_path, [{"ID": "a", "gtboxes": objects}])
    with pytest.raises(UsageError, match="uri_column"):
        opened(table)
    (line,) = [line for line in opened(table, uri_column="ID").warnings if "gtboxes" in line]
    assert "`feature_columns='gtboxes.fbox:bbox[xywh]'`" in line
    features = {"gtboxes.fbox": "bbox[xywh]"}
    roles = {"uri_column": "ID", "label_column": "gtboxes.tag"}
    (ref,) = references(opened(table, **roles, feature_columns=features))
    assert (ref.key, ref.labels, boxes_of(ref)) == ("a.jpg", ("person", "mask"), PIXELS)


def test_the_column_of_objects_may_be_called_box(tmp_path: Path) -> None:
    objects = [{"x": 5, "y": 6, "width": 20, "height": 15}]
    (ref,) = references(opened(write_rows(tmp_path, [{"file_name": "a.jpg", "box": objects}])))
    assert (ref.key, boxes_of(ref)) == ("a.jpg", PIXELS[:1])


def test_a_class_of_the_image_is_none_of_its_objects(tmp_path: Path) -> None:
    row = {"image": "a.jpg", "kind": "photo", "objects": AZURE["label"]}
    tables = opened(write_rows(tmp_path, [row]), uri_column="image", label_column="kind")
    (ref,) = references(tables)
    assert ref.labels == ("photo",)
    assert any("objects.topX" in line for line in tables.warnings)


def test_the_cure_for_objects_without_a_column_of_images_works(tmp_path: Path) -> None:
    """As of Hugging Face's metadata.jsonl."""
    objects = [{"bbox": [5, 6, 20, 15], "category": "cat"}, {"bbox": [1, 2, 8, 7], "category": "x"}]
    table = write_rows(tmp_path, [{"file_name": "a.jpg", "objects": objects}])
    with pytest.raises(UsageError) as caught:
        opened(table)
    options = ("uri_column=file_name", "feature_columns='objects.bbox:bbox[xywh]'")
    assert all(f"`{option}`" in str(caught.value) for option in options)
    assert "`label_column=objects.category`" in str(caught.value)
    roles = {"uri_column": "file_name", "label_column": "objects.category"}
    features = {"objects.bbox": "bbox[xywh]"}
    (ref,) = references(opened(table, **roles, feature_columns=features))
    assert (ref.key, ref.labels, boxes_of(ref)) == ("a.jpg", ("cat", "x"), PIXELS)


@pytest.mark.parametrize("names", ["a.json b.xml", "a.csv b.json", "a.jsonl b.yaml", "a.csv b.xml"])
def test_annotations_of_different_kinds_are_refused(tmp_path: Path, names: str) -> None:
    paths = [tmp_path / name for name in names.split()]
    for path in paths:
        path.write_text("file,label\n")
    with pytest.raises(UsageError, match="is of a different kind than"):
        find_content(ConvertOptions(output="/o", table=tuple(map(str, paths))))
