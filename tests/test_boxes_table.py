"""examples/boxes_table.py: one truth in all formats gives equal rows and records; what is wrong is named."""

from __future__ import annotations

import json
import random
import runpy
import shlex
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import beam_tfr
from beam_tfr import cli
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import read_records
from beam_tfr.schema.features import OBJECT_TEXT, SIDES

EXAMPLE = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "boxes_table.py"))
NO_BOX = EXAMPLE["NO_BOX"]
CLASSES = ["cat", "dog", "owl"]
SIZES = [(41, 30), (64, 64), (33, 57), (90, 20)]
# The objects of each picture: class and corners.
TRUTH = [
    [],
    [("cat", (1, 2, 30, 40))],
    [("owl", (0, 0, 33, 57)), ("cat", (5, 5, 9, 50))],
    [("dog", (10, 1, 60, 19)), ("dog", (2, 2, 5, 7)), ("owl", (70, 3, 90, 20))],
]
FILES = {"coco": "coco.json", "create ml": "createml.json", "voc": "xml/*.xml", "yolo": "data.yaml"}


def write_truth(folder: Path) -> None:
    """Writes the pictures, and what is on them in each format."""
    for name in ("images/train", "labels/train", "xml"):
        (folder / name).mkdir(parents=True)
    coco: dict[str, Any] = {"images": [], "annotations": [], "categories": []}
    coco["categories"] = [{"id": at * 10 + 1, "name": name} for at, name in enumerate(CLASSES)]
    create_ml = []
    for number, (size, objects) in enumerate(zip(SIZES, TRUTH, strict=True)):
        name, (width, height) = f"train/{number}.png", size
        Image.new("RGB", size, (60 * number, 9, 99)).save(folder / "images" / name)
        coco["images"].append({"id": 7 * number, "file_name": name})
        lines, elements, boxes = list[str](), list[str](), list[dict[str, Any]]()
        for label, (left, top, right, bottom) in objects:
            sides, at = (right - left, bottom - top), CLASSES.index(label)
            middle = ((left + right) / 2, (top + bottom) / 2)
            coco["annotations"].append(
                {"image_id": 7 * number, "category_id": at * 10 + 1, "bbox": [left, top, *sides], "iscrowd": at == 2}
            )
            pixels = {"xmin": left + 1, "ymin": top + 1, "xmax": right, "ymax": bottom}
            corners = "".join(f"<{side}>{value}</{side}>" for side, value in pixels.items())
            elements.append(f"<object><name>{label}</name><bndbox>{corners}</bndbox></object>")
            shares = (middle[0] / width, middle[1] / height, sides[0] / width, sides[1] / height)
            lines.append(f"{at} {' '.join(map(repr, shares))}")
            coordinates = dict(zip(("x", "y", "width", "height"), (*middle, *sides), strict=True))
            boxes.append({"label": label, "coordinates": coordinates})
        create_ml.append({"image": name, "annotations": boxes})
        text = f"<?xml version='1.0'?><annotation><filename>{name}</filename>{''.join(elements)}</annotation>"
        (folder / "xml" / f"{number}.xml").write_text(text)
        if lines:
            (folder / "labels" / "train" / f"{number}.txt").write_text("\n".join(lines) + "\n\n")
    random.Random(1).shuffle(coco["annotations"])
    (folder / "coco.json").write_text(json.dumps(coco))
    (folder / "createml.json").write_text(json.dumps(create_ml))
    (folder / "data.yaml").write_text("train: images/train\nval:\nnames: {0: cat, 1: dog, 2: owl}\n")


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("truth")
    write_truth(folder)
    return folder


def rows(path: Path) -> list[dict[str, Any]]:
    return [*EXAMPLE["read_annotations"](path)]


