"""Classes of exports that are converted again keep their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import beam_tfr

CLASSES = ("zebra", "10", "2")  # in no usual order
ROWS = {"uri_column": "file_name", "label_column": "class"}
EXPORTS = [
    ("folder", "instances_train.json", {}),
    ("folder", "**/metadata.jsonl", ROWS),
    ("voc", "Annotations/*.xml", {}),
    ("yolo", "data.yaml", {}),
    ("webdataset", "*.tar", {}),
    ("parquet", "data/*.parquet", {"uri_column": "image", "label_column": "class"}),
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three images with a box each, of a class each."""
    folder = tmp_path_factory.mktemp("classes")
    rows = ["filename,class,xmin,ymin,xmax,ymax"]
    for number, name in enumerate(CLASSES):
        Image.new("RGB", (40, 30), (80 * number, 90, 200)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{name},5,6,25,21")
    (folder / "boxes.csv").write_text("\n".join(rows) + "\n")
    (folder / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    beam_tfr.convert(
        table=folder / "boxes.csv",
        uri_column="filename",
        label_column="class",
        feature_columns="box:bbox[xyxy]",
        classes=folder / "classes.txt",
        resize="none",
        output=folder / "out",
        progress=False,
    )
    return folder / "out"


@pytest.mark.parametrize(("form", "table", "options"), EXPORTS)
def test_classes_of_an_export_keep_their_ids(
    form: str, table: str, options: dict[str, Any], dataset: Path, tmp_path: Path
) -> None:
    export = tmp_path / "export"
    beam_tfr.export(dataset, export, format=form, progress=False)
    output = tmp_path / "again"
    again = beam_tfr.convert(table=export / table, output=output, progress=False, **options)
    assert again.class_names == CLASSES
