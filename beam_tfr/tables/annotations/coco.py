"""Reads annotations in COCO's format; an image without objects is a row too.

See https://cocodataset.org/#format-data.
"""

import collections
import math
import urllib.parse
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from beam_tfr.features.boxes import AnnotatedBox
from beam_tfr.features.cells import MOST_BOXES, BadCell
from beam_tfr.features.polygons import enclose_polygons
from beam_tfr.features.run_lengths import enclose_run_lengths
from beam_tfr.schema.differences import join_names, join_texts
from beam_tfr.schema.feature_names import SOURCE_HEIGHT, SOURCE_WIDTH
from beam_tfr.tables.base import FileClasses, Note
from beam_tfr.tables.image_names import ImageName

# A part of the file, decoded when its image is read, so that it takes little memory until then.
_EMPTY = msgspec.Raw(b"[]")
_NULL = msgspec.Raw(b"null")
_NO_BOXES = BadCell(
    "no annotation in the file has a bbox, or a mask to compute one from; add boxes, such as those "
    "around the keypoints, or store only the classes of images: "
    "`feature_columns=image/source_id:bytes`"
)
_NO_CATEGORIES = (
    "has `annotations`, but no list `categories` with the `id` and `name` of each class; add it, "
    "or name classes by their ids: jq '.categories = ([.annotations[].category_id] | unique | "
    "map({id: ., name: tostring}))' a.json > b.json"
)
_SIDES = 4  # numbers in a box
_ROUNDED = 1  # pixel by which boxes may exceed the image, from rounding or counting from 1
_LONGEST_ID = 20  # digits in a 64-bit number
MOST_SHAPE_BYTES = 16 << 20  # 16 MiB of JSON for all masks and keypoints of an image


class CocoImage(msgspec.Struct, gc=False):
    """An image, with a name or, in LVIS, a URL."""

    id: int | str
    file_name: str | None = None
    coco_url: msgspec.Raw = _NULL
    split: msgspec.Raw = _NULL
    width: int | None = None
    height: int | None = None

    def file_cell(self) -> str | BadCell:
        """Returns the path of the image file, or why there is none."""
        if self.file_name:
            has_extension = "." in self.file_name.rpartition("/")[2]
            is_plain = has_extension and not self.file_name.startswith("/")
            return self.file_name if is_plain else ImageName(self.file_name)
        if self.file_name is not None:
            return BadCell(f"the `file_name` of the image {self.id!r:.60} is empty")
        address = msgspec.json.decode(self.coco_url)
        if not isinstance(address, str) or not address:
            return BadCell(f"the image {self.id!r:.60} has neither `file_name` nor `coco_url`")
        path = urllib.parse.urlsplit(address).path
        return ImageName(urllib.parse.unquote(path).strip("/"))


class CocoAnnotation(msgspec.Struct, gc=False):
    """An object in an image."""

    image_id: int | str
    category_id: int
    bbox: list[float] | None = []
    area: float | None = None
    iscrowd: int | bool | None = 0
    keypoints: msgspec.Raw = _EMPTY
    segmentation: msgspec.Raw = _EMPTY
    id: int | float | str | None = None  # for messages

    def named_box(self, segment: Any, image: CocoImage) -> list[float] | BadCell:
        """Returns the box, or the box around the mask; a bad box names the id of the annotation."""
        box = self.bbox or _enclose_segment(segment, image)
        if not box and self.bbox is None:
            return BadCell(f"annotation {self.id!r:.60} has no bbox, nor a mask that gives one")
        return box if self.id is None else AnnotatedBox(box, self.id)

    def has_place(self) -> bool:
        """Whether the annotation says where the object is."""
        return self.bbox != [] or len(self.segmentation) > len(_NULL)

    def area_of_mask(self, box: list[float] | BadCell) -> float:
        """Returns the annotated area of the object or, if there is none, the area of its box."""
        if self.area is not None and not math.isnan(self.area):
            return self.area
        return 0 if isinstance(box, BadCell) else math.prod(box[2:])

    def class_name(self, names: "CategoryNames") -> str | BadCell:
        """Returns the name of the object's category, from the names by id in the file."""
        unknown = BadCell(f"no category has the id {self.category_id}")
        return names.get(self.category_id, unknown)


