"""Columns that may say the split of each row, but are not named so, are told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas
import pytest

from beam_tfr.options import ConvertOptions
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables


def split_lines(path: Path, **columns: Any) -> list[str]:
    options = ConvertOptions(table=(str(path),), output="/o", uri_column="path", **columns)
    warnings = open_tables(find_content(options)).warnings
    return [line for line in warnings if line.startswith("columns that may say the split")]


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
    assert all(f"`split_column={column}`" in line for line in lines)
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
