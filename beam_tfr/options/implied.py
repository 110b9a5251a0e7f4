"""Derives options from the name of a table that holds annotations or images."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfr.schema.dataset import MANIFEST_FILE, TFDS_FILES
from beam_tfr.schema.feature_names import BOXES, SOURCE_SIDES

_ROLES = {"uri_column": "file", "label_column": "class"}
_SIZED = {"image/source_id": "bytes", **dict.fromkeys(SOURCE_SIDES, "int64=0")}
_COCO = {
    "box": "bbox[xywh]",
    **_SIZED,
    "image/object/category_id": "int64[box]",
    "image/object/is_crowd": "int64[box]",
    "image/object/area": "float[box]",
    "keypoint": "points[xyv]",
    "polygon": "points[xy]",
}
_VOC = {
    "box": "bbox[xyxy]",
    **_SIZED,
    "image/object/difficult": "int64[box]",
    "image/object/truncated": "int64[box]",
}
_YOLO = {
    "box": "bbox[rel_center_xywh]",
    "keypoint": "points[rel_xyv]",
    "polygon": "points[rel_xy]",
    "image/source_id": "bytes",
}
_YOLO_OPTIONS = {**_ROLES, "split_column": "split", "feature_columns": _YOLO}
# The options that tables of annotations imply, by extension; see `tables.annotations`.
ANNOTATIONS: dict[str, dict[str, Any]] = {
    ".json": {**_ROLES, "feature_columns": _COCO},
    ".xml": {**_ROLES, "feature_columns": _VOC},
    ".yaml": _YOLO_OPTIONS,
    ".yml": _YOLO_OPTIONS,
}

# Columns with the boxes of Pascal VOC, from files that count pixels from 0 and from 1.
VOC_FROM_0 = "box_from_0"
VOC_FROM_1 = "box_from_1"
_OPTIONAL_COLUMNS = {
    ".json": ("segment", "split"),
    **dict.fromkeys((".yaml", ".yml"), ("segment", "confidence")),
    ".xml": (VOC_FROM_0, VOC_FROM_1),
}
_STAND_INS = {".xml": {"box": VOC_FROM_0}}

KNOWN = "*"  # stands for a column that is found in the content of a table; see `tables.content`
_KNOWN_ROLES: dict[str, Any] = {"uri_column": KNOWN, "label_column": KNOWN}
# Extensions of tables whose rows have values, or paths of images.
ROWS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
# Files that describe a dataset of ours, or one of TensorFlow Datasets.
_OF_TFDS = {**_KNOWN_ROLES, "split_column": KNOWN}
_DATASETS = {MANIFEST_FILE: {**_OF_TFDS, "feature_columns": {KNOWN: ""}}, TFDS_FILES[0]: _OF_TFDS}


def is_dataset(table: str) -> bool:
    """Whether a table is a dataset, judging by its name."""
    return table.rpartition("/")[2] in _DATASETS


def may_hold_images(table: str) -> bool:
    """Whether a table may contain images, judging by its name or pattern.

    The extensions of TFRecords and tars suggest it; names such as `train-*-of-*` allow it. In both
    cases, the content decides: see `tables.content.imply_by_file`.
    """
    suffix = table_suffix(table)
    return not is_dataset(table) and suffix not in ROWS and suffix not in ANNOTATIONS


def table_suffix(table: str) -> str:
    """Returns a table's extension in lower case, without .gz or the number of a shard."""
    suffix = os.path.splitext(table.removesuffix(".gz"))[1]
    return suffix.partition("-")[0].lower()


def implied_options(table: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that the name or pattern of a table implies.

    Annotations imply options, and so do tables that contain images.

    Args:
        table: the table.
        options: the options of the conversion. A table that contains images implies nothing if
            `uri_column` is set; nor do TFRecords and tars if `key_column` or `encoding` says that
            their rows become the records.
    """
    if is_dataset(table):
        return {} if options["uri_column"] else _DATASETS[table.rpartition("/")[2]]
    if may_hold_images(table):
        is_chosen = options["uri_column"] or options["key_column"] or options["encoding"] == "row"
        return {} if is_chosen else _KNOWN_ROLES
    return _annotation_options(table)


def _annotation_options(table: str) -> dict[str, Any]:
    """Returns the options that a table of annotations implies, or {} for other tables."""
    return ANNOTATIONS.get(table_suffix(table), {})


def is_annotated(table: str) -> bool:
    """Whether a table is a file of annotations, judging by its name."""
    return table_suffix(table) in ANNOTATIONS


def optional_columns(table: str) -> Sequence[str]:
    """Returns the columns of a table that `*` leaves out, judging by the table's name.

    These are masks in annotations, which cost time and bytes; boxes whose sides are also columns;
    the confidence of predictions; and columns of Pascal VOC that may replace other columns.
    """
    if may_hold_images(table):
        return [BOXES]
    return _OPTIONAL_COLUMNS.get(table_suffix(table), ())


def stand_in_columns(table: str) -> Mapping[str, str]:
    """Maps columns of a table to the columns that replace them if the cells require it."""
    return _STAND_INS.get(table_suffix(table), {})
