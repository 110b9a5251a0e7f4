"""Rows of tables that cannot be read are rejects, as long as the others can."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import ImageRef
from beam_tfr.tables.dialects import Dialect
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.formats import read_columns, read_rows
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.quoted_rows import find_quoted_rows
from tests.conftest import Run
from tests.cpu_limit import bounded_cpu
from tests.table_rows import as_csv, records_of

Command = Callable[..., Run]
ROWS = [
    {"id": f"key {i}", "class": "hat" if i % 2 else "cat", "age": i, "score": i / 4}
    for i in range(25)
]
LINES = {
    "t.csv": as_csv(ROWS).decode().splitlines(),
    "t.tsv": as_csv(ROWS, "\t").decode().splitlines(),
    "t.jsonl": ["", *(json.dumps(row) for row in ROWS)],
}
SPOILED = {
    "t.csv": {
        "key 2,cat,XL,2,0.5": "5 cells instead of 4",
        "key,2": "2 cells instead of 4",
        "NaN": "1 cell instead of 4",
        '"key, 2",hat,"a,b",c,d': "5 cells instead of 4",
        '"key" 2,hat,2,0.5': "',' expected after '\"'; is a quote not closed",
    },
    "t.tsv": {
        "a\tb\tc\td\te": "5 cells instead of 4",
        "a\tb": "2 cells instead of 4",
        'a\t"Hello" she said\t2\t0.5': "'\t' expected after '\"'; is a quote not closed",
    },
    "t.jsonl": {
        '{"id": "key 2", "cla': "is not valid JSON: ",
        "oops": "is not valid JSON: Expecting value (character 1);",
        '["key 2"]': "is not a JSON object",
        '[{"id": "key 2"}]': "begins an array",
        "[" * 100_000: "is not valid JSON: its lists and objects are nested too deeply",
    },
}
BY_KEY = {"key_column": "id", "label_column": "class"}


def references(*tables: Path, **options: Any) -> list[ImageRef]:
    opened = open_tables(find_content(ConvertOptions(table=tables, output="/o", **options)))
    return [ref for file in opened.files for ref in opened.read(file)]


@pytest.mark.parametrize("name", [*LINES])
@pytest.mark.parametrize("options", [BY_KEY, {"encoding": "row"}])
def test_whichever_rows_are_spoiled_the_others_stay_as_they_are(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    table = tmp_path / name
    lines = LINES[name]
    table.write_text("\n".join(lines))
    sound = references(table, **options)
    assert len(sound) == len(ROWS)
    assert not any(ref.reason for ref in sound)
    numbers = st.integers(2, len(ROWS))
    spoiling = st.dictionaries(numbers, st.sampled_from([*SPOILED[name]]), max_size=10)

    @given(spoiling)
    @settings(max_examples=20)
    def check(spoiled: dict[int, str]) -> None:
        table.write_text("\n".join(spoiled.get(i, line) for i, line in enumerate(lines)))
        refs = references(table, **options)
        assert len(refs) == len(ROWS)
        for number, ref in enumerate(refs, 1):
            if number not in spoiled:
                assert ref == sound[number - 1]
                continue
            problem = SPOILED[name][spoiled[number]]
            key = f"{name if 'key_column' in options else 't'}#{number}"
            assert (ref.key, ref.reason) == (key, "bad-value")
            assert ref.detail.startswith(f"{name}, line {number + 1}: {problem}")

    check()


GOOD = "path,id\na.jpg,7\n"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("t.csv", "path,id\na.jpg,7,x\nb.jpg,8\n", "row 1 after the header`: has 3 cells"),
        ("t.csv", "path,id\na.jpg\nb.jpg,8\n", "row 1 after the header`: has 1 cell, but"),
        ("t.csv", GOOD + 'b.jpg,"x\nc.jpg,9\nd.jpg",1,\n', "has 4 cells"),
        ("t.csv", GOOD + 'b.jpg,"x\nc.jpg",9\n', "has 3 cells, but the header has 2; is a quote"),
        ("t.csv", GOOD + 'b.jpg,"x\nc.jpg,9\n', "is a quote not closed"),
        ("t.csv", GOOD + "b.jpg,7,x\n" * 11, "row 12 after the header`: has 3 cells"),
        ("t.csv", GOOD + "b.jpg,7\n" * 98 + "b\n" * 12, "row 111 after the header`: has 1 cell"),
        ("t.jsonl", 'oops\n{"path": "a.jpg", "id": 7}\n', "row 1`: is not valid JSON"),
        ("t.jsonl", '{"path": "a.jpg", "id": 7}\n' + "{\n" * 11, "row 12`: is not valid JSON"),
    ],
)
def test_what_may_be_more_than_a_row_ends_the_run(
    name: str, text: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=problem):
        references(tmp_path / name, key_column="path", feature_columns={"id": ""})


def test_a_quote_that_is_not_closed_in_the_last_line_is_one_reject(tmp_path: Path) -> None:
    table = tmp_path / "t.tsv"
    table.write_text('id\ttext\na\tb\n\nc\t"d\n')
    refs = references(table, encoding="row", feature_columns={"*": ""})
    assert [bool(ref.reason) for ref in refs] == [False, True]
    cure = refs[1].detail.partition("with pandas: ")[2].partition(" makes")[0]
    with contextlib.chdir(tmp_path):
        eval(cure.replace("FILE", "table"), {"read_csv": pandas.read_csv, "table": table})
    sound = [*read_rows(str(tmp_path / "sound.csv"), ["id", "text"])]
    assert [cells for _, cells in sound] == [["a", "b"], ["c", '"d']]


def test_one_in_ten_rows_may_be_bad(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(GOOD + "b.jpg,7\n" * 99 + "b\n" * 11)
    refs = references(tmp_path / "t.csv", encoding="row", feature_columns={"*": ""})
    assert [bool(ref.reason) for ref in refs] == [False] * 100 + [True] * 11


def test_bad_rows_change_nothing_of_how_a_table_is_read(tmp_path: Path) -> None:
    lines = ["path;size;", *(f"{i}.jpg;{i},5;" for i in range(30))]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(lines))
    options = {"encoding": "row", "na_values": ("7,5",)}
    sound = references(table, **options)
    lines[5] = "4.jpg;no;4,5;x"
    table.write_text("\n".join(lines))
    assert read_columns(str(table), 50) == ["path", "size"]
    refs = references(table, **options)
    assert [ref.detail[:31] for ref in refs if ref.reason] == ["t.csv, line 6: 4 cells instead "]
    assert [ref for ref in refs if not ref.reason] == [*sound[:4], *sound[5:]]


def test_the_line_counts_blank_lines_and_values_of_several_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,note\n\na,"two\nlines"\n\nb,c,d\n')
    (tmp_path / "u.jsonl").write_text('{"id": "e", "note": "f"}\n\n\n1\n')
    refs = references(tmp_path / "t.csv", tmp_path / "u.jsonl", key_column="id")
    details = {ref.key: ref.detail.partition(": ")[0] for ref in refs if ref.reason}
    assert details == {"t.csv#2": "t.csv, line 6", "u.jsonl#2": "u.jsonl, line 4"}


@pytest.mark.parametrize(("name", "delimiter"), [("t.tsv", "\t"), ("t.csv", ","), ("t.csv", ";")])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_rows_within_a_cell_end_the_run_with_a_cure(
    name: str, delimiter: str, place: int, tmp_path: Path
) -> None:
    rows = [["path", "text", "class"], *([f"{i}.jpg", f"word{i}", "cat"] for i in range(40))]
    rows[9][place] = '"Hello'
    rows[15][place] = 'big world"'
    table = tmp_path / name
    table.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="line 10`: has a cell of 7 lines") as error:
        references(table, encoding="row", feature_columns={"*": ""})
    cure = str(error.value).partition("with pandas: ")[2].partition(". If")[0]
    with contextlib.chdir(tmp_path):
        eval(cure.replace("FILE", "table"), {"read_csv": pandas.read_csv, "table": table})
    sound = [*read_rows(str(tmp_path / "sound.csv"), rows[0])]
    assert [cells for _, cells in sound] == rows[1:]


@pytest.mark.parametrize("columns", [["text"], ["path", "text"], ["text", "path", "class"]])
@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize(
    "text",
    [
        "Hello\nworld",
        "Hello\n\nbig\nworld",
        "Dear all,\nHello, world\nBye, now",
        "Hello,world\nbye,you",
        "Gewicht\n1,5 kg",
        "A crowd of\n1,000 people",
        "def f():\n\treturn 1",
        "Roses are red,\nviolets are blue,\nsugar is sweet",
        '{\n  "a": 1,\n  "b": 2\n}',
        '"a"\n"b"\n"c"',
    ],
)
def test_cells_of_several_lines_that_are_no_rows_stay(
    columns: list[str], delimiter: str, text: str, tmp_path: Path
) -> None:
    rows = [{name: f"{name}{i}" for name in columns} | {"text": text} for i in range(3)]
    table = tmp_path / ("t.csv" if delimiter == "," else "t.tsv")
    table.write_bytes(as_csv(rows, delimiter))
    read = [cells for _, cells in read_rows(str(table), columns)]
    assert read == [[*row.values()] for row in rows]


def test_the_cell_of_a_table_of_one_column_may_hold_any_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text\n"a\nb,c\nd\ne"\n')
    assert [cells for _, cells in read_rows(str(tmp_path / "t.csv"), ["text"])] == [
        ["a\nb,c\nd\ne"]
    ]


NEIGHBORS = {  # two rows whose texts begin and end with a quote
    "names of images": [["img/9.jpg", '"Hello'], ["img/10.jpg", 'big world"']],
    "ids": [["img_9", '"Hello'], ["img_10", 'big world"']],
    "the next number": [["9", '"Hello'], ["10", 'big world"']],
    "numbers of equal length": [["100234", '"Hello'], ["100877", 'world"']],
    "numbers of 5,000 digits": [["7" * 5_000, '"Hello'], ["8" * 5_000, 'world"']],
    "text first": [['"Hello', "9.png"], ['world"', "10.png"]],
    "text in the middle": [["x", '"Hello', "cat"], ["y", 'world"', "cat"]],
}


@pytest.mark.parametrize("name", [*NEIGHBORS])
@pytest.mark.parametrize(("delimiter", "line_end"), [(",", "\r\n"), ("\t", "\n")])
def test_neighboring_rows_in_a_cell_are_one_reject(
    name: str, delimiter: str, line_end: str, tmp_path: Path
) -> None:
    columns = ["a", "b", "c"][: len(NEIGHBORS[name][0])]
    rows = [columns, columns, *NEIGHBORS[name], columns]
    table = tmp_path / ("t.csv" if delimiter == "," else "t.tsv")
    table.write_bytes("".join(delimiter.join(row) + line_end for row in rows).encode())
    refs = references(table, encoding="row", feature_columns={"*": ""})
    assert [bool(ref.reason) for ref in refs] == [False, True, False]
    assert f"{table.name}, line 3: has a cell of 2 lines that look like rows" in refs[1].detail
    cure = refs[1].detail.partition("with pandas: ")[2].partition(". If")[0]
    with contextlib.chdir(tmp_path):
        eval(cure.replace("FILE", "table"), {"read_csv": pandas.read_csv, "table": table})
    sound = [*read_rows(str(tmp_path / "sound.csv"), columns)]
    assert [cells for _, cells in sound] == rows[1:]


def test_many_cells_of_two_lines_take_linear_time() -> None:
    num_cells = 200_000
    with bounded_cpu():
        assert find_quoted_rows(["\n"] * num_cells, num_cells, Dialect(",")) is None


def test_ids_without_numbers_are_rows_between_tabs(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text('id\ttext\na\tb\nfeed\t"Hello\nface\tworld"\n')
    refs = references(tmp_path / "t.tsv", encoding="row", feature_columns={"*": ""})
    assert [bool(ref.reason) for ref in refs] == [False, True]


def test_a_byte_that_is_not_utf_8_is_one_reject_with_a_cure(tmp_path: Path) -> None:
    lines = ["id,note", *(f"{i},Käse" for i in range(9))]
    for name, line in (("t.csv", "7,K\xe4s\xe9"), ("t.jsonl", '{"id": "7", "note": "K\xe4s\xe9"}')):
        table = tmp_path / name
        if name == "t.jsonl":
            lines = [json.dumps({"id": str(i), "note": "Käse"}) for i in range(9)]
        content = [text.encode() for text in lines]
        content[4] = line.encode("latin-1")
        table.write_bytes(b"\n".join(content))
        refs = references(table, encoding="row", feature_columns={"*": ""})
        (bad,) = [ref for ref in refs if ref.reason]
        assert len(refs) == 9
        assert f"{name}, line 5: byte 0xe4 is not valid UTF-8; if it is 'ä'" in bad.detail
        command = "python3 -c" + bad.detail.partition("python3 -c")[2].partition(" makes")[0]
        command = command.replace("OLD", name).replace("NEW", f"new.{name}")
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        new = (tmp_path / f"new.{name}").read_text().splitlines()
        assert new == [*lines[:4], line.replace("\xe9", "é").replace("\xe4", "ä"), *lines[5:]]


def test_lines_of_rows_that_are_not_text_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    text = b'id,note\n1,"two\nlines"\n\n2,\xe4\n3,"a\nb\xe4"\n4,"x"y\n5,"c\nd"\n'
    (tmp_path / "t.csv").write_bytes(text)
    refs = references(tmp_path / "t.csv", encoding="row", feature_columns={"*": ""})
    lines = [ref.detail.partition(":")[0] for ref in refs]
    assert lines == ["", "t.csv, line 5", "t.csv, line 6", "t.csv, line 8", ""]


def test_a_table_in_another_encoding_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"id,note\n1,a\n" + b"2,K\xe4se\n" * 11)
    with pytest.raises(DataError, match="row 12 after the header`: byte 0xe4"):
        references(tmp_path / "t.csv", encoding="row", feature_columns={"*": ""})
    (tmp_path / "t.csv").write_bytes(b"id,K\xe4se\n1,a\n")
    with pytest.raises(DataError, match=r"t.csv`: byte 0xe4"):
        references(tmp_path / "t.csv", encoding="row", feature_columns={"*": ""})


def test_a_bad_row_of_several_of_an_image_ends_the_run(tmp_path: Path) -> None:
    rows = [f"{i // 2}.jpg,cat,{i},2,10,20\n" for i in range(8)]
    rows[5] = rows[5].replace("cat", "cat,small")
    (tmp_path / "t.csv").write_text("".join(["path,class,xmin,ymin,xmax,ymax\n", *rows]))
    problem = r"t.csv, line 7`: 7 cells instead of 6; .*rows of the same image are joined"
    with pytest.raises(DataError, match=problem):
        references(tmp_path / "t.csv")


def test_a_bad_row_is_one_reject_of_every_command(beam_tfr: Command, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    lines = LINES["t.csv"]
    spoiled = [*lines[:9], "key 8,hat,XL,8,2.0", *lines[10:-1], "key"]
    options = ["--table", table, "--key_column", "id", "--label_column", "class"]
    options += ["--encoding", "row", "--feature_columns", "*"]
    out = tmp_path / "out"
    table.write_text("\n".join(lines))
    assert beam_tfr("convert", *options, "--output", tmp_path / "whole").code == 0
    table.write_text("\n".join(spoiled))
    assert "2 bad-value" in beam_tfr("plan", *options).out
    assert beam_tfr("convert", *options, "--output", out, "--max_rejects", 1).code == 1
    assert beam_tfr("convert", *options, "--output", out).code == 0
    whole = records_of(tmp_path / "whole")
    assert records_of(out) == {
        key: record for key, record in whole.items() if key not in ("key 8", "key 24")
    }
    lines_of_rejects = (out / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines_of_rejects] == ["t.csv#25", "t.csv#9"]
    counts = read_manifest(str(out)).counts
    assert (counts["matched"], counts["written"], counts["rejected"]) == (25, 23, {"bad-value": 2})
    digest = read_manifest(str(out)).dataset_digest
    table.write_text("\n".join(lines))
    assert beam_tfr("update", out, "--table", table).code == 0
    assert records_of(out) == whole
    table.write_text("\n".join(spoiled))
    assert beam_tfr("update", out, "--table", table).code == 0
    assert read_manifest(str(out)).dataset_digest == digest
