"""Names in tables: numbers with a point, truth values, and words for missing values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas
import pytest

from beam_tfr import convert, plan
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.tables import first_rows
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.names import NameColumn, read_name
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables
from tests.archives import tarred


def opened(path: Path, classes: frozenset[str] | None = None, **columns: Any) -> Tables:
    options = ConvertOptions(table=(path,), output="/o", uri_column="path", **columns)
    return open_tables(find_content(options), classes)


def read(path: Path, classes: frozenset[str] | None = None, **columns: Any) -> list[ImageRef]:
    return [*opened(path, classes, **columns).read(str(path))]


def tables_of(folder: Path, frame: pandas.DataFrame) -> list[Path]:
    """The table in each format, as pandas writes it."""
    (folder / "t.csv").write_text(frame.to_csv(index=False))
    (folder / "t.tsv").write_text(frame.to_csv(index=False, sep="\t"))
    (folder / "t.jsonl").write_text(frame.to_json(orient="records", lines=True))
    frame.to_parquet(folder / "t.parquet")
    return [folder / f"t.{form}" for form in ("csv", "tsv", "jsonl", "parquet")]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([*range(12), None], [*map(str, range(12)), ""]),
        ([0.5, 10.5, None], ["0.5", "10.5", ""]),
        ([1.0, 1.5, 2.0], ["1.0", "1.5", "2.0"]),
        ([True, False, True], ["True", "False", "True"]),
        ([-1.0, 1e9, None], ["-1", "1000000000", ""]),
        (["1.0", "1.1", "2.0"], ["1.0", "1.1", "2.0"]),
        (["2.0.1", "2.0", "3.0"], ["2.0.1", "2.0", "3.0"]),
        (["0.0", "1.0", "cat"], ["0.0", "1.0", "cat"]),
        (["00", "01", "10"], ["00", "01", "10"]),
        (["0.0", "1.00", "2.", "3e0"], ["0", "1", "2", "3"]),
    ],
)
def test_a_table_has_the_same_names_in_each_format(
    tmp_path: Path, values: Sequence[Any], labels: Sequence[str]
) -> None:
    names = [f"{number}.jpg" for number in range(len(values))]
    frame = pandas.DataFrame({"path": names, "class": values})
    frame["group"] = frame.index / 2
    shares = {"group_column": "group", "splits": {"a": 0.5, "b": 0.5}}
    references = []
    for path in tables_of(tmp_path, frame):
        refs = read(path, label_column="class", **shares)
        assert [*map("".join, (ref.labels for ref in refs))] == labels
        references.append([(ref.key, ref.split, ref.reason) for ref in refs])
    assert all(others == references[0] for others in references[1:])


def test_splits_of_numbers_are_the_same_in_each_format(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"path": ["1.jpg", "2.jpg"], "split": [0.0, 1.0]})
    for path in tables_of(tmp_path, frame):
        assert [ref.split for ref in read(path, split_column="split")] == ["0", "1"]


def test_floats_of_32_bits_have_the_names_that_csv_has(tmp_path: Path) -> None:
    numbers = [0.1, 1e-5, 3.14159, 2.5]
    names = [f"{number}.jpg" for number in range(len(numbers))]
    frame = pandas.DataFrame({"path": names, "class": pandas.Series(numbers, dtype="float32")})
    for path in tables_of(tmp_path, frame)[::3]:  # CSV and Parquet
        labels = [ref.labels for ref in read(path, label_column="class")]
        assert labels == [("0.1",), ("1e-05",), ("3.14159",), ("2.5",)], path
    assert read_name(0.12345678901234) == "0.12345678901234"
    assert read_name(123456792.0) == "123456792.0"


def test_labels_of_whole_numbers_are_their_own_ids(photos: Path, tmp_path: Path) -> None:
    names = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.jpg"))[:13]
    frame = pandas.DataFrame({"path": names, "class": [*range(12), None]})
    digests = set()
    for path in tables_of(tmp_path, frame)[::3]:
        made = convert(
            table=(path,),
            image_root=photos,
            uri_column="path",
            label_column="class",
            output=tmp_path / "out",
            overwrite=True,
            progress=False,
        )
        assert made.class_names == tuple(map(str, range(12)))
        digests.add(made.digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ("0.0,1.0,nan,NULL,<NA>", ["0", "1", "", "", ""]),
        ("true,FALSE,True", ["True", "False", "True"]),
        ("true,half-true", ["true", "half-true"]),
        ("1e5,2e3", ["100000", "2000"]),
        ("1.0,2", ["1", "2"]),
        ("1.0,007", ["1.0", "007"]),
        ("1.0,", ["1", ""]),
    ],
)
def test_names_in_text(tmp_path: Path, values: str, labels: Sequence[str]) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{number}.jpg,{value}\n" for number, value in enumerate(values.split(","))]
    path.write_text("path,class\n" + "".join(rows))
    assert ["".join(ref.labels) for ref in read(path, label_column="class")] == labels


def test_several_labels_are_numbers_too(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('path,class\n1.jpg,0.0|1.0\n2.jpg,"[2.0, 10.0]"\n3.jpg,\n')
    refs = read(path, label_column="class", label_separator="|")
    assert [ref.labels for ref in refs] == [("0", "1"), ("2", "10"), ()]


def test_a_later_row_that_is_no_number_is_a_reject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_rows, "SAMPLE_ROWS", 2)
    path = tmp_path / "t.csv"
    path.write_text("path,class\n1.jpg,0.0\n2.jpg,1.0\n3.jpg,1.5\n4.jpg,2.0\n5.jpg,cat\n")
    refs = read(path, label_column="class")
    assert [ref.reason for ref in refs] == ["", "", "bad-value", "", "bad-value"]
    assert "'1.5' is not a whole number, but the names in the first rows are" in refs[2].detail
    assert refs[3].labels == ("2",)
    path.write_text("path,class\n1.jpg,0\n2.jpg,1\n3.jpg,2.0\n4.jpg,cat\n")
    refs = read(path, label_column="class")
    assert [ref.labels for ref in refs] == [("0",), ("1",), ("2",), ("cat",)]


def test_classes_that_are_written_with_a_point_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("path,class\n1.jpg,1.0\n2.jpg,2.0\n")
    refs = read(path, frozenset({"1.0", "2.0"}), label_column="class")
    assert [ref.labels for ref in refs] == [("1.0",), ("2.0",)]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_spaces_around_names_are_left_out_and_told(tmp_path: Path, suffix: str) -> None:
    rows = [
        {"path": "1.jpg", "class": " dog", "split": "train ", "group": "a"},
        {"path": "2.jpg", "class": "dog\u00a0", "split": "test", "group": " a"},
        {"path": "3.jpg", "class": "dog", "split": "train", "group": "a "},
        {"path": "4.jpg", "class": "  ", "split": "train", "group": "b"},
    ]
    frame = pandas.DataFrame(rows)
    path = next(table for table in tables_of(tmp_path, frame) if table.suffix == suffix)
    tables = opened(path, label_column="class", split_column="split")
    refs = [*tables.read(str(path))]
    assert [ref.labels for ref in refs] == [("dog",), ("dog",), ("dog",), ("",)]
    assert [ref.split for ref in refs] == ["train", "test", "train", "train"]
    told = [line for line in tables.warnings if "spaces around names" in line]
    assert [line.partition(":")[0] for line in told] == ["column 'split'", "column 'class'"]
    anew = {"split_column": "none", "splits": {"train": 0.5, "test": 0.5}}
    shares = opened(path, **anew, group_column="group")
    first, second, third, _ = shares.read(str(path))
    assert first.split == second.split == third.split


def test_keys_are_names_too(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"key": [1.0, 2.0], "age": [3, 4]})
    for path in tables_of(tmp_path, frame):
        options = ConvertOptions(table=(path,), output="/o", key_column="key", encoding="row")
        tables = open_tables(find_content(options))
        assert [ref.key for ref in tables.read(str(path))] == ["1", "2"]


def test_labels_in_tars_are_numbers_too(tmp_path: Path) -> None:
    files = {}
    for number in range(3):
        files |= {f"{number}.jpg": b"\xff\xd8", f"{number}.cls": f"{number}.0\n".encode()}
        files[f"{number}.json"] = json.dumps({"id": float(number)}).encode()
    path = tmp_path / "t.tar"
    path.write_bytes(tarred(files))
    for column in ("cls", "id"):
        options = ConvertOptions(table=(path,), output="/o", uri_column="jpg", label_column=column)
        tables = open_tables(find_content(options))
        assert [ref.labels for ref in tables.read(str(path))] == [("0",), ("1",), ("2",)]


def test_texts_that_become_numbers_are_told(tmp_path: Path) -> None:
    for text, number in (("1.0", 1), ("1", 0)):
        path = tmp_path / "t.csv"
        path.write_text(f"path,class\n1.jpg,{text}\n2.jpg,2\n")
        warnings = opened(path, label_column="class").warnings
        assert ["values such as 1.0 are whole numbers" in text for text in warnings] == [
            True
        ] * number
    (tmp_path / "t.jsonl").write_text('{"path": "1.jpg", "class": 1.0}\n')
    assert not opened(tmp_path / "t.jsonl", label_column="class").warnings


def test_words_for_missing_values_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("path,class\n1.jpg,cat\n2.jpg,nan\n3.jpg,None\n4.jpg,<NA>\n")
    (warning,) = opened(path, label_column="class").warnings
    assert "'class': <NA>, None, nan become classes" in warning
    assert warning.endswith("or give `na_values='<NA>' None nan`")
    assert not opened(path, label_column="class", na_values=("<NA>", "None", "nan")).warnings


@pytest.mark.parametrize("mark", ["?", "-"])
def test_marks_for_missing_values_are_told(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"path,class\n1.jpg,cat\n2.jpg,{mark}\n3.jpg,-5\n4.jpg,why?\n")
    (warning,) = opened(path, label_column="class").warnings
    assert f"column 'class': {mark} becomes a class" in warning
    assert not opened(path, label_column="class", na_values=(mark,)).warnings


def test_long_numbers_that_a_spreadsheet_has_shortened_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "path,class,patient\n"
        "1.jpg,1.23457E+12,4.00001E+11\n"
        "2.jpg,cat,4.00001E+11\n"
        "3.jpg,1e5,1.5e+12\n"
    )
    shares = {"train": 0.5, "test": 0.5}
    tables = opened(path, label_column="class", group_column="patient", splits=shares)
    lines = [line for line in tables.warnings if "a spreadsheet" in line]
    assert [line.partition(" is a long number")[0] for line in lines] == [
        "column 'class': 1.23457E+12",
        "column 'patient': 4.00001E+11",
    ]
    path.write_text("path,class\n1.23457E+12,cat\n1.23457E+12,dog\n")
    tables = opened(path, label_column="class")
    assert "1.23457E+12 is a long number without its last digits" in tables.missing
    assert not any("a spreadsheet" in line for line in tables.warnings)


@pytest.mark.parametrize("cell", [float("inf"), {"a": 1}, b"1", "a\0b"])
def test_what_is_no_name(cell: Any) -> None:
    with pytest.raises(ValueError, match=r"is no|has a NUL"):
        NameColumn().read(cell)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("id,dx\nISIC_1,nv\n", ".csv"),
        ('"id";"dx type"\r\n1;nv\r\n', ".csv"),
        ("id\tdx\nISIC_1\tnv\n", ".tsv"),
        ("1.jpg,nv\n2.jpg,nv\n", ""),
        ("Notes, and more\nof text\n", ""),
    ],
)
@pytest.mark.parametrize("file", ["HAM10000_metadata", "a.txt", "a.dat"])
def test_tables_with_a_header_and_another_name_are_to_be_renamed(
    tmp_path: Path, text: str, name: str, file: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(UsageError) as caught:
        find_content(ConvertOptions(table=(str(tmp_path / file),), output="/o"))
    assert str(caught.value).endswith(f"name it {name}") == bool(name)


def test_tables_in_a_folder_are_named(tmp_path: Path) -> None:
    for path in ("a/data/1.parquet", "a/data/2.parquet", "b/x/1.csv", "b/y/2.csv", "c/1.tar"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    cures = {"a": "a/data/*.parquet", "b": "b/**/*.csv", "c": "c/*.tar"}
    for folder, pattern in cures.items():
        cure = f"`table='{tmp_path}/{pattern}'`"
        with pytest.raises(UsageError) as caught:
            find_content(ConvertOptions(table=(str(tmp_path / folder),), output="/o"))
        assert str(caught.value).endswith(cure)
        with pytest.raises(UsageError) as caught:
            plan(input=tmp_path / folder)
        assert str(caught.value).endswith(cure) == (folder != "c")
