"""The format `folder`: a file for each image, and files about all of them.

Those are `metadata.jsonl`, and annotations of objects as COCO's.

Each shard leaves a part in the work folder, from which these are made at the end: a line of JSON
for each image, with its line of `metadata.jsonl`, and what COCO's file says of it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.exports.shard import ExportedSample, ExportedShard, parse_shard_names
from beam_tfr.features.boxes import BOXES_KEY
from beam_tfr.features.companions import MASK_KEY
from beam_tfr.records.repeats import hash_key
from beam_tfr.schema.dataset import WORK_FOLDER
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.schema.feature_names import (
    FILENAME,
    FORMAT,
    HEIGHT,
    OBJECT_LABEL,
    SOURCE_HEIGHT,
    SOURCE_WIDTH,
    WIDTH,
)

PLACE = f"{WORK_FOLDER}/{{name}}-{{shard}}.jsonl"  # of a part
_CURE = "`format=webdataset` and `format=parquet` do not need keys as names"
# Columns that say whether an object is a crowd: the first that is there.
_CROWD = ("image/object/is_crowd", "iscrowd", "is_crowd")
_AREA = "image/object/area"  # in pixels of the source


def write_files(shard: ExportedShard, file: storage.PendingFile) -> None:
    """Writes the images of a shard, and its part."""

    def write_image(sample: ExportedSample) -> bytes:
        return _write_image(sample, shard)

    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        for samples in shard.samples():
            file.write(b"".join(pool.map(write_image, samples)))


def _write_image(sample: ExportedSample, shard: ExportedShard) -> bytes:
    """Writes the files of an image; returns its line of the part."""
    name = file_name(sample)
    row = {"file_name": name, **sample.about}
    del row["key"]
    files = {name: sample.image}
    for key, png in sample.files.items():
        row[key] = f"{name}.{key}.png"
        files[row[key]] = png
    scratch = storage.work_path(shard.output, "")
    for path, data in files.items():
        place = storage.join(shard.output, path)
        storage.make_folder(place.rpartition("/")[0])
        storage.write_bytes(place, data, scratch=scratch)
    annotated = annotate_image(shard.dataset, sample, name)
    line = json.dumps([row, annotated])
    return line.encode() + b"\n"


def file_name(sample: ExportedSample) -> str:
    """The name of an image: its key, with the extension of its format.

    Raises:
        DataError: it would be outside of the folder, or where unfinished files are.
    """
    key: str = sample.values[FILENAME][0].decode("utf-8", "surrogateescape")
    parts = key.split("/")
    leaves_folder = bool({"", ".", ".."} & {*parts})
    if leaves_folder or parts[0] == WORK_FOLDER or "\0" in key:
        raise DataError(f"the key {key!r} cannot be the name of a file in the folder; {_CURE}")
    extension = key.rpartition(".")[2].lower()
    is_right = FORMAT_OF.get(extension) == sample.values[FORMAT][0].decode()
    return key if is_right else f"{key}.{sample.extension}"


def complete_folder(dataset: Manifest, output: str, counts: Mapping[str, int]) -> None:
    """Makes the files for the whole folder from the parts of the shards.

    These are `metadata.jsonl`, and `instances_SPLIT.json` if there are boxes.

    Holds a hash of each name in memory, about 100 bytes.

    Raises:
        DataError: two images have the same name, or an image was removed since it was written.
    """
    _write_text(output, "metadata.jsonl", _metadata_lines(output, counts))
    if dataset.feature_kinds.boxes is None:
        return
    parts_of = dict[str, list[str]]()  # split -> its parts
    for path in counts:
        split = parse_shard_names(path).split
        parts_of.setdefault(split, []).append(path)
    for split, parts in parts_of.items():
        document = coco_document(dataset, _read_annotations(parts), _read_annotations(parts))
        _write_text(output, f"instances_{split}.json", document)


def _read_parts(paths: Iterable[str]) -> Iterator[Any]:
    """Yields the row and the annotations of each image."""
    for path in paths:
        lines = storage.read_bytes(path).splitlines()
        yield from map(json.loads, lines)


def _read_annotations(paths: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yields what `annotate_image` says of each image."""
    for _, annotated in _read_parts(paths):
        yield annotated


