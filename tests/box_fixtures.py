"""A dataset with boxes, in which each object is painted where its box is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import PIL.Image

from beam_tfr import cli

NAMES = ("red", "green", "blue")  # the class of an object is the channel that it is painted in
COLUMNS = {"box": "bbox[xyxy]", "image/object/is_crowd": "int64[box]", "image/source_id": "bytes"}
Corners = tuple[int, int, int, int]  # left, top, right, bottom in pixels
Images = dict[
    str, tuple[tuple[int, int], dict[int, Corners]]
]  # name -> (height, width), class -> box, in their order


def some_images() -> Images:
    """24 images of different sizes with none to three objects each."""
    random = np.random.default_rng(7)
    found = {}
    for number in range(24):
        height, width = (int(side) for side in random.integers(24, 90, 2))
        placed = {}
        for label in random.permutation(3)[: number % 4].tolist():
            (left, right), (top, bottom) = (
                np.sort(random.choice(side + 1, 2, replace=False)) for side in (width, height)
            )
            placed[label] = (int(left), int(top), int(right), int(bottom))
        found[f"{number:02d}.png"] = ((height, width), placed)
    return found


def write_boxes(place: Path, images: Images) -> Path:
    """The images, each object painted with 255 in its channel, converted from a table."""
    place.mkdir(exist_ok=True)
    rows = []
    for name, ((height, width), placed) in images.items():
        pixels = np.zeros((height, width, 3), np.uint8)
        for label, (left, top, right, bottom) in placed.items():
            pixels[top:bottom, left:right, label] = 255
        PIL.Image.fromarray(pixels).save(place / name)
        texts = [NAMES[label] for label in placed]
        row = {"path": name, "classes": texts, "box": [*placed.values()], "image/source_id": name}
        rows.append(row | {"image/object/is_crowd": [label % 2 for label in placed]})
    (place / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "classes.txt").write_text("".join(f"{name}\n" for name in NAMES))
    options = {"table": place / "t.jsonl", "uri_column": "path", "label_column": "classes"}
    options |= {
        "classes": place / "classes.txt",
        "encoding": "png",
        "resize": "none",
        "num_shards": 2,
    }
    options["feature_columns"] = ",".join(f"{name}:{kind}" for name, kind in COLUMNS.items())
    flags = [f"--{name}={value}" for name, value in options.items()]
    assert cli.main(["convert", *flags, "--output", str(place / "d")]) == 0
    return place / "d"
