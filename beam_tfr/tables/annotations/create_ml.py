"""Reads annotations from Create ML.

A file is a list of images. Each box has a center (x and y), a width and a height, all in pixels.
The documentation of Create ML spells the keys `imagefilename` and `annotation`.
"""

import math
from typing import Any

import msgspec

from beam_tfr.features.cells import BadCell
from beam_tfr.tables.annotations.coco import CocoAnnotation, CocoImage, make_row

_NO_CATEGORY = -1


class _Coordinates(msgspec.Struct):
    """A box specified by its center; a missing number is NaN, which makes the box bad."""

    x: float = math.nan
    y: float = math.nan
    width: float = math.nan
    height: float = math.nan


class _LabelledBox(msgspec.Struct):
    label: str
    coordinates: _Coordinates


class CreateMlImage(msgspec.Struct):
    """An image with its objects; the keys have two spellings."""

    image: str | None = None
    imagefilename: str | None = None
    annotations: list[_LabelledBox] | None = None
    annotation: list[_LabelledBox] | None = None

    @property
    def name(self) -> str | None:
        return self.image if self.image is not None else self.imagefilename

    @property
    def boxes(self) -> list[_LabelledBox] | None:
        return self.annotations if self.annotations is not None else self.annotation

    def find_missing(self) -> str:
        """Returns the name of a missing field, or an empty string if none is missing."""
        if self.name is None:
            return "image"
        return "annotations" if self.boxes is None else ""


def read_create_ml(picture: CreateMlImage, place: str) -> dict[str, Any]:
    """Returns the row for an image; `place` is its position in the file."""
    missing = picture.find_missing()
    if missing:
        return {"file": BadCell(f"Object missing required field `{missing}` - at `{place}`")}
    name = picture.name or ""
    boxes = picture.boxes or []
    objects = []
    for annotation in boxes:
        box = annotation.coordinates
        corner = [box.x - box.width / 2, box.y - box.height / 2]
        sides = [*corner, box.width, box.height]
        objects.append(CocoAnnotation(name, _NO_CATEGORY, sides))
    classes = [annotation.label for annotation in boxes]
    return make_row(CocoImage(name, name), objects, classes)
