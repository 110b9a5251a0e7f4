"""Exports of Labelbox: the program that is named makes a table of their boxes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import BeamTfrError, UsageError
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables

SIDES = {"left": 5, "top": 6, "width": 20, "height": 15}
OBJECTS = [{"name": "cat", "bounding_box": SIDES}, {"name": "line", "line": []}]
ROW = {
    "data_row": {"external_id": "1.jpg"},
    "media_attributes": {"height": 30, "width": 40},
    "projects": {"p": {"labels": [{"annotations": {"objects": OBJECTS}}, {"annotations": {}}]}},
}
OLD_ROW = {
    "ID": "x",
    "Labeled Data": "https://example.org/1.jpg",
    "External ID": "1.jpg",
    "Label": {"objects": [{"title": "cat", "bbox": SIDES}]},
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps([ROW, ROW | {"projects": {}}])),
        ("a.json", json.dumps([OLD_ROW, OLD_ROW | {"Label": {}}])),
        ("a.ndjson", f"{json.dumps(ROW)}\n{json.dumps(ROW | {'projects': {}})}\n"),
    ],
)
def test_the_program_makes_a_table_of_boxes(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(BeamTfrError, match="Labelbox export") as caught:
        open_tables(find_content(ConvertOptions(table=(str(path),), output="/o")))
    program = re.search(r"\(echo .*boxes\.csv", str(caught.value))
    assert program
    subprocess.run(program[0].replace("FILE", name), shell=True, cwd=tmp_path, check=True)
    content_of_boxes = find_content(ConvertOptions(table=(f"{tmp_path}/boxes.csv",), output="/o"))
    tables = open_tables(content_of_boxes)
    (ref,) = tables.read(tables.files[0])
    assert (ref.key, ref.labels, ref.reason) == ("1.jpg", ("cat",), "")


def test_columns_of_labelbox_may_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text(f"{json.dumps(ROW)}\n")
    options: dict[str, Any] = {"table": (str(path),), "output": "/o"}
    with pytest.raises(UsageError, match="Labelbox"):
        find_content(ConvertOptions(**options))
    content = find_content(ConvertOptions(**options, uri_column="data_row.external_id"))
    tables = open_tables(content)
    assert [ref.key for ref in tables.read(str(path))] == ["1.jpg"]
    assert [line for line in tables.warnings if "no values of projects" in line]
