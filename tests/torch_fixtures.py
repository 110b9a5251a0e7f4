"""What the tests of `beam_tfr.torch` share, with PyTorch and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from beam_tfr.schema.feature_names import LABEL, TEXT
from tests.reader_fixtures import add_lists, encode, photo, write_dataset


def labels(elements: Any) -> list[int]:
    return [int(label) for element in elements for label in np.ravel(element[1])]


def batches(elements: Any) -> list[list[int]]:
    return [np.ravel(element[1]).tolist() for element in elements]


def write_few(folder: Path) -> Path:
    """train: photos 0 to 36 in 3 shards, one of them empty; test: photos 37 to 40."""
    return write_dataset(folder, {"train": [20, 0, 17], "test": [4]})


def write_many(folder: Path) -> Path:
    """Several windows a stream: 1,300 photos of 2x2 in 7 shards."""
    return write_dataset(folder, {"train": [400, 1, 0, 299, 300, 200, 100]}, image_size=(2, 2))


def write_damaged(folder: Path) -> Path:
    """Photos 0 to 19 in two shards; 3 and 19 cannot be read."""
    photos = [encode(photo(number), "jpeg") for number in range(20)]
    photos[3] = b"no image"
    write_dataset(folder, {"train": [12, 8]}, photos=photos, compression="none")
    shard = folder / "d-train-00001-of-00002.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")  # the last record, 19
    return folder


def classes_of(number: int) -> list[int]:
    return [] if number % 5 == 4 else [number % 7, (number + 3) % 20][: 1 + number % 2]


LISTS = {
    "boxes": lambda number: [number + 0.5] * ((number + 1) % 4),
    "ids": lambda number: [*range(number % 3), number],
    "tags": lambda number: [b"%d\0" % number] * ((number + 1) % 3),
}


def write_lists(folder: Path) -> Path:
    """Photos 0 to 19 with lists as features, and several labels each, or none."""
    write_dataset(folder, {"train": [13, 7]}, image_size=(4, 4))
    texts = {TEXT: lambda number: [b"class%05d" % label for label in classes_of(number)]}
    add_lists(folder, {**LISTS, LABEL: classes_of, **texts})
    return folder
