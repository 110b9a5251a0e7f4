"""Splits of tables that no option names: of a column, of lists, of folders and names of tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import PIL.Image
import pyarrow
import pytest
from pyarrow import parquet

import beam_tfr as package
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.layouts.split_names import split_of_folder, splits_of_file
from beam_tfr.records import examples
from beam_tfr.records.tfrecords import frame
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.tables import first_rows, text_rows
from beam_tfr.tables.rows import Tables
from tests.archives import tarred
from tests.conftest import Run
from tests.fake_gcs import FakeGcs
from tests.table_files import open_input

Command = Callable[..., Run]
OPTIONS = {"uri_column": "file_name", "label_column": "class"}
IN_PARQUET = {"uri_column": "image", "label_column": "label"}


def picture(path: Path, number: int = 0) -> bytes:
    """Writes a picture; returns its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", (24, 16), (40 * number, 90, 200)).save(path)
    return path.read_bytes()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_csv(path: Path, *files: str, **columns: str) -> None:
    header = ",".join(["file_name", "class", *columns])
    lines = [",".join([file, "cat", *columns.values()]) for file in files]
    write(path, "\n".join([header, *lines, ""]))


def write_jsonl(path: Path, *files: str) -> None:
    rows = [json.dumps({"file_name": file, "class": "cat"}) for file in files]
    write(path, "\n".join(rows))


def write_coco(path: Path, *files: str) -> None:
    images = [{"id": number, "file_name": file} for number, file in enumerate(files)]
    boxes = [
        {"image_id": number, "category_id": 1, "bbox": [1, 2, 9, 8]} for number in range(len(files))
    ]
    categories = [{"id": 1, "name": "cat"}]
    document = {"images": images, "annotations": boxes, "categories": categories}
    write(path, json.dumps(document))


def write_create_ml(path: Path, *files: str) -> None:
    box = {"label": "cat", "coordinates": {"x": 9, "y": 8, "width": 6, "height": 4}}
    write(path, json.dumps([{"image": file, "annotations": [box]} for file in files]))


def write_voc(path: Path, file: str) -> None:
    sides = "<xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax>"
    box = f"<object><name>cat</name><bndbox>{sides}</bndbox></object>"
    write(path, f"<annotation><filename>{file}</filename>{box}</annotation>")


def write_parquet(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = picture(path.with_suffix(".png"), number)
    parquet.write_table(pyarrow.table({"image": [image], "label": ["cat"]}), path)


def write_tar(path: Path, number: int) -> None:
    image = picture(path.with_suffix(".png"), number)
    path.write_bytes(tarred({"a.png": image, "a.cls": b"cat"}))


def write_tfrecord(path: Path, number: int) -> None:
    image = picture(path.with_suffix(".png"), number)
    values: dict[str, Any] = {
        "image/encoded": ("bytes", [image]),
        "image/class/text": ("bytes", [b"cat"]),
    }
    path.write_bytes(frame(examples.serialize(values)))


def keys_by_split(tables: Tables) -> dict[str, list[str]]:
    """Split -> the keys of its rows."""
    keys = dict[str, list[str]]()
    for file in tables.files:
        for ref in tables.read(file):
            assert not ref.reason
            keys.setdefault(ref.split, []).append(ref.key)
    return keys


def warning_of(tables: Tables, start: str = "folders or names of tables") -> str:
    """The only warning that begins so, as the command line shows it."""
    (warning,) = (text for text in tables.warnings if text.startswith(start))
    return spell_as_flags(warning)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"),
        ("Training", "training"),
        ("VALID", "valid"),
        ("val2017", "val"),
        ("test_set", "test"),
        ("dev", "dev"),
        ("evaluation", "evaluation"),
        ("latest", ""),
        ("trains", ""),
        ("split", ""),
        ("mytrain", ""),
    ],
)
def test_folders_that_are_named_like_splits(name: str, split: str) -> None:
    assert split_of_folder(name) == split


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("instances_train2017.json", {"train": "train2017"}),
        ("train-00000-of-00010.parquet", {"train": "train"}),
        ("train.tfrecord-00000-of-00010", {"train": "train"}),
        ("Validation-000.tar", {"validation": "Validation"}),
        ("labels_TEST.csv", {"test": "TEST"}),
        ("2017val.csv", {"val": "val"}),
        ("retrain.csv", {}),
        ("latest.csv", {}),
        ("tests.csv", {}),
        ("trainé.csv", {}),
        ("metadata.jsonl", {}),
        ("trainval.json", {}),
        ("train_test_split.csv", {"train": "train", "test": "test"}),
        ("dev_test-train-00000-of-00002.tfrecord", {"train": "train"}),
    ],
)
def test_words_of_file_names(name: str, splits: dict[str, str]) -> None:
    assert splits_of_file(name) == splits


def write_in_folders(
    root: Path, name: str, write_table: Callable[..., None], places: Mapping[str, str]
) -> None:
    """Writes a table and two pictures into the folder of each split."""
    for at, split in enumerate(places):
        folder = root / split
        picture(folder / "1.png", 2 * at)
        picture(folder / "2.png", 2 * at + 1)
        write_table(folder / name, "1.png", "2.png")


