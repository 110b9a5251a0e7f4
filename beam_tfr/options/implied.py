"""The options that a table implies by its name: annotations, and tables that hold their images."""

import os
import re
from collections.abc import Mapping
from typing import Any

from beam_tfr.schema.dataset import MANIFEST_FILE, TFDS_FILES
from beam_tfr.schema.feature_names import BOXES, SOURCE_SIDES

_ROLES = {"uri_column": "file", "label_column": "class"}
_SIZED = {"image/source_id": "bytes", **dict.fromkeys(SOURCE_SIDES, "int64=0")}
_COCO = dict.fromkeys(("image/object/category_id", "image/object/is_crowd"), "int64[box]")
_VOC = {"image/object/difficult": "int64[box]", "image/object/truncated": "int64[box]"}
_COCO |= {"image/object/area": "float[box]", "keypoint": "points[xyv]", "polygon": "points[xy]"}
_YOLO = {"box": "bbox[rel_center_xywh]", "keypoint": "points[rel_xyv]", "polygon": "points[rel_xy]"}
_YOLO |= {"image/source_id": "bytes"}
# The options that tables of annotations imply, by extension; see `tables.annotations`.
ANNOTATIONS: dict[str, dict[str, Any]] = {
    ".json": {**_ROLES, "feature_columns": {"box": "bbox[xywh]", **_SIZED, **_COCO}},
    ".xml": {**_ROLES, "feature_columns": {"box": "bbox[xyxy]", **_SIZED, **_VOC}},
    **{
        extension: {**_ROLES, "split_column": "split", "feature_columns": _YOLO}
        for extension in (".yaml", ".yml")
    },
}


KNOWN = "*"  # stands for a column that the content of a table shows; see `tables.content`
_KNOWN_ROLES: dict[str, Any] = {"uri_column": KNOWN, "label_column": KNOWN}
_WITH_IMAGES = re.compile(
    r"(?i).*\.(?:tar|tfrec|tfrecords?)(?:[-*?\[{][^/]*)?"
)  # names and patterns of tables
# Files that describe a dataset, one of ours and one of TensorFlow Datasets.
_OF_TFDS = _KNOWN_ROLES | {"split_column": KNOWN}
_DATASETS = {MANIFEST_FILE: _OF_TFDS | {"feature_columns": {KNOWN: ""}}, TFDS_FILES[0]: _OF_TFDS}


def is_dataset(table: str) -> bool:
    """Whether a table is a dataset, by its name."""
    return table.rpartition("/")[2] in _DATASETS


def implied_options(table: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a table implies, by its name or pattern: one of annotations, or one that
    holds its images.

    Args:
        table: the table.
        given: the options of the conversion. One that holds its images implies nothing if
            `uri_column` is given; nor do TFRecords and tars if others say that their rows become
            the records.
    """
    if is_dataset(table):
        return {} if given["uri_column"] else _DATASETS[table.rpartition("/")[2]]
    if _WITH_IMAGES.fullmatch(table):
        named = given["uri_column"] or given["key_column"] or given["feature_columns"] is not None
        return {} if named or given["encoding"] == "row" else _KNOWN_ROLES
    return ANNOTATIONS.get(os.path.splitext(table)[1].lower(), {})


def optional_columns(table: str) -> list[str]:
    """The columns of a table that `*` leaves out, by its name: masks of annotations, which cost
    time and bytes."""
    if _WITH_IMAGES.fullmatch(table):
        return [BOXES]  # whose sides are columns too
    return ["segment"] if "polygon" in implied_options(table, {}).get("feature_columns", ()) else []
