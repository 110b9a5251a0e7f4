"""Warns of columns that hold coordinates, which resizing would make wrong."""

import re
from collections.abc import Mapping

from beam_tfr.schema.columns import ColumnType
from beam_tfr.schema.diff import some

_NAMES = re.compile(r"(?i)(.*_)?(b?box(es)?|box_[xywh]|[xy]([12]|_?min|_?max))|.*(key_?points|landmarks|polygons?)")


def tell_coordinates(types: Mapping[str, ColumnType]) -> list[str]:
    """Warns of features that look like places in the image, by their names, given their types."""
    numbers = [name for name, column in types.items() if re.match("int64|float|bytes", column.text)]
    cure = "declare boxes and their points, such as `feature_columns=box:bbox[xyxy],outline:points[xy]`"
    found = some([*filter(_NAMES.fullmatch, numbers)])
    return [f"features that look like coordinates do not follow the pixels: {found}; {cure}"] if found else []
