"""Types of columns: what stands for a missing value, and what looks like another type."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.options import ConvertOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import UsageError
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rounded_numbers import find_rounding
from beam_tfr.tables.rows import Tables
from tests.conftest import Run
from tests.table_rows import records_of


def opened(path: Path, **options: Any) -> Tables:
    table = (str(path),)
    return open_tables(find_content(ConvertOptions(table=table, output="/o", **options)))


def types_of(tables: Tables) -> dict[str, str]:
    return {feature.name: feature.text for feature in tables.features}


def values_of(tables: Tables) -> list[dict[str, list[Any]]]:
    refs = [ref for file in tables.files for ref in tables.read(file)]
    return [parse_example(ref.columns or b"") for ref in refs if not ref.reason]


def test_decimal_commas_of_a_table_of_semicolons_are_points(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("name;width;pair\na;1,5;1,2,3\nb;-2;4,5\nc;3,25e1;x\n")
    tables = opened(table)
    assert types_of(tables) == {"name": "bytes", "width": "float", "pair": "bytes"}
    assert [row["width"] for row in values_of(tables)] == [[1.5], [-2.0], [32.5]]
    assert values_of(tables)[1]["pair"] == [b"4,5"]
    assert "decimal points in these columns: width" in " ".join(tables.warnings)


def write_german_boxes(path: Path, *, sides: Sequence[str]) -> None:
    """Writes Open Images' columns as a spreadsheet does where commas are decimal points."""
    rows = [f"{i},cat,{','.join(f'{chr(34)}{side}{i}{chr(34)}' for side in sides)}" for i in (1, 2)]
    path.write_text("\n".join(["ImageID,LabelName,XMin,XMax,YMin,YMax", *rows, ""]))


