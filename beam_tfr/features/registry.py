"""Lists the kinds of columns, and parses the strings that declare columns."""

import collections
from collections.abc import Mapping, Sequence

from beam_tfr.features.base import ColumnKind
from beam_tfr.features.box_formats import BOX_FORMATS
from beam_tfr.features.boxes import Boxes
from beam_tfr.features.companions import PairedImage, SegmentationMask
from beam_tfr.features.instance_masks import InstanceMasks
from beam_tfr.features.points import Keypoints, Polygons
from beam_tfr.features.scalars import Enum, Scalar

# Add new kinds of columns here.
KINDS: tuple[type[ColumnKind], ...] = (
    Scalar,
    Enum,
    Boxes,
    Keypoints,
    Polygons,
    SegmentationMask,
    InstanceMasks,
    PairedImage,
)
_UNDECLARED = "bytes"  # for a column whose type has yet to be inferred


def is_declaration(text: str) -> bool:
    """Whether a string has the form of a column declaration."""
    return any(kind.declaration.fullmatch(text) for kind in KINDS)


def parse_column(name: str, text: str) -> ColumnKind:
    """Returns the feature that a column's declaration describes.

    Declarations are strings such as `int64`, `bytes[]` or `bbox[xyxy]`.

    Raises:
        ValueError: there is no such kind, or its parameters are wrong.
    """
    for kind in KINDS:
        column = kind.declare(name, text)
        if column is not None:
            return column
    usages = "; ".join(kind.usage for kind in KINDS)
    raise ValueError(f"{text!r} is not a type; use {usages}. Formats: {', '.join(BOX_FORMATS)}")


def parse_columns(declarations: Mapping[str, str] | None) -> tuple[ColumnKind, ...]:
    """Returns the features of columns, given their declarations.

    A declaration is empty if the feature has yet to be inferred.

    Raises:
        ValueError: see `parse_column`.
    """
    columns = []
    for name, text in (declarations or {}).items():
        columns.append(parse_column(name, text or _UNDECLARED))
    boxes = find_boxes(columns)
    if boxes:
        return tuple(column.beside_boxes(boxes.form) for column in columns)
    return tuple(columns)


def find_boxes(columns: Sequence[ColumnKind]) -> Boxes | None:
    """Finds the column that holds boxes; returns None if there is none."""
    for column in columns:
        if isinstance(column, Boxes):
            return column
    return None


def find_conflict(columns: Sequence[ColumnKind], *, are_images: bool) -> str:
    """Returns why a dataset cannot have all of these columns, or an empty string if it can.

    Args:
        columns: the columns.
        are_images: whether the records are images.
    """
    boxes = find_boxes(columns)
    numbers = collections.Counter(map(type, columns))
    for column in columns:
        if column.needs_images and not are_images:
            return f"{column.name} holds {column.noun}, which need images: add `uri_column=`"
        if column.per_box and boxes is None:
            return (
                f"{column.name} has values for each box, but no column has boxes, "
                "such as box:bbox[xyxy]"
            )
        if column.is_unique and numbers[type(column)] > 1:
            names = [other.name for other in columns if type(other) is type(column)]
            return f"{' and '.join(names)} hold {column.noun}, but only one column can"
    return ""
