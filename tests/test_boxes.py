"""Boxes of objects in tables: they follow the pixels, whatever is done to these."""

from __future__ import annotations

import io
import json
import random
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageColor

import beam_tfr
from beam_tfr import cli
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.features.objects import object_problems
from beam_tfr.features.registry import parse_column
from beam_tfr.inspection.pictures import BOX_COLORS
from beam_tfr.options import ConvertOptions
from beam_tfr.options.table import from_values
from beam_tfr.reader import load
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import SIDES, SOURCE_SIDES
from beam_tfr.torch import ImageDataset
from tests.conftest import few_at_once
from tests.updates import files_of

BESIDE = ("iscrowd", "difficult", "image/object/visible")
COLORS = {"red": (250, 0, 0), "green": (0, 250, 0), "blue": (0, 0, 250)}
FORMATS = ("xyxy", "yxyx", "xywh", "center_xywh")
SLOW_FORMATS = ("yxyx", "xywh", "center_xywh", "rel_xyxy", "rel_yxyx", "rel_center_xywh")
TYPES = {"box": "bbox[xyxy]", "depth": "float[box]", "tag": "bytes[box]"}


def in_format(
    box: tuple[float, float, float, float], form: str, size: tuple[int, int]
) -> list[float]:
    """A box in another format."""
    x0, y0, x1, y1 = box
    if form.startswith("rel_"):
        x0, y0, x1, y1 = x0 / size[0], y0 / size[1], x1 / size[0], y1 / size[1]
    width, height = x1 - x0, y1 - y0
    return {
        "xyxy": [x0, y0, x1, y1],
        "yxyx": [y0, x0, y1, x1],
        "xywh": [x0, y0, width, height],
        "center_xywh": [x0 + width / 2, y0 + height / 2, width, height],
    }[form.removeprefix("rel_")]


