"""Files of words with their outlines, as in ICDAR and SROIE, are told with a line that works."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import beam_tfr
from beam_tfr.inputs.outlined_texts import has_outlined_words
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import UsageError
from tests.table_files import open_input, references, write_images

WORDS = "\ufeff1,0,3,0,3,2,1,2,NO. 5, ROAD\r\n0,1,1,1,1,3,0,3,###\r\n"
OPTIONS = {
    "uri_column": "path",
    "feature_columns": "box:bbox[xyxy],outline:points[xy],text:bytes[]",
}


@pytest.mark.parametrize(("prefix", "extension"), [("", ".csv"), ("gt_", ".txt")])
def test_words_are_told_with_the_line_that_writes_a_table(
    prefix: str, extension: str, tmp_path: Path
) -> None:
    write_images(tmp_path / "data/img", "001.png", "002.png")
    (tmp_path / "data/box").mkdir()
    for name in ("001", "002"):
        (tmp_path / f"data/box/{prefix}{name}{extension}").write_bytes(WORDS.encode())
    first = tmp_path / f"data/box/{prefix}001{extension}"
    plan = beam_tfr.plan(input=str(tmp_path / "data"), layout="*/*", progress=False)
    (line,) = [line for line in plan.warnings if "jq -nRc" in line]
    with pytest.raises(UsageError, match="has the corners") as error:
        open_input(table=str(first))
    for message in (line, str(error.value)):
        command = message[message.index("jq -nRc") :].partition(" writes ")[0]
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        tables = open_input(
            table=str(tmp_path / "words.jsonl"), image_root=str(tmp_path / "data/img"), **OPTIONS
        )
        refs = references(tables)
        assert [ref.key for ref in refs] == ["001.png", "002.png"]
        for ref in refs:
            columns = parse_example(ref.columns or b"")
            assert columns["text"] == [b"NO. 5, ROAD", b"###"]
            assert columns["image/object/bbox"] == [1, 0, 3, 2, 0, 1, 1, 3]


@pytest.mark.parametrize(
    ("lines", "are_words"),
    [
        ("5,2,9,2,9,4,5,4,word\n", True),
        ("5.0, 2, 9, 2, 9, 4, 5, -4, 12\n\n5,2,9,2,9,4,5,4,12 kg\n", True),
        ("5,2,9,2,9,4,5,4\n", False),
        ("0,1,2,3,4,5,6,7,label\n5,2,9,2,9,4,5,4,cat\n", False),
        ("5.1,3.5,1.4,0.2,5,6,7,8,cat\n", False),
        ("1,1,912,484,97,109,0,7,1\n2,1,912,484,97,109,0,7,1\n", False),
        ("x1,y1,x2,y2,x3,y3,x4,y4,text\n1,2,3,4,5,6,7,8,word\n", False),
        ("1,2,3,4,word\n", False),
        ("", False),
    ],
)
def test_words_have_four_corners(lines: str, are_words: bool) -> None:
    assert has_outlined_words(lines.encode()) is are_words
