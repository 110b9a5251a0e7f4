"""Annotations as tables.

One truth in all formats gives equal rows and records; what is wrong is named.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import itertools
import json
import math
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pycocotools.coco import COCO as COCOFile  # noqa: N811

import beam_tfr
from beam_tfr import cli
from beam_tfr.features.cells import BadCell
from beam_tfr.features.registry import parse_column
from beam_tfr.options.implied import ANNOTATIONS, optional_columns
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.feature_names import OBJECT_LABEL, OBJECT_TEXT, SIDES, SOURCE_SIDES
from beam_tfr.tables.annotations import read_annotations
from beam_tfr.tables.formats import read_rows
from tests.converted import write_photos
from tests.fake_gcs import FakeGcs
from tests.updates import count_decoding, files_of

DOC = (Path(__file__).parents[1] / "docs" / "objects.md").read_text()
CLASSES = ["cat", "dog", "owl"]
NAN = math.nan
SIZES = [(41, 30), (64, 64), (33, 57), (90, 20)]
# The objects of each picture: class and corners.
TRUTH = [
    [],
    [("cat", (1, 2, 30, 40))],
    [("owl", (0, 0, 33, 57)), ("cat", (5, 5, 9, 50))],
    [("dog", (10, 1, 60, 19)), ("dog", (2, 2, 5, 7)), ("owl", (70, 3, 90, 20))],
]
TABLES = {
    "coco": "coco.json",
    "create ml": "createml.json",
    "voc": "xml/*.xml",
    "yolo": "data.yaml",
}


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
                {
                    "image_id": 7 * number,
                    "category_id": at * 10 + 1,
                    "bbox": [left, top, *sides],
                    "iscrowd": at == 2,
                }
            )
            pixels = {"xmin": left + 1, "ymin": top + 1, "xmax": right, "ymax": bottom}
            corners = "".join(f"<{side}>{value}</{side}>" for side, value in pixels.items())
            elements.append(f"<object><name>{label}</name><bndbox>{corners}</bndbox></object>")
            shares = (middle[0] / width, middle[1] / height, sides[0] / width, sides[1] / height)
            lines.append(f"{at} {' '.join(map(repr, shares))}")
            coordinates = dict(zip(("x", "y", "width", "height"), (*middle, *sides), strict=True))
            boxes.append({"label": label, "coordinates": coordinates})
        create_ml.append({"image": name, "annotations": boxes})
        content = f"<filename>{name}</filename>{''.join(elements)}"
        text = f"<?xml version='1.0'?><annotation>{content}</annotation>"
        (folder / "xml" / f"{number}.xml").write_text(text)
        if lines:
            (folder / "labels" / "train" / f"{number}.txt").write_text("\n".join(lines) + "\n\n")
    random.Random(1).shuffle(coco["annotations"])
    (folder / "coco.json").write_text(json.dumps(coco))
    (folder / "createml.json").write_text(json.dumps(create_ml))
    (folder / "data.yaml").write_text(
        "train: images/train\nval:\nnames: {0: cat, 1: dog, 2: owl}\n"
    )


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("truth")
    write_truth(folder)
    return folder


def rows(path: Path | str, data: bytes | None = None) -> list[dict[str, Any]]:
    return [
        *read_annotations(str(path), io.BytesIO(Path(path).read_bytes() if data is None else data))
    ]


def corners(
    row: dict[str, Any], form: str, size: tuple[int, int]
) -> list[tuple[str, tuple[float, ...]]]:
    """Class and corners of each object of a row, sorted.

    `size` is that of the image, if boxes are shares of it.
    """
    sides = np.array(parse_column("c", form).parse(row["box"])).reshape(-1, 4) * (
        size * 2 if "rel" in form else 1
    )
    return sorted(zip(row["class"], map(tuple, sides.round(6).tolist()), strict=True))


@pytest.mark.parametrize("form", TABLES)
def test_one_truth_gives_equal_rows(truth: Path, form: str) -> None:
    found = [row for path in sorted(truth.glob(TABLES[form])) for row in rows(path)]
    names = [row["file"] for row in found]
    assert [name.removeprefix(f"{truth}/images/") for name in names] == [
        f"train/{i}.png" for i in range(4)
    ]
    for row, size, objects in zip(found, SIZES, TRUTH, strict=True):
        implied = ANNOTATIONS[Path(TABLES[form]).suffix]
        assert corners(row, implied["feature_columns"]["box"], size) == sorted(objects)
        roles = {of for of in implied.values() if isinstance(of, str)}
        assert row.keys() == {*implied["feature_columns"], *optional_columns(TABLES[form]), *roles}


def test_what_coco_says_beside_boxes_stays_with_them(truth: Path) -> None:
    for row in rows(truth / "coco.json"):
        assert row["image/object/is_crowd"] == [int(label == "owl") for label in row["class"]]
        assert row["image/object/category_id"] == [
            CLASSES.index(label) * 10 + 1 for label in row["class"]
        ]
        areas = [width * height for _, _, width, height in row["box"]]
        assert row["image/object/area"] == areas  # the file has none


def records(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.tfrecord.gz"))
    return [parse_example(record) for file in files for record in RecordFile(str(file))]


@pytest.mark.slow
def test_one_truth_gives_equal_records_on_disk_and_gs(
    truth: Path, tmp_path: Path, fake: FakeGcs
) -> None:
    def objects(record: dict[str, Any]) -> list[tuple[Any, ...]]:
        sides = (np.round(record[side], 6).tolist() for side in SIDES)
        return sorted(zip(record[OBJECT_TEXT], *sides, strict=True))

    made = {}
    for path in truth.rglob("*"):
        if path.is_file():
            fake.put(f"truth/{path.relative_to(truth)}", path.read_bytes())
    for place in (str(truth), "gs://b/truth"):
        for form, table in TABLES.items():
            output = tmp_path / f"{form}{len(made)}"
            line = [
                "convert",
                "--table",
                f"{place}/{table}",
                "--image_root",
                f"{place}/images",
                "--name",
                "d",
            ]
            assert cli.main([*line, "--output", str(output), "--resize", "pad", "--quiet"]) == 0
            made[place, form] = {
                (of["image/filename"][0], of["image/encoded"][0], *objects(of))
                for of in records(output)
            }
    first, *others = made.values()
    assert len(first) == 4
    assert all(other == first for other in others)


def test_the_columns_and_options_can_be_chosen(truth: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "table": str(truth / "coco.json"),
        "image_root": str(truth / "images"),
        "resize": "pad",
    }
    done = beam_tfr.convert(
        **options,
        output=str(tmp_path / "d"),
        feature_columns="box:bbox[xywh]",
        splits="train=1",
        label_column="class",
    )
    assert [done.counts[name] for name in ("matched", "written", "rejected")] == [4, 4, {}]
    assert "image/object/area" not in records(tmp_path / "d")[0]
    joined = beam_tfr.convert(
        **{**options, "table": str(truth / "data.yaml")},
        output=str(tmp_path / "e"),
        splits="all=1",
    )
    assert [*joined.manifest.splits] == ["all"]


COCO = {
    "images": [{"id": 1, "file_name": "a.png"}],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [],
}
BOX = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}


def coco(**change: Any) -> bytes:
    return json.dumps({**COCO, **change}).encode()


def test_rejects_say_what_is_wrong(truth: Path, tmp_path: Path) -> None:
    content = json.loads((truth / "coco.json").read_text())
    wrong = [
        {"image_id": 0, "bbox": []},
        {"image_id": 7, "bbox": [0, 0, 0, 5]},
        {"image_id": 14, "category_id": 5},
    ]
    content["annotations"] += [BOX | change for change in (*wrong, {"image_id": 5})]
    (tmp_path / "t.json").write_text(json.dumps(content))
    done = beam_tfr.convert(
        table=tmp_path / "t.json",
        image_root=truth / "images",
        output=tmp_path / "d",
        resize="pad",
        max_rejects=9,
        allow_empty="cat",
        progress=False,
    )
    assert [done.counts[name] for name in ("matched", "written", "rejected")] == [
        5,
        1,
        {"bad-value": 4},
    ]
    lines = [
        json.loads(line) for line in (tmp_path / "d" / "rejects.jsonl").read_text().splitlines()
    ]
    assert {line["key"]: line["detail"] for line in lines} == {
        "train/0.png": "t.json, row 1: column 'box': box 1: [] is not a box of four numbers",
        "train/1.png": "t.json, row 2: column 'box': box 2: [0.0, 0.0, 0.0, 5.0] is not a box with "
        "an area in the format "
        "xywh",
        "train/2.png": "t.json, row 3: column 'class': no category has the id 5",
        "t.json#5": "t.json, row 5: column 'file': annotations have the image_id 5, which no "
        "image has",
    }


def test_ids_are_equal_however_they_are_written() -> None:
    images = [{"id": "a", "file_name": "a.png"}, {"id": 7.0, "file_name": "b.png"}]
    boxes = [
        BOX | {"image_id": of, "category_id": kind} for of, kind in (("a", 1), (7, "1"), (7.0, 1.0))
    ]
    found = rows("t.json", codecs.BOM_UTF8 + coco(images=images, annotations=boxes))
    assert [(row["image/source_id"], row["class"]) for row in found] == [
        ("a", ["cat"]),
        ("7", ["cat", "cat"]),
    ]


BOMB = (
    "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'lol'}]\n" for i in range(9))
    + "names: *a8\n"
)
HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "cut": ("t.json", coco(annotations=[BOX])[:-20], "Input data was truncated"),
    "empty": ("t.json", b"", "Input data was truncated"),
    "no UTF-8": (
        "t.json",
        b'{"images": [{"id": "\xff"}]}',
        r"in b'\\xff', byte 0xff is not valid UTF-8; if it is 'ÿ' .*",
    ),
    "UTF-16 JSON": ("t.json", coco().decode()[:-1].encode("utf-16"), "Input data was truncated"),
    "half of UTF-16": ("t.json", coco().decode().encode("utf-16")[:-1], ".* is not UTF-16.*"),
    "NaN": (
        "t.json",
        b'{"images": [{"id": NaN}]}',
        r"Expected `int \| str`, got NaN or `null` - at `\$.images\[0\].id`",
    ),
    "deep": (
        "t.json",
        b'{"images": [' + b"[" * 100_000,
        r"Expected `object`, got `array` - at `\$.images\[0\]`",
    ),
    "deep elsewhere": (
        "t.json",
        b'{"info": ' + b"[" * 100_000,
        "maximum recursion depth exceeded .*",
    ),
    "long text": (
        "t.json",
        b'{"images": ["' + b"[" * (20 << 20),
        "has 20,971,522 brackets and braces in 20,971,533 bytes, .*",
    ),
    "digits": (
        "t.json",
        coco().replace(b'"id": 1', b'"id": ' + b"1" * 9999),
        r"Integer value out of range - at `\$.images\[0\].id`",
    ),
    "huge": (
        "t.json",
        coco(annotations=[BOX | {"bbox": [1, 10**400]}]),
        r"Number out of range - .*annotations\[0\].*",
    ),
    "exponent": (
        "t.json",
        coco(annotations=[BOX]).replace(b"3,", b"1e999,"),
        r"Number out of range - .*bbox\[2\]`",
    ),
    "text": (
        "t.json",
        coco(annotations=[BOX, BOX | {"bbox": "1234"}]),
        r"Expected .*`\$.annotations\[1\].bbox`",
    ),
    "null": (
        "t.json",
        coco(annotations=[BOX | {"bbox": [None] * 4}]),
        r"Expected .*annotations\[0\].bbox\[0\]`",
    ),
    "more": ("t.json", coco() + b"{}", "JSON is malformed: trailing characters .*"),
    "no comma": ("t.json", b'{"images": [{} {}]}', r"Object missing .*|JSON is malformed: .*"),
    "rows": (
        "t.json",
        b'[{"path": "a", "class": "b"}]',
        r"is an array of rows; .* \.jsonl.*",
    ),
    "no list": ("t.json", b'{"images": 7}', r"Expected `array`, got `int` - at `\$.images`"),
    "numbers": (
        "t.json",
        b'{"images": [7]}',
        r"Expected `object`, got `int` - at `\$.images\[0\]`",
    ),
    "no id": (
        "t.json",
        b'{"images": [{"file_name": "a"}]}',
        r"Object missing .* `id` - at `\$.images\[0\]`",
    ),
    "no image": (
        "t.json",
        coco(annotations=[{"bbox": []}]),
        r".*field `image_id` - at `\$.annotations\[0\]`",
    ),
    "captions": (
        "t.json",
        coco(annotations=[{"image_id": 1, "caption": "a"}]),
        "has image captions, .*",
    ),
    "label": (
        "t.json",
        b'[{"image": "a", "annotations": [{"coordinates": {}}]}]',
        r".* field `label` - at .*",
    ),
    "objects": (
        "t.json",
        b'[{"image": "a", "annotations": 7}]',
        r"Expected `array.*`, .*`\$\[0\].annotations`",
    ),
    "entities": (
        "t.xml",
        b'<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>',
        "has a DOCTYPE .*",
    ),
    "hidden": ("t.xml", b"<!<!--DOCTYPE a><annotation/>", "has a DOCTYPE .*"),
    "UTF-16": ("t.xml", "<!DOCTYPE a []><annotation/>".encode("utf-16"), "has a DOCTYPE .*"),
    "behind CDATA": ("t.xml", b"<!<![CDATA[DOCTYPE a><annotation/>", "has a DOCTYPE .*"),
    "encoding": ("t.xml", b"<?xml version='1.0' encoding='idna'?><a/>", "its encoding 'idna' .*"),
    "page": ("t.xml", b"<html><p>404 Not Found</p></html>", "begins with <html>, .*"),
    "not closed": ("t.xml", b"<annotation>", "no element found: line 1, column 12"),
    "long": ("t.xml", b" " * (5 << 20), "has more than 1 MiB"),
    "deep XML": ("t.xml", b"<a>" * 100_000, "no element found: .*"),
    "bomb": ("t.yaml", BOMB.encode(), r"Expected `str`, got `array` - at `\$.names\[0\]`"),
    "object": (
        "t.yaml",
        b"names: !!python/object/apply:os.system [ls]\ntrain: none",
        "there is no such file or folder: /none/none; .*",
    ),
    "deep YAML": ("t.yaml", b"names: " + b"[" * 500, "nests lists or mappings too deeply.*"),
    "cut YAML": ("t.yaml", b"names: [", "while parsing .* line 2, column 1.*"),
    "a number": ("t.yaml", b"names: 80", "names: '80' is a string: write the names themselves .*"),
    "itself": ("t.yaml", b"names: &a [*a]", "found unconstructable recursive node.*"),
    "no names": ("t.yaml", b"train: images", "has no names of classes.*"),
    "no folder": (
        "t.yaml",
        b"names: [a]\ntrain: images/none",
        "there is no such file or folder: /none/images/none; .*",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_messages_in_bounded_memory(kind: str) -> None:
    name, data, message = HOSTILE[kind]
    tracemalloc.start()
    form = {"json": "COCO or Create ML", "xml": "Pascal VOC", "yaml": "YOLO"}[name[2:]]
    with pytest.raises(
        DataError, match=f"^`table=/none/{name}`: cannot be read as {form}: ({message})$"
    ):
        rows(f"/none/{name}", data)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


@given(st.data())
def test_a_mutated_file_gives_rows_or_a_message(truth: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["coco.json", "createml.json", "xml/2.xml", "data.yaml"]))
    content = bytearray((truth / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    try:
        for row in rows(truth / name, bytes(content)):
            if not isinstance(row["file"], BadCell):
                assert len(row["class"]) == len(row["box"])
    except DataError:
        pass


def test_a_damaged_table_is_named(tmp_path: Path, beam_tfr: Callable[..., Any]) -> None:
    table = tmp_path / "t.json"
    table.write_bytes(coco()[:-5])
    run = beam_tfr("convert", "--table", table, "--output", tmp_path / "d")
    assert run.code == 1
    assert run.err.endswith(
        f"--table {table}: cannot be read as COCO or Create ML: Input data was truncated\n"
    )
    table.rename(tmp_path / "t.json.gz")
    run = beam_tfr("convert", "--table", f"{table}.gz", "--output", tmp_path / "d")
    assert (run.code, "decompress it first" in run.err) == (2, True)


def test_polygons_of_yolo_give_the_box_around_them(tmp_path: Path) -> None:
    write_truth(tmp_path)
    (tmp_path / "labels/train/0.txt").write_text("2 0.1 0.1 0.5 0.2 0.3 0.7\n1 0.1 0.2 0.3\n")
    first = rows(tmp_path / "data.yaml")[0]
    assert first["class"] == ["owl", "dog"]
    np.testing.assert_allclose(first["box"][0], [0.3, 0.4, 0.4, 0.6])
    assert first["box"][1] == [0.1, 0.2, 0.3]  # which is no box


def test_roboflow_names_folders_beside_the_file_as_if_above_it(tmp_path: Path) -> None:
    write_truth(tmp_path)
    text = "train: ../images/train\nnames: [cat, dog, owl]\n"
    found = rows(tmp_path / "data.yaml", text.encode())
    assert [row["image/source_id"] for row in found] == [f"images/train/{i}.png" for i in range(4)]
    assert [len(row["box"]) for row in found] == [len(objects) for objects in TRUTH]


SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in ((1, False), (3, False), (6, True))]


@pytest.mark.parametrize(("orientation", "ignore"), [(6, False), *SLOW])
def test_sizes_that_contradict_the_pixels_reject_their_image(
    tmp_path: Path, orientation: int, ignore: bool
) -> None:
    """The stored pixels are 40x20; beside orientation 6, the upright picture has 20x40."""
    exif, upright = Image.Exif(), (20, 40) if orientation == 6 else (40, 20)
    exif[0x0112] = orientation
    sizes: list[Any] = [(40, 20), (20, 40), (80, 40), (0, 0), (None, 20), ("40", 20.0)]
    for number in range(len(sizes)):
        Image.new("RGB", (40, 20), (9, 9, 9 + number)).save(tmp_path / f"{number}.png", exif=exif)
    images = [
        {"id": number, "file_name": f"{number}.png", "width": width, "height": height}
        for number, (width, height) in enumerate(sizes)
    ]
    boxes = [{**BOX, "image_id": number} for number in range(len(sizes))]
    (tmp_path / "t.json").write_bytes(coco(images=images, annotations=boxes))
    done = beam_tfr.convert(
        table=tmp_path / "t.json",
        output=tmp_path / "d",
        max_rejects=1.0,
        ignore_orientation=ignore,
        resize="pad",
        progress=False,
    )
    lines = (tmp_path / "d" / "rejects.jsonl").read_text().splitlines()
    told = {int(line["key"][0]): line["detail"] for line in map(json.loads, lines)}
    assert told.keys() == ({0, 2, 5} if orientation == 6 else {1, 2})
    for at, detail in told.items():
        stated = f"{sizes[at][0]}x{int(sizes[at][1])}"
        size = f"{upright[0]}x{upright[1]}"
        message, _, cause = detail.partition(": ")
        assert message == f"the table says {stated} pixels, but the image has {size}"
        is_turned = orientation == 6 and stated == "40x20"
        assert ("ignore EXIF orientation" in cause) == is_turned
    assert done.manifest.features.keys() >= {*SOURCE_SIDES}
    record = records(tmp_path / "d")[0]
    assert [record[side] for side in SOURCE_SIDES] == [
        [side] for side in ((40, 20) if ignore else upright)
    ]
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok


# What TFObjectDetectionDataset of FiftyOne reads besides sizes and boxes.
FIFTYONE = ("image/filename", "image/source_id", "image/encoded", "image/format")


def test_background_is_kept_and_counted(truth: Path, tmp_path: Path) -> None:
    done = beam_tfr.convert(
        table=truth / "coco.json",
        image_root=truth / "images",
        output=tmp_path / "d",
        resize="pad",
        progress=False,
    )
    assert done.manifest.counts["adjusted"]["no-boxes"] == 1
    (empty,) = [of for of in records(tmp_path / "d") if not of[SIDES[0]]]
    assert (empty["image/filename"], empty["image/source_id"]) == ([b"train/0.png"], [b"0"])
    features = {
        name: (about["dtype"], about["shape"]) for name, about in done.manifest.features.items()
    }
    one = dict.fromkeys(("image/height", "image/width"), ("int64", [])) | dict.fromkeys(
        FIFTYONE, ("bytes", [])
    )
    of_boxes = dict.fromkeys((*SIDES, "image/object/area"), ("float", [-1])) | {
        OBJECT_TEXT: ("bytes", [-1])
    }
    of_boxes |= dict.fromkeys((OBJECT_LABEL, "image/object/is_crowd"), ("int64", [-1]))
    assert features.items() >= (one | of_boxes).items()


def test_classes_keep_the_ids_of_coco(truth: Path, tmp_path: Path) -> None:
    """The lines in docs/tables.md that write the file of --classes."""
    program = DOC[DOC.index("import json\n\ncategories") :].partition("```")[0]
    text = program.replace("instances_train2017.json", str(truth / "coco.json"))
    exec(text.replace("classes.txt", str(tmp_path / "classes.txt")), {})
    beam_tfr.convert(
        table=truth / "coco.json",
        image_root=truth / "images",
        classes=tmp_path / "classes.txt",
        output=tmp_path / "d",
        resize="pad",
        progress=False,
    )
    found = records(tmp_path / "d")
    assert sum(len(of[OBJECT_LABEL]) for of in found) == 6
    for of in found:
        assert of[OBJECT_LABEL] == of["image/object/category_id"]


def test_an_update_converts_images_whose_boxes_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_truth(tmp_path)
    options: dict[str, Any] = {"table": tmp_path / "coco.json", "image_root": tmp_path / "images"}
    beam_tfr.convert(**options, output=tmp_path / "d", resize="pad", name="d", progress=False)
    content = json.loads((tmp_path / "coco.json").read_text())
    content["annotations"][0]["bbox"][2] += 1
    (tmp_path / "coco.json").write_text(json.dumps(content))
    decoded = count_decoding(monkeypatch)
    beam_tfr.update(tmp_path / "d", **options, progress=False)
    assert len(decoded) == 1
    beam_tfr.convert(**options, output=tmp_path / "fresh", resize="pad", name="d", progress=False)
    assert files_of(tmp_path / "d") == files_of(tmp_path / "fresh")


def test_pycocotools_reads_the_same(tmp_path: Path) -> None:
    """Objects of photos as stored, whose pixels stay where they are.

    Crowds in run lengths, polygons, keypoints.
    """
    write_photos(tmp_path / "photos")
    chance, names = random.Random(1), sorted((tmp_path / "photos").rglob("*.jpg"))
    content: dict[str, Any] = {"images": [], "annotations": [], "categories": []}
    content["categories"] = [{"id": of, "name": f"class {of}"} for of in (90, 1, 17)]
    for number, path in enumerate(names):
        with Image.open(path) as photo:
            width, height = photo.size
        about = {
            "file_name": str(path.relative_to(tmp_path / "photos")),
            "width": width,
            "height": height,
        }
        content["images"].append({"id": number * 7 + 2, **about})
        for _ in range(number % 4):
            left, top = chance.randrange(width // 2), chance.uniform(0, height / 2)
            box = [left, top, chance.uniform(1, width / 2), chance.randrange(1, height // 2)]
            more = {"id": 11 * len(content["annotations"]) + 5, "iscrowd": chance.randrange(2)}
            more |= {
                "area": chance.random() * 99,
                "segmentation": {"counts": [width * height], "size": [height, width]},
            }
            inside = [(chance.uniform(0, width), chance.uniform(0, height)) for _ in range(9)]
            if not more["iscrowd"]:
                rings = [inside[:3], inside[3:7]][: chance.randrange(1, 3)]
                more["segmentation"] = [
                    [side for point in ring for side in point] for ring in rings
                ]
                more |= {"keypoints": [*inside[7], 2, 0, 0, 0, *inside[8], 1], "num_keypoints": 2}
            kind = chance.choice((90, 1, 17))
            content["annotations"].append(
                {"image_id": number * 7 + 2, "category_id": kind, "bbox": box, **more}
            )
    chance.shuffle(content["annotations"])
    (tmp_path / "t.json").write_text(json.dumps(content))
    beam_tfr.convert(
        table=tmp_path / "t.json",
        image_root=tmp_path / "photos",
        output=tmp_path / "d",
        resize="none",
        encoding="keep",
        progress=False,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        referee = COCOFile(tmp_path / "t.json")
    found = records(tmp_path / "d")
    assert len(found) == len(names) == len(referee.getImgIds())
    for of in found:
        image_id = int(of["image/source_id"][0])
        (about,) = referee.loadImgs(image_id)
        assert of["image/filename"] == [about["file_name"].encode()]
        expected = referee.loadAnns(referee.getAnnIds(image_id))
        assert of["image/object/category_id"] == [one["category_id"] for one in expected]
        texts = [referee.loadCats(one["category_id"])[0]["name"].encode() for one in expected]
        assert of.get(OBJECT_TEXT, []) == texts
        assert of["image/object/is_crowd"] == [one["iscrowd"] for one in expected]
        np.testing.assert_allclose(
            of["image/object/area"], [one["area"] for one in expected], rtol=1e-6
        )
        left, top, right, bottom = (np.array(of[side]) for side in SIDES)
        wide, high = about["width"], about["height"]
        boxes = np.stack([left * wide, top * high, (right - left) * wide, (bottom - top) * high], 1)
        np.testing.assert_allclose(
            boxes, np.reshape([one["bbox"] for one in expected], (-1, 4)), atol=1e-3
        )
        keypoints = [one.get("keypoints", []) for one in expected]
        assert of["image/object/keypoint/num"] == [len(numbers) // 3 for numbers in keypoints]
        x, y, seen = (
            np.array(of[f"image/object/keypoint/{name}"]) for name in ("x", "y", "visibility")
        )
        found_keypoints = np.stack([x * wide, y * high, seen], 1).ravel()
        np.testing.assert_allclose(
            found_keypoints, [of for numbers in keypoints for of in numbers], atol=1e-3
        )
        corners = np.stack([np.array(of[f"image/object/polygon/{name}"]) for name in "xy"], 1) * (
            wide,
            high,
        )
        polygons = np.split(corners, np.cumsum(of["image/object/polygon/num"]))
        for one, polygon in zip(expected, polygons, strict=False):
            if not one["iscrowd"]:
                rings = itertools.chain.from_iterable(
                    [NAN, NAN, *ring] for ring in one["segmentation"]
                )
                np.testing.assert_allclose(polygon.ravel(), [*rings][2:], atol=1e-3)


def test_rows_are_read_like_those_of_other_tables(truth: Path) -> None:
    found = [*read_rows(str(truth / "coco.json"), ["class", "file"])]
    assert [number for number, _ in found] == [1, 2, 3, 4]
    assert [[*cells[0]] for _, cells in found] == [
        row["class"] for row in rows(truth / "coco.json")
    ]


def test_a_file_of_imglab_is_told_as_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "faces.xml"
    path.write_text(
        "<dataset><images><image file='a.jpg'><box top='1'/></image></images></dataset>"
    )
    with (
        path.open("rb") as file,
        pytest.raises(DataError, match=r"imglab .*filename,x,y,w,h,class"),
    ):
        [*read_annotations(str(path), file, print)]
