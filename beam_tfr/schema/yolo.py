"""Names in the folders of YOLO, which conversions read and exports write.

See https://docs.ultralytics.com/datasets/detect.
"""

import os

SPLITS = {"train": "train", "val": "validation", "test": "test"}  # key of data.yaml -> split


def label_path(image: str) -> str:
    """The label file of an image.

    It is below "labels" in place of the last folder "images", or else beside the image.
    """
    stem = os.path.splitext(image)[0]
    return "/labels/".join(f"{stem}.txt".rsplit("/images/", 1))
