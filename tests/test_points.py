"""Keypoints and polygons of boxes.

They follow the pixels, whatever is done to these, in all formats.
"""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageColor

import beam_tfr
from beam_tfr import Records, cli
from beam_tfr.features.objects import object_problems
from beam_tfr.features.registry import parse_column
from beam_tfr.inspection.pictures import BOX_COLORS
from beam_tfr.reader import load
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import SIDES
from beam_tfr.tables.annotations.yolo import read_yolo
from beam_tfr.torch import ImageDataset
from tests.conftest import few_at_once
from tests.points import convert, write_photos
from tests.updates import files_of

NAN = math.nan
KEYPOINT, POLYGON = "image/object/keypoint", "image/object/polygon"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("points")
    (place / "coco.json").write_text(json.dumps(write_photos(place, 16)))
    return place


@pytest.mark.parametrize(
    "resize", few_at_once(["crop", "pad", "stretch", "fit", "none"], "crop", "pad")
)
def test_markers_are_under_their_keypoints_in_every_orientation(folder: Path, resize: str) -> None:
    seen = 0
    for record in convert(folder, resize, resize=resize):
        with Image.open(io.BytesIO(record["image/encoded"][0])) as picture:
            pixels = np.asarray(picture).astype(int)
        height, width = pixels.shape[:2]
        numbers, end = record[f"{KEYPOINT}/num"], 0
        assert len(numbers) == len(record["image/object/class/text"])
        for name, number in zip(record["image/object/class/text"], numbers, strict=True):
            begin, end = end, end + number
            x, y, visibility = (
                record[f"{KEYPOINT}/{of}"][begin:end] for of in ("x", "y", "visibility")
            )
            assert number == (3 if name == b"red" else 2 if number else 0)  # none of a crowd
            for across, down, visible in zip(x, y, visibility, strict=True):
                if not visible:
                    assert (across, down) == (0, 0)
                    continue
                at = pixels[
                    min(int(down * height), height - 1), min(int(across * width), width - 1)
                ]
                assert at[0 if name == b"red" else 1] > 100
                seen += 1
    assert seen == 64 if resize != "crop" else 40 < seen < 64


def test_polygons_are_mapped_by_the_one_function(folder: Path) -> None:
    coco = json.loads((folder / "coco.json").read_text())
    records = convert(folder, "polygons", resize="pad")
    for image, record in zip(
        sorted(coco["images"], key=lambda of: of["file_name"]), records, strict=True
    ):
        mine = [of for of in coco["annotations"] if of["image_id"] == image["id"]]
        rings = [of["segmentation"] if isinstance(of["segmentation"], list) else [] for of in mine]
        assert record[f"{POLYGON}/num"] == [3, 7, 0][: len(mine)]
        expected = np.array([*rings[0][0], *rings[1][0], NAN, NAN, *rings[1][1]]).reshape(-1, 2)
        scale = min(64 / image["width"], 48 / image["height"])
        margins = [
            (64 - round(scale * image["width"])) // 2,
            (48 - round(scale * image["height"])) // 2,
        ]
        found = np.column_stack([record[f"{POLYGON}/x"], record[f"{POLYGON}/y"]]) * (64, 48)
        # sides are whole pixels
        np.testing.assert_allclose(found, expected * scale + margins, atol=1.01)
    assert np.isnan(found[6]).all()


