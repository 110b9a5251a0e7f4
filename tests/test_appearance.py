"""Perceptual hashes of converted images: of the picture alone, however small or padded it is."""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from beam_tfr.copies.hashes import HASH_BYTES, Hashes
from beam_tfr.copies.near import MOST_DISTANCE
from beam_tfr.copies.search import DISTANCE
from beam_tfr.images import convert_image
from tests.converted import SAMPLE
from tests.updates import convert

Size = tuple[int, int]


@functools.cache
def padded_photos() -> np.ndarray:
    """The hashes of `photos`, padded."""
    return hash_images(photos(), resize="pad")


def photos() -> list[Image.Image]:
    return [Image.open(path).convert("RGB") for path in sorted(SAMPLE.rglob("*.jpg"))[:12]]


def noises(size: Size, number: int = 30) -> list[Image.Image]:
    width, height = size
    pixels = np.random.default_rng(1).integers(0, 256, (number, height, width, 3), np.uint8)
    return [Image.fromarray(one) for one in pixels]


def glyphs() -> list[Image.Image]:
    """Letters and digits of 28x28, dark on white."""
    drawn = list[Image.Image]()
    for place, letter in enumerate("0123456789ABCDEFGHKLMNPRSTUVWXYZ"):
        glyph = Image.new("RGB", (28, 28), "white")
        ImageDraw.Draw(glyph).text((6 + place % 5, 4 + place % 4), letter, "black", font_size=18)
        drawn.append(glyph)
    return drawn


def save(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def hash_images(images: Sequence[Image.Image], kind: str = "PNG", **options: Any) -> np.ndarray:
    """The hashes of converted images: uint8 [images, 32]."""
    converted = [convert_image(save(image, kind), **options) for image in images]
    hashes = [image.appearance.phash for image in converted if image.appearance]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, HASH_BYTES)


def compute_distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Bits between the images of each pair."""
    own = np.arange(len(left))
    return Hashes.from_bytes(np.concatenate([left, right])).distances(own, own + len(left))


@pytest.mark.parametrize("background", ["#ffffff", "#000000", "#102030"])
@pytest.mark.parametrize("images", [noises((40, 30)), noises((20, 17)), glyphs()])
def test_small_images_with_a_margin_are_no_copies(
    images: list[Image.Image], background: str
) -> None:
    hashes = hash_images(images, resize="pad", background=background)
    pairs = np.array([*itertools.combinations(range(len(hashes)), 2)])
    assert compute_distances(hashes[pairs[:, 0]], hashes[pairs[:, 1]]).min() > MOST_DISTANCE


@pytest.mark.parametrize("side", [60, 120, 300])
@pytest.mark.parametrize("resize", ["pad", "fit"])
def test_a_smaller_copy_is_one_with_any_margin(side: int, resize: str) -> None:
    copies = photos()
    for copy in copies:
        copy.thumbnail((side, side), Image.Resampling.LANCZOS)
    smaller = hash_images(copies, "JPEG", resize=resize)
    assert compute_distances(padded_photos(), smaller).max() <= DISTANCE


def test_a_margin_changes_nothing_of_an_appearance() -> None:
    data = save(noises((40, 30), 1)[0])
    plain = convert_image(data, resize="none")
    padded = convert_image(data, resize="pad", color="rgb")
    assert padded.appearance == plain.appearance
    assert padded.channel_sums != plain.channel_sums


@pytest.mark.parametrize("size", [(15, 200), (200, 15), (1, 1), (8, 8)])
@pytest.mark.parametrize("resize", ["pad", "none"])
def test_images_with_too_few_pixels_for_a_hash_have_none(size: Size, resize: str) -> None:
    assert not hash_images(noises(size, 3), resize=resize).any()
    assert hash_images(noises((16, 16), 3), resize=resize).any(axis=1).all()


@pytest.mark.parametrize("side", [40, 100, 200])
def test_small_jpegs_that_are_only_checked_have_the_hash_of_others(side: int) -> None:
    images = photos()
    for image in images:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    keep = {"resize": "none", "encoding": "keep"}
    checked = hash_images(images, "JPEG", statistics=False, **keep)
    decoded = hash_images(images, "JPEG", **keep)
    assert compute_distances(checked, decoded).max() <= DISTANCE


def test_no_small_image_is_dropped_as_a_copy(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    images = [*noises((40, 30), 6), *glyphs()[:6], *noises((8, 8), 6)]
    for number, image in enumerate(images):
        image.save(folder / f"{number}.png")
    run = convert(
        tmp_path / "d", input=folder, layout="*", resize="pad", image_size=224, duplicates="drop"
    )
    assert run.counts["written"] == len(images)
