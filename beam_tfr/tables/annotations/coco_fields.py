"""Describes fields in COCO annotations that are not stored, and rotated boxes."""

import json
import re
from collections.abc import Iterator

from beam_tfr.schema.differences import join_texts

# Fields that are read, and fields that can be derived from them.
_KNOWN = {
    *("id", "image_id", "category_id", "bbox", "area", "iscrowd", "segmentation"),
    *("keypoints", "num_keypoints"),
}
_ANNOTATIONS = re.compile(rb'"annotations"\s*:\s*\[\s*(?=\{)')
_LONGEST_ANNOTATION = 1 << 20  # 1 MiB
_ROTATION = b'"rotation"'
_TURNED = re.compile(rb'"rotation"\s*:\s*-?(?!0+(?:\.0*)?\s*[,}])[0-9.]')


def describe_other_fields(data: bytes) -> Iterator[str]:
    """Yields messages about parts of annotations in a COCO file that are not read.

    Only the first annotation is parsed; the others are only searched for rotated boxes.
    """
    fields = [name for name in _read_first_annotation(data) if name not in _KNOWN]
    if fields:
        yield (
            f"no values of the fields {join_texts(fields, separator=', ')} in its "
            "annotations are stored: a table with a row for each box, such as .csv, may have them "
            "as columns"
        )
    if _ROTATION in data and _TURNED.search(data):
        yield ("the rotation of annotations is not applied: their boxes are stored unrotated")


def _read_first_annotation(data: bytes) -> list[str]:
    """Lists the field names of the first annotation; an empty list if it cannot be read."""
    match = _ANNOTATIONS.search(data)
    if match is None:
        return []
    begin = data[match.end() : match.end() + _LONGEST_ANNOTATION].decode(errors="replace")
    try:
        annotation, _ = json.JSONDecoder().raw_decode(begin)
    except (ValueError, RecursionError):
        return []
    return [*annotation]
