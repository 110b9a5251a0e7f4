"""Names files and splits in YOLO folders, which conversions read and exports write.

See https://docs.ultralytics.com/datasets/detect.
"""

import os
from collections.abc import Iterable, Mapping

SPLITS = {"train": "train", "val": "validation", "test": "test"}  # key of data.yaml -> split
# Split of a dataset -> the key of data.yaml that names its images.
KEYS = {
    "train": "train",
    "validation": "val",
    "valid": "val",
    "val": "val",
    "dev": "val",
    "test": "test",
}


def name_splits(exported: Iterable[str]) -> Mapping[str, str]:
    """Returns the split of each key in a `data.yaml`.

    Args:
        exported: the splits of the dataset, if the folder is one of our exports; other keys
            keep their usual splits.
    """
    splits = dict(SPLITS)
    for split in exported:
        if split in KEYS:
            splits[KEYS[split]] = split
    return splits


def label_path(image: str) -> str:
    """Returns the path of an image's label file.

    "labels" replaces the last folder named "images" in the path; without such a folder, the file is
    next to the image.
    """
    stem = os.path.splitext(image)[0]
    return "/labels/".join(f"{stem}.txt".rsplit("/images/", 1))
