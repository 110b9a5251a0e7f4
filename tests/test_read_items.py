"""How items were read, as `plan`, `convert` and `update` show it with an example of each split."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import beam_tfr
from beam_tfr.dataset.read_items import ReadItem
from beam_tfr.launch.results import Result
from beam_tfr.schema.value_places import ValuePlaces
from tests.archives import tarred

ITEM: dict[str, Any] = {
    "split": "train",
    "split_from": "",
    "classes": {},
    "class_from": "",
    "boxes": None,
    "box_parts": {},
    "files": {},
    "values": {},
}
SMALL = {"image_size": 16, "progress": False}


def encode(image: Image.Image, form: str) -> bytes:
    file = io.BytesIO()
    image.save(file, form)
    return file.getvalue()


PHOTO = encode(Image.radial_gradient("L").resize((60, 40)), "jpeg")
MASK = encode(Image.new("L", (60, 40), 3), "png")


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


def lines_of(result: Result) -> list[str]:
    """The examples among the lines of a summary."""
    return [line.removeprefix("example: ") for line in result.lines() if line.startswith("example")]


def read(folder: Path, **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Converts an input; returns the examples, and their lines in the summary.

    The plan shows the same, since all items are in its sample.
    """
    planned = beam_tfr.plan(**SMALL, **options)
    result = beam_tfr.convert(output=str(folder / "dataset"), **SMALL, **options)
    lines = lines_of(result)
    examples = result.as_json()["examples"]
    assert planned.as_json()["examples"] == examples
    assert [text for title, text in planned.facts() if title == "example"] == lines
    return examples, lines


def test_folders_within_folders(tmp_path: Path) -> None:
    names = ["cat/2021/1.jpg", "dog/2021/1.jpg", "cat/2022/1.jpg"]
    write_files(tmp_path / "in", dict.fromkeys(names, PHOTO))
    inner, lines = read(tmp_path / "inner", input=str(tmp_path / "in"), layout="{label}/*")
    key = inner[0]["key"]
    _, year, _ = key.split("/")
    assert inner == [{**ITEM, "key": key, "classes": {year: 1}, "class_from": "folder"}]
    assert lines == [f"{key} -> train, class {year} (folder)"]
    outer, lines = read(tmp_path / "outer", input=str(tmp_path / "in"), layout="{label}/**")
    animal = key.partition("/")[0]
    assert outer == [{**ITEM, "key": key, "classes": {animal: 1}, "class_from": "folder"}]
    assert lines == [f"{key} -> train, class {animal} (folder)"]


def test_the_example_is_the_first_record_of_its_split(tmp_path: Path, photos: Path) -> None:
    """For each of three splits, and for no more."""
    for split in ("validation", "fold", "zebra"):
        write_files(photos, {f"{split}/hat_1.jpg": PHOTO})
    for photo in sorted(photos.glob("t*/hat/*")):
        photo.rename(photo.parent.parent / f"hat_{photo.name}")
    options = {"input": f"{photos}/*/*.jpg", "layout": "{split}/{label}_*", "num_shards": "train=2"}
    examples, lines = read(tmp_path, **options)
    first = beam_tfr.inspect(tmp_path / "dataset", split="train", record=0).records[0]
    train, validation, test = examples
    assert train["key"].encode() == first.values["image/filename"][0]
    told = {"split_from": "folder", "class_from": "file name", "classes": {"hat": 1}}
    assert train == {**ITEM, **told, "key": train["key"]}
    assert validation == {
        **ITEM,
        **told,
        "key": "validation/hat_1.jpg",
        "split": "validation",
    }
    assert test == {**ITEM, **told, "key": test["key"], "split": "test"}
    assert lines[1] == "validation/hat_1.jpg -> validation (folder), class hat (file name)"
    assert len(lines) == 3


def test_tables(tmp_path: Path) -> None:
    rows = [
        "path,kind,part,caption,score,other",
        '1.jpg,cat,train,"a cat, which sleeps on a mat in the sun, all day",1.5,7',
        "2.jpg,,val,,-2,8",
    ]
    write_files(tmp_path, {"t.csv": "\n".join(rows), "1.jpg": PHOTO, "2.jpg": PHOTO})
    options = {
        "table": str(tmp_path / "t.csv"),
        "uri_column": "path",
        "label_column": "kind",
        "split_column": "part",
        "feature_columns": "caption:bytes,score:float,other:int64,kind:bytes",
    }
    examples, lines = read(tmp_path, **options)
    caption = "'a cat, which sleeps…in the sun, all day'"
    told = {"split_from": "column part", "class_from": "column kind"}
    first = {"caption": caption, "kind": "'cat'", "other": "7", "score": "1.5"}
    second = {"caption": "''", "kind": "''", "other": "8", "score": "-2"}
    assert examples == [
        {**ITEM, **told, "key": "1.jpg", "classes": {"cat": 1}, "values": first},
        {**ITEM, **told, "key": "2.jpg", "split": "val", "values": second},
    ]
    assert lines == [
        f"1.jpg -> train (column part), class cat (column kind), caption {caption}, kind 'cat', "
        "other 7, 1 more column",
        "2.jpg -> val (column part), no class (column kind), caption '', kind '', other 8, "
        "1 more column",
    ]


