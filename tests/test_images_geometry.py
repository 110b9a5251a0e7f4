"""Sizes of every mode, and resampling.

Sizes are exact, nothing is shifted, pixels are near to LANCZOS and the same on every processor.
"""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from beam_tfr.images import convert_image, geometry
from beam_tfr.images.formats import FORMATS
from beam_tfr.images.geometry import Placement, compute_placement, pad, resize
from beam_tfr.images.resample import resize_window
from benchmarks.resize import parse_size, pillow, zone_plate
from tests.conftest import SAMPLE
from tests.fixtures import noise, psnr, save

Array = np.ndarray[Any, Any]
MODES = ("stretch", "fit", "crop", "pad", "shortest", "none")
K = PillowImage.Resampling
SIDES = st.one_of(
    st.sampled_from([1, 2, 3, 5, 223, 224, 225, 448, 449, 10_000]), st.integers(1, 3000)
)
SIZES = st.tuples(st.integers(1, 400), st.integers(1, 400))


def near(photo: Array, size: tuple[int, int]) -> float:
    """dB against LANCZOS."""
    return psnr(resize_window(photo, size), pillow(photo, size, K.LANCZOS))


# Sizes


@settings(max_examples=150, deadline=None)
@given(SIDES, SIDES, SIZES, st.sampled_from(MODES), st.booleans())
def test_every_mode_gives_its_size(
    height: int, width: int, size: tuple[int, int], mode: str, upscale: bool
) -> None:
    size = (size[0], size[0]) if mode == "shortest" else size
    placed = compute_placement(height, width, size, mode, upscale=upscale)
    given_scales = (size[0] / height, size[1] / width)
    assert min(placed.rows, placed.columns, placed.height, placed.width) >= 1
    assert (2 * placed.top + placed.rows, 2 * placed.left + placed.columns) == (
        height,
        width,
    )  # the exact middle
    turned = compute_placement(width, height, size[::-1], mode, upscale=upscale)
    assert turned[:2] + turned.canvas == (placed.left, placed.top, *placed.canvas[::-1])
    assert turned[2:6] == (placed.columns, placed.rows, placed.width, placed.height)
    if mode != "crop":
        assert (placed.rows, placed.columns) == (height, width)
    if mode != "pad":
        assert placed.canvas == (placed.height, placed.width)
    if mode in ("stretch", "crop", "pad"):
        assert placed.canvas == size
    if mode == "none":
        assert placed.canvas == (height, width)
    if (
        mode == "crop"
    ):  # of the wanted shape within a pixel on either side of the middle, and one side is whole
        assert placed.rows == height or placed.columns == width
        scale = max(given_scales)
        assert abs(placed.rows - max(1, size[0] / scale)) <= 1 + 1e-9
        assert abs(placed.columns - max(1, size[1] / scale)) <= 1 + 1e-9
    if mode == "shortest":
        assert min(placed.canvas) == size[0]
        assert abs(max(placed.canvas) - max(height, width) * size[0] / min(height, width)) <= 0.5
    if mode in ("fit", "pad"):
        scale = min(given_scales)
        picture = (placed.height, placed.width)
        if scale >= 1 and not upscale:
            assert picture == (height, width)
        else:
            limiting = given_scales.index(scale)
            assert picture[limiting] == size[limiting]
            slack = 0.5 if mode == "fit" else 1
            for side, source in zip(picture, (height, width), strict=True):
                assert abs(side - max(1, source * scale)) <= slack + 1e-9
        assert placed.height <= size[0]
        assert placed.width <= size[1]


