"""Shares of splits are refused where tables say several splits, which they would mix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_tfr import convert
from beam_tfr.dataset.base import restore_options
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.schema.errors import UsageError
from tests.table_files import open_input, references, write_csv, write_images
from tests.voc_files import voc

NAMES = [f"{number}.jpg" for number in range(4)]
SHARES: list[dict[str, Any]] = [{"splits": {"train": 0.5, "test": 0.5}}, {"folds": 2}]
ROLES = {"uri_column": "image", "label_column": "label"}


def write_tables(folder: Path) -> dict[str, Any]:
    write_csv(folder / "train.csv", *NAMES[:2])
    write_csv(folder / "test.csv", *NAMES[2:])
    return {"table": f"{folder}/*.csv", **ROLES}


def write_folders(folder: Path) -> dict[str, Any]:
    write_csv(folder / "train" / "labels.csv", *NAMES[:2])
    write_csv(folder / "valid" / "labels.csv", *NAMES[2:])
    return {"table": f"{folder}/*/labels.csv", **ROLES}


def write_column(folder: Path, column: str = "split", second: str = "test") -> dict[str, Any]:
    splits = ["train", "train", second, second]
    rows = [f"{name},a,{split}" for name, split in zip(NAMES, splits, strict=True)]
    (folder / "all.csv").write_text("\n".join([f"image,label,{column}", *rows]))
    return {"table": f"{folder}/all.csv", **ROLES}


def write_boxes(folder: Path) -> dict[str, Any]:
    header = "filename,class,xmin,ymin,xmax,ymax,set"
    rows = [f"{name},a,0,0,2,2,{split}" for name, split in zip(NAMES, "ABAB", strict=True)]
    text = "\n".join([header, *rows]).replace(",A", ",train").replace(",B", ",test")
    (folder / "all.csv").write_text(text)
    return {"table": f"{folder}/all.csv"}


def write_voc(folder: Path) -> dict[str, Any]:
    (folder / "Annotations").mkdir()
    (folder / "ImageSets" / "Main").mkdir(parents=True)
    for name in NAMES:
        path = folder / "Annotations" / name.replace(".jpg", ".xml")
        path.write_text(voc(name))
    (folder / "ImageSets" / "Main" / "train.txt").write_text("0\n1\n")
    (folder / "ImageSets" / "Main" / "val.txt").write_text("2\n3\n")
    return {"table": f"{folder}/Annotations/*.xml"}


def write_yolo(folder: Path) -> dict[str, Any]:
    for number, name in enumerate(NAMES):
        split = ("train", "val")[number % 2]
        write_images(folder, f"images/{split}/{name}")
        path = folder / "labels" / split / name.replace(".jpg", ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("0 0.5 0.5 0.4 0.4\n")
    (folder / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [a]\n")
    return {"table": f"{folder}/data.yaml"}


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize(
    "write", [write_tables, write_folders, write_column, write_boxes, write_voc, write_yolo]
)
def test_shares_are_refused_where_tables_say_splits(
    tmp_path: Path, write: Callable[[Path], dict[str, Any]], shares: dict[str, Any]
) -> None:
    options = write(tmp_path)
    (name,) = shares
    with pytest.raises(UsageError, match=rf"^`{name}=.*train.*leave `{name}=` out") as error:
        open_input(**options, **shares)
    assert "`split_column=none`" in str(error.value)
    anew = references(open_input(**options, split_column="none", **shares))
    assert len(anew) == len(NAMES)
    assert {ref.split for ref in anew} <= {"train", "test", "fold0", "fold1"}
    assert len({ref.split for ref in references(open_input(**options))}) == 2
    joined = open_input(**options, splits={"all": 1})
    assert {ref.split for ref in references(joined)} == {"all"}


def test_a_column_of_splits_that_is_a_feature_says_none(tmp_path: Path) -> None:
    options = write_column(tmp_path)
    tables = open_input(**options, feature_columns="split", splits={"a": 0.5, "b": 0.5})
    assert {ref.split for ref in references(tables)} <= {"a", "b"}


def test_shares_divide_what_is_in_one_split(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", *NAMES)
    for options in (write_column(tmp_path, second="train"), {"table": f"{tmp_path}/train.csv"}):
        tables = open_input(**{**ROLES, **options, **SHARES[0]})
        assert len(references(tables)) == len(NAMES)
        assert not any("split" in line for line in tables.warnings)


def test_what_may_say_splits_is_told_beside_shares(tmp_path: Path) -> None:
    flags = write_column(tmp_path, column="fold", second="test")
    (line,) = (
        line for line in open_input(**flags, **SHARES[0]).warnings if line.startswith("columns")
    )
    assert "`split_column=fold` without `splits=`" in line
    write_images(tmp_path, *(f"train/{name}" for name in NAMES[:2]))
    write_images(tmp_path, *(f"test/{name}" for name in NAMES[2:]))
    paths = [*(f"train/{name}" for name in NAMES[:2]), *(f"test/{name}" for name in NAMES[2:])]
    write_csv(tmp_path / "paths.csv", *paths)
    tables = open_input(table=f"{tmp_path}/paths.csv", **ROLES, **SHARES[1])
    assert any("named like splits" in line and "`folds=`" in line for line in tables.warnings)


@pytest.mark.parametrize(
    ("changes", "shares", "column"),
    [
        ({}, {"a": 0.5, "b": 0.5}, "none"),
        ({"splits": {"c": 1}}, {"c": 1}, "none"),
        ({"split_column": "split"}, {}, "split"),
    ],
)
def test_an_update_keeps_that_tables_say_no_splits(
    tmp_path: Path, changes: dict[str, Any], shares: dict[str, float], column: str
) -> None:
    table = write_column(tmp_path)["table"]
    anew = {"split_column": "none", "splits": {"a": 0.5, "b": 0.5}}
    convert(table=table, key_column="image", output=tmp_path / "made", quiet=True, **anew)
    options = restore_options(read_manifest(str(tmp_path / "made")), changes, {"table": table})
    assert (options.splits or {}, options.split_column) == (shares, column)
