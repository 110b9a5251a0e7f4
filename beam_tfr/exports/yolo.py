"""Writes the format `yolo`: `data.yaml`, images/SPLIT/KEY, and labels/SPLIT/KEY.txt with objects.

A line consists of the number of a class, counted from 0, and a box, followed by keypoints if
objects have any. Without keypoints, a line may have the corners of a polygon in place of a box. See
https://docs.ultralytics.com/datasets/detect.
"""

import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.exports.folder import annotate_image
from beam_tfr.exports.image_files import (
    ImageFiles,
    group_parts,
    read_checked_parts,
    write_text,
)
from beam_tfr.exports.image_names import NamedImage, image_of, unique_file_name
from beam_tfr.exports.shard import ExportedSample, ExportedShard
from beam_tfr.features.polygons import clip_polygon, join_polygons
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import OBJECT_LABEL
from beam_tfr.schema.untrusted import quote
from beam_tfr.schema.yolo import KEYS, label_path

_KEYPOINT_SIZE = 3  # x, y, visibility
_MOST_KEYPOINTS = 2_000_000  # in an image, including missing ones


def check_splits(_: Manifest, splits: Collection[str]) -> None:
    """Checks that `data.yaml` has a key for each split.

    Raises:
        UsageError: a split has no key, or two splits have the same key.
    """
    split_of = dict[str, str]()  # key -> split
    for split in splits:
        key = KEYS.get(split)
        if key is None:
            names = ", ".join(KEYS)
            raise UsageError(
                f"cannot store the split {split}, only {names}: choose other splits with `split=`",
                option="format",
                value="yolo",
            )
        if key in split_of:
            raise UsageError(
                f"stores the splits {split_of[key]} and {split} in the same place: choose one with "
                "`split=`",
                option="format",
                value="yolo",
            )
        split_of[key] = split


def count_keypoints(dataset: Manifest, parts: Sequence[ShardPart]) -> int:
    """Returns the largest number of keypoints per object in the contents of shards, or 0."""
    keypoints = dataset.feature_kinds.keypoints
    if keypoints is None:
        return 0
    column = dataset.contents_columns[keypoints.number_feature].name

    def count_in_shard(part: ShardPart) -> int:
        table = RecordLookup(dataset, [part]).read_contents(part, [column])
        cells = table.column(column).to_pylist()
        numbers = itertools.chain.from_iterable(filter(None, cells))
        return max(numbers, default=0)

    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        return max(pool.map(count_in_shard, parts), default=0)


def list_left_out(dataset: Manifest, keypoints: int) -> list[str]:
    """Returns the columns that label files cannot store, given the number of keypoints."""
    features = dataset.feature_kinds
    shapes = features.keypoints if keypoints else features.polygons
    kept = {shape.name for shape in (features.boxes, shapes) if shape}
    # Without values, keypoints are not left out.
    if not keypoints and features.keypoints:
        kept.add(features.keypoints.name)
    return [column.name for column in features.columns if column.specs and column.name not in kept]


_DATA = "data.yaml"
_ESCAPED = re.compile("[\ufffe\uffff]")  # YAML does not allow these as they are


def list_own_files(_: Manifest, __: Collection[str]) -> list[str]:
    """Lists the file that describes all images."""
    return [_DATA]


def name_files(image: NamedImage) -> list[str]:
    """Returns the paths of an image and its label file."""
    path = f"images/{image.split}/{unique_file_name(image)}"
    return [path, label_path(f"/{path}")[1:]]


def describe_image(shard: ExportedShard, sample: ExportedSample) -> ImageFiles:
    """Returns the files of an image: the image itself and its label file."""
    path, labels_path = name_files(image_of(shard, sample))
    annotated = annotate_image(shard, sample, path)
    size = (annotated["image"]["width"], annotated["image"]["height"])
    objects = annotated["annotations"]
    _check_keypoints(path, len(objects), shard.keypoints)
    labels = sample.values.get(OBJECT_LABEL, [0] * len(objects))
    lines = []
    for label, annotation in zip(labels, objects, strict=True):
        numbers = [format(number, ".7g") for number in _shape_of(annotation, size, shard.keypoints)]
        lines.append(f"{label} {' '.join(numbers)}\n")
    files = {path: sample.image, labels_path: "".join(lines).encode()}
    return ImageFiles(files, shard.keypoints)


