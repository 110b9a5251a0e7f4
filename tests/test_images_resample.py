"""Large images are resized in strips: with the pixels of one call, and in little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from beam_tfr.images import resample
from beam_tfr.images.resample import resize_window

Array = NDArray[np.uint8]
Span = tuple[float, float]


@st.composite
def spans(draw: st.DrawFn, side: int) -> Span:
    """A window of a side, which may begin and end within a pixel."""
    eighths = 8 * side
    start = draw(st.integers(0, eighths - 1))
    length = draw(st.integers(1, eighths - start))
    return start / 8, length / 8


def random_pixels(shape: tuple[int, int, int], seed: int, *, as_view: bool) -> Array:
    """Noise [h, w, c], perhaps as the first channels of four, as JPEGs are decoded."""
    height, width, channels = shape
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 4), dtype=np.uint8)
    return noise[..., :channels] if as_view else noise[..., :channels].copy()


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    source=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    size=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    channels=st.sampled_from([1, 3, 4]),
    as_view=st.booleans(),
    strip_bytes=st.integers(1, 5_000),
    seed=st.integers(0, 2**32 - 1),
)
def test_strips_give_the_pixels_of_one_call(
    data: st.DataObject,
    source: tuple[int, int],
    size: tuple[int, int],
    channels: int,
    as_view: bool,
    strip_bytes: int,
    seed: int,
) -> None:
    pixels = random_pixels((*source, channels), seed, as_view=as_view)
    before = pixels.copy()
    window: dict[str, Any] = {}
    if data.draw(st.booleans()):
        window["rows"] = data.draw(spans(source[0]))
    if data.draw(st.booleans()):
        window["columns"] = data.draw(spans(source[1]))
    whole = resize_window(pixels, size, **window).copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resample, "WHOLE_BYTES", 0)
        patch.setattr(resample, "STRIP_BYTES", strip_bytes)
        patch.setattr(resample, "_LEAST_LINES", 1)
        strips = resize_window(pixels, size, **window)
        assert np.array_equal(strips, whole)
        assert np.array_equal(pixels, before)
        overwritten = resize_window(pixels, size, **window, may_overwrite=True)
    assert np.array_equal(overwritten, whole)
    assert overwritten.shape == (*size, channels)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pixels_that_cannot_be_overwritten_are_not(channels: int) -> None:
    pixels = random_pixels((40, 50, channels), 1, as_view=False)
    pixels.flags.writeable = False
    whole = resize_window(pixels, (20, 30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resample, "WHOLE_BYTES", 0)
        assert np.array_equal(resize_window(pixels, (20, 30), may_overwrite=True), whole)


# Source, size and window; what it takes besides the source, in bytes of a result or of an image
# that is made in between.
MEMORY: dict[str, tuple[tuple[int, int], tuple[int, int], dict[str, Span], int]] = {
    "a little smaller": ((2000, 3000), (1999, 2999), {}, 0),
    "half": ((2000, 3000), (1000, 1500), {}, 0),
    "a crop": ((200, 30_000), (199, 199), {"columns": (14_900, 200)}, 0),
    "a crop in the other direction": ((30_000, 200), (199, 199), {"rows": (14_900, 200)}, 0),
    "an enlarged crop": ((100, 30_000), (199, 199), {"columns": (14_900, 100)}, 0),
    "larger": ((1000, 1500), (2000, 3000), {}, 3 * 2000 * 3000),
    "higher and narrower": ((1000, 3000), (2000, 1500), {}, 3 * 2000 * 3000),
    "lower and wider": ((2000, 1500), (1000, 3000), {}, 3 * 1000 * 3000),
    "means": ((9000, 1000), (1000, 900), {}, 4 * 4500 * 1000),
    "unchanged": ((2000, 3000), (2000, 3000), {}, 0),
}


@pytest.mark.parametrize("name", MEMORY)
@pytest.mark.parametrize("as_view", [False, True])
def test_large_images_are_resized_in_the_memory_of_source_or_result(
    name: str, as_view: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, size, window, expected = MEMORY[name]
    monkeypatch.setattr(resample, "WHOLE_BYTES", 0)
    monkeypatch.setattr(resample, "STRIP_BYTES", 500_000)
    pixels = np.zeros((*source, 4 if as_view else 3), np.uint8)[..., :3]
    tracemalloc.start()
    resize_window(pixels, size, **window, may_overwrite=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < expected + 2_000_000
