"""What the page finds of masks: values by split, in margins, and masks unlike the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from beam_tfr.reporting import report

TRAIN = 60
TEST = 20


def write_pairs(folder: Path, background: int) -> None:
    """Writes images whose masks have 1 above and 2 below, and 3 in train alone."""
    generator = np.random.default_rng(0)
    for number in range(TRAIN + TEST):
        split = "train" if number < TRAIN else "test"
        for kind in ("images", "masks"):
            (folder / kind / split).mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (6, 8, 3), np.uint8)
        image = PIL.Image.fromarray(pixels).resize((40, 30), PIL.Image.Resampling.NEAREST)
        image.save(folder / "images" / split / f"{number:02}.png")
        mask = np.full((30, 40), 1, np.uint8)
        mask[15 + number % 3 :] = 2
        mask[:3, :3] = background
        if split == "train":
            mask[20:25, 10:20] = 3
        if number in (7, 31):
            mask = np.choose(mask, [0, 2, 1, 3, 4]).astype(np.uint8)
        PIL.Image.fromarray(mask).save(folder / "masks" / split / f"{number:02}.png")


@pytest.mark.parametrize("background", [0, 4])
def test_what_was_planted_in_masks_is_found(tmp_path: Path, beam_tfr: Any, background: int) -> None:
    write_pairs(tmp_path, background)
    output = tmp_path / "out"
    run = beam_tfr(
        "convert", "--input", tmp_path / "images", "--layout", "{split}/*", "--image_size", "40x40",
        "--resize", "pad", "--pair", "mask=../masks/{path}.png", "--output", output,
    )  # fmt: skip
    assert run.code == 0, run.err
    page = report(output)
    text = "\n".join(page.findings)
    assert "value 3 is in none of 20 masks of test" in text
    assert "2 masks have values where others hardly ever have them" in text
    assert ("the margins of masks have 0" in text) == (background == 0)
    odd = page.html.partition("Masks least like the others")[2]
    first_keys = re.findall(r'class="key"[^>]*>([^<]*)<', odd)[:2]
    assert sorted(first_keys) == ["train/07.png", "train/31.png"]
