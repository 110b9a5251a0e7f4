"""The format `folder`: a file for each image, `metadata.jsonl`, and annotations of objects as in
COCO.

Each shard leaves a part in the work folder, from which these are made at the end: a line of JSON
for each image, with its line of `metadata.jsonl`, and what COCO's file says of it.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.exports.shard import BOXES, MASKS, Sample, Shard, column_name, names_of
from beam_tfr.records.repeats import hash_key
from beam_tfr.schema import feature_names
from beam_tfr.schema.dataset import WORK_FOLDER
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.extensions import FORMAT_OF

PLACE = f"{WORK_FOLDER}/{{name}}-{{shard}}.jsonl"  # of a part
_CURE = "`format=webdataset` and `format=parquet` do not need keys as names"
_CROWD = ("image/object/is_crowd", "iscrowd", "is_crowd")  # the first column that is there
_AREA = "image/object/area"


def write_files(shard: Shard, file: storage.PendingFile) -> None:
    """Writes the images of a shard, and its part."""

    def write_image(sample: Sample) -> bytes:
        name = file_name(sample)
        row = {
            "file_name": name,
            **{key: value for key, value in sample.about.items() if key != "key"},
        }
        files = {name: sample.image}
        if sample.mask is not None:
            row["mask"] = f"{name}.mask.png"
            files[row["mask"]] = sample.mask
        for path, data in files.items():
            place = storage.join(shard.output, path)
            storage.make_folder(place.rpartition("/")[0])
            storage.write_bytes(place, data, scratch=storage.work_path(shard.output, ""))
        return json.dumps([row, annotated(shard.dataset, sample, name)]).encode() + b"\n"

    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        for samples in shard.samples():
            file.write(b"".join(pool.map(write_image, samples)))


def file_name(sample: Sample) -> str:
    """The name of an image: its key, with the extension of its format.

    Raises:
        DataError: it would be outside of the folder, or where unfinished files are.
    """
    key: str = sample.values[feature_names.FILENAME][0].decode("utf-8", "surrogateescape")
    parts = key.split("/")
    if {"", ".", ".."} & {*parts} or parts[0] == WORK_FOLDER or "\0" in key:
        raise DataError(f"the key {key!a} cannot be the name of a file in the folder; {_CURE}")
    is_right = (
        FORMAT_OF.get(key.rpartition(".")[2].lower())
        == sample.values[feature_names.FORMAT][0].decode()
    )
    return key if is_right else f"{key}.{sample.extension}"


def complete_folder(dataset: Manifest, output: str, counts: Mapping[str, int]) -> None:
    """Makes `metadata.jsonl`, and `instances_SPLIT.json` if there are boxes, from the parts of the
    shards.

    Holds a hash of each name in memory, about 100 bytes.

    Raises:
        DataError: two images have the same name, or an image was removed since it was written.
    """
    taken = set[bytes]()

    def lines(split: str = "") -> Iterator[Any]:
        for path in counts:
            if split in ("", names_of(path)[2]):
                yield from map(json.loads, storage.read_bytes(path).splitlines())

    def rows() -> Iterator[str]:
        for row, _ in lines():
            for name in (row[key] for key in ("file_name", "mask") if key in row):
                if (hashed := hash_key(name.encode("utf-8", "surrogateescape"))) in taken:
                    problem = (
                        "two images would have this name, or an image and a mask (KEY.mask.png)"
                    )
                    raise DataError(f"{storage.join(output, name)}: {problem}; {_CURE}")
                taken.add(hashed)
            yield json.dumps(row) + "\n"
        for entry in storage.walk(output, lambda _: True):
            taken.discard(
                hash_key(entry.path.removeprefix(f"{output}/").encode("utf-8", "surrogateescape"))
            )
        if taken:
            cure = "empty the folder, and run the same command again"
            raise DataError(
                f"{len(taken):,} files of finished shards are no longer in {output}: {cure}"
            )

    _write(output, "metadata.jsonl", rows())
    for split in (
        {names_of(path)[2] for path in counts} if feature_names.SIDES[0] in dataset.features else ()
    ):
        images, objects = ((annotations for _, annotations in lines(split)) for _ in range(2))
        _write(output, f"instances_{split}.json", document(dataset, images, objects))


def _write(output: str, name: str, texts: Iterable[str]) -> None:
    with storage.create(storage.join(output, name), scratch=storage.work_path(output, "")) as file:
        for text in texts:
            file.write(text.encode())
        file.commit()


def annotated(dataset: Manifest, sample: Sample, name: str) -> dict[str, Any]:
    """The image of a sample and its annotations, still without ids."""
    values = sample.values
    boxes = sample.about.get(BOXES, [])
    none = [0] * len(boxes)
    size = values[feature_names.WIDTH][0], values[feature_names.HEIGHT][0]
    labels = values.get(feature_names.OBJECT_LABEL, none)
    crowd = next((values[column] for column in _CROWD if column in dataset.box_features), none)
    objects: list[dict[str, Any]] = []
    for label, (left, top, right, bottom), is_crowd in zip(labels, boxes, crowd, strict=True):
        box = _scaled((left, top, right - left, bottom - top), *size)
        objects.append(
            {"category_id": label, "bbox": box, "area": box[2] * box[3], "iscrowd": is_crowd}
        )
    for annotation, mask in zip(objects, sample.about.get(MASKS, ()), strict=False):
        annotation |= {"segmentation": mask, "area": sum(mask["counts"][1::2])}
    if _AREA in dataset.box_features and size == tuple(
        values[side][0] for side in feature_names.SOURCE_SIDES
    ):
        for annotation, area in zip(objects, values[_AREA], strict=True):  # in pixels of the source
            annotation["area"] = area
    columns = {
        len(parts) > 3: name for name, parts in reversed(dataset.points.items())
    }  # the first of each kind
    for has_visibility, column in columns.items():
        for annotation, points in zip(objects, sample.about[column_name(column)], strict=True):
            if has_visibility and points:
                annotation["keypoints"] = _scaled(points, *size, 1)
                annotation["num_keypoints"] = sum(visibility > 0 for visibility in points[2::3])
            elif points:  # polygons take the places of masks
                annotation["segmentation"] = [_scaled(polygon, *size) for polygon in points]
    return {
        "image": {"file_name": name, "width": size[0], "height": size[1]},
        "annotations": objects,
    }


def _scaled(numbers: Iterable[float], *by: int) -> list[float]:
    return [number * of for number, of in zip(numbers, itertools.cycle(by), strict=False)]


def document(dataset: Manifest, images: Iterable[Any], objects: Iterable[Any]) -> Iterator[str]:
    """Yields the text of a file, piece by piece, given what `annotated` says of its images,
    twice."""
    classes = dataset.class_names if feature_names.OBJECT_LABEL in dataset.features else ("object",)
    categories = [{"id": label, "name": name} for label, name in enumerate(classes)]
    yield f'{{"categories": {json.dumps(categories)},\n"images": ['
    yield from _members({**of["image"], "id": number} for number, of in enumerate(images, start=1))
    yield '],\n"annotations": ['
    of_images = (
        {**one, "image_id": image}
        for image, of in enumerate(objects, start=1)
        for one in of["annotations"]
    )
    yield from _members({**one, "id": number} for number, one in enumerate(of_images, start=1))
    yield "]}\n"


def _members(members: Iterable[Any]) -> Iterator[str]:
    for number, member in enumerate(members):
        yield f"{',' * (number > 0)}\n{json.dumps(member)}"
