"""What the page finds of masks: values by split, in margins, and masks unlike the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.records.examples import read_message
from beam_tfr.reporting import report
from beam_tfr.reporting.mask_samples import _compare, look_at_masks
from beam_tfr.schema.feature_names import SOURCE_HEIGHT
from tests.cpu_limit import bounded_cpu
from tests.report_pages import list_evidence

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
    assert "value 3 is in none of 20 masks examined in test" in text
    assert "2 masks have values in places where others hardly ever do" in text
    assert ("the margins of masks have value 0" in text) == (background == 0)
    odd = list_evidence(page.html, "where others hardly ever do")
    assert sorted(odd) == [["train/07.png"], ["train/31.png"]]


def test_masks_of_images_that_state_no_size_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beam_tfr: Any
) -> None:
    write_pairs(tmp_path, 0)
    output = tmp_path / "out"
    run = beam_tfr(
        "convert", "--input", tmp_path / "images", "--layout", "{split}/*", "--image_size", "40x40",
        "--pair", "mask=../masks/{path}.png", "--output", output,
    )  # fmt: skip
    assert run.code == 0, run.err
    read_records = RecordLookup.read_records

    def read_without_height(lookup: RecordLookup, numbers: list[int]) -> list[bytes]:
        examples = [*map(read_message, read_records(lookup, numbers))]
        for number, example in zip(numbers, examples, strict=True):
            if number % 2:
                example.features.feature[SOURCE_HEIGHT].int64_list.value[:] = [0]
        return [example.SerializeToString() for example in examples]

    monkeypatch.setattr(RecordLookup, "read_records", read_without_height)
    samples = look_at_masks(read_manifest(str(output)), ())
    assert samples.numbers == {"train": TRAIN // 2, "test": TEST // 2}


def draw_scene(generator: Any) -> tuple[np.ndarray, np.ndarray]:
    """An image of two squares on a ground, and its mask."""
    pixels = generator.integers(0, 60, (60, 80, 3)).astype(np.uint8)
    mask = np.zeros((60, 80), np.uint8)
    for value, first in ((1, 0), (2, 40)):
        y, x = generator.integers(2, 20, 2).tolist()
        place = np.s_[y : y + 30, first + x : first + x + 18]
        pixels[place] += np.uint8(90 * value)
        mask[place] = value
    return pixels, mask


def test_masks_that_do_not_fit_and_values_of_copies_are_told(tmp_path: Path, beam_tfr: Any) -> None:
    generator = np.random.default_rng(0)
    scenes = [draw_scene(generator) for _ in range(60)]
    scenes += scenes[:3]  # copies in test
    for number, (pixels, mask) in enumerate(scenes):
        split = "train" if number < 45 else "test"
        shown = mask.copy()
        if number in (7, 31):
            shown = scenes[number + 1][1].copy()  # that of another image
        if number == 12:
            shown[:] = 0
        if number == 20:
            shown[30, 30:34] = 77
        if 45 <= number < 60:
            shown[shown == 2] = 1  # so that only the copies in test have it
        for kind, values in (("images", pixels), ("masks", shown)):
            path = tmp_path / kind / split / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            PIL.Image.fromarray(values).save(path)
    output = tmp_path / "out"
    run = beam_tfr(
        "convert", "--input", tmp_path / "images", "--layout", "{split}/*", "--resize", "none",
        "--pair", "mask=../masks/{path}.png", "--output", output,
    )  # fmt: skip
    assert run.code == 0, run.err
    page = report(output)
    text = "\n".join(page.findings)
    assert "value 2 is in none of 15 masks examined in test" in text
    assert "except 3 copies of masks" in text
    misfits = list_evidence(page.html, "do not match the image")
    assert sorted(misfits) == [["train/07.png"], ["train/31.png"]]
    assert list_evidence(page.html, "mask value 77") == [["train/20.png"]]
    assert "train/12.png" in str(list_evidence(page.html, "values that nearly all others have"))
    least_fit = page.html.partition('id="unlike-masks"')[2]
    assert sorted(re.findall(r'class="key"[^>]*>([^<]*)<', least_fit)[:2]) == [
        "train/07.png",
        "train/31.png",
    ]


def test_masks_are_as_usual_as_their_values_at_their_places() -> None:
    grids = np.random.default_rng(0).integers(0, 9, (30, 16)).astype(np.uint8)
    usual = np.zeros(grids.shape)
    for place, value in np.ndindex(16, 9):
        has_value = grids[:, place] == value
        usual[has_value, place] = np.log((has_value.sum() + 1) / (30 + 9))
    np.testing.assert_allclose(_compare(grids), usual.mean(axis=1))


def test_masks_of_65536_values_are_compared_in_no_time() -> None:
    grids = np.random.default_rng(0).integers(0, 1 << 16, (400, 256)).astype(np.uint16)
    with bounded_cpu():
        _compare(grids)
