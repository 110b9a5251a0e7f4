"""Warns of columns that hold coordinates, which resizing would make wrong."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.schema.columns import ColumnType

MOST_NAMED = 4
_CAMEL = re.compile("(?<=[a-z])(?=[A-Z])")
# Names of lists and texts that hold coordinates, as words of a name: `box`, `bbox_2d`, `FaceLandmarks`.
_SHAPE = re.compile(
    r"(?<![a-z])(b?box(es)?|bounding_?box(es)?|polygons?|segmentations?|key_?points?|landmarks?|points?|rois?|contours?|"
    r"vertices|corners|coord(inate)?s?|rle|encoded_?pixels)(?![a-z])"
)
# Names of numbers that are coordinates if there are several: `x1`, `ymax`, `box_w`.
_NUMBER = re.compile(
    r"(.*_)?(c?[xy]|[xy]_?([0-2]|min|max|center)|(min|max)_?[xy]|[wh]|left|top|right|bottom|width|height)"
)
SEVERAL = 4


def tell_coordinates(types: Mapping[str, ColumnType], sample: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Warns of features that look like places in the image, by their names.

    Args:
        types: column -> type, of the features.
        sample: column -> its first cells.
    """
    words = {
        name: _CAMEL.sub("_", name).lower()
        for name, column in types.items()
        if not (column.members or column.boxes or column.points or column.beside)
    }
    numbers = {name for name in words if _is_number(types[name]) and _NUMBER.fullmatch(words[name])}
    shapes = {
        name
        for name in words
        if not _is_number(types[name])
        and _SHAPE.search(words[name])
        and (types[name].dtype != "bytes" or all(re.search(r"\d\D+\d", str(cell)) for cell in sample[name] if cell))
    }
    if found := [name for name in types if name in shapes or (name in numbers and len(numbers) >= SEVERAL)]:
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        yield (
            f"features that look like coordinates in the image ({', '.join(found[:MOST_NAMED])}{more}) are not adapted "
            "when it is cropped, resized or rotated. Declare boxes, such as `feature_columns=box:bbox[xyxy]`, and "
            "their points, such as outline:points[xy], and they follow the pixels; with `resize=none` and "
            "`ignore_orientation=` other coordinates stay right"
        )


def _is_number(column_type: ColumnType) -> bool:
    return column_type.dtype != "bytes" and not column_type.is_list
