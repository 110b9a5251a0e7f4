"""Names files and splits in the folders of YOLO, which conversions read and exports write.

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
    """Returns the split of each key of a `data.yaml`.

    Args:
        exported: the splits of the dataset, if the folder is an export of ours; keys that have none
            of these keep their usual splits.
    """
    splits = dict(SPLITS)
    for split in exported:
        if split in KEYS:
            splits[KEYS[split]] = split
    return splits


def label_path(image: str) -> str:
    """Returns the path of the label file of an image.

    The file is below "labels" in place of the last folder "images", or else beside the image.
    """
    stem = os.path.splitext(image)[0]
    return "/labels/".join(f"{stem}.txt".rsplit("/images/", 1))
