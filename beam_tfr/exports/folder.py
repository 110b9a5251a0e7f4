"""Writes the format `folder`: a file for each image, and files that describe all images.

The latter are `metadata.jsonl`, and annotations of objects in COCO's format.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.exports.coco_ids import choose_category_ids, choose_image_ids
from beam_tfr.exports.image_files import (
    ImageFiles,
    group_parts,
    read_checked_parts,
    read_parts,
    write_text,
)
from beam_tfr.exports.image_names import NamedImage, file_name, image_of
from beam_tfr.exports.shard import ExportedSample, ExportedShard
from beam_tfr.features.boxes import BOXES_KEY
from beam_tfr.schema.feature_names import (
    HEIGHT,
    OBJECT_LABEL,
    SOURCE_HEIGHT,
    SOURCE_WIDTH,
    WIDTH,
)

# Columns that state whether an object is a crowd; the first one in the dataset counts.
_CROWD = ("image/object/is_crowd", "iscrowd", "is_crowd")
_AREA = "image/object/area"  # in pixels of the source
_SOURCE_ID = "image/source_id"
_CATEGORY_ID = "image/object/category_id"  # in the source


_METADATA = "metadata.jsonl"
_ANNOTATIONS = "instances_{split}.json"


def list_own_files(dataset: Manifest, splits: Collection[str]) -> list[str]:
    """Lists the files that describe all images, `metadata.jsonl` first."""
    if dataset.feature_kinds.boxes is None:
        return [_METADATA]
    return [_METADATA, *(_ANNOTATIONS.format(split=split) for split in splits)]


def name_files(image: NamedImage) -> list[str]:
    """Returns the file names of an image and its masks."""
    name = file_name(image)
    return [name, *(f"{name}.{key}.png" for key in image.beside)]


def describe_image(shard: ExportedShard, sample: ExportedSample) -> ImageFiles:
    """Returns the files of an image, with its line in `metadata.jsonl` and its annotations."""
    name, *beside = name_files(image_of(shard, sample))
    row = {"file_name": name, **sample.about}
    del row["key"]
    files = {name: sample.image}
    for path, (key, png) in zip(beside, sample.files.items(), strict=True):
        row[key] = path
        files[path] = png
    return ImageFiles(files, [row, annotate_image(shard, sample, name)])


def complete_folder(dataset: Manifest, output: str, counts: Mapping[str, int]) -> None:
    """Writes the files that describe all images, from the parts of the shards.

    The files are `metadata.jsonl` and, if there are boxes, `instances_SPLIT.json`.

    Raises:
        DataError: see `read_checked_parts`.
    """
    write_text(output, _METADATA, _metadata_lines(output, counts))
    if dataset.feature_kinds.boxes is None:
        return
    has_classes = OBJECT_LABEL in dataset.features
    classes = dataset.class_names if has_classes else ("object",)
    category_ids = choose_category_ids(_read_category_ids(counts), len(classes))
    categories = [
        {"id": category_id, "name": name}
        for category_id, name in zip(category_ids, classes, strict=True)
    ]
    for split, parts in group_parts(counts).items():
        path = _ANNOTATIONS.format(split=split)
        write_text(output, path, _coco_document(categories, parts))


def _metadata_lines(output: str, parts: Iterable[str]) -> Iterator[str]:
    """Yields the lines of `metadata.jsonl`; raises like `read_checked_parts`."""
    for row, _ in read_checked_parts(output, parts):
        yield json.dumps(row) + "\n"


def _read_annotations(parts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yields the result of `annotate_image` for each image."""
    for _, (_, annotated) in read_parts(parts):
        yield annotated


def annotate_image(shard: ExportedShard, sample: ExportedSample, name: str) -> dict[str, Any]:
    """Returns the image of a sample and its annotations, as in a COCO file, but without ids.

    The `category_id` is the label. The result also contains the ids in the source.
    """
    values = sample.values
    width = values[WIDTH][0]
    height = values[HEIGHT][0]
    annotations: list[dict[str, Any]] = [
        {"category_id": 0, "bbox": [], "area": 0.0, "iscrowd": 0}
        for _ in sample.about.get(BOXES_KEY, ())
    ]
    features = shard.dataset.feature_kinds
    for kind in features.annotated:
        if kind.name in shard.left_out:
            continue
        fields = kind.annotations(values, sample.about, (width, height))
        for annotation, fields_of_kind in zip(annotations, fields, strict=False):
            annotation |= fields_of_kind
    _add_table_columns(annotations, shard.dataset, values)
    source_id = values.get(_SOURCE_ID, [None])[0]
    known = values[_CATEGORY_ID] if _CATEGORY_ID in features.box_features else []
    return {
        "image": {"file_name": name, "width": width, "height": height},
        "annotations": annotations,
        "source_id": source_id.decode(errors="replace") if isinstance(source_id, bytes) else None,
        "source_category_ids": [*known],
    }


def _add_table_columns(
    annotations: list[dict[str, Any]], dataset: Manifest, values: Mapping[str, Sequence[Any]]
) -> None:
    """Sets `iscrowd` and `area` of each object, if the dataset has columns for these fields."""
    columns = dataset.feature_kinds.box_features
    for column in _CROWD:
        if column in columns:
            _set_values(annotations, "iscrowd", values[column])
            break
    is_width_kept = values[WIDTH] == values[SOURCE_WIDTH]
    is_height_kept = values[HEIGHT] == values[SOURCE_HEIGHT]
    if _AREA in columns and is_width_kept and is_height_kept:
        _set_values(annotations, "area", values[_AREA])


def _set_values(annotations: Iterable[dict[str, Any]], key: str, values: Iterable[Any]) -> None:
    for annotation, value in zip(annotations, values, strict=True):
        annotation[key] = value


def _read_category_ids(parts: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yields the label of each object, and its category id in the source."""
    for about in _read_annotations(parts):
        labels = [annotation["category_id"] for annotation in about["annotations"]]
        # No id is known if the dataset has no such column.
        yield from zip(labels, about["source_category_ids"], strict=False)


def _coco_document(categories: Sequence[Any], parts: Sequence[str]) -> Iterator[str]:
    """Yields the text of a COCO file, piece by piece.

    Args:
        categories: the category of each label.
        parts: paths of the parts, which hold results of `annotate_image`.
    """
    source_ids = (about["source_id"] for about in _read_annotations(parts))
    image_ids = choose_image_ids(source_ids)
    yield f'{{"categories": {json.dumps(categories)},\n"images": ['
    yield from _list_members(_name_images(parts, image_ids))
    yield '],\n"annotations": ['
    category_ids = [category["id"] for category in categories]
    yield from _list_members(_name_annotations(parts, image_ids, category_ids))
    yield "]}\n"


def _name_images(parts: Sequence[str], image_ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yields all images, with their ids."""
    for about, image_id in zip(_read_annotations(parts), image_ids, strict=True):
        yield {**about["image"], "id": image_id}


def _name_annotations(
    parts: Sequence[str], image_ids: Sequence[int], category_ids: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Yields the annotations of all images, with their ids and those of image and category."""
    number = 0
    for about, image_id in zip(_read_annotations(parts), image_ids, strict=True):
        for annotation in about["annotations"]:
            number += 1
            category_id = category_ids[annotation["category_id"]]
            ids = {"category_id": category_id, "image_id": image_id, "id": number}
            yield annotation | ids


def _list_members(members: Iterable[Any]) -> Iterator[str]:
    """Yields the members of a JSON list, one per line."""
    separator = ""
    for member in members:
        yield f"{separator}\n{json.dumps(member)}"
        separator = ","
