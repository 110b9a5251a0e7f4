"""The objects of exported images as in COCO, https://cocodataset.org/#format-data: boxes, points, polygons, masks.

All places are in pixels of the stored image. Ids of categories are labels; images and annotations are numbered from 1.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema import features as names
from examples.export.shard import BOXES, MASKS, Sample, column_name

_CROWD = ("image/object/is_crowd", "iscrowd", "is_crowd")  # the first column that is there
_AREA = "image/object/area"
_NO_CLASS = "object"  # of datasets without classes


def annotated(dataset: Manifest, sample: Sample, name: str) -> dict[str, Any] | None:
    """The image of a sample and its annotations, still without ids; None if the dataset has no boxes."""
    if BOXES not in sample.about:
        return None
    values, boxes = sample.values, sample.about[BOXES]
    size = width, height = values[names.WIDTH][0], values[names.HEIGHT][0]
    none = [0] * len(boxes)
    labels = values.get(names.OBJECT_LABEL, none)
    crowd = next((values[column] for column in _CROWD if column in dataset.box_features), none)
    masks = sample.about.get(MASKS, none)
    areas = [(right - left) * width * (bottom - top) * height for left, top, right, bottom in boxes]
    if _AREA in dataset.box_features and size == tuple(values[side][0] for side in names.SOURCE_SIDES):
        areas = values[_AREA]  # in pixels of the source
    elif MASKS in sample.about:
        areas = [sum(mask["counts"][1::2]) for mask in masks]
    objects: list[dict[str, Any]] = []
    for label, (left, top, right, bottom), area, is_crowd, mask in zip(labels, boxes, areas, crowd, masks, strict=True):
        box = [left * width, top * height, (right - left) * width, (bottom - top) * height]
        objects.append({"category_id": label, "bbox": box, "area": area, "iscrowd": is_crowd})
        objects[-1] |= {"segmentation": mask} if mask else {}
    for number, points in _points_of(dataset, sample):
        objects[number] |= points  # polygons take the places of masks
    return {"image": {"file_name": name, "width": width, "height": height}, "annotations": objects}


def _points_of(dataset: Manifest, sample: Sample) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of a box, and its keypoints or polygons in pixels; of the first column of each kind."""
    width, height = (sample.values[side][0] for side in (names.WIDTH, names.HEIGHT))
    kinds = {len(features) > 3: name for name, features in reversed(dataset.points.items())}
    for has_visibility, name in kinds.items():
        for number, points in enumerate(sample.about[column_name(name)]):
            if has_visibility and points:
                seen = sum(visibility > 0 for visibility in points[2::3])
                yield number, {"keypoints": _scaled(points, width, height, 1), "num_keypoints": seen}
            elif points:
                yield number, {"segmentation": [_scaled(polygon, width, height) for polygon in points]}


def _scaled(numbers: Iterable[float], *by: int) -> list[float]:
    return [number * of for number, of in zip(numbers, itertools.cycle(by), strict=False)]


def document(dataset: Manifest, images: Iterable[Any], objects: Iterable[Any]) -> Iterator[str]:
    """Yields the text of a file, piece by piece, given what `annotated` says of its images, twice."""
    classes = dataset.class_names if names.OBJECT_LABEL in dataset.features else (_NO_CLASS,)
    categories = [{"id": label, "name": name} for label, name in enumerate(classes)]
    yield f'{{"categories": {json.dumps(categories)},\n"images": ['
    yield from _members({**of["image"], "id": number} for number, of in enumerate(images, start=1))
    yield '],\n"annotations": ['
    of_images = ({**one, "image_id": image} for image, of in enumerate(objects, start=1) for one in of["annotations"])
    yield from _members({**one, "id": number} for number, one in enumerate(of_images, start=1))
    yield "]}\n"


def _members(members: Iterable[Any]) -> Iterator[str]:
    for number, member in enumerate(members):
        yield f"{',' * (number > 0)}\n{json.dumps(member)}"