class BadAnnotation(CocoAnnotation, gc=False):
    """An object that cannot be read in full; `problem` says why."""

    problem: str = ""

    def has_place(self) -> bool:
        return True  # the rest can be read

    def named_box(self, segment: Any, image: CocoImage) -> BadCell:
        return BadCell(self.problem)

    def class_name(self, names: "CategoryNames") -> str | BadCell:
        name = super().class_name(names)
        return BadCell(self.problem) if isinstance(name, BadCell) else name


class CocoCategory(msgspec.Struct):
    """A class of objects."""

    id: int
    name: str | int
    keypoints: msgspec.Raw = _EMPTY
    skeleton: msgspec.Raw = _EMPTY

    def list_keypoints(self) -> list[str]:
        """Returns the names of an object's keypoints, or an empty list if they have no names."""
        names = msgspec.json.decode(self.keypoints)
        return [*map(str, names)] if isinstance(names, list) else []


class CocoFile(msgspec.Struct):
    """A COCO file; files of test sets have no annotations."""

    images: list[CocoImage]
    categories: list[CocoCategory] | None = None
    annotations: list[CocoAnnotation] | None = None

    def has_objects(self) -> bool:
        """Whether an annotation has a position in its image, or a category."""
        ids = {category.id for category in self.categories or []}
        return any(obj.has_place() or obj.category_id in ids for obj in self.annotations or [])


CategoryNames = Mapping[int, str | BadCell]  # by id
_HasId = TypeVar("_HasId", CocoImage, CocoCategory)


