"""What pandas writes or holds, and no table reads, is told with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import PIL.Image
import pyarrow
import pytest
from pyarrow import parquet

import beam_tfr
from beam_tfr.inputs.parquet_file import ParquetFile
from beam_tfr.options import ConvertOptions
from beam_tfr.options.table import from_values
from beam_tfr.records.examples import serialize
from beam_tfr.records.tfrecords import frame
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.sources import open_source
from beam_tfr.tables.base import find_table
from beam_tfr.tables.formats import FORMATS
from tests.table_files import open_input, references

FRAME = pandas.DataFrame({"image": ["0.jpg", "1.jpg"], "label": ["cat", "dog"]})
ROLES = {"uri_column": "image", "label_column": "label"}


@pytest.mark.parametrize("orient", ["columns", "index", "table", "split", "values", "records"])
def test_json_of_pandas_is_told_how_to_be_written(tmp_path: Path, orient: str) -> None:
    path = tmp_path / "t.json"
    FRAME.to_json(path, orient=orient)  # type: ignore[call-overload]
    with pytest.raises(DataError, match=r"line.*\.jsonl"):
        open_input(table=str(path), **ROLES)
    lines = tmp_path / "t.jsonl"
    FRAME.to_json(lines, orient="records", lines=True)
    assert [ref.labels for ref in references(open_input(table=str(lines), **ROLES))] == [
        ("cat",),
        ("dog",),
    ]


def test_an_index_without_a_name_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    indexed = FRAME.set_index("image")
    indexed.rename_axis(None).to_csv(path)
    with pytest.raises(UsageError, match=r"has no name.*index_label='image'"):
        open_input(table=str(path), **ROLES)
    indexed.rename_axis(None).to_csv(path, index_label="image")
    assert len(references(open_input(table=str(path), **ROLES))) == 2


def test_a_frame_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="to_parquet"):
        beam_tfr.convert(table=FRAME, output=tmp_path / "out", **ROLES)  # type: ignore[arg-type]


def test_a_map_of_parquet_is_no_label_and_no_damage(tmp_path: Path) -> None:
    maps = pyarrow.array([[("a", 1)]], type=pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"image": ["0.jpg"], "label": maps}), path)
    (ref,) = references(open_input(table=str(path), **ROLES))
    assert ref.reason == "bad-value"
    assert "('a', 1) is not a text or number" in ref.detail


def test_masks_of_records_are_told_with_the_feature_that_stores_them(tmp_path: Path) -> None:
    path = tmp_path / "t.tfrecord"
    name = "image/segmentation/class/encoded"
    record = {"image/encoded": ("bytes", [b"x"]), name: ("bytes", [b"y"])}
    path.write_bytes(frame(serialize(record)))
    (line,) = (line for line in open_input(table=str(path)).warnings if name in line)
    assert f"`uri_column=image/encoded` `feature_columns={name}:mask`" in line


SIZES = ["large", None, "small", "large"]


def first_classes(**options: Any) -> list[str]:
    """The classes that have the first ids."""
    options = {"output": "/nowhere/out", **ROLES, **options}
    return [*open_source(from_values(options, ConvertOptions)).plan.first]


def write_sizes(path: Path, categories: list[str], *, ordered: bool) -> None:
    frame = pandas.DataFrame({"image": [f"{number}.jpg" for number in range(len(SIZES))]})
    frame["label"] = pandas.Categorical(SIZES, categories=categories, ordered=ordered)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False, row_group_size=2)


@pytest.mark.parametrize(
    ("name", "ordered", "classes"),
    [
        ("t.parquet", True, ["small", "medium", "large"]),
        ("t.parquet", False, []),
        ("t.csv", True, []),
    ],
)
def test_ordered_categories_number_the_classes(
    name: str, ordered: bool, classes: list[str], tmp_path: Path
) -> None:
    path = tmp_path / name
    write_sizes(path, ["small", "medium", "large", ""], ordered=ordered)
    source = open_input(table=str(path), **ROLES)
    assert first_classes(table=str(path)) == classes
    assert [ref.labels for ref in references(source)] == [("large",), ("",), ("small",), ("large",)]
    lines = [line for line in source.warnings if "ordered categories" in line]
    assert len(lines) == bool(classes)
    assert all("number the classes: small, medium, large" in line for line in lines)
    for number in range(len(SIZES)):
        PIL.Image.new("RGB", (9, 9)).save(tmp_path / f"{number}.jpg")
    plan = beam_tfr.plan(table=str(path), progress=False, **ROLES)
    assert [*(plan.plan.labels or ())] == (classes or ["large", "small"])


def test_ordered_categories_do_not_number_what_is_divided_or_given(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_sizes(path, ["small", "large"], ordered=True)
    (tmp_path / "names.txt").write_text("large\nsmall\n")
    for given in ({"label_separator": "|"}, {"classes": str(tmp_path / "names.txt")}):
        source = open_input(table=str(path), **ROLES, **given)
        assert not first_classes(table=str(path), **given)
        assert not any("ordered categories" in line for line in source.warnings)


@pytest.mark.parametrize("number", [10_000, 100_000])
def test_very_many_ordered_categories_number_no_classes(number: int, tmp_path: Path) -> None:
    names = [f"name {index}" for index in range(number)]
    write_sizes(tmp_path / "t.parquet", ["small", *names[2:], "large"], ordered=True)
    with ParquetFile(find_table(str(tmp_path / "t.parquet"))) as file:
        assert len(file.read_categories("label")) == (number if number == 10_000 else 0)
        assert len([*file.read_rows(["label"])]) == 2


def test_ordered_numbers_are_sorted_like_others(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    indices = pyarrow.array([0, 1, None], pyarrow.int8())
    values = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([10, 2]), ordered=True)
    parquet.write_table(
        pyarrow.table({"image": ["0.jpg", "1.jpg", "2.jpg"], "label": values}), path
    )
    assert not first_classes(table=str(path))
    parquet.write_table(parquet.read_table(path).slice(0, 0), path)
    assert FORMATS[".parquet"].read_ordered_classes(str(path), "label") == []
