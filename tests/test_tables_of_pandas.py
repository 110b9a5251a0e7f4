"""What pandas writes or holds, and no table reads, is told with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pandas
import pyarrow
import pytest
from pyarrow import parquet

import beam_tfr
from beam_tfr.records.examples import serialize
from beam_tfr.records.tfrecords import frame
from beam_tfr.schema.errors import DataError, UsageError
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