def read_coco(
    path: str, content: CocoFile, say: Callable[[Note], object]
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file.

    Args:
        path: the path of the file.
        content: the content of the file.
        say: called with notes on what the file leaves open.

    Raises:
        ValueError: there are no categories.
    """
    objects = content.annotations or []
    if objects and content.categories is None:
        raise ValueError(_NO_CATEGORIES)
    names = _name_categories(content.categories or [])
    images = _group_by_id(content.images)
    _say_doubts(path, content, names, images, say)
    has_boxes = any(obj.has_place() for obj in objects)
    annotations = _group_by_image(objects, images)
    for image_id, entries in images.items():
        members = annotations.pop(image_id, [])
        yield from _make_rows(entries, members, names, has_boxes=has_boxes)
    for image_id in annotations:
        problem = f"annotations have the image_id {image_id!r}, which no image has"
        yield {"file": BadCell(problem)}


def _say_doubts(
    path: str,
    content: CocoFile,
    names: CategoryNames,
    images: Mapping[int | str, Sequence[CocoImage]],
    say: Callable[[Note], object],
) -> None:
    """Reports which classes a file has, and which questions it leaves open."""
    objects = content.annotations or []
    first_images = {image_id: entries[0] for image_id, entries in images.items()}
    _say_repeated_names(path, names, say)
    _say_repeated_images(path, content.images, images, say)
    say(_find_classes(path, names, objects))
    _say_corners(path, first_images, objects, say)
    _say_keypoint_names(path, content.categories or [], say)


def _make_rows(
    entries: Sequence[CocoImage],
    objects: Sequence[CocoAnnotation],
    names: CategoryNames,
    *,
    has_boxes: bool,
) -> Iterator[dict[str, Any]]:
    """Yields the row of an image, or a bad row for each of its entries if there is a problem.

    Args:
        entries: the different entries with the id of the image.
        objects: the objects in the image.
        names: the names of all categories.
        has_boxes: whether any object in the file has a position in its image.
    """
    problem = _find_excess(objects) or _find_other_images(entries)
    if problem:
        bad = BadCell(f"the image {entries[0].id!r:.60} has {problem}")
        for image in entries:
            yield {**make_row(image, [], []), "class": bad, "box": bad}
        return
    classes = [obj.class_name(names) for obj in objects]
    row = make_row(entries[0], objects, classes)
    if not has_boxes:
        row["box"] = [_NO_BOXES] * len(objects)
    yield row


def _find_excess(objects: Sequence[CocoAnnotation]) -> str:
    """Says which limit the objects of an image exceed, or returns an empty string."""
    if len(objects) > MOST_BOXES:
        return f"{len(objects):,} annotations, more than {MOST_BOXES:,}"
    num_bytes = 0
    for obj in objects:
        num_bytes += len(obj.segmentation) + len(obj.keypoints)
    if num_bytes > MOST_SHAPE_BYTES:
        return f"masks and keypoints of {num_bytes:,} bytes, more than {MOST_SHAPE_BYTES >> 20} MiB"
    return ""


def _find_other_images(entries: Sequence[CocoImage]) -> str:
    """Says how entries with the same id differ, or returns an empty string for a single entry."""
    if len(entries) == 1:
        return ""
    names = [f"{image.file_name!r:.100}" for image in entries]
    return (
        f"{len(entries)} entries that differ ({join_texts([*dict.fromkeys(names)])}), and its "
        "objects do not say which one they belong to: give each image its own id"
    )


def _name_categories(categories: Iterable[CocoCategory]) -> CategoryNames:
    """Returns id -> name for all categories."""
    groups = _group_by_id(categories)
    return {number: _name_category(entries) for number, entries in groups.items()}


def _name_category(entries: Sequence[CocoCategory]) -> str | BadCell:
    """Returns the name of a category, from all entries with its id."""
    names = [*dict.fromkeys(str(category.name) for category in entries)]
    if len(names) == 1:
        return names[0]
    texts = join_texts([f"{name!r:.60}" for name in names])
    return BadCell(f"{len(names)} categories have the id {entries[0].id}: {texts}")


def _say_repeated_names(path: str, names: CategoryNames, say: Callable[[Note], object]) -> None:
    """Reports which categories share a name."""
    ids = collections.defaultdict[str, list[int]](list)
    for number, name in names.items():
        if isinstance(name, str):
            ids[name].append(number)
    repeated = [name for name, members in ids.items() if len(members) > 1]
    if repeated:
        texts = join_texts(
            [f"{name!r:.60} has the ids {_list_ids(ids[name])}" for name in repeated]
        )
        say(f"{path}: several categories share a name and become one class: {texts}")


def _list_ids(ids: Sequence[int]) -> str:
    return f"[{join_texts([*map(str, ids)], separator=', ')}]"


def _say_repeated_images(
    path: str,
    entries: Sequence[CocoImage],
    images: Mapping[int | str, Sequence[CocoImage]],
    say: Callable[[Note], object],
) -> None:
    """Reports how many image entries are exact repeats."""
    number = len(entries) - sum(map(len, images.values()))
    if number:
        say(
            f"{path}: some entries of images are repeated, as in joined files "
            f"({number:,} of {len(entries):,}); each image is used once"
        )


def _find_classes(
    path: str, names: CategoryNames, objects: Iterable[CocoAnnotation]
) -> FileClasses:
    """Returns the names of all categories, and the names of the categories that objects have."""
    used_ids = {obj.category_id for obj in objects}
    known = {number: name for number, name in names.items() if isinstance(name, str)}
    used = frozenset(name for number, name in known.items() if number in used_ids)
    return FileClasses(path, tuple(known.values()), used)


def _say_corners(
    path: str,
    images: Mapping[int | str, CocoImage],
    objects: Sequence[CocoAnnotation],
    say: Callable[[Note], object],
) -> None:
    """Reports that boxes seem to be corners, because otherwise some boxes end outside of images.

    If read as corners, all boxes must be inside of their images.
    """
    beyond = []
    for obj in objects:
        image = images.get(obj.image_id)
        if image is None or not obj.bbox or len(obj.bbox) != _SIDES:
            continue
        width = image.width
        height = image.height
        if not width or not height:
            continue
        left, top, third, fourth = obj.bbox
        are_corners = left < third <= width and top < fourth <= height
        if not are_corners:
            return
        if left + third > width + _ROUNDED or top + fourth > height + _ROUNDED:
            beyond.append(obj)
    if beyond:
        say(
            f"{path}: boxes end outside of their images ({len(beyond):,}), such as "
            f"{beyond[0].bbox} of annotation {beyond[0].id!r:.60}: COCO's bbox is x, y, width "
            "and height; if they are corners (xmin, ymin, xmax, ymax), which would all be inside, "
            "use `feature_columns='box:bbox[xyxy]'`"
        )


def _say_keypoint_names(
    path: str, categories: Iterable[CocoCategory], say: Callable[[Note], object]
) -> None:
    """Reports that the names of keypoints and the lines between keypoints are not stored."""
    for category in categories:
        names = category.list_keypoints()
        if names:
            say(
                f"{path}: the names of keypoints and the skeletons of its categories are not "
                f"stored, such as {join_names(names)} of {category.name!r:.60}: "
                "`description=` may keep them with the dataset, in the order of the file; COCO "
                "exports lack them"
            )
            return


def _group_by_id(members: Iterable[_HasId]) -> dict[Any, list[_HasId]]:
    """Groups members by their ids, without exact repeats."""
    groups = collections.defaultdict[Any, list[_HasId]](list)
    for member in members:
        groups[member.id].append(member)
    return {number: _drop_repeats(group) for number, group in groups.items()}


def _drop_repeats(members: list[_HasId]) -> list[_HasId]:
    """Returns the members without exact repeats."""
    if len(members) == 1:
        return members
    different: dict[bytes, _HasId] = {}
    for member in members:
        different[msgspec.json.encode(member)] = member
    return list(different.values())


def _group_by_image(
    annotations: Iterable[CocoAnnotation], image_ids: Container[int | str]
) -> dict[int | str, list[CocoAnnotation]]:
    """Groups annotations by the id of their image, which may be a string or a number."""
    groups = collections.defaultdict[int | str, list[CocoAnnotation]](list)
    for annotation in annotations:
        groups[annotation.image_id].append(annotation)
    strangers = [image_id for image_id in groups if image_id not in image_ids]
    for image_id in strangers:
        spelling = _spell_otherwise(image_id)
        if spelling in image_ids:
            groups[spelling] += groups.pop(image_id)
    return groups


def _spell_otherwise(image_id: int | str) -> int | str:
    """Returns a number as a string, or a string as the number that it spells."""
    if isinstance(image_id, int):
        return str(image_id)
    is_number = image_id.isascii() and image_id.removeprefix("-").isdigit()
    if is_number and len(image_id) < _LONGEST_ID and str(int(image_id)) == image_id:
        return int(image_id)
    return image_id


def make_row(
    image: CocoImage, objects: Sequence[CocoAnnotation], classes: Sequence[str | BadCell]
) -> dict[str, Any]:
    """Returns the row for an image with its objects."""
    boxes = []
    areas = []
    keypoints = []
    polygons = []
    segments = []
    for obj in objects:
        segment = msgspec.json.decode(obj.segmentation)
        has_run_lengths = isinstance(segment, dict)
        if isinstance(segment, list) and None in segment:
            segment = [polygon for polygon in segment if polygon is not None]
        box = obj.named_box(segment, image)
        boxes.append(box)
        areas.append(obj.area_of_mask(box))
        keypoints.append(msgspec.json.decode(obj.keypoints))
        polygons.append([] if has_run_lengths else segment)
        segments.append(segment)
    return {
        "file": image.file_cell(),
        "class": classes,
        "split": msgspec.json.decode(image.split),
        "box": boxes,
        "image/source_id": str(image.id),
        SOURCE_WIDTH: image.width,
        SOURCE_HEIGHT: image.height,
        "image/object/category_id": [obj.category_id for obj in objects],
        "image/object/is_crowd": [obj.iscrowd or 0 for obj in objects],
        "keypoint": keypoints,
        "polygon": polygons,
        "segment": segments,
        "image/object/area": areas,
    }


def _enclose_segment(segment: Any, image: CocoImage) -> list[float]:
    """Returns left, top, width and height of a mask's area, or an empty list for a bad mask."""
    try:
        if not isinstance(segment, dict):
            return enclose_polygons(segment)
        size = segment.get("size")
        is_stated = bool(image.width and image.height)
        if is_stated and size != [image.height, image.width]:
            return []
        return enclose_run_lengths(segment.get("counts"), size)
    except ValueError:
        return []
