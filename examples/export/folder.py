"""The format `folder`: a file for each image, `metadata.jsonl`, and annotations of objects as in COCO.

Each shard leaves a part in the work folder, from which these are made at the end: a line of JSON for each image, with
its line of `metadata.jsonl` and its `coco.annotated`.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.records.repeats import find_repeats, hash_key, rows_of
from beam_tfr.schema import features as names
from beam_tfr.schema.dataset import WORK_FOLDER
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.extensions import FORMAT_OF
from examples.export.coco import annotated, document
from examples.export.shard import Sample, Shard, create, shard_name

METADATA = "metadata.jsonl"
PART = f"{WORK_FOLDER}/{{shard}}.jsonl"
_AT_A_TIME = 100  # images written
_CURE = "`format=webdataset` and `format=parquet` do not use keys as names"


def write_files(shard: Shard, path: str) -> None:
    """Writes the images of a shard, and its part."""
    scratch = storage.work_path(shard.output, "")

    def write_image(sample: Sample) -> bytes:
        name = file_name(sample)
        row = {"file_name": name, **{key: value for key, value in sample.about.items() if key != "key"}}
        files = {name: sample.image}
        if sample.mask is not None:
            row["mask"] = f"{name}.mask.png"
            files[row["mask"]] = sample.mask
        for file, data in files.items():
            place = storage.join(shard.output, file)
            storage.make_folder(place.rpartition("/")[0])
            try:
                storage.write_bytes(place, data, scratch=scratch, replace=False)
            except storage.AlreadyExistsError:
                raise _taken(shard.output, file) from None
        return json.dumps([row, annotated(shard.dataset, sample, name)]).encode() + b"\n"

    samples = shard.samples()
    with ThreadPoolExecutor(storage.READ_AHEAD) as pool, create(shard.output, path) as part:
        while group := [*itertools.islice(samples, _AT_A_TIME)]:
            part.write(b"".join(pool.map(write_image, group)))


def file_name(sample: Sample) -> str:
    """The name of an image: its key, with the extension of its format.

    Raises:
        DataError: it would be outside of the folder, or where unfinished files are.
    """
    key: str = sample.values[names.FILENAME][0].decode("utf-8", "surrogateescape")
    parts = key.split("/")
    if {"", ".", ".."} & {*parts} or parts[0] == WORK_FOLDER or "\0" in key:
        raise DataError(f"the key {key!a} cannot be the name of a file in the folder; {_CURE}")
    is_right = FORMAT_OF.get(key.rpartition(".")[2].lower()) == sample.values[names.FORMAT][0].decode()
    return key if is_right else f"{key}.{sample.extension}"


def _taken(output: str, name: str) -> DataError:
    problem = "two images would have this name, or an image and a mask (KEY.mask.png)"
    return DataError(f"{storage.join(output, name)}: {problem}; {_CURE}")


def complete_folder(dataset: Manifest, output: str, counts: Mapping[str, Sequence[int]]) -> None:
    """Makes `metadata.jsonl`, and `instances_SPLIT.json` if there are boxes, from the parts of the shards.

    Raises:
        DataError: two images have the same name.
    """
    parts = {split: [*_parts(dataset, output, split, numbers)] for split, numbers in counts.items()}
    whole = [*itertools.chain(*parts.values())]
    _check_names(output, whole)
    with create(output, storage.join(output, METADATA)) as file:
        for row, _ in _lines(whole):
            file.write(json.dumps(row).encode() + b"\n")
    for split, paths in parts.items() if names.SIDES[0] in dataset.features else ():
        with create(output, storage.join(output, f"instances_{split}.json")) as file:
            images, objects = ((entry for _, entry in _lines(paths)) for _ in range(2))
            for text in document(dataset, images, objects):
                file.write(text.encode())


def _parts(dataset: Manifest, output: str, split: str, numbers: Sequence[int]) -> Iterator[str]:
    for entry, number in zip(dataset.splits[split].shards, numbers, strict=True):
        if number:
            yield storage.join(output, PART.format(shard=shard_name(entry)))


def _lines(parts: Sequence[str]) -> Iterator[Any]:
    for path in parts:
        yield from map(json.loads, storage.read_bytes(path).splitlines())


def _check_names(output: str, parts: Sequence[str]) -> None:
    """Checks that all names of images and masks differ; takes 24 bytes of memory for each."""

    def found() -> Iterator[str]:
        for row, _ in _lines(parts):
            yield from (row[key] for key in ("file_name", "mask") if key in row)

    hashes = b"".join(hash_key(name.encode("utf-8", "surrogateescape")) for name in found())
    if repeats := find_repeats(rows_of(0, hashes).tobytes()):
        (_, number), _ = repeats[0]
        raise _taken(output, next(itertools.islice(found(), number, None)))
