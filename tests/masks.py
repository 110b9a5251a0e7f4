"""Photos with a mask for each."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

import beam_tfr
from beam_tfr.features.companions import parse_pair
from beam_tfr.images.mapping import RecordPixels
from beam_tfr.options import ImageOptions
from beam_tfr.schema.items import Image

COLORS = np.array([(0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 0, 255)], np.uint8)  # by class
STORED = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # and the one that makes it


def ids(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A few rectangles of the classes 1 to 3 on 0."""
    random, values = np.random.default_rng(seed), np.zeros((height, width), np.uint8)
    for label in (1, 2, 3):
        rows, columns = (
            np.sort(random.choice(side + 1, 2, replace=False)) for side in (height, width)
        )
        values[slice(*rows), slice(*columns)] = label
    return values


def png(pixels: np.ndarray, *, orientation: int = 1, palette: bool = False) -> bytes:
    file, image = io.BytesIO(), PIL.Image.fromarray(pixels)
    if orientation > 1:
        image = image.transpose(STORED[orientation])
        exif = PIL.Image.Exif()
        exif[0x0112] = orientation
        image.save(file, "PNG", exif=exif)
        return file.getvalue()
    if palette:
        image.putpalette([*range(255, -1, -1)] * 3)
    image.save(file, "PNG")
    return file.getvalue()


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(PIL.Image.open(io.BytesIO(data)))


def write_table(folder: Path, number: int = 24) -> Path:
    """Images of different sizes with masks, some of them rotated."""
    folder.mkdir(exist_ok=True)
    (folder / "masks").mkdir(exist_ok=True)
    rows = []
    for at in range(number):
        values = ids(40 + at, 70 - at, at)
        (folder / f"{at:02d}.png").write_bytes(png(COLORS[values], orientation=1 + at % 8))
        (folder / "masks" / f"{at:02d}.png").write_bytes(png(values, palette=at % 2 == 1))
        rows.append({"path": f"{at:02d}.png", "of": f"masks/{at:02d}.png", "kind": "ab"[at % 2]})
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "t.jsonl"


def convert(table: Path, output: Path, **options: Any) -> Any:
    """With a mask column `of`, if there are no others."""
    given = {
        "feature_columns": {"of": "mask[7]"},
        "label_column": "kind",
        "resize": "pad",
        "image_size": 64,
    }
    return beam_tfr.convert(
        table=str(table),
        uri_column="path",
        output=str(output),
        **given | {"encoding": "png", "num_shards": 2} | options,
    )


def write_masks(folder: Path) -> Path:
    """A dataset of them."""
    convert(write_table(folder), folder / "d")
    return folder / "d"


def place_image(data: bytes, image: Image, *, outside: int = 0, key: str = "mask") -> bytes:
    """A mask, or another image of this key, as it is stored beside an image."""
    companion = parse_pair(f"{key}={{stem}}.png[{outside}]")
    pixels = RecordPixels(image, ImageOptions().max_decode_bytes)
    return companion.place_image(data, pixels).encoded
