"""Photos of people, with keypoints and outlines in a table as COCO has it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from PIL import Image

import beam_tfr
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile

RED, GREEN = (250, 0, 0), (0, 250, 0)
TURNS = {
    2: 0,
    3: 3,
    4: 1,
    5: 5,
    6: 2,
    7: 6,
    8: 4,
}  # Pillow's transpositions that undo an orientation, undone


def write_photos(folder: Path, number: int) -> dict[str, Any]:
    """Black pictures in all orientations; returns the COCO file about their objects.

    Each has two objects: a red one, in which a third keypoint is not labelled, and a green one,
    which is two triangles. Keypoints are bright squares of 7 pixels.
    """
    images, annotations = [], []
    (folder / "photos").mkdir()
    for image_id in range(number):
        chance, orientation = random.Random(image_id), image_id % 8 + 1
        width, height = chance.randrange(81, 161, 2), chance.randrange(81, 161, 2)
        picture = Image.new("RGB", (width, height))
        for label, (left, color) in enumerate(((0, RED), (width // 2, GREEN))):
            places = [
                (left + chance.randrange(8, width // 2 - 8), chance.randrange(8, height - 8))
                for _ in range(2)
            ]
            for x, y in places:
                picture.paste(color, (x - 3, y - 3, x + 4, y + 4))
            (x0, y0), (x1, y1) = ((x + 0.5, y + 0.5) for x, y in places)
            right, top = left + width // 2, min(y0, y1) - 4
            object_: dict[str, Any] = {"image_id": image_id, "category_id": label, "iscrowd": 0}
            object_["bbox"] = [left, top, width // 2, abs(y0 - y1) + 8]
            object_["keypoints"] = [x0, y0, 2, x1, y1, 1, *([0, 0, 0] if label == 0 else [])]
            triangle = [x0, y0, x1, y1, left, top]
            object_["segmentation"] = (
                [triangle, [right, top, x1, y1, x0, y0]] if label else [triangle]
            )
            annotations.append(object_)
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored = (
            picture if orientation == 1 else picture.transpose(Image.Transpose(TURNS[orientation]))
        )
        stored.save(folder / "photos" / f"{image_id}.png", exif=exif)
        images.append(
            {"id": image_id, "file_name": f"{image_id}.png", "width": width, "height": height}
        )
    crowd = {"image_id": 0, "category_id": 1, "bbox": [0, 0, 9, 9], "iscrowd": 1}
    annotations.append(crowd | {"segmentation": {"counts": [1, 2], "size": [3, 1]}})
    categories = [{"id": 0, "name": "red"}, {"id": 1, "name": "green"}]
    return {"images": images, "annotations": annotations, "categories": categories}


def convert(
    folder: Path, output: str = "d", *, table: str = "coco.json", **options: Any
) -> list[dict[str, list[Any]]]:
    """Converts the photos, and returns the records in the order of their keys."""
    defaults = {
        "image_size": (48, 64),
        "encoding": "png",
        "num_shards": 1,
        "name": "d",
        "background": "black",
    }
    options = {"image_root": folder / "photos", **defaults, **options}
    if options.get("resize") == "none":
        del options["image_size"]
    beam_tfr.convert(table=folder / table, output=folder / output, progress=False, **options)
    assert beam_tfr.verify(folder / output, progress=False).ok
    (path,) = (folder / output).glob("*.tfrecord.gz")
    records = [parse_example(record) for record in RecordFile(str(path), max_record_bytes=1 << 20)]
    return sorted(records, key=lambda record: record["image/filename"])