def _check_keypoints(path: str, objects: int, keypoints: int) -> None:
    """Checks that the label file of an image would not contain too many keypoints.

    Args:
        keypoints: number of keypoints to write for each object.
    Raises:
        DataError: the file would contain too many keypoints.
    """
    if objects * keypoints > _MOST_KEYPOINTS:
        raise DataError(
            f"{quote(path)}: {objects:,} objects, each padded to {keypoints:,} keypoints (the most "
            "that an object has, according to the contents), would have more than "
            f"{_MOST_KEYPOINTS:,} keypoints: use `format=folder`, which writes no missing keypoints"
        )


def _shape_of(
    annotation: Mapping[str, Any], size: tuple[int, int], keypoints: int
) -> Sequence[float]:
    """Returns the numbers after the class of an object, as fractions of the image.

    Args:
        annotation: the object, as in COCO's file.
        size: (width, height) of the image.
        keypoints: number of keypoints per object; 0 if no object has any.

    Raises:
        DataError: the object has more keypoints than that.
    """
    box = _center_box(annotation["bbox"], size)
    if keypoints:
        return [*box, *_pad_keypoints(annotation.get("keypoints", ()), size, keypoints)]
    segmentation = annotation.get("segmentation")
    polygon = _join_visible(segmentation, size) if isinstance(segmentation, list) else []
    return polygon or box


def _center_box(box: Sequence[float], size: tuple[int, int]) -> list[float]:
    left, top, box_width, box_height = box
    width, height = size
    x = (left + box_width / 2) / width
    y = (top + box_height / 2) / height
    return [x, y, box_width / width, box_height / height]


def _pad_keypoints(
    numbers: Sequence[float], size: tuple[int, int], keypoints: int
) -> Iterator[float]:
    """Yields the x, y and visibility of each keypoint, and zeros for missing keypoints."""
    missing = keypoints * _KEYPOINT_SIZE - len(numbers)
    if missing < 0:
        raise DataError(
            f"an object has {len(numbers) // _KEYPOINT_SIZE} keypoints, but the contents state at "
            f"most {keypoints}: use `format=folder`, which writes all keypoints"
        )
    width, height = size
    for x, y, visibility in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        yield from (x / width, y / height, visibility)
    yield from [0] * missing


def _join_visible(polygons: Sequence[Sequence[float]], size: tuple[int, int]) -> list[float]:
    """Joins the visible parts of an object's polygons into one; returns [] if none is visible."""
    width, height = size
    visible = []
    for numbers in polygons:
        points = zip(numbers[::2], numbers[1::2], strict=True)
        corners = [(x / width, y / height) for x, y in points]
        clipped = clip_polygon(corners)
        if clipped:
            visible.append(clipped)
    return [*itertools.chain.from_iterable(join_polygons(visible))]


def _escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


def complete_yolo(dataset: Manifest, output: str, counts: Mapping[str, int]) -> None:
    """Writes `data.yaml`, which appears last.

    Raises:
        DataError: see `read_checked_parts`.
    """
    keypoints = max(read_checked_parts(output, counts))
    lines = [f"{KEYS[split]}: images/{split}\n" for split in group_parts(counts)]
    classes = dataset.class_names if OBJECT_LABEL in dataset.features else ("object",)
    names = json.dumps(classes, ensure_ascii=False)
    lines.append(f"names: {_ESCAPED.sub(_escape, names)}\n")
    if keypoints:
        lines.append(f"kpt_shape: [{keypoints}, {_KEYPOINT_SIZE}]\n")
    write_text(output, _DATA, lines)