def _metadata_lines(output: str, parts: Iterable[str]) -> Iterator[str]:
    """Yields the lines of `metadata.jsonl`, and checks the files that they name.

    Raises:
        DataError: see `complete_folder`.
    """
    names = set[bytes]()  # hashed
    for row, _ in _read_parts(parts):
        for name in _files_of(row):
            hashed = _hash_name(name)
            if hashed in names:
                raise DataError(
                    f"{storage.join(output, name)}: two images would have this name, or an image "
                    f"and a mask (KEY.mask.png); {_CURE}"
                )
            names.add(hashed)
        yield json.dumps(row) + "\n"
    for entry in storage.walk(output, lambda _: True):
        names.discard(_hash_name(entry.path.removeprefix(f"{output}/")))
    if names:
        raise DataError(
            f"{len(names):,} files of finished shards are no longer in {output}: empty the folder, "
            "and run the same command again"
        )


def _files_of(row: Mapping[str, Any]) -> list[str]:
    """The names of the files of an image."""
    return [row[key] for key in ("file_name", MASK_KEY) if key in row]


def _hash_name(name: str) -> bytes:
    return hash_key(name.encode("utf-8", "surrogateescape"))


def _write_text(output: str, name: str, texts: Iterable[str]) -> None:
    """Writes a file of an export, whose text comes piece by piece."""
    path = storage.join(output, name)
    with storage.create(path, scratch=storage.work_path(output, "")) as file:
        for text in texts:
            file.write(text.encode())
        file.commit()


def annotate_image(dataset: Manifest, sample: ExportedSample, name: str) -> dict[str, Any]:
    """The image of a sample and its annotations, as in COCO's file, but without ids."""
    values = sample.values
    width = values[WIDTH][0]
    height = values[HEIGHT][0]
    annotations: list[dict[str, Any]] = [
        {"category_id": 0, "bbox": [], "area": 0.0, "iscrowd": 0}
        for _ in sample.about.get(BOXES_KEY, ())
    ]
    for kind in dataset.feature_kinds.annotated:
        fields = kind.annotations(values, sample.about, (width, height))
        for annotation, fields_of_kind in zip(annotations, fields, strict=False):
            annotation |= fields_of_kind
    _add_table_columns(annotations, dataset, values)
    return {
        "image": {"file_name": name, "width": width, "height": height},
        "annotations": annotations,
    }


def _add_table_columns(
    annotations: list[dict[str, Any]], dataset: Manifest, values: Mapping[str, Sequence[Any]]
) -> None:
    """Sets what columns of the table say of each object.

    They say whether it is a crowd, and its area.
    """
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


def coco_document(
    dataset: Manifest, images: Iterable[Any], objects: Iterable[Any]
) -> Iterator[str]:
    """Yields the text of COCO's file, piece by piece.

    Args:
        dataset: the dataset.
        images, objects: results of `annotate_image`: two iterables of the same.
    """
    has_classes = OBJECT_LABEL in dataset.features
    classes = dataset.class_names if has_classes else ("object",)
    categories = [{"id": label, "name": name} for label, name in enumerate(classes)]
    yield f'{{"categories": {json.dumps(categories)},\n"images": ['
    yield from _list_members(_number_images(images))
    yield '],\n"annotations": ['
    yield from _list_members(_number_annotations(objects))
    yield "]}\n"


def _number_images(images: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yields all images, with their ids."""
    for number, annotated in enumerate(images, start=1):
        yield {**annotated["image"], "id": number}


def _number_annotations(objects: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yields the annotations of all images, numbered.

    Each has its own id and that of its image.
    """
    number = 0
    for image, about in enumerate(objects, start=1):
        for annotation in about["annotations"]:
            number += 1
            yield {**annotation, "image_id": image, "id": number}


def _list_members(members: Iterable[Any]) -> Iterator[str]:
    """Yields the members of a JSON list, one a line."""
    separator = ""
    for member in members:
        yield f"{separator}\n{json.dumps(member)}"
        separator = ","