@pytest.mark.parametrize(
    ("mode", "source", "size", "expected"),
    [
        ("stretch", (480, 640), (224, 224), Placement(0, 0, 480, 640, 224, 224, (224, 224))),
        ("fit", (480, 640), (224, 224), Placement(0, 0, 480, 640, 168, 224, (168, 224))),
        ("fit", (48, 64), (224, 224), Placement(0, 0, 48, 64, 48, 64, (48, 64))),
        ("fit", (1, 10_000), (224, 224), Placement(0, 0, 1, 10_000, 1, 224, (1, 224))),
        ("crop", (480, 640), (224, 224), Placement(0, 80, 480, 480, 224, 224, (224, 224))),
        ("crop", (10_000, 1), (224, 224), Placement(4999, 0, 2, 1, 224, 224, (224, 224))),
        ("pad", (480, 640), (224, 224), Placement(0, 0, 480, 640, 168, 224, (224, 224))),
        ("pad", (48, 64), (224, 224), Placement(0, 0, 48, 64, 48, 64, (224, 224))),
        ("shortest", (480, 640), (256, 256), Placement(0, 0, 480, 640, 256, 341, (256, 341))),
        ("shortest", (48, 64), (256, 256), Placement(0, 0, 48, 64, 256, 341, (256, 341))),
        ("none", (480, 640), (224, 224), Placement(0, 0, 480, 640, 480, 640, (480, 640))),
    ],
)
def test_placements(
    mode: str, source: tuple[int, int], size: tuple[int, int], expected: Placement
) -> None:
    assert compute_placement(*source, size, mode) == expected


def test_upscale_lets_fit_and_pad_enlarge() -> None:
    for mode, canvas in (("fit", (168, 224)), ("pad", (224, 224))):
        assert compute_placement(48, 64, (224, 224), mode, upscale=True) == Placement(
            0, 0, 48, 64, 168, 224, canvas
        )


@settings(max_examples=70, deadline=None)
@given(
    st.tuples(SIDES, SIDES).filter(lambda sides: sides[0] * sides[1] <= 1_000_000),
    SIZES,
    st.sampled_from(MODES[:-1]),
    st.sampled_from([1, 3, 4]),
)
def test_a_flat_color_stays_and_nothing_larger_than_source_or_result_is_made(
    source: tuple[int, int], size: tuple[int, int], mode: str, channels: int
) -> None:
    placed = compute_placement(*source, size, mode, upscale=True)
    if placed.height * placed.width > 1_000_000:  # `limits` is for those
        return
    color = (3, 128, 251, 77)[:channels]
    flat = np.full((*source, channels), color, np.uint8)
    tracemalloc.start()
    result = resize(flat, placed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(result, np.full((placed.height, placed.width, channels), color, np.uint8))
    # Some whole copies at the most; a crop that enlarged first would hold thousands.
    assert peak <= 4 * max(flat.nbytes, result.nbytes) + 100_000


@pytest.mark.parametrize("source", [(1, 1), (1, 10_000), (10_000, 1), (2, 30_000), (1_000_000, 1)])
@pytest.mark.parametrize("mode", ["stretch", "fit", "crop", "pad"])
def test_extreme_shapes_convert(source: tuple[int, int], mode: str) -> None:
    data = save(PillowImage.new("RGB", source[::-1], (200, 100, 50)), "PNG")
    for size in ((224, 224), (1, 1), (3, 700)):
        image = convert_image(
            data, image_size=size, resize=mode, encoding="png", background=(200, 100, 50)
        )
        pixels = np.asarray(PillowImage.open(io.BytesIO(image.encoded)))
        expected = compute_placement(*source, size, mode).canvas
        assert np.array_equal(pixels, np.full((*expected, 3), (200, 100, 50), np.uint8))


def test_padding_puts_a_picture_in_the_middle_of_a_background() -> None:
    picture = np.asarray(noise(6, 9))
    padded = pad(picture, (10, 20), (1, 2, 3))
    assert padded.shape == (10, 20, 3)
    assert np.array_equal(padded[2:8, 5:14], picture)
    padded[2:8, 5:14] = (1, 2, 3)
    assert (padded == (1, 2, 3)).all()
    assert np.array_equal(pad(picture[..., :1], (6, 11), (7,))[:, 1:10], picture[..., :1])
    assert pad(picture, (6, 9), (0, 0, 0)) is picture


# Nothing moves


def dot(height: int, width: int, radius: float) -> Array:
    """uint8 [height, width]: round, soft, in the exact middle."""
    y, x = (np.arange(side) - (side - 1) / 2 for side in (height, width))
    return np.rint(255 * np.exp(-(y[:, None] ** 2 + x**2) / (2 * radius**2))).astype(np.uint8)


def middle_of(pixels: Array) -> tuple[float, float]:
    """Centre of mass, from the middle of the image, in pixels."""
    mass = pixels.astype(float).reshape(pixels.shape[0], pixels.shape[1], -1).sum(2)
    y, x = (np.arange(side) - (side - 1) / 2 for side in mass.shape)
    return float((y * mass.sum(1)).sum() / mass.sum()), float((x * mass.sum(0)).sum() / mass.sum())


SOURCES = [(97, 140), (401, 601), (533, 400), (896, 1001), (1201, 1799), (1999, 1203)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("mode", ["stretch", "fit", "crop", "pad", "shortest"])
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_dot_in_the_middle_stays_in_the_middle(
    source: tuple[int, int], mode: str, form: str
) -> None:
    data = save(
        PillowImage.fromarray(dot(*source, min(source) / 8)),
        form,
        **({"quality": 97} if form == "JPEG" else {}),
    )
    for size in ((224, 224), (64, 150), (33, 47), (500, 301)):
        size = (size[0], size[0]) if mode == "shortest" else size
        options = {"upscale": True} if mode in ("fit", "pad") else {}
        image = convert_image(
            data,
            image_size=size,
            resize=mode,
            encoding="png",
            color="gray",
            background=(0, 0, 0),
            **options,
        )
        pixels = np.asarray(PillowImage.open(io.BytesIO(image.encoded)))
        assert np.abs(middle_of(np.where(pixels > 4, pixels, 0))).max() < 0.1, size


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(40, 700), st.integers(40, 700)),
    st.tuples(st.integers(20, 300), st.integers(20, 300)),
)
def test_a_small_dot_stays_in_the_middle_of_every_size(
    source: tuple[int, int], size: tuple[int, int]
) -> None:
    radius = max(1.5, 1.2 * source[0] / size[0], 1.2 * source[1] / size[1])
    for mode in ("stretch", "fit", "crop"):
        placed = compute_placement(*source, size, mode, upscale=True)
        result = resize(dot(*source, radius)[..., None], placed)
        assert np.abs(middle_of(np.where(result > 4, result, 0))).max() < 0.1, mode


