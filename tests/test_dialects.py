"""Tables of text with other delimiters, spaces, line ends and lines before the header."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr import storage
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import BeamTfrError, UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.tables.dialects import DELIMITERS, find_dialect
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.formats import read_columns, read_rows
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables
from tests.conftest import Run

ROWS = [("path", "class"), ("a.jpg", "cat"), ("b.jpg", "dog"), ("c.jpg", "cat")]
ROLES = {"uri_column": "path", "label_column": "class"}
EXPECTED = {"a.jpg": ("cat",), "b.jpg": ("dog",), "c.jpg": ("cat",)}


def written(separator: str, *, end: str = "\n", before: str = "") -> str:
    return before + "".join(separator.join(row) + end for row in ROWS)


def opened(path: str | Path, **options: Any) -> Tables:
    return open_tables(find_content(ConvertOptions(table=(str(path),), output="/o", **options)))


def references(path: str | Path, **options: Any) -> dict[str, ImageRef]:
    tables = opened(path, **options)
    return {ref.key: ref for file in tables.files for ref in tables.read(file)}


# Text -> a word that says what is unusual about it; none where nothing is.
READ = {
    written(","): "",
    written(",", end="\r\n"): "",
    written(",", before="\n"): "",
    "path,class\na.jpg,cat,\nb.jpg,dog,\nc.jpg,cat,\n": "",
    written(";"): "semicolons",
    '"path";"class"\n"a.jpg";"cat"\n"b.jpg";"dog"\n"c.jpg";"cat"\n': "semicolons",
    written("\t"): "tabs",
    written("|"): "pipes",
    written(";", before="sep=;\n"): "sep=;",
    "'path','class'\n'a.jpg','cat'\n'b.jpg','dog'\n'c.jpg','cat'\n": "single quotes",
    written(";", before='"sep=;"\r\n'): "sep=;",
    written(",", before="sep=,\n"): "sep=,",
    written("^", before="sep=^\n"): "sep=^",
    written(", "): "space after the comma",
    written(" ,"): "spaces",
    written("; "): "semicolons",
    written(",").replace("path,class", "path, class"): "spaces",
    written(", ").replace("cat", '"cat"'): "spaces",
    written(",").replace(",cat", ", cat").replace(",dog", ", dog"): "spaces",
    written(",", end="\r"): "carriage returns",
    written(";", end="\r"): "carriage returns",
    written(",", before="# made by a tool\n"): "made by a tool",
    written(",", before="# made, by, a tool\n# in two lines\n"): "made, by, a tool",
}


@pytest.mark.parametrize("text", READ)
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_dialects_that_are_certain_are_read_and_said(tmp_path: Path, name: str, text: str) -> None:
    table = tmp_path / name
    data = text.encode()
    table.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    tables = opened(table, **ROLES)
    assert {ref.key: ref.labels for ref in tables.read(str(table))} == EXPECTED
    assert opened(table).columns == ["path", "class"]
    if name != "t.tsv":
        assert READ[text] in " ".join(tables.warnings)
        assert bool(tables.warnings) == bool(READ[text])


def test_a_dialect_on_gs(gcs: str) -> None:
    path = f"{gcs}/photos/t.csv"
    storage.write_bytes(path, written(";").encode(), scratch="")
    assert {key: ref.labels for key, ref in references(path, **ROLES).items()} == EXPECTED


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("t.csv", "path;class\na.jpg;cat\nb.jpg\n", "semicolons"),
        ("t.csv", "path;class|more\na.jpg;cat|1\n", "semicolons or pipes"),
        ("t.csv", "<!DOCTYPE html>\n<html>\n", "HTML"),
        ("t.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
        ("t.csv", "PK\x03\x04\0\0", "Excel"),
        ("t.csv", "p\0a\0t\0h\0\n", "UTF-16"),
        ("t.json", '{"path": "a.jpg"}\n{"path": "b.jpg"}\n', "rename it to end in .jsonl"),
        ("t.csv", "path class\na.jpg cat\n", "space"),
        ("t.csv", written(",").replace("path,class", "Path, Class"), "did you mean 'Path'?"),
        ("t.csv", "# path,class\na.jpg,cat\n", "# path"),
        ("t.csv", written(",").replace("cat", "'cat'"), "single quotes"),
        ("t.csv", "path,class\nb.jpg,dog,1,5\na.jpg,cat\n", "comma in a value"),
        ("t.csv", "path,class\na.jpg,cat\n" + "b.jpg,dog\n" * 9999 + "c\rd,e\n", "carriage"),
        ("t.jsonl", '[{"path": "a.jpg", "class": "cat"}]', "array"),
        ("t.jsonl", '[\n {"path": "a.jpg", "class": "cat"}\n]', "one object on each line"),
        (
            "t.json",
            '[{"path": "a.jpg", "class": "cat"}]',
            "array of rows; write one object per line",
        ),
        ("t.jsonl", '{\n "path": "a.jpg"\n}', "one object on each line"),
    ],
)
def test_what_is_not_certain_is_refused_by_its_name(
    tmp_path: Path, name: str, text: str, cause: str
) -> None:
    table = tmp_path / name
    table.write_bytes(text.encode())
    with pytest.raises(BeamTfrError) as caught:
        references(table, **ROLES)
    assert cause in str(caught.value)


def test_one_column_is_no_other_dialect(tmp_path: Path) -> None:
    for text in ("name\none, two\n", "full name\nJohn Smith\nJohn W. Smith\n", "a\n1;2\n3|4\n"):
        table = tmp_path / "t.tsv"
        table.write_text(text)
        assert read_columns(str(table), 1) == [text.partition("\n")[0]]
        assert opened(table).warnings == ()
    table.write_text("full name\nJohn Smith\nJane Smith\n")
    assert "spaces separate" in " ".join(opened(table).warnings)


@pytest.mark.parametrize(
    "text",
    [
        "path;class;a,b\na.jpg;cat;1,5\n",
        'path;class;"a,b"\n"a.jpg";"cat";1,5\n',
        "path;class;a,b\na.jpg;cat;x\n",
        "path\tclass\ta, b\na.jpg\tcat\tx\n",
    ],
)
def test_commas_beside_the_delimiter(tmp_path: Path, text: str) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    assert {key: ref.labels for key, ref in references(table, **ROLES).items()} == {
        "a.jpg": ("cat",)
    }


def test_cells_of_columns_without_a_name_may_be_missing(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,class,\na.jpg,cat\nb.jpg,dog,\nc.jpg,cat,,\n")
    assert {key: ref.labels for key, ref in references(table, **ROLES).items()} == EXPECTED


def test_a_delimiter_within_cells_is_none(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,class;name,words|tags\na.jpg,cat,x|y\nb.jpg,dog,z\n")
    assert opened(table).columns == ["path", "class;name", "words|tags"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a.jpg,5,6,25,21,cat\nb.jpg,,,,,\n", "path,xmin,ymin,xmax,ymax,class"),
        ("a.jpg;cat\nb.jpg;dog\n", "path,class"),
        ("a.jpg,0\nb.jpg,1\n", "path,class"),
        ("a.jpg,5,6,25,21,1\nb.jpg,5,6,25,21,2\n", "path,xmin,ymin,xmax,ymax,class"),
        (
            "cat,5,6,20,15,a.jpg,40,30\ncat,5,6,20,15,b.jpg,40,30\n",
            "class,xmin,ymin,xmax,ymax,path,width,height",
        ),
        ("a.jpg,5,6,25,21,cat\n", "path,xmin,ymin,xmax,ymax,class"),  # alone
        ("a.jpg,5,6,25,21\nb.jpg,5,6,25,9\nc.jpg,5,6,5,9\n", "path,xmin,ymin,xmax,ymax"),
        ("a.jpg,50,6,25,21,cat\n", "path,x,y,w,h,class"),
        # as in driving_log.csv of Udacity's simulator
        (
            "c1.jpg,l1.jpg,r1.jpg,0,0.4,0,22.1\nc2.jpg,l2.jpg,r2.jpg,-0.1,0.4,0,22.3\n",
            "path,column2,column3,column4,column5,column6,column7",
        ),
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", "column1,column2,class"),
        ("72,25,72\n", "column1,column2,column3"),
        ("100,0\n101,1\n", "column1,column2"),
        ("0001,cat\n0002,dog\n0003,cat\n", "name,class"),
        ("00a1,cat\n00a2,dog\n00a3,cat\n", "name,class"),
        ("img1\t5.1\t3.5\tsetosa\nimg2\t4\t3\tother\n", "name,column2,column3,class"),
        ("p1/left/,1\np2/right/,0\n", "path,class"),
    ],
)
def test_a_table_without_a_header_is_refused_with_one(
    tmp_path: Path, text: str, names: str
) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    for roles in ({}, {"uri_column": "path"}):
        with pytest.raises(UsageError, match=f"such as {names}(?:, and give|$)"):
            opened(table, **roles)


def test_a_header_that_may_be_a_row_is_told(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    for row, other in (
        ("3.1,3.5,setosa", "2.9,3.0,setosa"),
        ("a text,1", "another,0"),
        ("img1,a text", "img2,another"),
        ("one,cat", "two,cat"),
        ("0,1", "1,0"),
        ("5,7,9", "1,0,3"),
    ):
        table.write_text(f"{row}\n{other}\n")
        assert repr(row) in " ".join(opened(table).warnings)


@pytest.mark.parametrize("text", ["img1,class\nimg1,class\na,b\n", "0,1,2\n5,6,7\n"])
def test_headers_that_are_no_rows_are_not_told(text: str, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    assert opened(table).warnings == ()


@pytest.mark.parametrize("header", ["0,1,2", "label,0,1", "400.5,410,420", ",0,1", "7", "5,label"])
def test_numbers_may_be_names_of_columns(header: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n" + header.replace("label", "1") + "\n")
    assert opened(tmp_path / "t.csv").columns == [*filter(None, header.split(","))]


def test_onehot_columns_have_a_hint(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,cat,dog\na.jpg,1,0\n")
    with pytest.raises(UsageError, match=r"several labels .* `label_separator=`"):
        references(table, uri_column="path", label_column="cat,dog")


_CELLS = st.text("ab 1.\"'", max_size=3).map(str.strip)


@given(
    st.sampled_from([*DELIMITERS]),
    st.lists(st.tuples(_CELLS, _CELLS, _CELLS), min_size=1, max_size=5),
)
def test_a_dialect_does_not_depend_on_cells(
    delimiter: str, rows: list[tuple[str, str, str]]
) -> None:
    lines = [("one", "two", "three"), *rows]
    text = "".join(
        delimiter.join('"{}"'.format(cell.replace('"', '""')) for cell in row) + "\n"
        for row in lines
    )
    dialect = find_dialect(text.encode(), ",")
    assert (dialect.delimiter, dialect.skipped_lines, dialect.has_spaces) == (delimiter, 0, False)


def test_rows_say_what_their_numbers_count(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,class\na.jpg,cat\n,dog\n")
    (reject,) = [ref for ref in references(table, **ROLES).values() if ref.reason]
    assert reject.detail.startswith("t.csv, row 2 after the header")


def test_a_table_of_semicolons_becomes_records(
    beam_tfr: Callable[..., Run], photos: Path, tmp_path: Path
) -> None:
    names = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.jpg"))[:3]
    table = photos / "t.csv"
    table.write_text("path;class\n" + "".join(f"{name};cat\n" for name in names))
    flags = ["--table", table, "--uri_column", "path", "--label_column", "class"]
    run = beam_tfr("convert", *flags, "--output", tmp_path / "o", "--json")
    assert run.json["written"] == 3
    assert "semicolons" in run.err
    plan = beam_tfr("plan", *flags, "--output", tmp_path / "p")
    assert "semicolons" in plan.out + plan.err


def test_long_lines_with_carriage_returns(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(b"path,class\r" + b"a.jpg,cat\r" * 300_000)
    assert sum(1 for _ in read_rows(str(table), ["class"])) == 300_000


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("train.txt", "with pandas, read_csv"),
        ("data-00000-of-00001.arrow", "to_parquet"),
        ("d.npz", "write its images as files"),
        ("t.xlsx", "as CSV"),
        ("t.csv.bz2", "decompress"),
    ],
)
def test_tables_of_other_programs_are_refused_with_a_cure(
    tmp_path: Path, name: str, cure: str
) -> None:
    (tmp_path / name).write_bytes(b"img/1.jpg 0\nimg/2.jpg 1\n")
    with pytest.raises(UsageError, match=cure):
        find_content(ConvertOptions(table=(tmp_path / name,), output="/o", uri_column="path"))


def test_a_header_that_begins_with_a_mark_of_comments_may_stand_above_quoted_cells(
    tmp_path: Path,
) -> None:
    table = tmp_path / "via.csv"
    row = '0.jpg,"{""x"": 5, ""y"": 6}","{""class"": ""cat""}"'
    table.write_text(f"#filename,region_shape_attributes,region_attributes\n{row}\n{row}\n")
    tables = opened(table, uri_column="#filename")
    assert [ref.key for ref in tables.read(str(table))] == ["0.jpg", "0.jpg"]


def test_comments_above_a_header_are_none(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("# made today, by hand\n#2\npath,class,age\n0.jpg,cat,3\n")
    assert [*references(table, **ROLES)] == ["0.jpg"]