def test_dropped_boxes_take_their_points_along(tmp_path: Path) -> None:
    Image.new("RGB", (200, 100), "white").save(tmp_path / "a.png")
    box = [
        [0, 0, 20, 100],
        [60, 10, 80, 30],
        [130, 0, 160, 50],
    ]  # of which a crop to the middle keeps 0, all, 2/3
    row = {
        "path": "a.png",
        "box": box,
        "eye": [[[5, 5, 2]], [[70, 20, 2], [0, 0, 0]], [149, 1, 1, 155, 5, 2]],
    }
    row |= {
        "outline": [[1, 1, 2, 2], None, [[130, 0], [160, 0], [160, 50]]],
        "name": ["a", "b", "c"],
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    columns = {"box": "bbox[xyxy]", "eye": "points[xyv]", "outline": "points[xy]"}
    options: dict[str, Any] = {
        "uri_column": "path",
        "label_column": "name",
        "feature_columns": columns,
        "allow_empty": "a",
    }
    (record,) = convert(
        tmp_path, table="t.jsonl", image_root=tmp_path, image_size=100, resize="crop", **options
    )
    assert record["image/object/class/text"] == [b"b", b"c"]
    assert record["image/object/eye/num"] == [2, 2]
    assert record["image/object/eye/visibility"] == [2, 0, 1, 0]
    np.testing.assert_allclose(record["image/object/eye/x"], [0.2, 0, 0.99, 0], atol=1e-6)
    np.testing.assert_allclose(record["image/object/eye/y"], [0.2, 0, 0.01, 0], atol=1e-6)
    assert record["image/object/outline/num"] == [0, 3]
    # not clipped
    np.testing.assert_allclose(record["image/object/outline/x"], [0.8, 1.1, 1.1], atol=1e-6)
    assert "image/object/outline/visibility" not in record


@pytest.mark.parametrize(
    ("kind", "cell", "expected"),
    [
        ("points[xy]", [[1, 2, 3, 4]], [[(1, 2), (3, 4)]]),
        ("points[xy]", [[[1, 2], [3, 4]], []], [[(1, 2), (3, 4)], []]),
        ("points[xy]", [[[1, 2, 3, 4], [5, 6]], None], [[(1, 2), (3, 4), (NAN, NAN), (5, 6)], []]),
        ("points[rel_xyv]", '[[[0.5, "0.25", 2.0]], [0, 0, 0]]', [[(0.5, 0.25, 2)], [(0, 0, 0)]]),
        ("points[xyv]", "", []),
    ],
)
def test_cells(kind: str, cell: Any, expected: list[list[tuple[float, ...]]]) -> None:
    found = parse_column("c", kind).parse(cell)
    assert parse_column("c", kind).text == kind
    assert [len(of) for of in found] == [len(of) for of in expected]
    np.testing.assert_equal(
        [point for of in found for point in of], [point for of in expected for point in of]
    )


@pytest.mark.parametrize(
    ("kind", "cell", "problem"),
    [
        ("points[xy]", [[1, 2, 3]], r"[1, 2, 3] is not a list of points with 2 numbers each"),
        (
            "points[xyv]",
            [[[1, 2], [3, 4], [5, 6], [7, 8]]],
            "is not a list of points with 3 numbers each",
        ),
        ("points[xyv]", [[1, 2, 0.97]], "0.97 is not a whole number"),
        ("points[xy]", [[1, NAN]], "nan is not a coordinate in an image"),
        ("points[xy]", [[1, "inf"]], "'inf' is not a coordinate in an image"),
        ("points[xy]", [[1, [[2]]]], "is not a number"),
        ("points[xy]", [[{"counts": "abc", "size": [1, 1]}, 2]], "is not a number"),
        ("points[xy]", [[[1, 2, 3, 4], 7]], "7 is not a list of points with 2 numbers each"),
    ],
)
def test_wrong_cells(kind: str, cell: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_column("c", kind).parse(cell)


def test_wrong_calls(folder: Path) -> None:
    path = folder / "t.csv"
    path.write_text('path,box,p\nphotos/0.png,"[[1,2,30,40]]","[[1,2],[3,4]]"\n')
    options: dict[str, Any] = {
        "table": path,
        "uri_column": "path",
        "output": folder / "x",
        "progress": False,
    }
    with pytest.raises(
        UsageError, match="p has values for each box, but no column has boxes, such as box:bbox"
    ):
        beam_tfr.convert(**options, feature_columns={"p": "points[xy]"})
    with pytest.raises(UsageError, match="is not a type"):
        beam_tfr.convert(**options, feature_columns={"box": "bbox[xyxy]", "p": "points[yx]"})
    with pytest.raises(DataError, match="has 2 values for 1 box"):
        beam_tfr.convert(**options, feature_columns={"box": "bbox[xyxy]", "p": "points[xy]"})
    path.write_text('path,box,p,image/object/p/num\nphotos/0.png,"[[1,2,30,40]]","[[1,2]]",7\n')
    columns = {"box": "bbox[xyxy]", "p": "points[xy]", "image/object/p/num": "int64"}
    with pytest.raises(
        UsageError, match="already have a feature with this name; rename the column"
    ):
        beam_tfr.convert(**options, feature_columns=columns)


def expected_points(
    record: dict[str, list[Any]], name: str, size: tuple[int, ...]
) -> list[np.ndarray]:
    parts = [
        np.array(record[f"{name}/{of}"])
        for of in ("x", "y", "visibility")
        if f"{name}/{of}" in record
    ]
    points = np.stack(parts, axis=1) * (*size[::-1], 1)[: len(parts)]
    return np.split(points, np.cumsum(record[f"{name}/num"])[:-1])


@pytest.mark.parametrize("form", few_at_once(["xyxy", "rel_yxyx"], "rel_yxyx"))
def test_readers_give_the_points_of_each_box(folder: Path, form: str) -> None:
    records = {
        of["image/filename"][0]: of for of in convert(folder, f"readers-{form}", resize="pad")
    }
    options: dict[str, Any] = {"split": "train", "boxes": form, "output": "dict"}
    dataset = folder / f"readers-{form}"
    (batch,) = load(dataset, **options, batch_size=16)
    tensors = {key: at for at, key in enumerate(batch["image/filename"].numpy())}
    arrays = {one["image/filename"]: one for one in ImageDataset(dataset, **options)}
    size = (48, 64) if form == "xyxy" else (1, 1)
    for example in Records(dataset, **options):
        key = example["image/filename"]
        assert not [name for name in example if name.startswith((KEYPOINT, POLYGON))]
        for name in ("keypoint", "polygon"):
            wanted = expected_points(records[key], f"image/object/{name}", size)
            assert len(wanted) == len(example[name]) == len(example["boxes"])
            found = (example[name], batch[name][tensors[key]], arrays[key][name])
            for one, here, there, streamed in zip(wanted, *found, strict=True):
                assert here.dtype == np.float32
                np.testing.assert_allclose(here, one, rtol=1e-5)
                np.testing.assert_array_equal(here, there)
                np.testing.assert_array_equal(here, streamed)
    _, objects = Records(dataset, split="train", boxes=form)[0]
    assert [*objects] == ["boxes", "classes"]


@pytest.mark.slow
def test_padded_and_single_examples(folder: Path) -> None:
    convert(folder, "padded", resize="pad")
    options: dict[str, Any] = {"split": "train", "boxes": "xyxy", "output": "dict", "max_boxes": 4}
    (batch,) = load(folder / "padded", **options, batch_size=16)
    assert batch["keypoint"].shape == (16, 4, 3, 3)
    assert batch["polygon"].shape == (16, 4, 7, 2)
    for at, one in enumerate(load(folder / "padded", **options)):
        assert one["keypoint"].shape[0] == 4
        np.testing.assert_array_equal(batch["keypoint"][at][:2, :2], one["keypoint"][:2, :2])


@pytest.mark.slow
def test_points_follow_the_pixels_of_random_crops(folder: Path) -> None:
    """What is painted lies under its keypoint, in crops that are mirrored too."""
    convert(folder, "cropped", resize="pad", image_size=128)
    options: dict[str, Any] = {
        "split": "train",
        "crop": "random",
        "image_size": (96, 80),
        "repeat": 20,
        "seed": 3,
    }
    seen = gone = 0
    for example in load(
        folder / "cropped", boxes="xyxy", output="dict", shuffle=True, **options
    ).as_numpy_iterator():
        assert len(example["boxes"]) == example["keypoint"].shape[0] == example["polygon"].shape[0]
        for label, points, polygon in zip(
            example["classes"], example["keypoint"], example["polygon"], strict=True
        ):
            for (x, y, visible), corner in zip(points[:2], polygon[:2], strict=False):
                gone += not visible
                if visible:
                    np.testing.assert_allclose([x, y], corner, atol=1e-3)
                    if 2 < x < 78 and 2 < y < 94:
                        # Classes are sorted by name: green, red.
                        assert example["image"][int(y), int(x), 1 - label] > 90
                        seen += 1
                else:
                    assert (x, y) == (0, 0)
    assert seen > 300
    assert gone > 50


def test_a_keypoint_that_a_crop_cuts_off_is_not_labelled() -> None:
    numbers = tf.ragged.constant([[2, 1]], tf.int64)
    points = {"x": [[0.25, 0.75, 0.5]], "y": [[0.5, 0.5, 0.5]], "v": [[2, 1, 0]]}
    ragged = {
        name: tf.ragged.constant(of, tf.int64 if name == "v" else tf.float32)
        for name, of in points.items()
    }
    features = {
        name: of.with_row_splits_dtype(tf.int64) for name, of in {**ragged, "n": numbers}.items()
    }
    ends = {"x": "x", "y": "y", "v": "visibility", "n": "num"}
    tensors = {f"image/object/eye/{ends[name]}": of for name, of in features.items()}
    eye = parse_column("eye", "points[xyv]")
    view = tf.constant([[0.5, 0.0, 0.0, 1.0]])  # the left half, mirrored
    reading = SimpleNamespace(views=view, units=tf.constant([[8.0, 4.0]]))
    moved = eye.decode_tensors(eye.collect_tensors(tensors), reading)
    assert moved["eye"].to_list() == [[[[4.0, 2.0, 2.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]]]]


def test_verify_and_readers_notice_wrong_numbers(folder: Path, tmp_path: Path) -> None:
    good = {name: [0.0, 0.5] for name in SIDES[:2]} | {name: [0.5, 1.0] for name in SIDES[2:]}
    x, y, num = (f"image/object/p/{end}" for end in ("x", "y", "num"))
    good |= {"image/object/visible": [1.0, 1.0], num: [1, 2], x: [1, 2, 3], y: [1, 2, 3]}
    kinds = (parse_column("box", "bbox[xyxy]"), parse_column("p", "points[xy]"))
    assert not [*object_problems(good, kinds)]
    for name, values in ((num, [1, 1]), (num, [3]), (x, [1, 2]), (y, [])):
        assert [*object_problems({**good, name: values}, kinds)]


def test_an_update_with_other_points_gives_what_a_fresh_conversion_gives(tmp_path: Path) -> None:
    coco = write_photos(tmp_path, 8)
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    convert(tmp_path)
    coco["annotations"][3]["keypoints"][0] += 3
    coco["annotations"][5]["segmentation"][0][1] += 2
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    source = {"table": tmp_path / "coco.json", "image_root": tmp_path / "photos"}
    done = beam_tfr.update(tmp_path / "d", **source, progress=False)
    assert done.changed == {"added": 0, "removed": 0, "changed": 0, "relabelled": 2}
    convert(tmp_path, "fresh")
    left = ("manifest.json", "history.jsonl")
    found, fresh = files_of(tmp_path / "d"), files_of(tmp_path / "fresh")
    assert {name: found[name] for name in found if name in fresh and name not in left} == {
        name: fresh[name] for name in fresh if name not in left
    }


def test_yolo_pose_and_polygons_equal_those_of_coco(tmp_path: Path) -> None:
    coco = write_photos(tmp_path, 8)
    for one in coco["annotations"][:-1]:
        one["segmentation"] = one["segmentation"][:1]
    del coco["annotations"][-1]
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    for kind in ("pose", "polygon"):
        (tmp_path / kind / "labels").mkdir(parents=True)
        (tmp_path / kind / "images").symlink_to(tmp_path / "photos")
        shape = "kpt_shape: [2, 3]\n" if kind == "pose" else ""
        (tmp_path / kind / "data.yaml").write_text(
            f"train: images\nval:\nnames: [red, green]\n{shape}"
        )
    for image in coco["images"]:
        size = np.array([image["width"], image["height"]])
        mine = [of for of in coco["annotations"] if of["image_id"] == image["id"]]
        lines: dict[str, list[str]] = {"pose": [], "polygon": []}
        for one in mine:
            place = one["category_id"]
            box = np.reshape(one["bbox"], (2, 2))
            keypoints = np.reshape(one["keypoints"], (-1, 3))[:2] / (*size, 1)
            numbers = [*((box[0] + box[1] / 2) / size), *(box[1] / size), *keypoints.ravel()]
            lines["pose"].append(" ".join(map(repr, [place, *map(float, numbers)])))
            corners = np.reshape(one["segmentation"], (-1, 2)) / size
            lines["polygon"].append(" ".join(map(repr, [place, *map(float, corners.ravel())])))
        for kind, some in lines.items():
            (tmp_path / kind / "labels" / f"{image['id']}.txt").write_text("\n".join(some))
    truth = convert(tmp_path, resize="pad")
    for kind, name in (("pose", KEYPOINT), ("polygon", POLYGON)):
        for one, other in zip(
            truth,
            convert(
                tmp_path, kind + "-d", table=f"{kind}/data.yaml", resize="pad", image_root=None
            ),
            strict=True,
        ):
            points, expected = (expected_points(of, name, (1, 1)) for of in (other, one))
            for here, there in zip(points, expected, strict=True):
                np.testing.assert_allclose(here, there[: len(here)], atol=1e-5)
                assert len(here) == (2 if kind == "pose" else 3)


def test_wrong_numbers_of_yolo_are_rejects(tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    (tmp_path / "images").mkdir()
    lines = {
        "good": "0 .5 .5 .2 .2 .5 .5 -1 .4",
        "short": "0 .5 .5 .2 .2 .5 .5",
        "box": "0 .5 .5 .2 .2",
    }
    for name, line in lines.items():
        Image.new("RGB", (10, 10)).save(tmp_path / "images" / f"{name}.png")
        (tmp_path / "labels" / f"{name}.txt").write_text(line)
    (tmp_path / "data.yaml").write_text("train: images\nval:\nnames: [cat]\nkpt_shape: [2, 2]\n")
    options: dict[str, Any] = {"table": tmp_path / "data.yaml", "image_size": 10, "max_rejects": 2}
    done = beam_tfr.convert(**options, output=tmp_path / "d", progress=False)
    assert done.counts["rejected"] == {"bad-value": 2}
    details = sorted(reject.detail.partition(": column ")[2] for reject in done.rejects)
    told = "'keypoint': {} keypoint numbers, but `kpt_shape` says 2 keypoints of 2 numbers each"
    assert details == [told.format(number) for number in (0, 2)]
    (example,) = Records(tmp_path / "d", split="train", boxes="xyxy", output="dict")
    np.testing.assert_allclose(example["keypoint"], [[[5, 5, 2], [0, 0, 0]]], atol=1e-5)


def test_fields_about_keypoints_that_are_not_stored_are_told(tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    (tmp_path / "images").mkdir()
    Image.new("RGB", (10, 10)).save(tmp_path / "images/a.png")
    (tmp_path / "labels/a.txt").write_text("0 .5 .5 .2 .2 .5 .5 .4 .4")
    table = tmp_path / "data.yaml"
    told = []
    for fields in ("", "flip_idx: [1, 0]\nkpt_names: {0: [nose, tail]}\n"):
        table.write_text(f"train: images\nnames: [cat]\nkpt_shape: [2, 2]\n{fields}")
        notes = list[Any]()
        [*read_yolo(str(table), io.BytesIO(table.read_bytes()), notes.append)]
        told.append("its kpt_names and flip_idx are not stored" in " ".join(notes))
    assert told == [False, True]


def test_keypoints_of_other_sizes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "data.yaml").write_text("train: images\nval:\nnames: [cat]\nkpt_shape: [2, 4]\n")
    with pytest.raises(DataError, match=r"cannot be read as YOLO: .*'4'.*kpt_shape"):
        beam_tfr.convert(table=tmp_path / "data.yaml", output=tmp_path / "d", progress=False)


def test_they_are_drawn(folder: Path, tmp_path: Path) -> None:
    convert(folder, "drawn", resize="pad", image_size=224)
    sheet = tmp_path / "sheet.png"
    assert cli.main(["inspect", str(folder / "drawn"), "--contact_sheet", str(sheet)]) == 0
    with Image.open(sheet) as picture:
        colors = {color: count for count, color in picture.convert("RGB").getcolors(1 << 20)}
    assert all(colors.get(ImageColor.getrgb(color), 0) > 1000 for color in BOX_COLORS[:2])