def table(folder: Path, of: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Makes a table; returns the printed line without the folder of the dataset."""
    made = folder / f"{of.stem}.jsonl"
    assert EXAMPLE["main"]([str(of), str(of.parent / "images"), str(made)]) == 0
    return shlex.split(capsys.readouterr().out.splitlines()[-1])[1:-1]


def corners(row: dict[str, Any], size: tuple[int, int], *, relative: bool) -> list[tuple[str, tuple[float, ...]]]:
    """Class and corners of each object of a row, sorted."""
    found = []
    for label, box in zip(row["class"], row["box"], strict=True):
        if relative:
            (x, y, width, height), (w, h) = box, size
            box = ((x - width / 2) * w, (y - height / 2) * h, (x + width / 2) * w, (y + height / 2) * h)
        found.append((label, tuple(round(side, 6) for side in box)))
    return sorted(found)


@pytest.mark.parametrize("form", FILES)
def test_one_truth_gives_equal_rows(truth: Path, form: str) -> None:
    found = [row for path in sorted(truth.glob(FILES[form])) for row in rows(path)]
    names = [row["file"] for row in found]
    assert [name.removeprefix(f"{truth}/images/") for name in names] == [f"train/{i}.png" for i in range(4)]
    for row, size, objects in zip(found, SIZES, TRUTH, strict=True):
        assert corners(row, size, relative=form == "yolo") == sorted(objects)


def test_what_coco_says_beside_boxes_stays_with_them(truth: Path) -> None:
    for row in rows(truth / "coco.json"):
        assert row["image/object/is_crowd"] == [int(label == "owl") for label in row["class"]]
        assert row["image/object/category_id"] == [CLASSES.index(label) * 10 + 1 for label in row["class"]]
        areas = [(right - left) * (bottom - top) for left, top, right, bottom in row["box"]]
        assert row["image/object/area"] == areas  # the file has none


def records(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.tfrecord.gz"))
    return [parse_example(record) for file in files for record in read_records(str(file))]


def test_one_truth_gives_equal_records(truth: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The printed line converts the table."""

    def objects(record: dict[str, Any]) -> list[tuple[Any, ...]]:
        sides = (np.round(record[side], 6).tolist() for side in SIDES)
        return sorted(zip(record[OBJECT_TEXT], *sides, strict=True))

    made = []
    for name in ("coco.json", "createml.json", "xml", "data.yaml"):
        line = table(tmp_path, truth / name, capsys)
        output = tmp_path / f"of-{name}"
        assert cli.main([*line, str(output), "--name", "d", "--resize", "pad", "--quiet"]) == 0
        made.append({(of["image/filename"][0], of["image/encoded"][0], *objects(of)) for of in records(output)})
    assert len(made[0]) == 4
    assert all(other == made[0] for other in made)


COCO = {"images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1, "name": "cat"}], "annotations": []}
BOX = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}


def coco(**change: Any) -> bytes:
    return json.dumps({**COCO, **change}).encode()


def of_coco(folder: Path, **change: Any) -> list[dict[str, Any]]:
    (folder / "t.json").write_bytes(coco(**change))
    return rows(folder / "t.json")


def test_wrong_annotations_reject_their_image_alone(tmp_path: Path) -> None:
    wrong = [
        {"bbox": []},
        {"bbox": [1, 2, 3]},
        {"bbox": "1234"},
        {"bbox": [1, 2, 3, None]},
        {"bbox": [1, 2, 3, {}]},
        {"bbox": [1, 2, 3, 10**400]},
    ]
    for change in wrong:
        (row,) = of_coco(tmp_path, annotations=[{**BOX, **change}, BOX])
        assert np.array_equal(row["box"], [NO_BOX, (1, 2, 4, 6)], equal_nan=True)
    (row,) = of_coco(tmp_path, annotations=[{**BOX, "category_id": 5}])
    assert row["class"] == [{"category_id": "5"}]  # which is no class
    there, stray = of_coco(tmp_path, annotations=[BOX, {**BOX, "image_id": 9.0}])
    assert there["class"] == ["cat"]
    assert stray["file"] == {"image_id": "9", "annotation": "annotations[1]"}  # which is no path


def test_rejects_say_what_is_wrong(truth: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads((truth / "coco.json").read_text())
    content["annotations"] += [{**BOX, "image_id": 7, "bbox": [0, 0, 0, 5]}, {**BOX, "image_id": 5}]
    (tmp_path / "t.json").write_text(json.dumps(content))
    table(tmp_path, tmp_path / "t.json", capsys)
    done = beam_tfr.convert(
        table=str(tmp_path / "t.jsonl"),
        image_root=str(truth / "images"),
        uri_column="file",
        label_column="class",
        feature_columns="box:bbox[xyxy]",
        output=str(tmp_path / "d"),
        max_rejects=2,
    )
    assert [done.counts[name] for name in ("matched", "written", "rejected")] == [5, 3, {"bad-value": 2}]
    lines = [json.loads(line) for line in (tmp_path / "d" / "rejects.jsonl").read_text().splitlines()]
    assert {line["key"]: line["detail"] for line in lines} == {
        "train/1.png": "t.jsonl, row 2: column 'box': [0.0, 0.0, 0.0, 5.0] is no box with an area in the format xyxy",
        "t.jsonl#5": "t.jsonl, row 5: column 'file': {'image_id': '5', 'annotation': 'annotations[7]'} is no path",
    }


BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'lol'}]\n" for i in range(9)) + "names: *a8\n"
HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "cut": ("t.json", coco(annotations=[BOX])[:-20], "is not valid JSON: .*"),
    "empty": ("t.json", b"", "is not valid JSON: .*"),
    "no UTF-8": ("t.json", b'{"images": [{"id": "\xff"}]}', ".*can't decode byte 0xff.*"),
    "NaN": ("t.json", b'{"images": [{"id": NaN}]}', r"images\[0\] has no 'file_name'"),
    "deep": ("t.json", b'{"images": [' + b"[" * 100_000, r"is not valid JSON: images\[0\]: it is nested too deeply"),
    "long text": (
        "t.json",
        b'{"images": ["' + b"[" * (20 << 20),
        r"is not valid JSON: images\[0\] has more than 16 MiB.*",
    ),
    "digits": (
        "t.json",
        b'{"images": [' + b"1" * 9999,
        r"is not valid JSON: images\[0\]: a number has too many digits",
    ),
    "more": ("t.json", coco() + b"{}", "is not valid JSON: more follows after its end"),
    "no comma": ("t.json", b'{"images": [1 2]}', r"is not valid JSON: images\[0\]: .*|images.0. is not a JSON object"),
    "rows": (
        "t.json",
        b'[{"path": "a.png", "class": "cat"}]',
        r".*\[0\].* \(rows belong into \.jsonl\).*'annotations'",
    ),
    "no list": ("t.json", b'{"images": 7}', "lists no images; .*"),
    "numbers": ("t.json", b'{"images": [7]}', r"images\[0\] is not a JSON object"),
    "no id": ("t.json", b'{"images": [{"file_name": "a"}]}', r"images\[0\] has no 'id'"),
    "twice": ("t.json", coco(images=COCO["images"] * 2), r"images\[1\] has the id 1, as one before it has"),
    "no image": ("t.json", coco(annotations=[{"bbox": [1, 2, 3, 4]}]), r"annotations\[0\] has no 'image_id'"),
    "label": (
        "t.json",
        b'[{"image": "a", "annotations": [{"coordinates": {}}]}]',
        r"\[0\] has an annotation without .*",
    ),
    "objects": ("t.json", b'[{"image": "a", "annotations": 7}]', r"\[0\] has an annotation without .*"),
    "entities": ("t.xml", b'<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>', "has a DOCTYPE .*"),
    "hidden": ("t.xml", b"<!<!--DOCTYPE a><annotation/>", "has a DOCTYPE .*"),
    "UTF-16": ("t.xml", "<!DOCTYPE a><annotation/>".encode("utf-16"), ".*can't decode byte 0xff.*"),
    "not closed": ("t.xml", b"<annotation>", "is not valid XML: .*"),
    "long": ("t.xml", b" " * (5 << 20), "has more than 1 MiB"),
    "bomb": ("t.yaml", BOMB.encode(), "names no classes; .*"),
    "object": ("t.yaml", b"names: !!python/object/apply:os.system [ls]", "is not valid YAML: .*"),
    "deep XML": ("t.xml", b"<a>" * 100_000, "is not valid XML: .*"),
    "deep YAML": ("t.yaml", b"names: " + b"[" * 10_000, "is not valid YAML: .*"),
    "no bool": ("t.yaml", b"names: !!bool x", "is not valid YAML: 'x'"),
    "no time": ("t.yaml", b"names: !!timestamp x", "is not valid YAML: .*"),
    "no int": ("t.yaml", b"names: !!int ''", "is not valid YAML: .*"),
    "no date": ("t.yaml", b"names: 2020-99-99", "is not valid YAML: month must be .*"),
    "a number": ("t.yaml", b"names: 80", "names no classes; .*"),
    "itself": ("t.yaml", b"names: &a [*a]", "names no classes; .*"),
    "no names": ("t.yaml", b"train: images", "names no classes; .*"),
    "no folder": ("t.yaml", b"names: [a]\ntrain: images/none", "train: there are no images in .*/images/none; .*"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_messages_in_bounded_memory(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, data, message = HOSTILE[kind]
    path = tmp_path / name
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"^{message}$"):
        rows(path)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    if path.suffix != ".xml":
        assert EXAMPLE["main"]([str(path), str(tmp_path), str(tmp_path / "t.jsonl")]) == 1
        assert capsys.readouterr().err.startswith(f"{path}: ")


@given(st.data())
def test_a_mutated_file_gives_rows_or_a_message(truth: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["coco.json", "createml.json", "xml/2.xml", "data.yaml"]))
    content = bytearray((truth / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    mutated = truth / f"mutated{Path(name).suffix}"
    mutated.write_bytes(content)
    try:
        for row in rows(mutated):
            assert len(row["class"]) == len(row["box"])
    except ValueError:
        pass
    finally:
        mutated.unlink()


def test_polygons_of_yolo_give_the_box_around_them(tmp_path: Path) -> None:
    write_truth(tmp_path)
    (tmp_path / "labels/train/0.txt").write_text("2 0.1 0.1 0.5 0.2 0.3 0.7\n1 0.1 0.2 0.3\n")
    first = rows(tmp_path / "data.yaml")[0]
    assert first["class"] == ["owl", "dog"]
    np.testing.assert_allclose(first["box"], [[0.3, 0.4, 0.4, 0.6], NO_BOX])
