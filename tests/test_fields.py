"""Fields of objects in columns, such as objects.bbox, as Hugging Face has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as arrow

import beam_tfr
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import UsageError
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables
from tests.image_tables import JPEG
from tests.table_rows import records_of

BOXES = [[[1.0, 2.0, 30.0, 40.0], [5.0, 6.0, 7.0, 8.0]], [], [[0.0, 0.0, 9.0, 9.0]]]
CATEGORIES = [[1, 0], [], [1]]
NAMES = ["cat", "dog"]
FLAGS = {
    "label_column": "objects.category",
    "feature_columns": "objects.bbox:bbox[xywh],objects.area:float[box]",
}


def rows(*, as_list: bool) -> list[Any]:
    """The column of objects: structs of lists, or lists of structs."""
    columns = []
    for boxes, categories in zip(BOXES, CATEGORIES, strict=True):
        areas = [width * height for _, _, width, height in boxes]
        if as_list:
            columns.append(
                [
                    {"bbox": box, "category": category, "area": area}
                    for box, category, area in zip(boxes, categories, areas, strict=True)
                ]
            )
        else:
            columns.append({"bbox": boxes, "category": categories, "area": areas})
    return columns


def write_jsonl(folder: Path, *, as_list: bool) -> Path:
    table = folder / "metadata.jsonl"
    lines = []
    for number, objects in enumerate(rows(as_list=as_list)):
        (folder / f"{number}.jpg").write_bytes(JPEG)
        names = json.loads(json.dumps(objects))
        lines.append(json.dumps({"image": f"{number}.jpg", "objects": names}))
    table.write_text("\n".join(lines))
    return table


def write_parquet(folder: Path, *, as_list: bool) -> Path:
    category = {"names": NAMES, "_type": "ClassLabel"}
    fields: Any = {"bbox": {"_type": "List"}, "category": {"feature": category, "_type": "List"}}
    if as_list:
        fields = [{"bbox": {"_type": "List"}, "category": category}]
    features = {"image": {"_type": "Image"}, "objects": fields}
    images = [{"bytes": JPEG, "path": f"{number}.jpg"} for number in range(3)]
    columns = {"image": images, "objects": rows(as_list=as_list)}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = folder / "train.parquet"
    arrow.write_table(pa.table(columns).replace_schema_metadata(metadata), table)
    return table


def opened(table: Path, **options: Any) -> Tables:
    given = {"uri_column": "image", **FLAGS, **options}
    return open_tables(find_content(ConvertOptions(table=(table,), output="/o", **given)))


@pytest.mark.parametrize("as_list", [False, True])
def test_fields_of_objects_are_columns(tmp_path: Path, as_list: bool) -> None:
    tables = opened(write_jsonl(tmp_path, as_list=as_list))
    refs = [*tables.read(tables.files[0])]
    assert [ref.labels for ref in refs] == [("1", "0"), (), ("1",)]
    tables = opened(write_parquet(tmp_path, as_list=as_list))
    refs = [*tables.read(tables.files[0])]
    assert [ref.labels for ref in refs] == [("dog", "cat"), (), ("dog",)]


@pytest.mark.parametrize("as_list", [False, True])
def test_detection_sets_of_hugging_face_are_converted(tmp_path: Path, as_list: bool) -> None:
    digests = set()
    for name, write in {"jsonl": write_jsonl, "parquet": write_parquet}.items():
        table = write(tmp_path, as_list=as_list)
        done = beam_tfr.convert(
            table=table,
            uri_column="image",
            **FLAGS,
            resize="none",
            output=tmp_path / name,
            progress=False,
        )
        assert done.counts["written"] == 3
        records = [*records_of(tmp_path / name).values()]
        boxes = {
            (*(record[f"image/object/bbox/{side}"] for side in ("xmin", "ymin")),): record
            for record in map(_as_tuples, records)
        }
        digests.add(tuple(sorted(boxes)))
        areas = {area for record in records for area in record["objects.area"]}
        assert areas == {1200.0, 56.0, 81.0}
    assert len(digests) == 1


def _as_tuples(record: dict[str, list[Any]]) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(values) for name, values in record.items()}


def test_a_field_that_is_missing_is_an_error_with_those_that_are_there(tmp_path: Path) -> None:
    for write in (write_jsonl, write_parquet):
        with pytest.raises(UsageError, match=r"no column 'objects\.label'.*objects\.category"):
            opened(write(tmp_path, as_list=True), label_column="objects.label")


def test_objects_of_which_nothing_is_stored_are_told_with_their_boxes(tmp_path: Path) -> None:
    table = write_parquet(tmp_path, as_list=False)
    options = ConvertOptions(table=(table,), output="/o", uri_column="image")
    (line,) = open_tables(find_content(options)).warnings
    assert "`feature_columns='objects.bbox:bbox[xywh]'`" in line


def test_all_other_columns_leave_out_the_objects_of_named_fields(tmp_path: Path) -> None:
    table = write_jsonl(tmp_path, as_list=False)
    tables = opened(table, feature_columns="*,objects.bbox:bbox[xywh]")
    assert [feature.name for feature in tables.features] == ["objects.bbox"]
