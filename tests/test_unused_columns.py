"""Columns of which nothing is stored are told, whatever else is stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from beam_tfr.options import ConvertOptions
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from tests.archives import tarred


def unused_lines(table: Path, **columns: Any) -> list[str]:
    content = find_content(ConvertOptions(table=(str(table),), output="/o", **columns))
    warnings = open_tables(content).warnings
    return [line for line in warnings if line.startswith("nothing is stored of")]


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([".seg.png", ".txt"], "seg.png, txt"),
        ([".json"], "caption, json"),
        ([".png", ".jpeg"], ""),  # which stand in for .jpg
    ],
)
def test_files_of_a_tar_that_are_not_stored(
    tmp_path: Path, others: Sequence[str], named: str
) -> None:
    content = b'{"caption": "a cat"}'
    files = {f"1{end}": content for end in [".jpg", ".cls", *others]}
    (tmp_path / "t.tar").write_bytes(tarred(files))
    lines = unused_lines(tmp_path / "t.tar")
    assert len(lines) == bool(named)
    assert all(f"columns {named}: `feature_columns=`" in line for line in lines)


def test_columns_of_a_table_that_are_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("path,class,age,split,note\n1.jpg,cat,3,train,x\n")
    roles = {"uri_column": "path", "label_column": "class"}
    (line,) = unused_lines(path, **roles)
    assert "columns age, note:" in line
    assert not unused_lines(path, **roles, feature_columns={"age": "int64"})
    assert not unused_lines(path, **roles, feature_columns={})


def test_columns_that_may_be_sides_of_boxes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("filename,x,y,width,height,class\n0.jpg,5,6,20,15,cat\n1.jpg,5,6,20,15,dog\n")
    roles = {"uri_column": "filename", "label_column": "class"}
    cure = "box:bbox[xywh]=x+y+width+height"
    (line,) = unused_lines(path, **roles)
    assert f"`feature_columns='{cure}'`" in line
    name, _, declaration = cure.partition(":")
    options = ConvertOptions(
        table=(str(path),), output="/o", **roles, feature_columns={name: declaration}
    )
    refs = [*open_tables(find_content(options)).read(str(path))]
    assert [ref.labels for ref in refs] == [("cat",), ("dog",)]
    assert not any(ref.reason for ref in refs)
