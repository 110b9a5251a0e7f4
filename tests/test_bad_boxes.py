"""Boxes that are none, images without boxes, and what is counted of boxes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import beam_tfr
from beam_tfr import cli
from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest
from beam_tfr.features.box_counts import box_statistics, count_boxes
from beam_tfr.features.box_formats import BOX_FORMATS
from beam_tfr.features.cells import BadCell
from beam_tfr.features.registry import parse_column
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.output import manifest_fields
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import BAD_BOXES, BOXES, SIDES
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.plan import Counts, Plan
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables
from tests.conftest import few_at_once
from tests.updates import count_decoding, files_of

CONTENTS = Path(__file__).parents[1] / "docs" / "contents.md"
SIZE = (91, 61)  # of all pictures
GOOD = [10, 5, 30, 40]
INF, NAN = math.inf, math.nan
# Boxes as left, top, width and height that are none; and what the message says of them.
NO_AREA, OUTSIDE, NO_NUMBER = "not a box with an area", "outside ", "not a box of four numbers"
TOO_LARGE = "does not fit into 32 bits"
HOSTILE: dict[str, tuple[list[Any], str]] = {
    "tiny": ([0, 0, 1, 1], "less than a pixel"),
    "no width": ([5, 5, 0, 9], NO_AREA),
    "negative": ([50, 50, -20, -30], NO_AREA),
    "right of it": ([91, 5, 10, 10], OUTSIDE),
    "below it": ([5, 61, 10, 10], OUTSIDE),
    "left of it": ([-20, 5, 20, 10], OUTSIDE),
    "1e308": ([5, 5, 1e308, 9], TOO_LARGE),
    "-1e308": ([-1e308, 5, 7, 9], TOO_LARGE),
    "3e38": ([-3e38, -3e38, 1e38, 3e38], OUTSIDE),
    "NaN": ([NAN, 5, 7, 9], NO_AREA),
    "infinite": ([5, 5, INF, 9], NO_AREA),
    "-infinite": ([5, -INF, 5, INF], NO_AREA),
    "text": ([5, "x", 5, 9], "is not a number"),
    "short": ([5, 5, 5], NO_NUMBER),
    "none": ([], NO_NUMBER),
    "long": ([5, 5, 5, 5, 5], NO_NUMBER),
}
# Those that a format can hold: no others are valid JSON, or XML has an element for each number.
HELD = {
    "coco": [name for name in HOSTILE if name not in ("NaN", "infinite", "-infinite", "text")],
    "create ml": [
        name
        for name in HOSTILE
        if name not in ("NaN", "infinite", "-infinite", "text", "none", "long")
    ],
    "voc": [name for name in HOSTILE if name not in ("none", "short", "long")],
    "yolo": [name for name in HOSTILE if name not in ("tiny", "none", "1e308", "-1e308")],
    "jsonl": [*HOSTILE],
}
INSTEAD = {
    "yolo": {"text": "is not a number", "long": "follows a box"},
    "create ml": {"short": NO_AREA},  # they become NaN
    "voc": {
        "-1e308": "has no area",
        **dict.fromkeys(("NaN", "infinite", "-infinite"), "which is not a number"),
    },
}
PLACES = {
    "coco": "annotation {}",
    "create ml": "box 1",
    "voc": "box 1",
    "yolo": "box 1",
    "jsonl": "box 1",
}


def opened(path: Path, features: Mapping[str, str], **options: str) -> Tables:
    """A table with boxes, of which bad ones are dropped."""
    how = {"uri_column": "path", "bad_boxes": "drop", "output": "/data/o", **options}
    options = from_values({"table": str(path), "feature_columns": features, **how}, ConvertOptions)
    return open_tables(find_content(options))


def write(folder: Path, form: str, pictures: dict[str, list[list[Any]]]) -> dict[str, Any]:
    """Writes pictures with boxes (left, top, width, height) of one class.

    Returns the options that read them.
    """
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for number, name in enumerate(pictures):
        Image.new("RGB", SIZE, (number, 99, 9)).save(folder / "images" / f"{name}.png")
    names = [f"{name}.png" for name in pictures]
    if form == "coco":
        images = [
            {"id": 10 * at, "file_name": name, "width": 91, "height": 61}
            for at, name in enumerate(names)
        ]
        boxes = [(10 * at, box) for at, found in enumerate(pictures.values()) for box in found]
        objects = [
            {"id": 7 * at, "image_id": of, "category_id": 3, "bbox": box}
            for at, (of, box) in enumerate(boxes)
        ]
        content = {
            "images": images,
            "annotations": objects,
            "categories": [{"id": 3, "name": "cat"}],
        }
        (folder / "t.json").write_text(json.dumps(content))
        return {"table": folder / "t.json", "image_root": folder / "images"}
    if form == "create ml":
        rows = [
            {
                "image": name,
                "annotations": [{"label": "cat", "coordinates": centered(box)} for box in found],
            }
            for name, found in zip(names, pictures.values(), strict=True)
        ]
        (folder / "t.json").write_text(json.dumps(rows))
        return {"table": folder / "t.json", "image_root": folder / "images"}
    if form == "voc":
        for name, found in pictures.items():
            objects = [
                f"<object><name>cat</name><bndbox>{elements(box)}</bndbox></object>"
                for box in found
            ]
            text = f"<annotation><filename>{name}.png</filename>{''.join(objects)}</annotation>"
            (folder / f"{name}.xml").write_text(text)
        return {"table": folder / "*.xml", "image_root": folder / "images"}
    if form == "yolo":
        for name, found in pictures.items():
            lines = [f"0 {' '.join(shares(box))}\n" for box in found]
            (folder / "labels" / f"{name}.txt").write_text("".join(lines))
        (folder / "data.yaml").write_text("train: images\nnames: [cat]\n")
        return {"table": folder / "data.yaml"}
    rows = [
        {"path": name, "box": found, "class": ["cat"] * len(found), "depth": [*range(len(found))]}
        for name, found in zip(names, pictures.values(), strict=True)
    ]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"box": "bbox[xywh]", "depth": "float[box]"}
    options = {"uri_column": "path", "label_column": "class", "feature_columns": columns}
    return {"table": folder / "t.jsonl", "image_root": folder / "images", **options}


def centered(box: Sequence[float]) -> dict[str, float]:
    left, top, *size = box
    sides = dict(zip(("width", "height"), size, strict=False))
    return {"x": left + size[0] / 2, "y": top + (size[1] if len(size) > 1 else 0) / 2, **sides}


def elements(box: list[Any]) -> str:
    left, top, width, height = box
    if isinstance(top, str):
        sides = {"xmin": left, "ymin": top, "xmax": width, "ymax": height}
    else:
        sides = {"xmin": left + 1, "ymin": top + 1, "xmax": left + width, "ymax": top + height}
    return "".join(f"<{side}>{value}</{side}>" for side, value in sides.items())


def shares(box: list[Any]) -> list[str]:
    if len(box) != 4 or isinstance(box[1], str):
        return [*map(str, box)]
    left, top, width, height = box
    found = ((left + width / 2) / 91, (top + height / 2) / 61, width / 91, height / 61)
    return [*map(repr, found)]


def convert(given: dict[str, Any], output: Path, **options: Any) -> Any:
    defaults = {
        "resize": "stretch",
        "image_size": 64,
        "encoding": "png",
        "num_shards": 1,
        "name": "d",
    }
    return beam_tfr.convert(output=output, progress=False, **(defaults | given | options))


def records(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """Name of a picture -> its record."""
    files = sorted(folder.glob("*.tfrecord.gz"))
    found = [parse_example(record) for file in files for record in RecordFile(str(file))]
    return {Path(record["image/filename"][0].decode()).stem: record for record in found}


@pytest.mark.parametrize("form", few_at_once(HELD, "coco", "jsonl"))
def test_bad_boxes_reject_their_image_or_are_left_out(tmp_path: Path, form: str) -> None:
    bad = {name: HOSTILE[name][0] for name in HELD[form]}
    if form == "yolo":
        bad["long"] = [0.5, 0.5, 0.1, 0.1, 45.5]  # neither a confidence nor a track
    usual = {"clean": [GOOD], "empty": [], "huge": [[-400, -400, 900, 900]]}
    options = write(
        tmp_path / "both", form, usual | {name: [box, GOOD] for name, box in bad.items()}
    )
    done = convert(options, tmp_path / "reject", max_rejects=1.0)
    told = {Path(reject.key).stem: reject for reject in done.rejects}
    assert told.keys() == bad.keys()
    for at, name in enumerate(bad):
        expected = INSTEAD.get(form, {}).get(name, HOSTILE[name][1])
        reject, place = told[name], PLACES[form].format(7 * (2 + 2 * at))
        assert (reject.reason, done.counts["written"]) == ("bad-value", 3)
        assert f"{place}: " in reject.detail
        assert expected in reject.detail
    assert "bad-boxes-dropped" not in done.counts["adjusted"]

    done = convert(options, tmp_path / "drop", bad_boxes="drop", max_rejects=0)
    assert done.counts["adjusted"] == {
        "aspect-changed": 3 + len(bad),
        "enlarged": 3 + len(bad),
        "bad-boxes-dropped": len(bad),
        "boxes-dropped": 1,
        "no-boxes": 2,  # of the huge box, less than a tenth is visible
    }
    write(tmp_path / "clean", form, usual | {name: [GOOD] for name in bad})
    clean = {
        name: Path(str(path).replace("/both", "/clean"))
        for name, path in options.items()
        if name in ("table",)
    }
    clean |= {"image_root": tmp_path / "clean" / "images"} if "image_root" in options else {}
    convert(options | clean, tmp_path / "good", bad_boxes="drop", max_rejects=0)
    found, expected_records = records(tmp_path / "drop"), records(tmp_path / "good")
    assert found.keys() == expected_records.keys() == {*usual, *bad}
    for name, record in found.items():
        others = expected_records[name] | (
            {"depth": [1.0]} if form == "jsonl" and name in bad else {}
        )
        assert record == others
    assert beam_tfr.verify(tmp_path / "drop", progress=False).ok


numbers = st.one_of(
    st.floats(width=32),
    st.floats(-9, 99),
    st.integers(0, 99),
    st.sampled_from([NAN, INF, "x", None, 1e308, "7"]),
)
boxes = st.lists(numbers, min_size=4, max_size=4) | st.lists(numbers, max_size=6)


@given(st.lists(st.tuples(boxes, st.sampled_from("abc")), max_size=5), st.sampled_from(BOX_FORMATS))
def test_a_row_without_its_bad_boxes_is_the_row_that_never_had_them(
    tmp_path_factory: pytest.TempPathFactory, objects: list[tuple[list[Any], str]], form: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "row" / "own"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "row.jsonl"
    features = {"box": f"bbox[{form}]", "depth": "int64[box]", "joint": "points[xyv]"}

    def read(places: Sequence[int]) -> ImageRef:
        chosen = [(at, *objects[at]) for at in places]
        row = {
            "path": "a.png",
            "box": [box for _, box, _ in chosen],
            "name": [name for _, _, name in chosen],
            "depth": [at for at, _, _ in chosen],
            "joint": [[at, 7, 2] for at, _, _ in chosen],
        }
        path.write_text(json.dumps(row) + "\n" + json.dumps({"path": "b.png"}))
        return next(opened(path, features, label_column="name").read(str(path)))

    corners = parse_column("c", features["box"]).examine([box for box, _ in objects])
    good = [at for at, found in enumerate(corners) if not isinstance(found, BadCell)]
    left, expected = read(range(len(objects))), read(good)
    assert (left.reason, left.detail, left.labels) == (
        expected.reason,
        expected.detail,
        expected.labels,
    )
    if not left.reason:  # boxes of less than a pixel reject their row: their format is wrong
        values, wanted = parse_example(left.columns or b""), parse_example(expected.columns or b"")
        assert len(values.pop(BAD_BOXES, [])) == len(objects) - len(good)
        assert values == wanted
        assert values["depth"] == good
        assert len(values[BOXES]) == 4 * len(good)


@pytest.mark.parametrize("beside", ["name", "depth", "joint"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_what_is_said_of_other_boxes_is_never_moved_to_them(
    tmp_path: Path, beside: str, number: int
) -> None:
    """One of three boxes is bad, and there are two values: of which two, nobody knows."""
    row = {
        "path": "a.png",
        "box": [GOOD, [1, 2, 3], GOOD],
        "name": [*"abc"],
        "depth": [1, 2, 3],
        "joint": [[1, 1]] * 3,
    }
    row[beside] = (row[beside] * 2)[:number]
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({"path": "b.png"}))
    features = {"box": "bbox[xyxy]", "depth": "int64[box]", "joint": "points[xy]"}
    tables = opened(tmp_path / "t.jsonl", features, label_column="name")
    ref, _ = tables.read(tables.files[0])
    assert (ref.reason, ref.detail) == (
        "bad-value",
        f"t.jsonl, row 1: column '{beside}': has {number} value{'s' * (number != 1)} for 3 boxes",
    )


def test_cells_that_are_no_boxes_reject_their_row_in_any_case(tmp_path: Path) -> None:
    cells = ["[1, 2, 30", "1|2|30", "0.1|0.2|0.5|0.5", "[[1, 2, 30, 40], [0.1, 0.2, 0.5, 0.5]]"]
    problems = [
        "begins like a JSON list but is not one",
        "['1', '2', '30'] is not a box of four numbers",
    ]
    problems += [
        "no box is larger than a pixel; if these are fractions of the image, the format is rel_xyxy"
    ]
    quoted = [cell.replace('"', '""') for cell in cells]
    (tmp_path / "t.csv").write_text(
        "path,box\n" + "".join(f'{at}.png,"{cell}"\n' for at, cell in enumerate(quoted))
    )
    features = {"box": "bbox[xyxy]"}
    tables = opened(tmp_path / "t.csv", features)
    *refs, last = tables.read(tables.files[0])
    assert [ref.reason for ref in refs] == ["bad-value"] * 3
    assert all(problem in ref.detail for ref, problem in zip(refs, problems, strict=True))
    assert parse_example(last.columns or b"") == {
        BOXES: [1, 2, 30, 40],
        BAD_BOXES: [b"box 2: less than a pixel"],
    }


def test_all_bad_boxes_of_an_image_are_named_unless_they_are_many(tmp_path: Path) -> None:
    pictures: dict[str, list[list[Any]]] = {"good": [GOOD], "few": [[0, 0, 0, 9], GOOD, [5, 5, 9]]}
    pictures |= {"outside": [[100, 5, 9, 9], GOOD, [5, 70, 9, 9]], "many": [[0, 0, 0, 9]] * 99}
    done = convert(write(tmp_path / "t", "coco", pictures), tmp_path / "d", max_rejects=3)
    told = {Path(reject.key).stem: reject.detail for reject in done.rejects}
    assert told.pop("many").endswith(
        f"annotation 182: [0.0, 0.0, 0.0, 9.0] is {NO_AREA} in the format xywh; and 79 more"
    )
    assert told == {
        "few": "t.json, row 2: column 'box': annotation 7: [0.0, 0.0, 0.0, 9.0] is not a box with "
        "an area in the format "
        "xywh; annotation 21: [5.0, 5.0, 9.0] is not a box of four numbers",
        "outside": "annotation 28; annotation 42: outside the 91x61 pixels",
    }


def test_a_set_with_a_bad_box_in_each_image_and_poses_that_go_with_it(tmp_path: Path) -> None:
    options = write(tmp_path / "t", "yolo", {"a": [], "b": []})
    (tmp_path / "t" / "data.yaml").write_text("train: images\nnames: [cat]\nkpt_shape: [1, 3]\n")
    (tmp_path / "t" / "labels" / "a.txt").write_text(
        "0 0.5 0.5 0.2 0.2 0.5 0.5 2\n0 0.5 0.5 0 0.2 0.1 0.1 2\n"
    )
    (tmp_path / "t" / "labels" / "b.txt").write_text("0 0.5 x 0.2 0.2 0.5 0.5 2\n0 0.5 0.5\n")
    with pytest.raises(
        UsageError, match=r"column 'box' as bbox.* would reject all of .*`bad_boxes=drop`"
    ):
        convert(options, tmp_path / "d")
    done = convert(options, tmp_path / "d", bad_boxes="drop")
    assert done.counts["adjusted"] == {
        "aspect-changed": 2,
        "enlarged": 2,
        "bad-boxes-dropped": 2,
        "no-boxes": 1,
    }
    found = records(tmp_path / "d")
    assert [found[name]["image/object/keypoint/num"] for name in "ab"] == [[1], []]
    assert found["a"]["image/object/keypoint/x"] == [0.5]


def test_errors_about_rejects_of_bad_boxes_name_their_cause_and_cure(tmp_path: Path) -> None:
    pictures: dict[str, list[list[Any]]] = {"bad": [[5, 5, 0, 9]]}
    pictures |= {f"good{number}": [] for number in range(9)}
    options = write(tmp_path / "t", "coco", pictures)
    with pytest.raises(DataError) as lost:
        convert(options, tmp_path / "d", max_rejects=1)
    message = str(lost.value).partition("\n")[0]
    assert "class cat would be lost from split train" in message
    assert "(bad-value 1)" in message
    assert "dropped" not in message
    assert message.count("`bad_boxes=drop`") == 1
    assert "min_visible" not in message
    assert "resize" not in message
    with pytest.raises(DataError) as many:
        convert(options, tmp_path / "d", max_rejects=0)
    assert str(many.value).count("`bad_boxes=drop`") == 1
    assert convert(options, tmp_path / "drop", bad_boxes="drop").counts["rejected"] == {}


@pytest.mark.parametrize("resize", ["crop", "pad"])
def test_pad_is_advised_only_where_images_are_cropped(tmp_path: Path, resize: str) -> None:
    pictures: dict[str, list[list[Any]]] = {"far": [[-99, 0, 100, 9]]}
    options = write(tmp_path / "t", "coco", pictures)
    with pytest.raises(DataError) as lost:
        convert(options, tmp_path / "d", resize=resize)
    assert "`min_visible=`" in str(lost.value)
    assert ("`resize=pad`" in str(lost.value)) == (resize == "crop")


def test_images_without_boxes_are_rejects_that_do_not_count(tmp_path: Path) -> None:
    far = [0, 0, 9, 9]  # a crop to the middle drops it
    pictures: dict[str, list[list[Any]]] = {
        "good": [[40, 20, 9, 9]],
        "none": [],
        "far": [far],
        "bad": [[5, 5, 0, 9]],
    }
    options = write(tmp_path / "t", "coco", pictures) | {
        "resize": "crop",
        "image_size": 40,
        "bad_boxes": "drop",
    }
    done = convert(options, tmp_path / "keep", max_rejects=0)
    assert done.counts["adjusted"] == {
        "bad-boxes-dropped": 1,
        "boxes-dropped": 1,
        "no-boxes": 3,
    }
    done = convert(options, tmp_path / "d", max_rejects=0, no_boxes="reject")
    assert [done.counts[name] for name in ("matched", "written", "rejected")] == [
        4,
        1,
        {"without-boxes": 3},
    ]
    assert {Path(reject.key).stem: (reject.stage, reject.detail) for reject in done.rejects} == {
        "none": ("ReadTable", "t.json, row 2: there is no box"),
        "far": ("BuildExamples", "no box is left; the table has 1"),
        "bad": (
            "ReadTable",
            "t.json, row 4: annotation 14: [5.0, 5.0, 0.0, 9.0] is not a box with an area in the "
            "format xywh",
        ),
    }
    assert "bad-boxes-dropped" not in done.counts["adjusted"]
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok

    plan = beam_tfr.plan(
        **options, no_boxes="reject", max_rejects=0, output=tmp_path / "p", progress=False
    )
    assert (plan.failure, plan.rejects) == ("", {"without-boxes": 3})
    Image.new("RGB", (9, 9)).save(tmp_path / "t" / "images" / "good.png")
    with pytest.raises(
        DataError, match=r"`max_rejects=0` allows 0(?s:.*)\n  bad-value: 1\n    good\.png: "
    ):
        convert(options, tmp_path / "e", max_rejects=0, no_boxes="reject")
    with pytest.raises(
        DataError,
        match=r"4 of 4 images were rejected \(without-boxes 3, bad-value 1\), `max_rejects=0.1`",
    ):
        convert(options, tmp_path / "e", max_rejects=0.1, no_boxes="reject")


def test_options_of_boxes_need_boxes(tmp_path: Path) -> None:
    given = write(tmp_path / "t", "jsonl", {"a": [GOOD]})
    given |= {"feature_columns": {"depth": "float[]"}}
    for wrong in ({"bad_boxes": "drop"}, {"no_boxes": "reject"}):
        with pytest.raises(
            UsageError, match=r"_boxes=(drop|reject)`: has no effect without boxes, such as"
        ):
            convert(given, tmp_path / "d", **wrong)
    for wrong, allowed in (
        ({"bad_boxes": "keep"}, "reject, drop"),
        ({"no_boxes": "drop"}, "keep, reject"),
    ):
        with pytest.raises(UsageError, match=f"must be one of: {allowed}"):
            convert(given, tmp_path / "d", **wrong)


# Of pictures of 300x200, stored as they are.
COUNTED: dict[str, list[list[int]]] = {
    "none": [],
    "sizes": [[0, 0, 31, 33], [0, 0, 32, 32], [9, 9, 95, 97], [9, 9, 96, 96], [0, 0, 300, 200]],
    "clipped": [[-10, 0, 40, 32], [290, 190, 20, 20], [295, 0, 100, 10], [-9, -9, 11, 11]],
}


def write_counted(folder: Path) -> dict[str, Any]:
    given = write(folder, "jsonl", COUNTED)
    for path in (folder / "images").iterdir():
        Image.new("RGB", (300, 200)).save(path)
    return given | {"resize": "none", "image_size": None}


def test_the_manifest_counts_boxes_by_size_and_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = write_counted(tmp_path / "t")
    done = convert(given, tmp_path / "d", num_shards=1)
    values = {"small": 3, "medium": 2, "large": 2, "clipped": 2, "dropped": 2}
    assert done.manifest.statistics["boxes"] == values | {"per_image": {"mean": 2.3333, "max": 5}}
    told = (
        "7 (3 small, 2 medium, 2 large), 2.3 per image, at most 5; 22.2% of all were "
        "dropped, 22.2% clipped"
    )
    assert f"boxes:   {told}" in str(done).splitlines()
    three = convert(given, tmp_path / "three", num_shards=3)
    assert three.manifest.statistics == done.manifest.statistics
    (code,) = re.findall(r"```python\n([^`]*/data/street[^`]*)```", CONTENTS.read_text())
    names: dict[str, Any] = {"beam_tfr": beam_tfr}
    exec(code.replace("/data/street", str(tmp_path / "d")), names)
    images = {Path(of.key).stem: (of.boxes, of.small) for of in names["table"].itertuples()}
    assert images == {"none": (0, 0), "sizes": (5, 1), "clipped": (2, 2)}
    flags = [
        f"--{name}={value}"
        for name, value in given.items()
        if name not in ("image_size", "feature_columns")
    ]
    flags += [
        "--feature_columns=box:bbox[xywh],depth:float[box]",
        "--json",
        f"--output={tmp_path / 'd'}",
    ]
    flags += ["--encoding=png", "--num_shards=1", "--name=d"]
    assert cli.main(["convert", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["boxes"] == done.manifest.statistics["boxes"]
    plan = beam_tfr.plan(**given, encoding="png", output=tmp_path / "x", progress=False)
    assert ("boxes", told) in [*plan.facts()]
    assert plan.as_json()["sample"]["boxes"] == done.manifest.statistics["boxes"]
    assert not [warning for warning in plan.warnings if "that crops drop" in warning]

    found = beam_tfr.diff(tmp_path / "d", tmp_path / "three")
    assert "boxes." not in str(found)
    convert(given, tmp_path / "all", min_visible=0)
    told = str(beam_tfr.diff(tmp_path / "d", tmp_path / "all"))
    assert "boxes.dropped: 2 before, 0 now" in told
    assert "boxes.small: 3 before, 5 now" in told
    with (tmp_path / "d" / "manifest.json").open() as file:
        fields = json.load(file)
    fields["statistics"]["boxes"] |= {
        "small": 4,
        "medium": 1,
        "per_image": {"mean": 2.3333, "max": 6},
    }
    fields["manifest_digest"] = manifest_digest(fields)
    (tmp_path / "d" / "manifest.json").write_bytes(manifest_bytes(fields))
    problems = beam_tfr.verify(tmp_path / "d", progress=False).problems
    assert [problem.message for problem in problems if "statistics" in problem.message] == [
        "statistics.boxes.small is 4, but the records have 3",
        "statistics.boxes.medium is 1, but the records have 2",
        "statistics.boxes.per_image is {'max': 6, 'mean': 2.3333}, but the records have {'max': "
        "5, 'mean': 2.3333}",
    ]


def test_plan_advises_to_pad_if_crops_drop_many_boxes(tmp_path: Path) -> None:
    pictures: dict[str, list[list[Any]]] = {
        "a": [[40, 20, 9, 9]] * 18 + [[0, 0, 9, 9], [1, 1, 8, 8]]
    }
    given = write(tmp_path / "t", "jsonl", pictures) | {"output": tmp_path / "d", "progress": False}
    plan = beam_tfr.plan(**given, image_size=40, resize="crop")
    assert (
        "10% of the boxes in the sample are dropped; `resize=pad` keeps those that crops drop"
        in plan.warnings
    )
    told = (
        "18 (18 small, 0 medium, 0 large), 18.0 per image, at most 18; 10.0% of all were "
        "dropped, 0.0% clipped"
    )
    assert ("boxes", told) in [*plan.facts()]
    for options in ({}, {"resize": "crop", "min_visible": 0, "image_size": (61, 91)}):
        plan = beam_tfr.plan(**given, **options)
        assert not [warning for warning in plan.warnings if "that crops drop" in warning]


def test_plan_blames_no_crop_for_boxes_outside_of_their_image(tmp_path: Path) -> None:
    pictures: dict[str, list[list[Any]]] = {"a": [[40, 20, 9, 9]] * 2 + [[400, 0, 9, 9]]}
    given = write(tmp_path / "t", "jsonl", pictures) | {
        "output": tmp_path / "d",
        "bad_boxes": "drop",
    }
    plan = beam_tfr.plan(**given, image_size=40, progress=False)
    assert dict(plan.sample.adjusted).keys() >= {"bad-boxes-dropped"}
    assert not [warning for warning in plan.warnings if "that crops drop" in warning]


@given(st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4, st.floats(0, 1, width=32)), max_size=9))
def test_counts_add_up_in_any_order(found: list[tuple[float, ...]]) -> None:
    def count(records: Sequence[Sequence[tuple[float, ...]]]) -> Counts:
        total = Counts()
        for boxes in records:
            columns = [*zip(*boxes, strict=True)] or [()] * 5
            values = dict(zip((*SIDES, "image/object/visible"), columns, strict=True))
            record = {**values, "image/height": [200], "image/width": [300]}
            total.add(count_boxes(record, None))
        return total

    records = [found[:2], found[2:3], found[3:]]
    assert box_statistics(count(records)) == box_statistics(count(records[::-1]))
    assert sum(count(records).box_numbers.values()) == 3
    sizes = box_statistics(count(records))
    assert sizes["small"] + sizes["medium"] + sizes["large"] == len(found)
    assert sizes["per_image"]["max"] == max(map(len, records))


def test_datasets_without_boxes_have_no_such_statistics_and_the_recipe_that_they_had() -> None:
    plan = Plan(name="d", suffix="", options={}, input_digest="", labels=None, splits={}, codecs={})
    assert "boxes" not in manifest_fields.compute_statistics(
        Counts(), {"encoding": "png", "resize": "pad"}
    )
    assert plan.recipe == "20e3e68c4e2a830d3e01f0c1e8c04afcdc5b6a966ef0ed37430f95646995fd69"


@pytest.mark.slow
def test_an_update_gives_what_a_fresh_conversion_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, bad = [0, 0, 9, 9], [5, 5, 0, 9]
    pictures: dict[str, list[list[Any]]] = {f"{at}": [[40, 20, 9, 9], far] for at in range(6)}
    given = write(
        tmp_path / "t", "coco", pictures | {"bad": [bad, [40, 9, 9, 9]], "none": [], "far": [far]}
    )
    options: dict[str, Any] = {
        "resize": "crop",
        "image_size": 40,
        "bad_boxes": "drop",
        "no_boxes": "reject",
    }
    done = convert(given, tmp_path / "d", **options)
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok
    decoded = count_decoding(monkeypatch)
    assert done.manifest.statistics["boxes"]["dropped"] == 6
    assert done.counts["rejected"] == {"without-boxes": 2}

    content = json.loads((tmp_path / "t" / "t.json").read_text())
    content["annotations"][0]["bbox"] = bad
    del content["annotations"][2]
    (tmp_path / "t" / "t.json").write_text(json.dumps(content))
    beam_tfr.update(tmp_path / "d", **given, progress=False)
    assert sorted(decoded) == ["0.png", "1.png", "far.png"]
    convert(given, tmp_path / "fresh", **options)
    assert files_of(tmp_path / "d") == files_of(tmp_path / "fresh")
    beam_tfr.update(tmp_path / "d", num_shards=2, progress=False)
    convert(given, tmp_path / "fresh", **options, num_shards=2, overwrite=True)
    assert files_of(tmp_path / "d") == files_of(tmp_path / "fresh")
    beam_tfr.update(tmp_path / "d", **given, no_boxes="keep", progress=False)
    options |= {"no_boxes": "keep", "num_shards": 2}
    convert(given, tmp_path / "fresh", **options, overwrite=True)
    assert files_of(tmp_path / "d") == files_of(tmp_path / "fresh")


def test_a_word_for_no_boxes_has_its_cure() -> None:
    """As `no_box` of Global Wheat."""
    boxes = parse_column("box", "bbox[xyxy]")
    with pytest.raises(ValueError, match="`na_values=no_box`"):
        boxes.split("no_box")
    with pytest.raises(ValueError, match="`na_values='no box'`"):
        boxes.split("no box")
    with pytest.raises(ValueError, match=r"four numbers$"):
        boxes.split("[5, 6, 25]")