def test_rows_without_images(tmp_path: Path) -> None:
    write_files(tmp_path, {"t.jsonl": json.dumps({"name": "a", "label": "cat", "list": [1, 2]})})
    table = str(tmp_path / "t.jsonl")
    result = beam_tfr.convert(table=table, output=str(tmp_path / "d"), progress=False)
    (line,) = lines_of(result)
    assert line == "t#1 -> train, no class, label 'cat', list 2 values, name 'a'"


def write_coco(folder: Path, split: str, boxes: Sequence[int]) -> None:
    """Writes an image with boxes of some classes."""
    write_files(folder, {f"{split}2017/{split}.jpg": PHOTO})
    side = {"bbox": [20, 10, 20, 20], "area": 400, "iscrowd": 0, "image_id": 1}
    corners = [[20, 10, 40, 10, 40, 30]]
    fields = {
        "images": [{"id": 1, "file_name": f"{split}.jpg", "width": 60, "height": 40}],
        "annotations": [
            {"id": at, "category_id": kind, "segmentation": corners, **side}
            for at, kind in enumerate(boxes)
        ],
        "categories": [{"id": 1, "name": "car"}, {"id": 2, "name": "person"}],
    }
    write_files(folder, {f"annotations/instances_{split}2017.json": json.dumps(fields)})


def test_coco(tmp_path: Path) -> None:
    write_coco(tmp_path, "train", [1, 2, 1])
    write_coco(tmp_path, "val", [])
    examples, lines = read(tmp_path, table=f"{tmp_path}/annotations/*.json")
    assert examples == [
        {
            **ITEM,
            "key": "train2017/train.jpg",
            "split_from": "table",
            "classes": {"car": 2, "person": 1},
            "boxes": 3,
            "box_parts": {"polygon": 3},
        },
        {**ITEM, "key": "val2017/val.jpg", "split": "val", "split_from": "table", "boxes": 0},
    ]
    assert lines == [
        "train2017/train.jpg -> train (table), 3 boxes (2 car, person), 3 with polygon",
        "val2017/val.jpg -> val (table), no boxes",
    ]


def test_a_plan_names_no_class_of_boxes_if_a_crop_drops_some(tmp_path: Path) -> None:
    write_coco(tmp_path, "train", [1, 2])
    path = tmp_path / "annotations" / "instances_train2017.json"
    fields = json.loads(path.read_text())
    fields["annotations"][0]["bbox"] = [0, 0, 5, 5]
    path.write_text(json.dumps(fields))
    options = {"table": str(path), "resize": "crop", "allow_empty": "car", **SMALL}
    planned = beam_tfr.plan(**options)
    assert planned.examples[0].describe().endswith("1 box without a class, 1 with polygon")
    result = beam_tfr.convert(output=str(tmp_path / "d"), **options)
    assert lines_of(result)[0].endswith("1 box (person), 1 with polygon")


def test_yolo(tmp_path: Path) -> None:
    write_files(
        tmp_path / "in",
        {
            "data.yaml": "path: .\ntrain: images/train\nval: images/val\nnames: [car, person]\n",
            "images/train/1.jpg": PHOTO,
            "labels/train/1.txt": "1 0.5 0.5 0.2 0.2\n",
            "images/val/2.jpg": PHOTO,
            "labels/val/2.txt": "",
        },
    )
    examples, lines = read(tmp_path, table=str(tmp_path / "in" / "data.yaml"))
    assert [item["boxes"] for item in examples] == [1, 0]
    assert lines == [
        "train/1.jpg -> train (table), 1 box (person)",
        "val/2.jpg -> validation (table), no boxes",
    ]


def test_masks_and_pairs(tmp_path: Path) -> None:
    write_files(tmp_path, {"in/photos/1.jpg": PHOTO, "in/masks/1.png": MASK})
    pairs = ["mask=../masks/{stem}.png", "depth=../depth/{stem}.png[optional]"]
    examples, lines = read(tmp_path, input=f"{tmp_path}/in/photos", layout="*", pair=pairs)
    assert examples == [{**ITEM, "key": "1.jpg", "files": {"mask": "../masks/1.png", "depth": ""}}]
    assert lines == ["1.jpg -> train, no class, no depth, mask ../masks/1.png"]