@pytest.mark.parametrize("source", [(1203, 905), (1601, 1999), (2007, 3001)])
@pytest.mark.parametrize("mode", ["stretch", "fit", "crop"])
def test_a_decoder_that_scales_gives_the_same_picture(source: tuple[int, int], mode: str) -> None:
    """Also where a side is no multiple of the scale, or a crop starts within a scaled pixel."""
    files = sorted(SAMPLE.rglob("*.jpg"))
    mosaic = PillowImage.new("RGB", source[::-1])
    for number, (y, x) in enumerate(
        (y, x) for y in range(0, source[0], 300) for x in range(0, source[1], 250)
    ):
        mosaic.paste(PillowImage.open(files[7 * number % len(files)]).resize((250, 300)), (x, y))
    data = save(mosaic, "JPEG", quality=92)
    jpeg = FORMATS["jpeg"].open(data)
    full = np.asarray(PillowImage.open(io.BytesIO(data)))
    eighths = set()
    for size in ((224, 224), (96, 160), (60, 50)):
        placed = compute_placement(*source, size, mode)
        least = (
            2 * placed.height * source[0] // placed.rows,
            2 * placed.width * source[1] // placed.columns,
        )
        decoded = jpeg.decode(least)
        eighths.add(decoded.eighths)
        result = resize(decoded.pixels, placed, eighths=decoded.eighths)
        used = full[
            placed.top : placed.top + placed.rows, placed.left : placed.left + placed.columns
        ]
        ideal = pillow(np.ascontiguousarray(used), (placed.height, placed.width), K.LANCZOS)
        assert psnr(result, ideal) > 38
        assert psnr(resize(full, placed), ideal) > 45
    assert min(eighths) < 8


