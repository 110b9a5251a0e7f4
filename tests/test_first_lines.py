"""Tables whose first line is a title or one of several headers are told with what reads them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import UsageError
from beam_tfr.tables.dialects import find_dialect
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.formats import read_columns
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables

ROWS = "image,class,notes\r\na.jpg,cat,\r\nb.jpg,dog,x\r\n"


def opened(path: Path, **options: Any) -> Tables:
    return open_tables(find_content(ConvertOptions(table=(str(path),), output="/o", **options)))


@pytest.mark.parametrize(
    "text",
    [
        f"My labels,,\r\n,,\r\n{ROWS}",
        f"My labels\r\n\r\n{ROWS}",
        f"\r\nMy labels\r\nMay 2020\r\n{ROWS}",
        f"My labels\r\n{ROWS}".replace(",", ";"),
        f"My labels\r\nMay 2020\r\n{ROWS}".replace("\n", ""),
    ],
)
def test_lines_above_a_header_come_with_the_command_that_removes_them(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        opened(path, uri_column="image")
    command = str(caught.value).rpartition(": ")[2]
    command = command.replace("OLD", "t.csv").replace("NEW", "n.csv")
    subprocess.run(command, cwd=tmp_path, shell=True, check=True)
    assert read_columns(str(tmp_path / "n.csv"), 1) == ["image", "class", "notes"]


@pytest.mark.parametrize(
    "text",
    [
        "path,\na.jpg,cat\n",
        "path\na.jpg\nb.jpg\n",
        "name,,\nx,y,z\nx,y,z\n",
        "caption\nA dog, running\nA cat, asleep\n",
        "text\nred;green\nred;2\n",
        "a.jpg,,\nname,class,n\nb.jpg,cat,2\n",
    ],
)
def test_a_first_line_with_one_name_may_be_a_header(text: str) -> None:
    assert find_dialect(text.encode(), ",").skipped_lines == 0


ONE = """scorer{0},Ann,Ann,Ann,Ann
bodyparts{0},nose,nose,tail,tail
coords{0},x,y,x,y
{1}1.png,5,6.5,,
{1}2.png,,,,
"""
ONE_ROWS = [
    {"box": [[4, 5.5, 6, 7.5]], "joint": [[5, 6.5, 2, 0, 0, 0]]},
    {"box": [], "joint": []},
]
TWO = """scorer,Ann,Ann,Ann,Ann
individuals,m1,m1,m2,m2
bodyparts,nose,nose,nose,nose
coords,x,y,x,y
d/v/1.png,5,6,7,8
d/v/2.png,,,7,8
"""
TWO_ROWS = [
    {"box": [[4, 5, 6, 7], [6, 7, 8, 9]], "joint": [[5, 6, 2], [7, 8, 2]]},
    {"box": [[6, 7, 8, 9]], "joint": [[7, 8, 2]]},
]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (ONE.format("", "d/v/"), ONE_ROWS),
        (ONE.format(",,", "d,v,"), ONE_ROWS),
        (TWO, TWO_ROWS),
    ],
    ids=["one animal", "paths in columns", "two animals"],
)
def test_the_code_for_labels_of_deeplabcut_writes_a_table(
    text: str, rows: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "CollectedData.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        opened(path)
    code = str(caught.value).partition("pandas, ")[2].partition(" writes a")[0]
    monkeypatch.chdir(tmp_path)
    exec(f"import numpy, pandas; {code}", {"FILE": str(path)})
    lines = (tmp_path / "table.jsonl").read_text().splitlines()
    paths = [{"path": f"d/v/{number}.png"} for number in (1, 2)]
    expected = [path | row for path, row in zip(paths, rows, strict=True)]
    assert [*map(json.loads, lines)] == expected
    columns = {"box": "bbox[xyxy]", "joint": "points[xyv]"}
    opened(tmp_path / "table.jsonl", uri_column="path", feature_columns=columns)
