"""Draws the pictures of README and docs from the bundled sample: `python docs/make_picture.py`.

- docs/dataset.jpg: the sample converted with the README's options. The left half lists the files of
  the dataset; the right half shows one record of each class, read back from the shard, at half its
  size.
- docs/resizing.jpg: a photo with a box, another in it, and a mask, stored with some `--resize`; its
  size and its boxes in pixels below.
- docs/boxes.jpg: the contact sheet of three photos with boxes.
- docs/masks.jpg: the contact sheet of these photos with a mask of what is in the boxes.
- docs/page.jpg: the top of the sample's page, as Chromium shows it; left out without Chromium.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import beam_tfr
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inspection import inspect
from beam_tfr.inspection.pictures import SIDE_WITH_SHAPES, draw_thumbnail
from beam_tfr.launch import convert
from beam_tfr.options import ConvertOptions
from beam_tfr.torch import ImageDataset

ROOT = Path(__file__).parents[1]
MARGIN = 24  # pixels
LINE = 26
SMALL_LINE = 18
FILES_WIDTH = 430
COLUMNS = 5
TILE = 112
GAP = 12
INK, FAINT, PAPER = "#1f2328", "#6e7781", "white"


SHOES = "beam_tfr/sample/train/shoes"
# Photo -> (name, (left, top, right, bottom)) of its boxes.
BOXES = {
    f"{SHOES}/9ff58614-1b66-417d-9fd5-cd929425d03b.jpg": [
        ("shoe", (129, 102, 621, 333)),
        ("tag", (172, 98, 310, 214)),
    ],
    f"{SHOES}/f8a7abd7-f479-40d0-ab45-fcdaef82e1c5.jpg": [
        ("shoe", (202, 54, 328, 379)),
        ("shoe", (340, 50, 467, 384)),
    ],
    "beam_tfr/sample/validation/shoes/4eba049d-e813-4af9-913a-53b6877cdda2.jpg": [
        ("shoe", (78, 60, 298, 250)),
        ("shoe", (190, 100, 398, 355)),
    ],
}
# Corners of the shoe of the first photo.
SHOE = (
    *((129, 152), (140, 143), (175, 148), (276, 152), (292, 120), (330, 108), (392, 122)),
    *((488, 168), (588, 186), (619, 222), (611, 257), (553, 298), (456, 328), (292, 321)),
    *((157, 300), (146, 275), (136, 205)),
)


def main(folder: str = "docs") -> None:
    """Draws all pictures into a folder, from the root of the repository or absolute."""
    target = ROOT / folder
    draw_dataset().save(target / "dataset.jpg", quality=85, subsampling=0)
    draw_resizing().save(target / "resizing.jpg", quality=75)
    draw_boxes().save(target / "boxes.jpg", quality=80)
    draw_masks().save(target / "masks.jpg", quality=80)
    chromium = shutil.which("chromium")
    if chromium:
        draw_page(chromium).save(target / "page.jpg", quality=80)


def draw_dataset() -> Image.Image:
    """The picture of the README."""
    with tempfile.TemporaryDirectory() as folder:
        pattern = str(ROOT / "beam_tfr/sample/**/*.jpg")
        options = ConvertOptions(
            input=(pattern,), output=f"{folder}/clothing", layout="{split}/{label}/*"
        )
        return draw(convert(options).manifest)


def draw_resizing() -> Image.Image:
    """A photo with boxes and a mask, as each `--resize` stores it, with what is stored below."""
    modes = ("none", "fit", "crop", "pad", "stretch")
    photo = next(iter(BOXES))
    cell = SIDE_WITH_SHAPES + GAP
    height = SIDE_WITH_SHAPES + 2 * LINE + len(BOXES[photo]) * SMALL_LINE + 2 * GAP
    picture = Image.new("RGB", (len(modes) * cell + GAP, height), PAPER)
    canvas = ImageDraw.Draw(picture)
    with tempfile.TemporaryDirectory() as folder:
        with Image.open(ROOT / photo) as image:
            mask = Image.new("L", image.size)
        ImageDraw.Draw(mask).polygon(SHOE, fill=2)
        mask.save(f"{folder}/mask.png")
        table = _write_table(folder, [photo], mask=f"{folder}/mask.png")
        for number, mode in enumerate(modes):
            output = f"{folder}/{mode}"
            columns = {"box": "bbox[xyxy]", "mask": "mask"}
            _convert_table(
                table, output, feature_columns=columns, resize=mode, background="#5b7083"
            )
            (record,) = inspect(output).records
            left = GAP + number * cell
            picture.paste(draw_thumbnail(record, SIDE_WITH_SHAPES), (left, GAP))
            top = GAP + SIDE_WITH_SHAPES + 4
            _write(canvas, (left, top), f"--resize {mode}", INK)
            for line, text in enumerate(_describe(record.values)):
                place = (left, top + LINE + line * SMALL_LINE)
                _write(canvas, place, text, FAINT, size=14)
    return picture


def _describe(values: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields the size of a stored image, and its boxes in pixels."""
    (height,) = values["image/height"]
    (width,) = values["image/width"]
    yield f"height {height}, width {width}"
    sides = [values[f"image/object/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")]
    names = values["image/object/class/text"]
    for name, left, top, right, bottom in zip(names, *sides, strict=True):
        pixels = [left * width, top * height, right * width, bottom * height]
        yield f"{name.decode()}: {', '.join(f'{pixel:.0f}' for pixel in pixels)}"


def draw_boxes() -> Image.Image:
    """The contact sheet of photos with boxes."""
    with tempfile.TemporaryDirectory() as folder:
        table = _write_table(folder, [*BOXES])
        _convert_table(table, f"{folder}/d", feature_columns={"box": "bbox[xyxy]"})
        return inspect(f"{folder}/d").contact_sheet()