def test_a_window_may_start_and_end_within_a_pixel() -> None:
    wave = np.rint(127.5 + 120 * np.sin(np.arange(300) / 9)).astype(np.uint8)
    for start, length, wanted in (
        (20.0, 200, 100),
        (20.25, 199.5, 80),
        (21.875, 250.625, 60),
        (3.5, 290, 20),
    ):
        at = start + (np.arange(wanted) + 0.5) * length / wanted - 0.5
        ideal = 127.5 + 120 * np.sin(at / 9)
        rows = resize_window(wave[:, None, None], (wanted, 1), rows=(start, length))[:, 0, 0]
        columns = resize_window(wave[None, :, None], (1, wanted), columns=(start, length))[0, :, 0]
        assert np.abs(rows.astype(int) - columns).max() <= 3
        droop = 12 if length / wanted > 10 else 4
        assert np.abs(rows[3:-3] - ideal[3:-3]).max() < droop


# Fidelity


def test_photos_are_near_to_lanczos() -> None:
    photos = [
        np.asarray(PillowImage.open(path).convert("RGB")) for path in sorted(SAMPLE.rglob("*.jpg"))
    ]
    assert len(photos) > 100
    for size in ((80, 96), (224, 224), (30, 41)):
        figures = [near(photo, size) for photo in photos]
        assert np.mean(figures) >= 54
        assert min(figures) >= 50


FACTORS = [
    "1.05",
    "1.1",
    "1.2",
    "1.4",
    "1.6",
    "1.79",
    "2",
    "2.38",
    "3",
    "3.5",
    "4",
    "4.1",
    "4.6",
    "6",
    "8",
    "8.1",
    "12.1",
]
UNEQUAL = ["1.79x2.38", "1.05x4", "2x1.2", "4x5.3", "1.3x16", "16x3", "1x2", "0.5x2", "3x0.4"]


@pytest.mark.parametrize("factor", [*FACTORS, "16", *UNEQUAL])
def test_zone_plates_are_near_to_lanczos(factor: str) -> None:
    down, _, right = factor.partition("x")
    size = (96, 112)
    for corner in (False, True):
        plate = zone_plate(
            round(size[0] * float(down)), round(size[1] * float(right or down)), corner=corner
        )
        assert near(plate, size) >= 43
        gray = np.ascontiguousarray(plate[..., 0])
        assert (
            psnr(resize_window(gray[..., None], size)[..., 0], pillow(gray, size, K.LANCZOS)) >= 43
        )


@pytest.mark.parametrize("factor", [1.2, 1.5, 1.6, 1.8, 2.0, 2.5, 3.3, 4.0, 4.5, 7.7])
def test_what_is_finer_than_the_result_does_not_come_back_as_a_pattern(factor: float) -> None:
    side = round(200 * factor)
    y, x = np.indices((side, side))
    for fine in (y % 2 * 255, x % 2 * 255, (x + y) % 2 * 255):
        pixels = fine[..., None].astype(np.uint8)
        result = resize_window(pixels, (200, 200))[10:-10, 10:-10]
        bilinear = pillow(pixels[..., 0], (200, 200), K.BILINEAR)[10:-10, 10:-10]
        assert result.mean() == pytest.approx(127.5, abs=2)
        assert result.std() <= max(1.5 * bilinear.std(), 7)


def test_flat_colors_and_gradients_stay() -> None:
    for side in (50, 200, 202, 230, 310, 330, 400, 555, 800, 1300, 3333):
        values = np.rint((np.arange(side) + 0.5) * (255 / side)).astype(np.uint8)
        ideal = (np.arange(200) + 0.5) * (255 / 200)
        ramp = np.repeat(values[:, None, None], 60, 1)
        assert np.abs(resize_window(ramp, (200, 40))[3:-3, :, 0] - ideal[3:-3, None]).max() < 3
        assert (
            np.abs(
                resize_window(ramp.transpose(1, 0, 2), (40, 200))[:, 3:-3, 0] - ideal[3:-3]
            ).max()
            < 3
        )