FORMS: dict[str, tuple[str, Callable[..., None], dict[str, str]]] = {
    "csv": ("labels.csv", write_csv, OPTIONS),
    "json lines": ("metadata.jsonl", write_jsonl, OPTIONS),
    "coco": ("_annotations.coco.json", write_coco, {}),
    "create ml": ("_annotations.createml.json", write_create_ml, {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_in_each_folder(tmp_path: Path, form: str) -> None:
    name, write_table, options = FORMS[form]
    places = {"train": "train", "Valid": "valid", "test": "test"}
    write_in_folders(tmp_path, name, write_table, places)
    tables = open_input(table=f"{tmp_path}/*/{name}", **options)
    assert keys_by_split(tables) == {
        split: [f"{folder}/1.png", f"{folder}/2.png"] for folder, split in places.items()
    }
    warning = warning_of(tables)
    assert all(split in warning for split in places.values())
    assert "--splits train=1 " in warning
    assert "--split_column " in warning
    joined = open_input(table=f"{tmp_path}/*/{name}", splits={"train": 1}, **options)
    assert keys_by_split(joined).keys() == {"train"}
    assert len(keys_by_split(joined)["train"]) == 6
    assert not joined.warnings


def test_voc_files_in_folders_of_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for number in (1, 2):
            # Names of these files are those of images, and not of splits.
            write_voc(tmp_path / split / "xml" / f"val_{number}.xml", f"../{number}.png")
    tables = open_input(table=f"{tmp_path}/*/xml/*.xml")
    assert keys_by_split(tables) == {
        split: [f"{split}/1.png", f"{split}/2.png"] for split in ("test", "train")
    }


@pytest.mark.parametrize(
    ("names", "write_table", "options"),
    [
        (
            ["train-00000-of-00002.parquet", "test-00000-of-00001.parquet"],
            write_parquet,
            IN_PARQUET,
        ),
        (["train/0.parquet", "test/0.parquet"], write_parquet, IN_PARQUET),
        (["train-000.tar", "test-000.tar"], write_tar, {}),
        (["train/000.tar", "test/000.tar"], write_tar, {}),
        (["train.tfrecord-00000-of-00001", "test.tfrecord-00000-of-00001"], write_tfrecord, {}),
    ],
)
def test_tables_with_images(
    tmp_path: Path,
    names: list[str],
    write_table: Callable[[Path, int], None],
    options: dict[str, str],
) -> None:
    for number, name in enumerate(names):
        write_table(tmp_path / name, number)
    paths = [str(tmp_path / name) for name in names]
    keys = keys_by_split(open_input(table=paths, **options))
    assert {split: len(of_split) for split, of_split in keys.items()} == {"train": 1, "test": 1}


def test_one_table_alone(tmp_path: Path) -> None:
    write_csv(tmp_path / "labels_test.csv", "1.png")
    tables = open_input(table=f"{tmp_path}/labels_test.csv", **OPTIONS)
    assert keys_by_split(tables) == {"test": ["1.png"]}
    assert "labels_test.csv" in warning_of(tables)
    # Nothing else than the default is not said.
    write_csv(tmp_path / "train.csv", "1.png")
    tables = open_input(table=f"{tmp_path}/train.csv", **OPTIONS)
    assert keys_by_split(tables) == {"train": ["1.png"]}
    assert not tables.warnings


def test_what_is_not_certain_is_said(tmp_path: Path) -> None:
    write_csv(tmp_path / "train_test.csv", "1.png")
    tables = open_input(table=f"{tmp_path}/train_test.csv", **OPTIONS)
    assert keys_by_split(tables) == {"train": ["1.png"]}
    assert "train and test" in warning_of(tables, f"{tmp_path}/train_test.csv names several")
    # The folder of all tables may be called so by chance.
    write_csv(tmp_path / "test" / "labels.csv", "1.png")
    tables = open_input(table=f"{tmp_path}/test/labels.csv", **OPTIONS)
    assert keys_by_split(tables) == {"train": ["1.png"]}
    assert "--splits test=1 " in warning_of(tables, "all tables are in")
    moved = open_input(table=f"{tmp_path}/test/labels.csv", splits={"test": 1}, **OPTIONS)
    assert keys_by_split(moved) == {"test": ["1.png"]}


@pytest.mark.parametrize(("name", "write_table"), [("a.csv", write_csv), ("a.json", write_coco)])
def test_images_in_folders_of_splits_are_said(
    tmp_path: Path, name: str, write_table: Callable[..., None]
) -> None:
    files = ["train/cat/1.png", "val/cat/2.png"]
    write_table(tmp_path / name, *files)
    options = OPTIONS if name == "a.csv" else {}
    tables = open_input(table=f"{tmp_path}/{name}", **options)
    assert keys_by_split(tables) == {"train": files}
    warning = warning_of(tables, "images are in folders named like splits")
    for text in ("train, val", files[1], "--split_column", "--splits"):
        assert text in warning


@pytest.mark.parametrize(
    ("files", "start"),
    [
        (["seg_train/1.png", "seg_test/2.png"], "images are in folders named like splits"),
        (["bullet_train/1.png", "crash_test/2.png"], ""),  # classes
        (["train_1.png", "test_2.png"], "names of images seem to name splits"),
        (["train_1.png", "2.png"], ""),
    ],
)
def test_images_that_seem_to_say_splits(tmp_path: Path, files: list[str], start: str) -> None:
    write_csv(tmp_path / "a.csv", *files)
    warnings = open_input(table=f"{tmp_path}/a.csv", **OPTIONS).warnings
    assert len(warnings) == bool(start)
    assert all(text.startswith(start) and "`split_column=`" in text for text in warnings)


def test_folders_of_splits_behind_the_first_rows_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_rows, "SAMPLE_ROWS", 2)
    files = ["train/1.png", "train/2.png", "val/3.png"]
    for number, file in enumerate(files):
        picture(tmp_path / file, number)
    write_csv(tmp_path / "a.csv", *files)
    given = {"table": tmp_path / "a.csv", "output": tmp_path / "d", **OPTIONS}
    start = "3 images are in folders named like splits, train, val"
    assert any(text.startswith(start) for text in package.plan(**given).warnings)
    start = "note:    folders named like splits hold 3 images"
    assert any(start in line for line in package.convert(**given).lines())


def test_splits_of_a_column_that_differ_by_case(tmp_path: Path) -> None:
    splits = ["train", "TRAIN", "val", "NaN"]
    rows = [f"{number}.png,cat,{split}" for number, split in enumerate(splits)]
    write(tmp_path / "a.csv", "\n".join(["file_name,class,split", *rows, ""]))
    tables = open_input(table=f"{tmp_path}/a.csv", **OPTIONS)
    assert keys_by_split(tables).keys() == {*splits}
    assert "TRAIN, train" in warning_of(tables, "column 'split': splits differ")
    assert "--na_values" in warning_of(
        tables, "column 'split': these values become names of splits: NaN"
    )


@pytest.mark.parametrize(
    ("names", "is_said"),
    [
        (["labelsTrain.csv", "labelsTest.csv"], True),
        (["trainlabels.csv", "vallabels.csv"], True),
        (["y_tr.csv", "y_te.csv"], True),
        (["labelsTr/a.csv", "labelsTs/a.csv"], True),
        (["trn.csv", "tst.csv"], True),
        (["y_trn.csv", "y_vl.csv"], True),
        (["fold_0.csv", "fold_1.csv"], True),
        (["latest.csv", "a.csv"], False),
        (["latest1.csv", "latest2.csv"], False),
        (["strong.csv", "later.csv"], False),
    ],
)
def test_names_that_seem_to_say_splits(tmp_path: Path, names: list[str], is_said: bool) -> None:
    for name in names:
        write_csv(tmp_path / name, f"{Path(name).stem}.png")
    tables = open_input(table=[str(tmp_path / name) for name in names], **OPTIONS)
    assert keys_by_split(tables).keys() == {"train"}
    warnings = [text for text in tables.warnings if "seem to name splits" in text]
    assert len(warnings) == is_said
    assert all(name in text for text in warnings for name in names)


def test_images_in_one_folder_that_may_be_a_class(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", "cat/1.png", "test/2.png")
    assert not open_input(table=f"{tmp_path}/a.csv", **OPTIONS).warnings
    write_csv(tmp_path / "b.csv", "train/1.png", "train/2.png")
    assert not open_input(table=f"{tmp_path}/b.csv", **OPTIONS).warnings


@pytest.mark.parametrize("test_table", ["GT-final_test.csv", "GT.csv"])
def test_folders_that_share_the_text_around_splits(tmp_path: Path, test_table: str) -> None:
    """As in GTSRB."""
    write_csv(tmp_path / "Final_Test" / "Images" / test_table, "1.png")
    write_csv(tmp_path / "Final_Training" / "Images" / "00000" / "GT-00000.csv", "1.png")
    tables = open_input(table=f"{tmp_path}/**/GT*.csv", **OPTIONS)
    assert keys_by_split(tables) == {
        "test": ["Final_Test/Images/1.png"],
        "training": ["Final_Training/Images/00000/1.png"],
    }
    assert "training (1 table, such as Final_Training/Images/00000/GT" in warning_of(tables)


def test_some_tables_with_a_split_and_some_without(tmp_path: Path) -> None:
    write_csv(tmp_path / "train" / "labels.csv", "1.png")
    write_csv(tmp_path / "more" / "labels.csv", "1.png")
    with pytest.raises(UsageError) as error:
        open_input(table=f"{tmp_path}/*/labels.csv", **OPTIONS)
    message = spell_as_flags(str(error.value))
    for text in ("train/labels.csv", "more/labels.csv", "--splits train=1 ", "--split_column "):
        assert text in message
    keys = keys_by_split(
        open_input(table=f"{tmp_path}/*/labels.csv", splits={"train": 1}, **OPTIONS)
    )
    assert keys == {"train": ["more/1.png", "train/1.png"]}


def test_a_column_called_split(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", "1.png", split="train")
    write_csv(tmp_path / "test.csv", "2.png", split="test")
    write_csv(tmp_path / "test2.csv", "3.png", split="fold_3")
    pattern = f"{tmp_path}/*.csv"
    tables = open_input(table=pattern, **OPTIONS)
    assert keys_by_split(tables) == {"train": ["1.png"], "test": ["2.png"], "fold_3": ["3.png"]}
    assert "train, test, fold_3" in warning_of(tables, "column 'split' gives")
    assert tables.options.split_column == "split"
    joined = open_input(table=pattern, splits={"train": 1}, **OPTIONS)
    assert keys_by_split(joined).keys() == {"train"}
    assert not joined.warnings
    # With another role, or other values, it is not taken; the latter is said.
    feature = open_input(table=f"{tmp_path}/train.csv", feature_columns="split", **OPTIONS)
    assert not feature.options.split_column
    assert not feature.warnings
    every = open_input(table=f"{tmp_path}/train.csv", feature_columns="*", **OPTIONS)
    assert [feature.name for feature in every.features] == ["split"]
    assert "--split_column split " in warning_of(every, "column 'split' is a feature")
    write_csv(tmp_path / "bananas.csv", "1.png", split="yes")
    bananas = open_input(table=f"{tmp_path}/bananas.csv", **OPTIONS)
    assert keys_by_split(bananas) == {"train": ["1.png"]}
    assert "--split_column split " in warning_of(bananas, "column 'split' is not used")


@pytest.mark.parametrize(
    ("column", "values", "splits"),
    [
        ("Subset", ["TRAIN", "UNASSIGNED"], {"TRAIN", "UNASSIGNED"}),
        ("ml_use", ["training", "test"], {"training", "test"}),
        ("set", ["train", "red"], {"train"}),
        ("phase", ["moon", "sun"], {"train"}),
    ],
)
def test_columns_that_are_called_otherwise(
    tmp_path: Path, column: str, values: list[str], splits: set[str]
) -> None:
    rows = [f"{number}.png,{value}" for number, value in enumerate(values)]
    write(tmp_path / "a.csv", "\n".join([f"file_name,{column}", *rows]))
    tables = open_input(table=f"{tmp_path}/a.csv", uri_column="file_name")
    assert keys_by_split(tables).keys() == splits


ML_USE = "aiplatform.googleapis.com/ml_use"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("labels", "splits"),
    [
        ({ML_USE: ("training", "test")}, {"training", "test"}),
        ({"split": ("train", "val")}, {"train", "val"}),
        ({"set": ("red", "blue")}, {"train"}),
    ],
)
def test_fields_that_hold_splits(
    tmp_path: Path, suffix: str, labels: Mapping[str, tuple[str, str]], splits: set[str]
) -> None:
    """As of Vertex AI's dataItemResourceLabels."""
    path = tmp_path / f"a.{suffix}"
    rows = []
    for number in range(2):
        cell = {name: values[number] for name, values in labels.items()}
        rows.append({"file_name": f"{number}.png", "dataItemResourceLabels": cell})
    if suffix == "jsonl":
        write(path, "\n".join(map(json.dumps, rows)))
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    tables = open_input(table=str(path), uri_column="file_name")
    assert keys_by_split(tables).keys() == splits
    (name,) = labels
    column = f"dataItemResourceLabels.{name}"
    lines = [line for line in tables.warnings if column in line]
    assert len(lines) == (splits != {"train"})
    assert all("gives the splits" in line for line in lines)


def test_fields_that_may_hold_splits_are_told(tmp_path: Path) -> None:
    rows = [
        {"file_name": f"{use}.png", "meta": {"is_train": 1, "usage_of": use, "size": 7}}
        for use in ("PublicTest", "test")
    ]
    write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    tables = open_input(table=f"{tmp_path}/a.jsonl", uri_column="file_name")
    (line,) = [line for line in tables.warnings if "may hold the split" in line]
    assert "'meta.is_train', 'meta.usage_of'" in line
    assert "`split_column=meta.is_train`" in line


def voc_folder(root: Path, num_images: int, lists: Mapping[str, list[int]]) -> str:
    """Writes a folder as of VOC 2007; returns the pattern of its annotations."""
    for number in range(num_images):
        write_voc(root / "Annotations" / f"{number:06}.xml", f"{number:06}.png")
    for name, numbers in lists.items():
        names = [f"{number:06}" for number in numbers]
        write(root / "ImageSets" / "Main" / f"{name}.txt", "\n".join([*names, ""]))
    return f"{root}/Annotations/*.xml"


def splits_by_number(tables: Tables) -> dict[str, list[int]]:
    keys = keys_by_split(tables)
    return {split: [int(Path(key).stem) for key in keys[split]] for split in keys}


def test_lists_of_voc(tmp_path: Path) -> None:
    lists = {"train": [0, 1], "val": [3], "trainval": [0, 1, 3], "test": [2, 7], "cat_train": [4]}
    pattern = voc_folder(tmp_path, 6, lists)
    tables = open_input(table=pattern)
    assert splits_by_number(tables) == {
        "train": [0, 1],
        "test": [2],
        "val": [3],
        "unlisted": [4, 5],
    }
    warning = warning_of(tables, "lists of images")
    for text in ("train (2 images)", "2 images that no list names", "1 name ", "--splits train=1 "):
        assert text in warning
    joined = open_input(table=pattern, splits={"train": 1})
    assert splits_by_number(joined) == {"train": [*range(6)]}


def test_the_list_of_train_and_val_together(tmp_path: Path) -> None:
    pattern = voc_folder(tmp_path, 3, {"trainval": [0, 1], "test": [2]})
    assert splits_by_number(open_input(table=pattern)) == {"trainval": [0, 1], "test": [2]}


@pytest.mark.parametrize(("listed", "rest"), [("train", "val"), ("val", "train")])
def test_the_rest_of_train_and_val(tmp_path: Path, listed: str, rest: str) -> None:
    pattern = voc_folder(tmp_path, 4, {listed: [0, 1], "trainval": [0, 1, 2], "test": [3]})
    tables = open_input(table=pattern)
    assert splits_by_number(tables) == {listed: [0, 1], rest: [2], "test": [3]}
    assert "trainval.txt" in warning_of(tables, f"{rest} has the images")
    # An image of another list is not of the rest.
    voc_folder(tmp_path, 5, {"trainval": [0, 1, 2, 4], "test": [2, 3]})
    assert "rejects: 000002" in warning_of(open_input(table=pattern), f"{tmp_path}/")


def test_lists_with_the_flags_of_a_class(tmp_path: Path) -> None:
    pattern = voc_folder(tmp_path, 3, {"val": [2]})
    write(tmp_path / "ImageSets" / "Main" / "train.txt", "000000  1\n000001 -1\n")
    assert splits_by_number(open_input(table=pattern)) == {"train": [0, 1], "val": [2]}


def test_names_in_lists_that_end_in_a_number(tmp_path: Path) -> None:
    for number in (1, 2):
        write_voc(tmp_path / "Annotations" / f"photo {number}.xml", f"photo {number}.jpg")
    write(tmp_path / "ImageSets" / "train.txt", "photo 1\nphoto 2\n")
    tables = open_input(table=f"{tmp_path}/Annotations/*.xml")
    assert keys_by_split(tables).keys() == {"train"}


def test_an_image_in_two_lists(tmp_path: Path) -> None:
    pattern = voc_folder(tmp_path, 3, {"train": [0, 1], "val": [1, 2]})
    tables = open_input(table=pattern)
    refs = [ref for file in tables.files for ref in tables.read(file)]
    assert [ref.reason for ref in refs] == ["", "bad-value", ""]
    assert re.search(r"000001 is in two splits.*train\.txt and .*val\.txt", refs[1].detail)
    assert "1 image in common, which become rejects: 000001" in warning_of(tables, f"{tmp_path}/")


def test_lists_with_the_same_images(tmp_path: Path) -> None:
    pattern = voc_folder(tmp_path, 3, {"train": [0], "test": [1, 2], "val": [2, 1]})
    tables = open_input(table=pattern)
    assert splits_by_number(tables) == {"train": [0], "test": [1, 2]}
    assert "the same images" in warning_of(tables, f"{tmp_path}/")


def test_a_list_within_another_one(tmp_path: Path) -> None:
    pattern = voc_folder(tmp_path, 3, {"train": [0, 1, 2], "test": [2]})
    problem = r"test\.txt and .*train\.txt share 1 image, such as 000002.*`splits=train=1`"
    with pytest.raises(UsageError, match=problem):
        open_input(table=pattern)


def test_lists_beside_one_folder_of_two(tmp_path: Path) -> None:
    voc_folder(tmp_path / "VOC2007", 2, {"train": [0, 1]})
    voc_folder(tmp_path / "VOC2012", 2, {"val": [0, 1]})
    keys = keys_by_split(open_input(table=f"{tmp_path}/VOC20*/Annotations/*.xml"))
    assert {split: len(of_split) for split, of_split in keys.items()} == {"train": 2, "val": 2}
    voc_folder(tmp_path / "VOC2020", 2, {})
    with pytest.raises(UsageError, match="VOC2020/Annotations"):
        open_input(table=f"{tmp_path}/VOC20*/Annotations/*.xml")


def write_coco_tree(root: Path) -> None:
    """COCO's own tree: two files, and two folders in which images have the same names."""
    for at, split in enumerate(("train", "val")):
        for number in range(2):
            picture(root / f"{split}2017" / f"{number:012}.png", 2 * at + number)
        names = [f"{number:012}.png" for number in range(2)]
        write_coco(root / "annotations" / f"instances_{split}2017.json", *names)


def test_folders_of_images_that_are_named_like_their_tables(tmp_path: Path) -> None:
    write_coco_tree(tmp_path)
    pattern = f"{tmp_path}/annotations/instances_*2017.json"
    tables = open_input(table=pattern, image_root=str(tmp_path))
    assert keys_by_split(tables) == {
        split: [f"{split}2017/{number:012}.png" for number in range(2)]
        for split in ("train", "val")
    }
    assert "train2017" in warning_of(tables, "the files that tables name are in")
    # Files that are where their paths say stay there.
    for number in range(2):
        picture(tmp_path / f"{number:012}.png")
    direct = open_input(table=f"{tmp_path}/annotations/*_train*.json", image_root=str(tmp_path))
    assert keys_by_split(direct) == {"train": [f"{number:012}.png" for number in range(2)]}
    table = f"{tmp_path}/annotations/instances_val2017.json"
    inner = open_input(table=table, image_root=f"{tmp_path}/val2017")
    assert keys_by_split(inner) == {"val": [f"{number:012}.png" for number in range(2)]}


def test_other_tables_may_lie_beside_folders_with_cocos_names(tmp_path: Path) -> None:
    write_coco_tree(tmp_path)
    for split in ("train", "val"):
        table = tmp_path / "annotations" / f"instances_{split}2017.json"
        table.rename(table.with_name(f"custom_{split}.json"))
    tables = open_input(table=f"{tmp_path}/annotations/*.json", image_root=str(tmp_path))
    assert keys_by_split(tables) == {
        split: [f"{split}2017/{number:012}.png" for number in range(2)]
        for split in ("train", "val")
    }


@pytest.mark.parametrize(
    ("tables", "images"),
    [
        (["csv/train.csv", "csv/val.csv"], ["images_train/0.png", "images_val/0.png"]),
        (["train.csv", "val.csv"], ["train_images/0.png", "val_images/0.png"]),
        (["train2017.csv", "val.csv"], ["images_train/0.png", "images/val/0.png"]),
        (["labels/setA.csv", "labels/setB.csv"], ["images/setA/0.png", "images/setB/0.png"]),
        (["l/boxes_x_1.csv", "l/boxes_y.csv"], ["x_1/0.png", "y/0.png"]),
        (["labels.csv"], ["images/0.png"]),
    ],
)
def test_folders_named_after_tables(tmp_path: Path, tables: list[str], images: list[str]) -> None:
    for number, (table, image) in enumerate(zip(tables, images, strict=True)):
        write_csv(tmp_path / table, "0.png")
        picture(tmp_path / image, number)
    opened = open_input(table=[str(tmp_path / table) for table in tables], **OPTIONS)
    keys = [key for split in keys_by_split(opened).values() for key in split]
    assert sorted(f"{opened.root}{key}" for key in keys) == sorted(
        f"{tmp_path}/{image}" for image in images
    )


def test_subsets_of_cvat(tmp_path: Path) -> None:
    write_coco(tmp_path / "annotations" / "instances_default.json", "0.png")
    picture(tmp_path / "images" / "default" / "0.png")
    tables = open_input(table=f"{tmp_path}/annotations/instances_default.json")
    assert keys_by_split(tables) == {"train": ["default/0.png"]}
    assert not tables.missing


def test_files_in_two_places_are_told(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", "0.png")
    picture(tmp_path / "0.png", 1)
    given = {"table": f"{tmp_path}/train.csv", **OPTIONS}
    assert not open_input(**given).warnings
    picture(tmp_path / "train" / "0.png", 2)
    tables = open_input(**given)
    assert keys_by_split(tables) == {"train": ["0.png"]}
    warning = warning_of(tables, "0.png in ")
    assert f"{tmp_path}/train/0.png" in warning
    assert f"--image_root {tmp_path}/train" in warning
    picture(tmp_path / "images" / "0.png", 3)
    write_csv(tmp_path / "all.csv", "0.png")
    other = open_input(table=f"{tmp_path}/all.csv", **OPTIONS)
    assert f"{tmp_path}/images/0.png" in warning_of(other, "0.png in ")
    inner = open_input(image_root=f"{tmp_path}/train", **given)
    assert inner.root == f"{tmp_path}/train/"
    assert not inner.warnings


def test_images_beside_each_folder_of_several(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "test")):
        folder = tmp_path / split
        picture(folder / "images" / f"{split}.png", number)
        write_coco(folder / "annotations" / "labels.json", f"{split}.png")
    pattern = f"{tmp_path}/*/annotations/*.json"
    expected = {split: [f"{split}/images/{split}.png"] for split in ("train", "test")}
    for image_root in ("", str(tmp_path)):
        tables = open_input(table=pattern, image_root=image_root)
        assert keys_by_split(tables) == expected
        assert f"{tmp_path}/test/images/" in warning_of(tables, "the files that tables name are in")
    picture(tmp_path / "test" / "JPEGImages" / "test.png")  # so two folders may be meant
    keys = keys_by_split(open_input(table=pattern))
    assert keys == {**expected, "test": ["test/annotations/test.png"]}
    picture(tmp_path / "train" / "annotations" / "train.png")
    keys = keys_by_split(open_input(table=pattern))
    assert keys == {split: [f"{split}/annotations/{split}.png"] for split in expected}


def test_several_folders_of_voc(tmp_path: Path) -> None:
    keys = []
    for year in ("VOC2007", "VOC2012"):
        voc_folder(tmp_path / year, 2, {})
        for number in range(2):
            keys.append(f"{year}/JPEGImages/{number:06}.png")
            picture(tmp_path / keys[-1], number)
    tables = open_input(table=f"{tmp_path}/*/Annotations/*.xml")
    assert keys_by_split(tables) == {"train": keys}


def test_images_beside_the_folder_of_the_tables(tmp_path: Path) -> None:
    write_coco_tree(tmp_path / "coco")
    tables = open_input(table=f"{tmp_path}/coco/annotations/*.json")
    assert keys_by_split(tables) == {
        split: [f"{split}2017/{number:012}.png" for number in range(2)]
        for split in ("train", "val")
    }
    assert f"--image_root {tmp_path}/coco" in warning_of(tables, "the files that tables in")
    pattern = voc_folder(tmp_path / "voc", 3, {"train": [0, 1], "test": [2]})
    for number in range(3):
        picture(tmp_path / "voc" / "JPEGImages" / f"{number:06}.png")
    voc = open_input(table=pattern)
    assert voc.root == f"{tmp_path}/voc/JPEGImages/"
    assert splits_by_number(voc) == {"train": [0, 1], "test": [2]}
    # Where two folders may be meant, or one file is where its path says, nothing is guessed.
    picture(tmp_path / "voc" / "images" / "000000.png")
    assert open_input(table=pattern).root == f"{tmp_path}/voc/JPEGImages/"
    for number in range(3):
        picture(tmp_path / "voc" / "images" / f"{number:06}.png")
    assert open_input(table=pattern).root == f"{tmp_path}/voc/Annotations/"
    picture(tmp_path / "coco" / "annotations" / f"{0:012}.png")
    direct = open_input(table=f"{tmp_path}/coco/annotations/*.json")
    assert direct.root == f"{tmp_path}/coco/annotations/"


def test_the_same_names_without_a_root_name_the_cure(beam_tfr: Command, tmp_path: Path) -> None:
    write_coco_tree(tmp_path)
    for split in ("train", "val"):
        (tmp_path / f"{split}2017").rename(tmp_path / f"photos_{split}")
    pattern = f"{tmp_path}/annotations/instances_*2017.json"
    run = beam_tfr("convert", "--table", pattern, "--output", tmp_path / "out")
    assert run.code
    assert "--image_root" in run.err


def test_plan_convert_update_and_verify_agree(beam_tfr: Command, tmp_path: Path) -> None:
    write_coco_tree(tmp_path)
    pattern = f"{tmp_path}/annotations/instances_*2017.json"
    given = ["--table", pattern, "--image_root", tmp_path]
    output = ["--output", tmp_path / "out"]
    plan = beam_tfr("plan", *given, *output)
    assert "folders or names of tables give the splits" in plan.out
    run = beam_tfr("convert", *given, *output)
    assert "folders or names of tables give the splits" in run.err
    splits = read_manifest(str(tmp_path / "out")).splits
    assert {name: split.num_examples for name, split in splits.items()} == {"train": 2, "val": 2}
    sources = [pattern, tmp_path]
    assert package.verify(tmp_path / "out", sources=[*map(str, sources)], progress=False).ok
    picture(tmp_path / "val2017" / "3.png", 5)
    write_coco(tmp_path / "annotations" / "instances_test2017.json", "3.png")
    picture(tmp_path / "test2017" / "3.png", 6)
    updated = beam_tfr("update", tmp_path / "out", *given)
    assert updated.code == 0, updated.err
    splits = read_manifest(str(tmp_path / "out")).splits
    numbers = {name: split.num_examples for name, split in splits.items()}
    assert numbers == {"train": 2, "val": 2, "test": 1}


def test_partitions_are_columns(tmp_path: Path) -> None:
    for number, (split, label) in enumerate([("train", "a%20cat"), ("test", "dog")]):
        write_parquet(tmp_path / f"split={split}" / f"kind={label}" / "part-0.parquet", number)
    tables = open_input(table=f"{tmp_path}/**/*.parquet", uri_column="image", label_column="kind")
    rows = [ref for file in tables.files for ref in tables.read(file)]
    assert [(ref.split, ref.labels) for ref in rows] == [("test", ("dog",)), ("train", ("a cat",))]


def test_partitions_of_other_tables_are_named(tmp_path: Path) -> None:
    write(tmp_path / "label=cat" / "a.csv", "file_name\n1.png\n")
    with pytest.raises(UsageError, match=re.escape("label=cat in the path")):
        open_input(
            table=f"{tmp_path}/label=cat/a.csv", uri_column="file_name", label_column="label"
        )


def test_a_bucket(tmp_path: Path, fake: FakeGcs) -> None:
    """Lists of VOC and folders named like tables are found on gs:// too."""
    voc_folder(tmp_path / "voc", 3, {"train": [0, 1], "test": [2]})
    voc_folder(tmp_path / "paddle", 3, {})
    for split, line in (
        ("train", "JPEGImages/000000.jpg Annotations/000000.xml"),
        ("val", "000002"),
    ):
        write(tmp_path / "paddle" / f"{split}.txt", f"{line}\n")
    write_coco_tree(tmp_path / "coco")
    for path in tmp_path.rglob("*"):
        if path.is_file():
            fake.put(str(path.relative_to(tmp_path)), path.read_bytes())
    voc = open_input(table="gs://b/voc/Annotations/*.xml")
    assert splits_by_number(voc) == {"train": [0, 1], "test": [2]}
    paddle = open_input(table="gs://b/paddle/Annotations/*.xml")
    assert splits_by_number(paddle) == {"train": [0], "unlisted": [1], "val": [2]}
    coco = open_input(table="gs://b/coco/annotations/*.json", image_root="gs://b/coco")
    keys = keys_by_split(coco)
    assert keys["val"] == [f"val2017/{number:012}.png" for number in range(2)]


def test_names_in_lists(tmp_path: Path) -> None:
    write_voc(tmp_path / "Annotations" / "a.b.xml", "a.b.jpg")
    write_voc(tmp_path / "Annotations" / "c.jpg.xml", "c.jpg")
    write(tmp_path / "ImageSets" / "Train.txt", "\ufeffJPEGImages/a.b.jpg\r\n\r\n")
    write(tmp_path / "ImageSets" / "val.txt", "c.jpg")
    pattern = f"{tmp_path}/Annotations/*.xml"
    assert {*keys_by_split(open_input(table=pattern))} == {"train", "val"}
    write(tmp_path / "ImageSets" / "val.txt", "")  # as the next run of the same process reads it
    assert {*keys_by_split(open_input(table=pattern))} == {"train", "unlisted"}


@pytest.mark.slow
@pytest.mark.parametrize("splits", [("train", "val"), ("fold_0", "fold_1")])
def test_exports_keep_their_splits(
    beam_tfr: Command, tmp_path: Path, splits: tuple[str, str]
) -> None:
    """Those of a dataset with boxes, of whatever names, are those of its exports."""
    rows = []
    for number in range(4):
        picture(tmp_path / f"{number}.png", number)
        row = {"file_name": f"{number}.png", "class": ["cat"], "box": [[1, 2, 9, 8]]}
        rows.append(json.dumps(row | {"split": splits[number // 2]}))
    write(tmp_path / "rows.jsonl", "\n".join(rows))
    keep = ["--encoding", "keep", "--resize", "none"]
    roles = ["--uri_column", "file_name", "--label_column", "class", "--split_column", "split"]
    given = ["--table", tmp_path / "rows.jsonl", *roles, "--feature_columns", "box:bbox[xyxy]"]
    assert beam_tfr("convert", *given, *keep, "--output", tmp_path / "d").code == 0
    root = tmp_path / "out"
    tables: dict[str, list[Any]] = {
        "folder": ["metadata.jsonl", "--uri_column", "file_name"],
        "folder, COCO": ["instances_*.json", "--image_root", root / "folder"],
        "webdataset": ["*.tar"],
        "parquet": ["data/*.parquet", "--uri_column", "image"],
        "tfds": ["d/1.0.0/*.tfrecord", "--uri_column", "image/encoded"],
        "voc": ["Annotations/*.xml", "--image_root", root / "voc" / "JPEGImages"],
    }
    for name, (pattern, *options) in tables.items():
        form = name.partition(",")[0]
        if not (root / form).exists():
            exported = beam_tfr("export", tmp_path / "d", root / form, "--format", form)
            assert exported.code == 0, exported.err
        table = ["--table", root / form / pattern, *options]
        output = tmp_path / f"again {name}"
        run = beam_tfr("convert", *table, *keep, "--output", output)
        assert run.code == 0, run.err
        counts = package.diff(tmp_path / "d", output).counts
        assert not counts["split"] + counts["added"] + counts["removed"], name
        assert read_manifest(str(output)).splits.keys() == {*splits}


def test_a_table_of_all_that_is_named_like_one_split_is_told_so(tmp_path: Path) -> None:
    table = tmp_path / "list_eval_partition.csv"
    rows = [f"{number}.jpg,{number % 3}\n" for number in range(9)]
    table.write_text("image_id,partition\n" + "".join(rows))
    text = " ".join(open_input(table=table, uri_column="image_id").warnings)
    assert "names the split eval, but" in text
    assert "several splits" not in text


def test_the_first_rows_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "t.csv"
    rows = [f"{number}.jpg,cat,{('train', 'test')[number % 2]}\n" for number in range(250)]
    table.write_text("path,class,split\n" + "".join(rows))
    numbers = list[int]()
    number_rows = text_rows.number_rows

    def note(*args: Any, **named: Any) -> Iterator[Any]:
        for number, row in number_rows(*args, **named):
            numbers.append(number)
            yield number, row

    monkeypatch.setattr(text_rows, "number_rows", note)
    tables = open_input(table=table, uri_column="path", label_column="class")
    assert tables.options.split_column == "split"
    # The first rows also show whether there is a header.
    assert max(map(numbers.count, range(120, 250))) == 1


VOC_LISTS = {
    "in the root, with the XML files": {
        "train.txt": "./JPEGImages/000000.jpg ./Annotations/000000.xml\n"
        "./JPEGImages/000001.jpg ./Annotations/000001.xml\n",
        "valid.txt": "./JPEGImages/000002.jpg ./Annotations/000002.xml\n",
    },
    "of PaddleX": {
        "train_list.txt": "JPEGImages/000000.jpg Annotations/000000.xml\n"
        "JPEGImages\\000001.jpg Annotations\\000001.xml\n",
        "val_list.txt": "JPEGImages/000002.jpg Annotations/000002.xml\n",
        "labels.txt": "cat\n",
    },
    "of Oxford's pets": {
        "train.txt": "000000 1 1 1\n000001 1 1 12\n",
        "val.txt": "000002 2 1 1\n",
        "list.txt": "# Image CLASS-ID\n000000 1 1 1\n",
    },
    "of segmentation": {
        "ImageSets/Segmentation/train.txt": "000000\n000001\n",
        "ImageSets/Segmentation/val.txt": "000002\n",
    },
    "of classes": {
        "ImageSets/Main/cat_train.txt": "000000  1\n000001 -1\n",
        "ImageSets/Main/cat_val.txt": "000002  1\n",
        "ImageSets/Main/cat_trainval.txt": "000000  1\n000001 -1\n000002 1\n",
        "ImageSets/Main/dog_train.txt": "000001\n",
    },
    "of classes, for all tasks": {
        "ImageSets/Segmentation/train.txt": "000000\n",
        "ImageSets/Main/cat_train.txt": "000000  1\n000001 -1\n",
        "ImageSets/Main/cat_val.txt": "000002  1\n",
        "train_log.txt": "epoch 1\n",
    },
    "among the XML files": {
        "Annotations/train.txt": "000000\n000001",
        "Annotations/val.txt": "000002",
    },
}


@pytest.mark.parametrize("kind", VOC_LISTS)
def test_lists_elsewhere(tmp_path: Path, kind: str) -> None:
    pattern = voc_folder(tmp_path, 3, {})
    for name, text in VOC_LISTS[kind].items():
        write(tmp_path / name, text)
    tables = open_input(table=pattern)
    train, val = sorted(splits_by_number(tables))
    assert splits_by_number(tables) == {train: [0, 1], val: [2]}
    assert train == "train"
    assert ", such as " in warning_of(tables, "lists of images give the splits: train (2 images)")


def test_lists_around_folders_of_classes(tmp_path: Path) -> None:
    for number, label in enumerate(("cat", "dog")):
        write_voc(tmp_path / "Annotations" / label / f"{label}_1.xml", f"{label}_1.jpg")
        list_name = ("train.txt", "test.txt")[number]
        write(tmp_path / "ImageSets" / "Main" / list_name, f"{label}/{label}_1\n")
    tables = open_input(table=f"{tmp_path}/Annotations/*/*.xml")
    assert keys_by_split(tables).keys() == {"train", "test"}
    assert "no XML file" not in warning_of(tables, "lists of images give the splits")


def test_lists_of_other_images_are_left_out_with_a_line(tmp_path: Path) -> None:
    pattern = voc_folder(tmp_path, 2, {})
    write(tmp_path / "train.txt", "other_1.jpg 0\nother_2.jpg 1\n")
    tables = open_input(table=pattern)
    assert splits_by_number(tables) == {"train": [0, 1]}
    assert "names none of the images" in warning_of(tables, f"{tmp_path}/train.txt is not used")
