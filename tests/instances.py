"""Annotations of painted objects, each with a mask."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from PIL import ImageDraw
from pycocotools import mask as coco_masks

import beam_tfr
from tests.masks import COLORS, png

COLUMNS = {"box": "bbox[xywh]", "segment": "mask[box]"}


def runs_of(mask: np.ndarray, *, compressed: bool) -> dict[str, Any]:
    """COCO's run lengths of a mask, by pycocotools, or as a list."""
    size = [*map(int, mask.shape)]
    if compressed:
        return {
            "size": size,
            "counts": coco_masks.encode(np.asfortranarray(mask))["counts"].decode(),
        }
    flat = mask.T.reshape(-1)
    changes = np.flatnonzero(np.diff(flat, prepend=0))
    return {"size": size, "counts": np.diff([0, *changes, flat.size]).tolist()}


def paint(folder: Path, number: int) -> dict[str, Any]:
    """Pictures in all orientations with objects in the colors of their classes.

    Returns the COCO file about them.

    The first object is a polygon, or two; the second has run lengths, the third is a crowd with a
    text of them.
    """
    (folder / "photos").mkdir(parents=True)
    images, annotations = [], []
    for image_id in range(number):
        chance = random.Random(image_id)
        width, height = chance.randrange(90, 150), chance.randrange(90, 150)
        picture = np.zeros((height, width, 3), np.uint8)
        for label in (1, 2, 3):
            left, top = chance.randrange(width // 2), chance.randrange(height // 2)
            right, bottom = (
                left + chance.randrange(30, width // 2),
                top + chance.randrange(30, height // 2),
            )
            drawn = PIL.Image.new("L", (width * 8, height * 8))
            corners = [(left, top), (right, top + 5), (right - 3, bottom), (left + 9, bottom - 8)]
            ImageDraw.Draw(drawn).polygon([(8 * x, 8 * y) for x, y in corners], fill=1)
            mask = (np.asarray(drawn).reshape(height, 8, width, 8).mean(axis=(1, 3)) >= 0.5).astype(
                np.uint8
            )
            picture[mask > 0] = COLORS[label]
            segment: Any = [[float(number) for corner in corners for number in corner]]
            if label > 1:
                segment = runs_of(mask, compressed=label == 3)
            box = [left, top, right - left, bottom - top]
            one = {
                "image_id": image_id,
                "category_id": label,
                "bbox": box,
                "iscrowd": int(label == 3),
            }
            annotations.append(one | {"segmentation": segment})
        (folder / "photos" / f"{image_id:02d}.png").write_bytes(
            png(picture, orientation=1 + image_id % 8)
        )
        images.append(
            {"id": image_id, "file_name": f"{image_id:02d}.png", "width": width, "height": height}
        )
    categories = [{"id": at, "name": name} for at, name in enumerate("abc", 1)]
    return {"images": images, "annotations": annotations, "categories": categories}


def convert(folder: Path, output: str = "d", *, table: str = "coco.json", **options: Any) -> Path:
    defaults = {
        "image_size": (96, 80),
        "encoding": "png",
        "num_shards": 1,
        "name": "d",
        "feature_columns": COLUMNS,
    }
    options = {**defaults, "image_root": folder / "photos", **options}
    if options.get("resize") == "none":
        del options["image_size"]
    beam_tfr.convert(table=folder / table, output=folder / output, progress=False, **options)
    assert beam_tfr.verify(folder / output, progress=False).ok
    return folder / output


def write_instances(folder: Path, number: int = 16) -> Path:
    (folder / "coco.json").write_text(json.dumps(paint(folder, number)))
    return convert(folder)


def check_painted(image: np.ndarray, masks: np.ndarray, classes: np.ndarray) -> int:
    """Compares masks with what has the colors of their classes.

    What later objects hide is another's.
    """
    assert masks.dtype == np.uint8
    assert masks.shape == (len(classes), *image.shape[:2])
    known = 0
    for mask, label in zip(masks, classes, strict=True):
        assert {*np.unique(mask)} <= {0, 1}
        pure = np.abs(image.astype(int) - COLORS[label + 1]).max(axis=2) <= 30
        empty = (image.astype(int) <= 30).all(axis=2)
        if pure.sum() > 50:
            assert mask[pure].mean() > 0.97
            assert empty[mask > 0].mean() < 0.1
            known += 1
    return known