def test_a_frame_around_a_picture_is_as_strong_on_all_four_sides() -> None:
    for side in (500, 677, 1121, 1567, 3001):
        framed = np.full((side, side, 1), 255, np.uint8)
        framed[[0, -1]] = framed[:, [0, -1]] = 0
        result = resize_window(framed, (224, 224))[..., 0].astype(int)
        frame = result[0, 100], result[-1, 100], result[100, 0], result[100, -1]
        assert max(frame) - min(frame) <= 20
        assert abs(np.mean(frame) - int(pillow(framed[..., 0], (224, 224), K.LANCZOS)[0, 100])) < 35


# Arrays


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 90), st.integers(1, 90)),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
)
def test_channels_and_strides_make_no_difference(
    source: tuple[int, int], size: tuple[int, int]
) -> None:
    cmyk = np.random.default_rng(source).integers(0, 256, (*source, 4), dtype=np.uint8)
    cmyk.flags.writeable = False
    kept = cmyk.copy()
    result = resize_window(cmyk, size)
    assert result.shape == (*size, 4)
    assert np.array_equal(resize_window(cmyk[..., :3], size), result[..., :3])
    for channel in range(4):
        assert np.array_equal(
            resize_window(cmyk[..., channel : channel + 1], size),
            result[..., channel : channel + 1],
        )
    turned = np.ascontiguousarray(cmyk.transpose(1, 0, 2)).transpose(1, 0, 2)
    assert np.array_equal(resize_window(turned, size), result)
    backwards = np.ascontiguousarray(cmyk[::-1, ::-1])[::-1, ::-1]
    assert np.array_equal(resize_window(backwards, size), result)
    assert np.array_equal(
        resize_window(np.pad(cmyk, ((3, 5), (7, 1), (0, 0)))[3:-5, 7:-1], size), result
    )
    assert np.array_equal(cmyk, kept)
    assert np.array_equal(resize_window(cmyk, source), cmyk)


def test_the_sizes_of_the_benchmark_are_read() -> None:
    assert (parse_size("20x30"), parse_size("224")) == ((20, 30), (224, 224))


@pytest.mark.parametrize(
    ("source", "orientation", "cut_ppm", "adjusted"),
    [
        ((300, 400), 1, 250_000, ()),
        ((300, 400), 6, 250_000, ("rotated",)),
        ((300, 600), 1, 500_000, ()),
        ((300, 602), 1, 501_662, ("cropped",)),
        ((602, 300), 1, 501_662, ("cropped",)),
        ((300, 300), 1, 0, ()),
    ],
)
def test_what_a_crop_cuts_off_is_counted(
    source: tuple[int, int], orientation: int, cut_ppm: int, adjusted: tuple[str, ...]
) -> None:
    exif = PillowImage.Exif()
    exif[0x0112] = orientation
    data = save(PillowImage.new("RGB", source[::-1]), "JPEG", exif=exif)
    image = convert_image(data)
    assert (image.height, image.width, image.adjusted) == (224, 224, adjusted)
    shown = image.source_height, image.source_width
    assert (
        geometry.compute_cut_ppm(
            geometry.compute_placement(*shown, (image.height, image.width), "crop"), *shown
        )
        == cut_ppm
    )


@pytest.mark.parametrize("factors", [(2, 2), (9, 9), (20, 20), (31, 16), (2, 20)])
def test_a_crop_is_that_part_of_the_whole_resized_at_every_factor(factors: tuple[int, int]) -> None:
    """At its border too: the filter reaches beyond the crop, where there are pixels."""
    down, right = factors
    stripes = (
        (np.arange(80 * down) // (3 * down) % 2 * 255)
        .astype(np.uint8)[:, None, None]
        .repeat(40 * right, axis=1)
    )
    whole = resize_window(stripes, (80, 40))[20:60].astype(int)
    assert np.abs(resize_window(stripes, (40, 40), rows=(20 * down, 40 * down)) - whole).max() <= 2
    turned = np.ascontiguousarray(stripes.transpose(1, 0, 2))
    assert (
        np.abs(
            resize_window(turned, (40, 40), columns=(20 * down, 40 * down)).transpose(1, 0, 2)
            - whole
        ).max()
        <= 2
    )
