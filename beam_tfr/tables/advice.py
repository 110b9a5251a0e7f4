"""Warns of columns that the first rows show to be something else than they are taken for."""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.tables.columns import ColumnType, split_list

MOST_NAMED = 4
_SEPARATORS = ("|", ";", ",", " | ", "; ", ", ")
_CAMEL = re.compile("(?<=[a-z])(?=[A-Z])")
_JUST_BOX = re.compile("bounding|b?box|[^a-z0-9]")
# Names of lists and texts that hold coordinates, as words of a name: `box`, `bbox_2d`, `FaceLandmarks`.
_SHAPE = re.compile(
    r"(?<![a-z])(b?box(es)?|bounding_?box(es)?|polygons?|segmentations?|key_?points?|landmarks?|points?|rois?|contours?|"
    r"vertices|corners|coord(inate)?s?|rle|encoded_?pixels)(?![a-z])"
)
# Numbers that are coordinates together.
_SETS = [
    frozenset(names.split())
    for names in (
        "x1 y1 x2 y2",
        "x0 y0 x1 y1",
        "xmin ymin xmax ymax",
        "minx miny maxx maxy",
        "left top right bottom",
        "left top width height",
        "x y w h",
        "x y width height",
        "cx cy w h",
        "xcenter ycenter width height",
    )
]


def tell_coordinates(types: Mapping[str, ColumnType], sample: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Warns of features that look like places in the image, by their names.

    Args:
        types: column -> type, of the features.
        sample: column -> its first cells.
    """
    numbers = {name: _JUST_BOX.sub("", name.lower()) for name, column_type in types.items() if _is_number(column_type)}
    together = {name for names in _SETS if names <= {*numbers.values()} for name in numbers if numbers[name] in names}
    pairs = [{name, name[:-1] + "y"} for name in numbers if re.search("[^a-z]x$", name)]
    together.update(*(pair for pair in pairs if pair <= numbers.keys()))
    found = [
        name for name, column_type in types.items() if name in together or _is_shape(name, column_type, sample[name])
    ]
    if found:
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        yield (
            f"features that look like coordinates in the image ({', '.join(found[:MOST_NAMED])}{more}) are not adapted "
            "when it is cropped, resized or rotated; with `resize=none` and `ignore_orientation=` they stay right"
        )


def _is_number(column_type: ColumnType) -> bool:
    return column_type.dtype != "bytes" and not column_type.is_list and not column_type.members


def _is_shape(name: str, column_type: ColumnType, cells: Sequence[Any]) -> bool:
    """True for lists, and texts of numbers, with the name of a shape."""
    if _is_number(column_type) or column_type.members or not _SHAPE.search(_CAMEL.sub("_", name).lower()):
        return False
    return column_type.dtype != "bytes" or all(re.search(r"\d\D+\d", str(cell)) for cell in cells if cell)


def tell_joined_labels(column: str, cells: Sequence[Any]) -> Iterator[str]:
    """Warns if text labels look like several each: most of what a separator makes of them occurs in other labels too.

    Args:
        column: its name.
        cells: its first cells.
    """
    labels = dict.fromkeys(cell for cell in cells if isinstance(cell, str) and cell)
    for separator in _SEPARATORS:
        parts = {label: {*map(str, split_list(label, separator))} for label in labels}
        joined = [label for label in labels if parts[label] != {label}]
        counts = collections.Counter(itertools.chain.from_iterable(parts.values()))
        within = [(part, label) for label in joined for part in parts[label]]
        repeated = sum(counts[part] > 1 or label.startswith("[") for part, label in within)
        if all(part == part.strip() for part, _ in within) and 2 * repeated > len(within):
            such = ", ".join(map(repr, joined[:3]))
            yield (
                f"labels of `label_column={column}` look like several each, such as {such}: "
                f"{len(labels):,} classes in the first rows, {len(counts):,} with `label_separator={separator!r}`"
            )
            return
