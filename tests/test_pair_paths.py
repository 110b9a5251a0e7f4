"""Paths of files beside images: `../masks/{stem%_rgb}_mask.png`."""

from __future__ import annotations

import re

import pytest

from beam_tfr.features.companions import parse_pair
from beam_tfr.inputs.patterns import compile_pattern
from beam_tfr.schema.pair_paths import fill_path, to_glob

CITY = "train/aachen/aachen_0_leftImg8bit.png"


@pytest.mark.parametrize(
    ("pattern", "key", "path"),
    [
        ("m/{stem}.png", "a/1.x.jpg", "m/1.x.png"),
        ("m/{path}.png", "a/1.jpg", "m/a/1.png"),
        ("{folder}/../m/{stem}.png", "a/i/1.jpg", "a/i/../m/1.png"),
        ("{folder}/m/{stem}.png", "1.jpg", "m/1.png"),
        ("../gtFine/{path%_leftImg8bit}_x.png", CITY, "../gtFine/train/aachen/aachen_0_x.png"),
        ("{folder%_images}_masks/{stem}.png", "train_images/1.jpg", "train_masks/1.png"),
        ("mask_{stem#img_}.png", "img_1.jpg", "mask_1.png"),
        ("{stem%_rgb}_mask.png", "1.jpg", "1_mask.png"),  # which has no such end
        ("{stem}_{stem%b}.png", "ab{stem}b.jpg", "ab{stem}b_ab{stem}.png"),
    ],
)
def test_fields_stand_for_parts_of_keys(pattern: str, key: str, path: str) -> None:
    assert fill_path(pattern, key) == path
    if ".." not in path:
        assert compile_pattern(to_glob(pattern)).fullmatch(path)


def test_patterns_of_files_beside_images() -> None:
    assert to_glob("{folder}/../m/{stem%_a}.png") == "**/m/*.png"
    assert to_glob("[1]/{path#b}_*.png", re.escape) == r"\[1\]/**/*_\*\.png"


@pytest.mark.parametrize("field", ["{stm}", "{name%_a}", "{number}"])
def test_other_fields_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{field} in PATH is not {{stem}}")):
        parse_pair(f"mask={{stem}}{field}.png")