def paint(
    path: Path, number: int, *, orientation: int = 1
) -> list[tuple[str, tuple[int, int, int, int]]]:
    """Writes a black picture of odd size with a square of each color.

    Returns where they are in the upright picture.
    """
    chance = random.Random(number)
    width, height, side = chance.randrange(61, 161, 2), chance.randrange(61, 161, 2), 15
    picture, found = Image.new("RGB", (width, height)), []
    for at, (name, color) in enumerate(COLORS.items()):  # in strips, so that none hides another
        x, y = (
            at * width // 3 + chance.randrange(width // 3 - side),
            chance.randrange(height - side),
        )
        picture.paste(color, (x, y, x + side, y + side))
        found.append((name, (x, y, x + side, y + side)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    turns = {
        2: 0,
        3: 3,
        4: 1,
        5: 5,
        6: 2,
        7: 6,
        8: 4,
    }  # Pillow's transpositions that undo the orientation, undone
    stored = picture if orientation == 1 else picture.transpose(Image.Transpose(turns[orientation]))
    stored.save(path, exif=exif)
    return found


def write_table(folder: Path, number: int = 8, form: str = "xyxy") -> Path:
    """Photos with all orientations, and a table of their boxes."""
    rows = []
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    for i in range(number):
        path = folder / "photos" / f"{i}.png"
        found = paint(path, i, orientation=i % 8 + 1)
        with Image.open(path) as picture:
            size = picture.size if i % 8 < 4 else picture.size[::-1]
        boxes = [in_format(box, form, size) for _, box in found]
        names = [name for name, _ in found]
        rows.append(
            {
                "path": f"photos/{i}.png",
                "box": boxes,
                "name": names,
                "depth": [i, i + 0.5, i + 0.75],
                "tag": names,
            }
        )
    table = folder / "boxes.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return table


def convert(table: Path, output: Path, form: str = "xyxy", **options: Any) -> Any:
    defaults: dict[str, Any] = {
        "image_size": (48, 64),
        "encoding": "png",
        "num_shards": 1,
        "name": "d",
        "background": "black",
    }
    columns = {
        "feature_columns": TYPES | {"box": f"bbox[{form}]"},
        "uri_column": "path",
        "label_column": "name",
    }
    if options.get("resize") == "none":
        del defaults["image_size"]
    return beam_tfr.convert(
        table=table, output=output, progress=False, **(defaults | columns | options)
    )


def records(folder: Path) -> list[dict[str, list[Any]]]:
    files = sorted(folder.glob("*.tfrecord.gz"))
    return [
        parse_example(record)
        for path in files
        for record in RecordFile(str(path), max_record_bytes=1 << 20)
    ]


def check_markers(record: dict[str, list[Any]], *, least: int) -> None:
    """Every box has its color under its center, and its tag and depth belong to it."""
    with Image.open(io.BytesIO(record["image/encoded"][0])) as picture:
        pixels = np.asarray(picture).astype(int)
    height, width = pixels.shape[:2]
    names = [name.decode() for name in record["image/object/class/text"]]
    assert len(names) >= least
    assert record["tag"] == record["image/object/class/text"] == record["image/class/text"]
    assert record["image/object/class/label"] == record["image/class/label"]
    number = int(record["image/filename"][0].decode().removesuffix(".png").rpartition("/")[2])
    assert record["depth"] == [
        number + {"red": 0, "green": 0.5, "blue": 0.75}[name] for name in names
    ]
    for at, name in enumerate(names):
        x0, y0, x1, y1 = (
            record[side][at] * of for side, of in zip(SIDES, (width, height) * 2, strict=True)
        )
        assert 0 <= x0 < x1 <= width + 1e-3
        assert 0 <= y0 < y1 <= height + 1e-3
        of = ("red", "green", "blue").index(name)
        strong = pixels[:, :, of] > 125
        ys, xs = np.nonzero(strong)
        assert strong[int((y0 + y1) / 2), int((x0 + x1) / 2)]
        if x1 - x0 > 3 and y1 - y0 > 3:  # edges lie within a pixel of the square's
            assert np.allclose(
                [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1], [x0, y0, x1, y1], atol=1.01
            )


@pytest.mark.parametrize(
    "resize", few_at_once(["crop", "pad", "stretch", "fit", "none"], "crop", "pad")
)
def test_markers_are_under_their_boxes_in_every_orientation(tmp_path: Path, resize: str) -> None:
    table = write_table(tmp_path)
    done = convert(table, tmp_path / "d", resize=resize)
    assert done.manifest.counts["written"] == 8
    for record in records(tmp_path / "d"):
        check_markers(record, least=1 if resize == "crop" else 3)
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok


def test_verify_checks_boxes() -> None:
    good = {name: [0.0, 0.5] for name in SIDES[:2]} | {name: [0.5, 1.0] for name in SIDES[2:]}
    good |= {
        "image/object/class/text": [b"a", b"a"],
        "image/class/label": [0, 0],
        "image/object/visible": [1.0, 0.2],
    }
    options = {"encoding": "png", "multi_label": True, "feature_columns": {"box": "bbox[xyxy]"}}
    kinds = FeaturesDict.from_options(options, labelled=True).kinds
    good["image/object/class/label"] = [0, 0]
    assert not [*object_problems(good, kinds)]
    for name, values in {
        SIDES[0]: [0.6, 0.5],
        SIDES[3]: [0.5, 1.01],
        SIDES[1]: [-0.1, 0.5],
        SIDES[2]: [0.5],
    }.items():
        assert [*object_problems(good | {name: values}, kinds)]
    assert [*object_problems(good | {"image/class/label": [0]}, kinds)]


@pytest.mark.parametrize(
    "form", ["rel_xywh", *(pytest.param(form, marks=pytest.mark.slow) for form in SLOW_FORMATS)]
)
def test_all_formats_say_the_same(tmp_path: Path, form: str) -> None:
    expected = convert(write_table(tmp_path), tmp_path / "d") and records(tmp_path / "d")
    convert(write_table(tmp_path, form=form), tmp_path / "other", form)
    for one, other in zip(expected, records(tmp_path / "other"), strict=True):
        assert one.keys() == other.keys()
        for name in one:
            if name in SIDES:
                assert np.allclose(one[name], other[name], atol=1e-6)
            elif name != "image/object/visible":
                assert one[name] == other[name]


def test_a_size_that_contradicts_the_image_is_a_reject_and_background_is_counted(
    tmp_path: Path,
) -> None:
    table = write_table(tmp_path, 7)  # the last two are stored with their sides swapped
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    for i, row in enumerate(rows):
        with Image.open(tmp_path / row["path"]) as picture:
            row |= zip(SOURCE_SIDES, picture.size, strict=True)
        if i == 0:
            row |= {"box": [], "name": [], "depth": [], "tag": []}
    rows[1][SOURCE_SIDES[0]] += 1
    rows[2] |= dict.fromkeys(SOURCE_SIDES, 0)
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = TYPES | dict.fromkeys(SOURCE_SIDES, "int64=0")
    done = convert(table, tmp_path / "d", resize="stretch", feature_columns=columns, max_rejects=9)
    told = {Path(reject.key).stem: (reject.reason, reject.detail) for reject in done.rejects}
    assert told.keys() == {"1", "4", "5", "6"}
    width, height = rows[1][SOURCE_SIDES[0]], rows[1][SOURCE_SIDES[1]]
    size = f"{width}x{height} pixels, but the image has {width - 1}x{height}"
    assert told["1"] == ("bad-value", f"the table says {size}")
    assert all("its boxes ignore EXIF orientation" in told[key][1] for key in "456")
    assert done.counts["adjusted"]["no-boxes"] == 1
    stored = {
        Path(record["image/filename"][0].decode()).stem: record
        for record in records(tmp_path / "d")
    }
    assert stored.keys() == {"0", "2", "3"}
    assert [stored["3"][side] for side in SOURCE_SIDES] == [
        [rows[3][side]] for side in SOURCE_SIDES
    ]
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok


@pytest.mark.parametrize(
    ("columns", "options", "resize"),
    [
        ({"box": "bbox[xyxy]"}, {}, "pad"),
        ({"box": "bbox[xyxy]"}, {"resize": "crop"}, "crop"),
        ({"m": "mask"}, {}, "pad"),
        ({"m": "pair"}, {}, "crop"),
        (None, {"table": "t.json"}, "pad"),
        (None, {"table": "data.yaml"}, "pad"),
        ({"age": "int64"}, {}, "crop"),
        (None, {"table": (), "input": "photos", "pair": "mask=masks/{stem}.png"}, "pad"),
        (None, {"table": (), "input": "photos", "pair": "depth=depth/{stem}.png"}, "crop"),
        (None, {"table": (), "input": "photos"}, "crop"),
    ],
)
def test_what_would_lose_objects_is_padded_by_default(
    columns: dict[str, str] | None, options: dict[str, Any], resize: str
) -> None:
    given = {"table": "t.jsonl", "output": "d", "feature_columns": columns, **options}
    if given["table"] == "t.jsonl":
        given["uri_column"] = "path"
    checked = from_values(given, ConvertOptions)
    features = checked.feature_columns
    assert checked.data_options(None, columns=features)["resize"] == resize


def test_a_crop_drops_what_is_hardly_visible(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (100, 50)).save(tmp_path / "photos" / "0.png")
    boxes = [
        [0, 0, 20, 20],
        [20, 10, 30, 20],
        [40, 10, 50, 20],
        [60, 0, 90, 10],
    ]  # of 100x50, 25 to 75 is left
    row = {
        "path": "photos/0.png",
        "box": boxes,
        "name": ["a", "b", "c", "a"],
        "depth": [1, 2, 3, 4],
        "tag": list("wxyz"),
    }
    table = tmp_path / "boxes.jsonl"
    table.write_text(json.dumps(row))
    done = convert(table, tmp_path / "d", image_size=50, resize="crop")
    (record,) = records(tmp_path / "d")
    assert record["image/object/class/text"] == [b"b", b"c", b"a"]
    assert record["depth"] == [2, 3, 4]
    assert record["tag"] == [b"x", b"y", b"z"]
    assert np.allclose(record["image/object/visible"], [0.5, 1, 0.5])
    assert np.allclose(
        [record[side] for side in SIDES],
        [[0, 0.3, 0.7], [0.2, 0.2, 0], [0.1, 0.5, 1], [0.4, 0.4, 0.2]],
    )
    assert done.manifest.counts["adjusted"] == {"boxes-clipped": 1, "boxes-dropped": 1}
    assert done.manifest.splits["train"].class_counts == {"a": 1, "b": 1, "c": 1}
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok
    strict: dict[str, Any] = {"image_size": 50, "resize": "crop", "min_visible": 0.6}
    with pytest.raises(
        DataError,
        match=r"class a would be lost .*: all "
        r"of its boxes in this split \(2\) were dropped\. Lower",
    ):
        convert(table, tmp_path / "strict", **strict)
    strict["allow_empty"] = ("a", "b")
    convert(table, tmp_path / "strict", **strict)
    (record,) = records(tmp_path / "strict")
    assert record["tag"] == [b"y"]
    convert(table, tmp_path / "pad", image_size=50, resize="pad")
    (record,) = records(tmp_path / "pad")
    assert record["image/object/visible"] == [1, 1, 1, 1]
    assert beam_tfr.verify(tmp_path / "pad", progress=False).ok  # two of one class


BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"box": [[5, 5, 5, 9]]}, "is not a box with an area in the format xyxy"),
    ({"box": [[5, 5, 2, 9]]}, "is not a box with an area"),
    (
        {"box": [[0.1, 0, 0.9, 1]]},
        "no box is larger than a pixel; if these are fractions of the image, the format is "
        "rel_xyxy",
    ),
    ({"box": [[float("nan"), 5, 7, 9]]}, "is not a box with an area"),
    ({"box": [[-float("inf"), 5, 7, 9]]}, "is not a box with an area"),
    ({"box": [[1e39, 5, 7, 9]]}, "does not fit into 32 bits"),
    ({"box": [[1, 2, 3]]}, "[1, 2, 3] is not a box of four numbers"),
    ({"box": [["a", 2, 3, 4]]}, "'a' is not a number"),
    ({"box": [[[1], 2, 3, 4]]}, "is not a number"),
    ({"box": {"x": 1}}, "[{'x': 1}] is not a box of four numbers"),
    (
        {"box": [[1, 2, 3], [4, 5, 6, 7, 8]], "name": ["red"] * 2},
        "[1, 2, 3] is not a box of four numbers",
    ),
    ({"box": [1, 2, 30, 40, 5]}, "[5] is not a box of four numbers"),
    ({"box": [[500, 5, 510, 9]]}, "box 1: outside the 91x61 pixels"),
    ({"name": ["red", "red"]}, "has 2 values for 1 box"),
    ({"depth": []}, "has 0 values for 1 box"),
    ({"tag": ["x", "y"]}, "column 'tag': has 2 values for 1 box"),
]


