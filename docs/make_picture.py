"""Draws docs/dataset.jpg, the picture in the README: `python docs/make_picture.py`.

Converts the bundled sample with the README's options. The left half lists the files of the dataset;
the right half shows one record of each class, read back from the shard, at half its size.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.launch import convert
from beam_tfr.options import ConvertOptions
from beam_tfr.torch import ImageDataset

ROOT = Path(__file__).parents[1]
MARGIN = 24  # pixels
LINE = 26
FILES_WIDTH = 430
COLUMNS = 5
TILE = 112
GAP = 12
INK, FAINT, PAPER = "#1f2328", "#6e7781", "white"


def main(target: str = "docs/dataset.jpg") -> None:
    with tempfile.TemporaryDirectory() as folder:
        pattern = str(ROOT / "beam_tfr/sample/**/*.jpg")
        options = ConvertOptions(
            input=(pattern,), output=f"{folder}/clothing", layout="{split}/{label}/*"
        )
        dataset = convert(options).manifest
        draw(dataset).save(ROOT / target, quality=85, subsampling=0)


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
    main(*sys.argv[1:])