def test_masks_of_tables(tmp_path: Path) -> None:
    """The table names their files, and a dataset has them in its records."""
    table = "image,mask\nphotos/1.jpg,m/a.png"
    write_files(tmp_path, {"in/photos/1.jpg": PHOTO, "in/m/a.png": MASK, "in/t.csv": table})
    options = {"uri_column": "image", "feature_columns": "mask:mask"}
    examples, lines = read(tmp_path, table=str(tmp_path / "in" / "t.csv"), **options)
    assert examples == [{**ITEM, "key": "photos/1.jpg", "files": {"mask": "m/a.png"}}]
    assert lines == ["photos/1.jpg -> train, no class, mask m/a.png"]
    _, lines = read(tmp_path / "again", table=str(tmp_path / "dataset" / "manifest.json"))
    assert lines == ["photos/1.jpg -> train (column image/split), no class, mask"]


def test_tars(tmp_path: Path) -> None:
    files = {"001.jpg": PHOTO, "001.cls": b"4", "001.txt": b"a cat"}
    write_files(tmp_path, {"w-0.tar": tarred(files)})
    options = {"uri_column": "jpg", "label_column": "cls", "feature_columns": "txt:bytes"}
    examples, lines = read(tmp_path, table=str(tmp_path / "w-0.tar"), **options)
    told = {"classes": {"4": 1}, "class_from": "column cls", "values": {"txt": "'a cat'"}}
    assert examples == [{**ITEM, **told, "key": "w-0/001.jpg"}]
    assert lines == ["w-0/001.jpg -> train, class 4 (column cls), txt 'a cat'"]


def test_parquet(tmp_path: Path) -> None:
    columns = {"image": [{"bytes": PHOTO}], "label": ["cat"], "blob": [b"\xff" * 9]}
    parquet.write_table(pa.table(columns), tmp_path / "train-0.parquet")
    options = {"uri_column": "image", "label_column": "label", "feature_columns": "blob:bytes"}
    examples, lines = read(tmp_path, table=f"{tmp_path}/train-0.parquet", **options)
    key = examples[0]["key"]
    assert key.startswith("train-0/")
    assert lines == [f"{key} -> train (table), class cat (column label), blob 9 bytes"]


def test_updates_and_complete_datasets_show_examples(tmp_path: Path) -> None:
    write_files(tmp_path, {"in/cat/1.jpg": PHOTO})
    options = {"input": str(tmp_path / "in"), "output": str(tmp_path / "d"), **SMALL}
    made = beam_tfr.convert(**options, splits={"train": 1})
    line = "cat/1.jpg -> train (shares), class cat (folder)"
    assert lines_of(made) == [line]
    again = beam_tfr.convert(**options, splits={"train": 1})
    assert (again.fresh, lines_of(again)) == (False, [line])
    write_files(tmp_path, {"in/dog/2.jpg": PHOTO})
    updated = beam_tfr.update(tmp_path / "d", input=str(tmp_path / "in"), progress=False)
    assert updated.examples[0].key in ("cat/1.jpg", "dog/2.jpg")
    assert updated.examples[0].places == ValuePlaces("folder", "shares")


def test_an_item_that_cannot_be_read_is_no_example(tmp_path: Path) -> None:
    """A complete dataset may be damaged, which its summary does not look for."""
    write_files(tmp_path, {"in/cat/1.jpg": PHOTO})
    options = {"input": str(tmp_path / "in"), "output": str(tmp_path / "d"), **SMALL}
    beam_tfr.convert(**options)
    (shard,) = (tmp_path / "d").glob("*.tfrecord.gz")
    shard.write_bytes(bytes(shard.stat().st_size))
    again = beam_tfr.convert(**options)
    assert (again.fresh, again.examples) == (False, [])


@pytest.mark.parametrize("splits", [1, 4])
def test_examples_cost_a_record_each(
    tmp_path: Path, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{split}/cat/{at}.jpg" for split in range(splits) for at in range(3)]
    write_files(tmp_path / "in", dict.fromkeys(names, PHOTO))
    opened = []
    from beam_tfr.launch import examples

    class Counted(examples.RecordFile):
        def __iter__(self) -> Any:
            for record in super().__iter__():
                opened.append(self.record)
                yield record

    monkeypatch.setattr(examples, "RecordFile", Counted)
    beam_tfr.convert(
        input=str(tmp_path / "in"),
        output=str(tmp_path / "d"),
        layout="{split}/{label}/*",
        **SMALL,
    )
    assert opened == [0] * min(splits, 3)


def test_long_names_are_cut() -> None:
    item = ReadItem(
        key="k" * 1000,
        split="train",
        places=ValuePlaces(label=f"column {'n' * 1000}"),
        classes={f"{at}{'c' * 1000}": 1 for at in range(50)},
        boxes=None,
        parts={},
        files={"mask": "m" * 1000},
        values={f"{at}{'v' * 1000}": "1" for at in range(50)},
    )
    line = item.describe()
    assert len(line) < 1500
    assert line.endswith("47 more columns")
    assert "and 47 more" in line