def draw_masks() -> Image.Image:
    """The contact sheet of photos with masks: 1 is a shoe, 2 its tag."""
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        for number, (photo, boxes) in enumerate(BOXES.items()):
            with Image.open(ROOT / photo) as image:
                pixels = np.asarray(image.convert("RGB"))
            mask = _find_objects(pixels, boxes)
            Image.fromarray(mask).save(f"{folder}/{number}.png")
            shutil.copy(ROOT / photo, photos / f"{number}.jpg")
        beam_tfr.convert(
            input=photos,
            pair={"mask": "../{stem}.png"},
            layout="*",
            output=f"{folder}/d",
            progress=False,
        )
        return inspect(f"{folder}/d").contact_sheet()


def _find_objects(
    pixels: np.ndarray, boxes: Sequence[tuple[str, tuple[int, int, int, int]]]
) -> np.ndarray:
    """The mask of the objects in boxes, uint8 [height, width], by GrabCut."""
    mask = np.zeros(pixels.shape[:2], np.uint8)
    for name, (left, top, right, bottom) in boxes:
        labels = np.zeros(mask.shape, np.uint8)
        rectangle = (left, top, right - left, bottom - top)
        models = np.zeros((2, 1, 65))
        cv2.setRNGSeed(1)
        cv2.grabCut(pixels, labels, rectangle, *models, 5, cv2.GC_INIT_WITH_RECT)
        inside = (labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)
        mask[inside] = 1 if name == "shoe" else 2
    return mask


def draw_page(chromium: str) -> Image.Image:
    """The top of the page of the sample, in a window of a desktop, at two thirds of its size."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = beam_tfr.convert(
            input=ROOT / "beam_tfr/sample",
            output=f"{folder}/clothing",
            layout="{split}/{label}/*",
            progress=False,
        )
        page = Path(folder) / "page.html"
        beam_tfr.report(dataset.folder).save(page)
        screenshot = f"{folder}/page.png"
        subprocess.run(  # noqa: S603  # the browser that is installed
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/chromium",
                "--window-size=1280,1500",
                f"--screenshot={screenshot}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        with Image.open(screenshot) as image:
            size = (image.width * 2 // 3, image.height * 2 // 3)
            return image.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def _write_table(folder: str, photos: Sequence[str], **cells: str) -> str:
    """Writes a table of photos and their boxes, and further cells of all rows."""
    rows = []
    for photo in photos:
        names = [name for name, _ in BOXES[photo]]
        corners = [box for _, box in BOXES[photo]]
        rows.append({"path": str(ROOT / photo), "class": names, "box": corners, **cells})
    path = Path(folder) / "boxes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def _convert_table(table: str, output: str, **options: Any) -> None:
    beam_tfr.convert(
        table=table,
        uri_column="path",
        image_root="/",
        label_column="class",
        output=output,
        progress=False,
        **options,
    )


def draw(dataset: Manifest) -> Image.Image:
    """The picture of one dataset: its files, and a record of each class."""
    records: dict[int, Image.Image] = {}
    for example in ImageDataset(dataset.folder, split="train", output="dict"):
        records.setdefault(int(example["image/class/label"]), Image.fromarray(example["image"]))
    rows = -(-len(records) // COLUMNS)
    width = FILES_WIDTH + COLUMNS * (TILE + GAP) - GAP + 2 * MARGIN
    height = LINE + rows * (TILE + LINE + GAP) - GAP + 2 * MARGIN
    picture = Image.new("RGB", (width, height), PAPER)
    canvas = ImageDraw.Draw(picture)
    _draw_files(canvas, dataset)
    left, top = FILES_WIDTH + MARGIN, MARGIN
    _write(canvas, (left, top), "one record of each class, read back from the shards", FAINT)
    for place, (label, image) in enumerate(sorted(records.items())):
        x = left + place % COLUMNS * (TILE + GAP)
        y = top + LINE + place // COLUMNS * (TILE + LINE + GAP)
        picture.paste(image.resize((TILE, TILE), Image.Resampling.LANCZOS), (x, y))
        _write(canvas, (x, y + TILE + 4), f"{label} {dataset.class_names[label]}", INK)
    return picture


def _draw_files(canvas: ImageDraw.ImageDraw, dataset: Manifest) -> None:
    notes = {}
    for split in ("train", "validation", "test"):
        for shard in dataset.splits[split].shards:
            notes[shard.file] = f"{shard.num_examples} records, {shard.num_bytes / 1e6:.1f} MB"
    notes["contents"] = "a table: a row for each record"
    notes["labels.txt"] = f"{len(dataset.class_names)} classes"
    notes["rejects.jsonl"] = "files left out, each with a reason"
    notes["manifest.json"] = "written last: the dataset is complete"
    folder = Path(dataset.folder)
    _write(canvas, (MARGIN, MARGIN), f"{folder.name}/", INK)
    shown = [
        file for file in folder.iterdir() if file.name in notes
    ]  # those for other programs would not fit
    for number, file in enumerate(sorted(shown, key=lambda file: list(notes).index(file.name))):
        y = MARGIN + LINE + number * (2 * LINE - 6)
        _write(canvas, (MARGIN + 20, y), f"{file.name}/" if file.is_dir() else file.name, INK)
        _write(canvas, (MARGIN + 20, y + 19), notes[file.name], FAINT, size=14)


def _write(
    canvas: ImageDraw.ImageDraw, at: tuple[int, int], text: str, color: str, size: int = 16
) -> None:
    canvas.text(at, text, fill=color, font=ImageFont.load_default(size))


if __name__ == "__main__":
    main()
