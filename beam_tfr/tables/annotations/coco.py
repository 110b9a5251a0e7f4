"""Annotations as JSON: COCO and Create ML.

COCO        https://cocodataset.org/#format-data; an image without objects is a row too
Create ML   a list of images, whose boxes have the center x, y, and width and height in pixels
"""

import codecs
import collections
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, TypeVar

import msgspec

from beam_tfr.features.boxes import AnnotatedBox
from beam_tfr.features.cells import BadCell
from beam_tfr.schema.feature_names import SOURCE_HEIGHT, SOURCE_WIDTH

# A part of the file, decoded when its image is read, so that it takes little memory until then.
_EMPTY = msgspec.Raw(b"[]")


class _CocoImage(msgspec.Struct, gc=False):
    id: int | str
    file_name: str
    width: int | None = None
    height: int | None = None


class _Annotation(msgspec.Struct, gc=False):
    image_id: int | str
    category_id: int
    bbox: list[float] = []
    area: float | None = None
    iscrowd: int | bool = 0
    keypoints: msgspec.Raw = _EMPTY
    segmentation: msgspec.Raw = _EMPTY
    id: Any = None  # for messages

    def named_box(self) -> list[float]:
        """The box, which knows the id of the annotation if there is one."""
        return self.bbox if self.id is None else AnnotatedBox(self.bbox, self.id)

    def area_of_mask(self) -> float:
        """The area of the object, as annotated, or else of its box."""
        return math.prod(self.bbox[2:]) if self.area is None else self.area


class _Category(msgspec.Struct):
    id: int
    name: str


class _Coco(msgspec.Struct):
    images: list[_CocoImage]
    categories: list[_Category]
    annotations: list[_Annotation]


class _Coordinates(msgspec.Struct):
    """A box by its center; a missing side is NaN, with which it is no box."""

    x: float = math.nan
    y: float = math.nan
    width: float = math.nan
    height: float = math.nan


class _LabelledBox(msgspec.Struct):
    label: str
    coordinates: _Coordinates


class _CreateMlImage(msgspec.Struct):
    image: str
    annotations: list[_LabelledBox]


_HasId = TypeVar("_HasId", _CocoImage, _Category)
# Not strict: "7" and 7.0 are the id 7.
_DECODER = msgspec.json.Decoder(_Coco | list[_CreateMlImage], strict=False)


def read_json(
    _path: str, file: IO[bytes], _say: Callable[[str], object]
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file of COCO or Create ML.

    Raises:
        ValueError, MsgspecError, RecursionError: it is neither.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    data = file.read(size)  # without its size, it would need twice the memory
    content = _DECODER.decode(data.removeprefix(codecs.BOM_UTF8))
    if isinstance(content, _Coco):
        return _read_coco(content)
    return map(_read_create_ml, content)


def _read_coco(content: _Coco) -> Iterator[dict[str, Any]]:
    categories = _index_by_id("categories", content.categories)
    images = _index_by_id("images", content.images)
    annotations = collections.defaultdict[int | str, list[_Annotation]](list)
    for annotation in content.annotations:
        annotations[annotation.image_id].append(annotation)
    for image_id, image in images.items():
        objects = annotations.pop(image_id, [])
        yield _row(image, objects, [_class_name(obj.category_id, categories) for obj in objects])
    for image_id in annotations:
        problem = f"annotations have the image_id {image_id!r}, which no image has"
        yield {"file": BadCell(problem)}


def _index_by_id(key: str, members: Iterable[_HasId]) -> dict[int | str, _HasId]:
    by_id: dict[int | str, _HasId] = {}
    for number, member in enumerate(members):
        if member.id in by_id:
            raise ValueError(f"$.{key}[{number}] has the id {member.id!r}, as one before it has")
        by_id[member.id] = member
    return by_id


def _class_name(category_id: int, categories: dict[int | str, _Category]) -> str | BadCell:
    category = categories.get(category_id)
    if category is None:
        return BadCell(f"no category has the id {category_id}")
    return category.name


def _read_create_ml(picture: _CreateMlImage) -> dict[str, Any]:
    objects = []
    for annotation in picture.annotations:
        box = annotation.coordinates
        corner = [box.x - box.width / 2, box.y - box.height / 2]
        objects.append(_Annotation(picture.image, -1, [*corner, box.width, box.height]))
    classes = [annotation.label for annotation in picture.annotations]
    return _row(_CocoImage(picture.image, picture.image), objects, classes)


def _row(
    image: _CocoImage, objects: Sequence[_Annotation], classes: Sequence[str | BadCell]
) -> dict[str, Any]:
    boxes = []
    keypoints = []
    polygons = []
    segments = []
    for obj in objects:
        segment = msgspec.json.decode(obj.segmentation)
        has_run_lengths = isinstance(segment, dict)
        boxes.append(obj.named_box())
        keypoints.append(msgspec.json.decode(obj.keypoints))
        polygons.append([] if has_run_lengths else segment)
        segments.append(segment)
    return {
        "file": image.file_name,
        "class": classes,
        "box": boxes,
        "image/source_id": str(image.id),
        SOURCE_WIDTH: image.width,
        SOURCE_HEIGHT: image.height,
        "image/object/category_id": [obj.category_id for obj in objects],
        "image/object/is_crowd": [obj.iscrowd for obj in objects],
        "keypoint": keypoints,
        "polygon": polygons,
        "segment": segments,
        "image/object/area": [obj.area_of_mask() for obj in objects],
    }
