"""The worst of all sound images, in processes of their own; what is refused is not made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beam_tfr.images import convert_image, limits
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError
from tests.fixtures.hostile import png
from tests.large_images import ENCODED_COPIES, LONGEST_S, MOST_MEMORY

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_no_image_takes_more_than_is_said_whatever_its_sides_and_options() -> None:
    # the worst that are known; another number draws so many more of a grid
    command = [sys.executable, "-m", "tests.large_images", "0"]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=550, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_what_is_said_is_what_is_tested() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    said = f"{MOST_MEMORY // 1_000_000} MB more memory and {LONGEST_S:g} s more"
    assert said in " ".join(text.split())
    assert {3: "three times the size of the encoded"}[ENCODED_COPIES] in " ".join(text.split())


REFUSED: dict[str, tuple[tuple[int, int], dict[str, Any], str]] = {
    "a JPEG that is too long": (
        (490, 200_000),
        {"resize": "shortest", "image_size": 224},
        "extreme-aspect: 91429 x 224 pixels; jpeg holds at most 65500 per side",
    ),
    "a WebP that is too long": (
        (490, 200_000),
        {"resize": "shortest", "image_size": 224, "encoding": "webp"},
        "extreme-aspect: 91429 x 224 pixels; webp holds at most 16383 per side",
    ),
    "higher, and not yet narrower": (
        (2100, 30_000),
        {"resize": "stretch", "image_size": 8192},
        "too-many-pixels: stretching to 8192 x 8192 pixels needs 245760000 pixels in between, more "
        "than --max_pixels 100000000; --resize crop needs fewer",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_made_is_refused_before_anything_is_decoded(name: str) -> None:
    (height, width), options, message = REFUSED[name]
    without_pixels = png(width, height, b"")
    with pytest.raises(RejectError) as error:
        convert_image(without_pixels, **options)
    assert str(error.value) == message


def test_a_side_whose_filter_would_not_fit_into_memory_is_refused() -> None:
    limits.check_resizing((1, 1_000_000), 1_000_000, ImageOptions())
    with pytest.raises(RejectError, match="extreme-aspect: resizing to 1 x 1000001 pixels; at"):
        limits.check_resizing((1_000_001, 1), 1_000_001, ImageOptions())