def test_quoted_decimal_commas_are_points_if_no_others_would_be_written_so(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    write_german_boxes(table, sides=["0,01", "0,19", "0,1", "0,9"])
    tables = opened(table)
    assert types_of(tables) == {"box": "bbox[rel_xyxy]=XMin+YMin+XMax+YMax"}
    boxes = [row["image/object/bbox"] for row in values_of(tables)]
    expected = [[0.011, 0.11, 0.191, 0.91], [0.012, 0.12, 0.192, 0.92]]
    assert boxes == [pytest.approx(box) for box in expected]
    assert "points in these columns: XMin, XMax, YMin, YMax" in " ".join(tables.warnings)


@pytest.mark.parametrize("cells", [["1,100", "1,050"], ["0,1", "3,2"], ["1920,1080", "640,480"]])
def test_thousands_and_pairs_in_quotes_stay_text(tmp_path: Path, cells: list[str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text("size,n\n" + "".join(f'"{cell}",1\n' for cell in cells))
    assert [row["size"] for row in values_of(opened(table))] == [[cell.encode()] for cell in cells]


def test_boxes_with_commas_have_a_cure_that_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_german_boxes(path, sides=["1,5", "9,5", "2,5", "8,5"])
    with pytest.raises(UsageError) as caught:
        opened(path)
    line = str(caught.value).partition("are decimal points: ")[2]
    variables = {"table": pandas.read_csv(path)}
    exec(line, variables)
    variables["table"].to_csv(path, index=False)
    assert types_of(opened(path)) == {"box": "bbox[xyxy]=XMin+YMin+XMax+YMax"}


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["19,5", "20,25"], [19.5, 20.25]),
        (["1.000,5", "7,5"], [1000.5, 7.5]),
        (["1,000", "2,500"], [1000, 2500]),
    ],
)
def test_texts_with_commas_have_a_cure_that_writes_numbers(
    tmp_path: Path, cells: list[str], numbers: list[float]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("price,n\n" + "".join(f'"{cell}",1\n' for cell in cells))
    line = " ".join(opened(path).warnings).partition("with pandas")[2].partition(": ")[2]
    variables = {"table": pandas.read_csv(path)}
    exec(line, variables)
    assert [*variables["table"]["price"].astype(float)] == numbers


@pytest.mark.parametrize(
    ("cells", "cause"),
    [
        (["1", "2", "NA", "3"], "NA"),
        (["1", "2", "n/a", "?", "4", "5"], "?, n/a"),
        (['"1,5"', '"2,5"', "3"], "with commas, such as 1,5"),
        (['"1.000,5"', '"1.100,5"', '"7,5"'], "with commas, such as 1.000,5"),
        (['"1,000.5"', '"1,234,567"', "3"], "with commas, such as 1,000.5"),
        (["1.2.3", "1.000.000", "2.0.0"], ""),
        (["1", "2", "3"], ""),
        (["one", "two", "3"], ""),
    ],
)
def test_columns_of_numbers_that_become_texts_are_told(
    tmp_path: Path, cells: list[str], cause: str
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("age,n\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells)))
    warnings = " ".join(opened(table).warnings)
    assert cause in warnings
    assert bool(warnings) == bool(cause)
    assert not opened(table, feature_columns="age:bytes").warnings


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_na_values(tmp_path: Path, name: str) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "class": "cat", "age": 1, "mass": 1.5},
        {"id": "b", "class": "NA", "age": -999, "mass": "NA"},
    ]
    table = tmp_path / name
    if name == "t.csv":
        text = "id,class,age,mass\n" + "".join(
            f"{','.join(map(str, row.values()))}\n" for row in rows
        )
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    table.write_text(text)
    options: dict[str, Any] = {"key_column": "id", "label_column": "class"}
    tables = opened(
        table, na_values=("NA", "-999"), feature_columns="age:int64=-1,mass:float=0.25", **options
    )
    refs = [*tables.read(str(table))]
    assert [(ref.key, ref.labels) for ref in refs] == [("a", ("cat",)), ("b", ("",))]
    assert values_of(tables) == [{"age": [1], "mass": [1.5]}, {"age": [-1], "mass": [0.25]}]
    assert types_of(opened(table, na_values=("NA",), **options))["mass"] == "float"


def test_na_values_that_no_cell_has_are_told(tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    table.write_text('{"age": 1, "name": "x"}\n{"age": -9.0, "name": "N/A"}\n')
    assert opened(table, na_values=("-9", "N/A")).warnings == ()
    warnings = opened(table, na_values=("-9", "NA", "-9.0")).warnings
    assert [warning.partition(" matches no cell")[0] for warning in warnings] == [
        "`na_values=-9.0 NA`"
    ]
    (warning,) = opened(table, na_values=("N/A",), feature_columns="age").warnings
    assert "`na_values=N/A`" in warning  # of a column that nothing uses


def test_a_label_column_of_numbers_that_all_differ_is_told(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,price\n" + "".join(f"{i}.jpg,{i * 1.25}\n" for i in range(40)))
    roles: dict[str, Any] = {"uri_column": "path", "label_column": "price"}
    assert "`feature_columns=price:float`" in " ".join(opened(table, **roles).warnings)
    table.write_text("path,price\n" + "".join(f"{i}.jpg,{i % 39}\n" for i in range(40)))
    assert opened(table, **roles).warnings == ()


def test_columns_of_which_nothing_is_stored_are_told(tmp_path: Path) -> None:
    table = tmp_path / "hot.csv"
    table.write_text("path,cat,dog\n1.jpg,1,0\n2.jpg,0,1\n")
    assert "no values of cat, dog" in " ".join(opened(table, uri_column="path").warnings)
    assert opened(table, uri_column="path", feature_columns="*").warnings == ()
    assert opened(table, uri_column="path", feature_columns={}).warnings == ()
    table.write_text("path\n1.jpg\n2.jpg\n")
    assert opened(table, uri_column="path").warnings == ()


def test_plan_and_summary_show_types(beam_tfr: Callable[..., Run], tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("name,age\na,1\nb,NA\nc,3\n")
    flags = ["--table", table, "--na_values", "NA", "--feature_columns", "name,age:int64=0"]
    plan = beam_tfr("plan", *flags, "--output", tmp_path / "o")
    assert "age int64=0" in plan.out
    assert "name bytes" in plan.out
    as_json = beam_tfr("plan", *flags, "--output", tmp_path / "o", "--json")
    assert as_json.json["columns"] == {"name": "bytes", "age": "int64=0"}
    run = beam_tfr("convert", *flags, "--output", tmp_path / "o")
    assert "column:  age int64=0" in run.out
    assert sorted(record["age"] for record in records_of(tmp_path / "o").values()) == [
        [0],
        [1],
        [3],
    ]
    assert read_manifest(str(tmp_path / "o")).options["na_values"] == ["NA"]
    update = beam_tfr("update", tmp_path / "o", "--table", table, "--json")
    assert update.json["written"] == 3


@pytest.mark.parametrize(
    ("cells", "is_told"),
    [
        (["+1", "-4", "5"], True),
        (["5%", "7.5 %"], True),
        (["$10", "$2.50", "3"], True),
        (["+a", "1"], False),
        (["00501", "12"], False),
    ],
)
def test_numbers_with_signs_that_stay_text_are_told(
    tmp_path: Path, cells: list[str], is_told: bool
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,n\n" + "".join(f"k{i},{cell}\n" for i, cell in enumerate(cells)))
    warnings = opened(path, encoding="row", key_column="id").warnings
    assert any("numbers with symbols" in line for line in warnings) == is_told


@pytest.mark.parametrize(
    ("cells", "factor"),
    [
        (["1479424215.880976", "1479424216"], 10**6),  # seconds
        (["448262.123", "5400001.5", ""], 1000),  # a place in UTM
        (["52.5201231", "52.5201232"], 10**7),  # near each other
        (["123456789.0", "5.0"], 1),  # an id that pandas wrote beside missing values
        ([1479424215.880976, None], 10**6),
        (["[1479424215.880976, 1]"], 10**6),
        (["1e300", "0.1"], None),
        (["1700000000.5", "1e1000000"], 10),
        (["1700000000.5", "7" * 1_000_001], 10),
        (["1700000000.5", "1e99999999999999999999", "-1E-99999999999999999999"], 10),
        (["0.1234567890123", "0.9"], None),
        (["448262.12", "1.5", "nan", "inf"], None),  # 32 bits hold all digits
        (["16777216.0", "0.5", ""], None),
        ([""], None),
    ],
)
def test_numbers_that_32_bits_change_are_found(cells: list[Any], factor: int | None) -> None:
    rounding = find_rounding(cells)
    assert (rounding.factor if rounding else None) == factor


def test_of_long_lists_only_the_first_numbers_are_looked_at() -> None:
    class Unread:
        def __str__(self) -> str:
            raise AssertionError

    rounding = find_rounding([[1479424215.880976] * 10_000, Unread()])
    assert rounding is not None
    assert rounding.factor == 10**6


def test_what_keeps_numbers_beyond_32_bits_is_told_and_works(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,ts,n\na,1479424215.880976,1.5\nb,1479424215.980976,2\n")
    (warning,) = opened(path, encoding="row", key_column="id").warnings
    assert "'*,ts:bytes'" in warning
    exact = opened(path, encoding="row", key_column="id", feature_columns={"*": "", "ts": "bytes"})
    assert not exact.warnings
    table = pandas.read_csv(path)
    column = "table['ts']"
    code = f'{column} = ({column} * 1000000).round().astype("Int64")'
    assert code in warning
    exec(code)
    table.to_csv(path, index=False)
    assert not opened(path, encoding="row", key_column="id").warnings
    assert list(table["ts"]) == [1479424215880976, 1479424215980976]


LISTS: dict[str, list[Any]] = {
    "texts": [["a", "b"], ["it's"], []],
    "numbers": [[1, 2], [3], [4, 5, 6]],
    "shares": [[0.5, 1.0], [2.5], [3.0, 4.5]],
    "flags": [[True, False], [True], [False]],
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("kind", ["list", "array"])
def test_lists_of_pandas_are_the_same_in_all_formats(tmp_path: Path, name: str, kind: str) -> None:
    cells = LISTS[name]
    if kind == "array":
        cells = [np.array(cell) for cell in cells if cell]
    frame = pandas.DataFrame({name: cells})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "t.parquet")
    expected = opened(tmp_path / "t.parquet")
    for path in (tmp_path / "t.csv", tmp_path / "t.jsonl"):
        assert types_of(opened(path)) == types_of(expected)
        assert values_of(opened(path)) == values_of(expected)


@pytest.mark.parametrize("cell", ["[1 2 ... 9]", "{'x': 1}", "[cat, dog]", '{"a": 1}'])
def test_texts_that_look_like_lists_or_objects_are_told(tmp_path: Path, cell: str) -> None:
    table = tmp_path / "t.jsonl"
    table.write_text(json.dumps({"a": "x", "s": cell}))
    pandas.read_json(table, lines=True).to_csv(tmp_path / "t.csv", index=False)
    tables = opened(tmp_path / "t.csv")
    assert types_of(tables)["s"] == "bytes"
    assert any(f"'s' has lists or objects as text, such as {cell}" in w for w in tables.warnings)
    (tmp_path / "t.csv").write_text(f's\n"[draft] see {{me}}"\n{cell[1:4]!r}\n')
    assert not opened(tmp_path / "t.csv").warnings


@pytest.mark.parametrize(
    ("cells", "told"),
    [(["1.1", "1.10", "2"], True), (["1.10", "2.50"], False), (["1", "1.0"], False)],
)
def test_versions_that_become_the_same_number_are_told(
    tmp_path: Path, cells: list[str], told: bool
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("version,n\n" + "".join(f"{cell},1\n" for cell in cells))
    warnings = " ".join(opened(table).warnings)
    assert ("'version' has 1.1 and 1.10, which become the same number" in warnings) == told
    if told:
        assert "`feature_columns='*,version:bytes'`" in warnings
        assert types_of(opened(table, feature_columns="*,version:bytes"))["version"] == "bytes"
        assert not opened(table, feature_columns="*,version:bytes").warnings
