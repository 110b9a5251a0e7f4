"""Columns that may say the split of each row, but are not named so, are told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas
import pytest

from beam_tfr.options import ConvertOptions
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables


def split_lines(path: Path, **columns: Any) -> list[str]:
    options = ConvertOptions(table=(str(path),), output="/o", uri_column="path", **columns)
    warnings = open_tables(find_content(options)).warnings
    return [line for line in warnings if line.startswith("columns that may hold the split")]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("column", "cells", "is_told"),
    [
        ("dataset", ["train", "val", "test"], True),
        ("data set", ["train", "valid", "test"], True),
        ("mode", ["Train", "test", ""], True),
        ("Usage", ["Training", "PublicTest", "PrivateTest"], True),
        ("is_train", ["1", "1", "0"], True),
        ("fold", ["1", "2", "3"], True),
        ("partition", ["0", "1", "2"], True),
        ("evaluation_status", ["0", "1", "2"], True),
        ("holdout", ["no", "no", "yes"], True),
        ("train_test", ["0", "1", "0"], True),
        ("partition", ["north", "south", "north"], False),
        ("training", ["4.5", "12", "30"], False),
        ("offset", ["0", "1", "2"], False),
        ("mode", ["latest", "contest", "latest"], False),
        ("mode", ["train", "boat", "car"], False),
        ("setting", ["", "", ""], False),
    ],
)
def test_a_column_of_splits_with_another_name(
    tmp_path: Path, form: str, column: str, cells: list[str], is_told: bool
) -> None:
    frame = pandas.DataFrame({"path": ["0.jpg", "1.jpg", "2.jpg"], column: cells})
    path = tmp_path / f"t.{form}"
    if form == "csv":
        frame.to_csv(path, index=False)
    elif form == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    lines = split_lines(path)
    assert len(lines) == is_told
    assert all(spell_option("split_column", column) in line for line in lines)
    assert not split_lines(path, split_column=column)
    assert not split_lines(path, splits={"train": 1})
    assert not split_lines(path, label_column=column)
    assert not split_lines(path, feature_columns={column: "bytes"})


def test_a_column_of_splits_with_an_empty_cell_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("path,split\n0.jpg,train\n1.jpg,test\n2.jpg,\n")
    options = ConvertOptions(table=(str(path),), output="/o", uri_column="path")
    (line,) = (line for line in open_tables(find_content(options)).warnings if "split" in line[:15])
    assert "is empty in 1 of the first 3 rows" in line
    assert "`split_column=split`" in line
    refs = [
        *open_tables(find_content(dataclasses.replace(options, split_column="split"))).read(
            str(path)
        )
    ]
    assert [ref.reason for ref in refs] == ["", "", "bad-value"]


@pytest.mark.parametrize(
    ("column", "cells", "splits"),
    [
        ("partition", [0, 1, 2], ["train", "val", "test"]),
        ("is_valid", [True, False, False], ["val", "train", "train"]),
        ("training", ["TRUE", "TRUE", "FALSE"], ["train", "train", "test"]),
        ("holdout", ["no", "yes", "no"], ["train", "test", "train"]),
        ("is_test", [1.0, 0.0, 0.0], ["test", "train", "train"]),
        ("dataset", ["train set", "test set", "test set"], ["train", "test", "test"]),
        ("split", ["train set", "test set", "test set"], ["train", "test", "test"]),
        ("split", ["train", "train-extra", "test"], ["train", "train_extra", "test"]),
        ("split", ["['train']", "['test']", "['test']"], ["train", "test", "test"]),
    ],
)
def test_the_line_of_pandas_makes_splits_that_are_taken(
    tmp_path: Path, column: str, cells: list[Any], splits: list[str]
) -> None:
    path = tmp_path / "t.csv"
    pandas.DataFrame({"path": ["0.jpg", "1.jpg", "2.jpg"], column: cells}).to_csv(path, index=False)
    options = ConvertOptions(table=(str(path),), output="/o", uri_column="path")
    (line,) = (line for line in open_tables(find_content(options)).warnings if "pandas" in line)
    table = pandas.read_csv(path)
    exec(line[line.index("table[") :])
    table.to_csv(path, index=False)
    assert [ref.split for ref in open_tables(find_content(options)).read(str(path))] == splits


def test_a_table_of_all_splits_is_in_none_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "list_eval_partition.csv"
    path.write_text("image_id,partition\n0.jpg,0\n1.jpg,1\n2.jpg,2\n")
    options = ConvertOptions(table=(str(path),), output="/o", uri_column="image_id")
    tables = open_tables(find_content(options))
    assert {ref.split for ref in tables.read(str(path))} == {"train"}
    assert not any("names of tables give" in line for line in tables.warnings)