def test_bad_rows_are_rejects(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    good = {"box": [[1, 2, 30, 40]], "name": ["red"], "depth": [1], "tag": ["x"]}
    rows = [
        {"path": f"photos/{at}.png"} | good | change
        for at, (change, _) in enumerate([*BAD_ROWS, ({}, "")])
    ]
    for row in rows:
        Image.new("RGB", (91, 61)).save(tmp_path / row["path"])
    table = tmp_path / "boxes.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = convert(table, tmp_path / "d", max_rejects=len(BAD_ROWS))
    found = [*map(json.loads, (tmp_path / "d" / "rejects.jsonl").read_text().splitlines())]
    rejects = {reject["key"]: (reject["reason"], reject["detail"]) for reject in found}
    for row, (_, detail) in zip(rows, BAD_ROWS, strict=False):
        reason, told = rejects.pop(row["path"])
        assert (reason, detail in told) == ("bad-value", True), (row, told)
    assert not rejects
    assert done.manifest.counts["written"] == 1


def test_images_without_boxes_and_tables_without_labels(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for i in range(2):
        Image.new("RGB", (91, 61)).save(tmp_path / "photos" / f"{i}.png")
    table = tmp_path / "boxes.csv"
    table.write_text('path,box\nphotos/0.png,"[[1, 2, 30, 40], [5, 5, 9, 9]]"\nphotos/1.png,\n')
    convert(
        table, tmp_path / "d", label_column=None, feature_columns="box:bbox[xyxy]", resize="stretch"
    )
    found = {
        record["image/filename"][0]: len(record[SIDES[0]]) for record in records(tmp_path / "d")
    }
    assert found == {b"photos/0.png": 2, b"photos/1.png": 0}
    assert not [name for name in records(tmp_path / "d")[0] if "class" in name]


def test_wrong_calls(tmp_path: Path) -> None:
    table = write_table(tmp_path, 1)
    rows = json.loads(table.read_text())
    more = {
        "depth": rows["box"],
        "image/object/bbox": [1.0],
        "image/object/visible": [1.0],
        "classes": [1, 2, 3],
        "weights": [1.0, 2.0],
    }
    table.write_text(json.dumps(rows | more))
    for wrong, message in {
        "box:bbox[xxyy]": r"'bbox\[xxyy\]' is not a type; use .* Formats: xyxy, .*, "
        r"rel_center_xywh",
        "box:bbox[xyxy],image/object/bbox:float[]": "records or readers already have a "
        "feature with this name",
        "box:bbox[xyxy],image/object/visible:float[]": "records or readers already have a "
        "feature with this name",
        "box:bbox[xyxy],classes:int64[box]": "records or readers already have a feature with "
        "this name",
        "depth:float[box]": r"depth has values for each box, but no column has boxes, such as "
        r"box:bbox\[xyxy\]",
        "box:bbox[xyxy],depth:bbox[xyxy]": "box and depth hold boxes, but only one column can",
    }.items():
        with pytest.raises(UsageError, match=message):
            convert(table, tmp_path / "d", feature_columns=wrong)
    with pytest.raises(UsageError, match="box holds boxes, which need images"):
        beam_tfr.convert(
            table=table, output=tmp_path / "d", feature_columns="box:bbox[xyxy]", progress=False
        )
    with pytest.raises(UsageError, match=r"min_visible=0\.5`: has no effect without boxes"):
        convert(
            table,
            tmp_path / "d",
            feature_columns="weights:float[]",
            label_column=None,
            min_visible=0.5,
        )
    assert not (tmp_path / "d").exists()


@pytest.mark.slow
def test_an_update_gives_what_a_fresh_conversion_gives(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    convert(table, tmp_path / "d", resize="crop")
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[0]["box"][0][0] += 2
    del rows[1]["box"][1], rows[1]["name"][1], rows[1]["depth"][1], rows[1]["tag"][1]
    del rows[2]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = beam_tfr.update(tmp_path / "d", table=table, num_shards=2, progress=False)
    assert done.changed == {"added": 0, "removed": 1, "changed": 0, "relabelled": 2}
    convert(table, tmp_path / "fresh", num_shards=2, resize="crop")
    assert files_of(tmp_path / "d") == files_of(tmp_path / "fresh")
    beam_tfr.update(tmp_path / "d", num_shards=1, progress=False)
    convert(table, tmp_path / "one", resize="crop")
    assert files_of(tmp_path / "d") == files_of(tmp_path / "one")
    beam_tfr.update(tmp_path / "d", table=table, min_visible=0.9, progress=False)
    convert(table, tmp_path / "strict", min_visible=0.9, resize="crop")
    assert files_of(tmp_path / "d") == files_of(tmp_path / "strict")
    found = beam_tfr.diff(tmp_path / "one", tmp_path / "strict")
    assert 0 < found.counts["columns"] < 7, found.counts


@pytest.mark.slow
def test_removing_the_only_image_of_a_class_needs_no_input(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[0]["name"] = ["aaa", "red", "red"]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    convert(table, tmp_path / "d", resize="pad")
    (tmp_path / "keys.txt").write_text("photos/0.png\n")
    assert (
        cli.main(["remove", str(tmp_path / "d"), "--keys", str(tmp_path / "keys.txt"), "--quiet"])
        == 0
    )
    table.write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
    convert(table, tmp_path / "fresh", resize="pad")
    found = files_of(tmp_path / "d")
    del found["removed.txt"]
    assert found == files_of(tmp_path / "fresh")


def test_labels_of_boxes_in_csv(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (91, 61)).save(tmp_path / "photos" / "0.png")
    table = tmp_path / "boxes.csv"
    table.write_text(
        'path,box,name\nphotos/0.png,"[[1, 2, 30, 40], [5, 5, 9, 9]]","[""cat"", ""cat""]"\n'
    )
    done = convert(table, tmp_path / "d", feature_columns="box:bbox[xyxy]", resize="stretch")
    assert done.manifest.splits["train"].class_counts == {"cat": 2}


@given(
    box=st.tuples(*[st.floats(-1000, 1000, width=32)] * 2, *[st.floats(1001, 3000, width=32)] * 2),
    form=st.sampled_from(FORMATS),
)
def test_cells_of_all_formats_give_the_same_corners(
    box: tuple[float, float, float, float], form: str
) -> None:
    x, y, width, height = box
    expected = (x, y, x + width, y + height)
    cell = [in_format(expected, form, (1, 1))]
    column = parse_column("c", f"bbox[{form}]")
    assert column.text == f"bbox[{form}]"
    assert np.allclose(np.ravel(column.parse(cell)), expected, rtol=1e-6, atol=1e-3)
    assert column.parse(json.dumps(cell)) == column.parse(cell)
    assert column.parse(cell * 3) == column.parse(cell) * 3


def test_readers_and_pictures(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    convert(table, tmp_path / "d")
    (batch,) = load(tmp_path / "d", split="train", batch_size=8, output="dict", image_size=(24, 32))
    for at, record in enumerate(records(tmp_path / "d")):
        for side in SIDES:
            assert batch[side][at].numpy().tolist() == record[side]
    (batch,) = ImageDataset(tmp_path / "d", split="train", batch_size=8, output="dict")
    assert [of.tolist() for of in batch[SIDES[0]]] == [
        record[SIDES[0]] for record in records(tmp_path / "d")
    ]
    train = load(tmp_path / "d", split="train", batch_size=32, boxes="xyxy", max_boxes=20)
    for images, objects in train:
        assert (images.shape[0], objects["boxes"].shape, objects["classes"].shape) == (
            8,
            (8, 20, 4),
            (8, 20),
        )
    hot = next(iter(load(tmp_path / "d", split="train", output="pair", one_hot=True)))[1]
    assert set(hot.numpy().tolist()) <= {0.0, 1.0}
    with pytest.raises(UsageError, match="does not move the boxes of objects: add `boxes=`"):
        load(tmp_path / "d", split="train", image_size=16, crop="random", output="dict")
    sheet = tmp_path / "sheet.png"
    assert cli.main(["inspect", str(tmp_path / "d"), "--contact_sheet", str(sheet)]) == 0
    with Image.open(sheet) as picture:
        colors = {color: count for count, color in picture.convert("RGB").getcolors(1 << 20)}
    assert all(colors.get(ImageColor.getrgb(color), 0) > 100 for color in BOX_COLORS[:3])


@pytest.mark.slow
def test_the_example_of_a_detector_learns(tmp_path: Path) -> None:
    train = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "detect_keras.py"))["train"]
    convert(write_table(tmp_path, 32), tmp_path / "d", resize="stretch")
    losses = train(str(tmp_path / "d"), epochs=3, steps=10)
    assert losses[2] < 0.9 * losses[0]
