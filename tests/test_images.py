"""`convert_image` as a whole.

Every option acts, fast and general ways agree, and the bytes are the same everywhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from beam_tfr import images
from beam_tfr.images import convert_image
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError, UsageError
from beam_tfr.schema.items import Image
from tests.conftest import SAMPLE
from tests.fixtures import all_fixtures, noise, psnr, save, smooth

PHOTO = sorted(SAMPLE.rglob("*.jpg"))[0].read_bytes()
FILES = {
    name: fixture.data for name, fixture in sorted(all_fixtures().items()) if not fixture.reason
}


def decoded(image: Image) -> np.ndarray[Any, Any]:
    pixels = np.asarray(PillowImage.open(io.BytesIO(image.encoded)))
    assert pixels.reshape(*pixels.shape[:2], -1).shape == (
        image.height,
        image.width,
        image.channels,
    )
    return pixels


T = PillowImage.Transpose
UNDO = {
    2: T.FLIP_LEFT_RIGHT,
    3: T.ROTATE_180,
    4: T.FLIP_TOP_BOTTOM,
    5: T.TRANSPOSE,
    6: T.ROTATE_90,
    7: T.TRANSVERSE,
    8: T.ROTATE_270,
}

# Every option acts


def animation() -> bytes:
    return save(smooth(), "GIF", save_all=True, append_images=[smooth().rotate(180)])


def transparent() -> bytes:
    return save(PillowImage.new("RGBA", (40, 30), (200, 100, 50, 90)), "PNG")


def turned() -> bytes:
    exif = PillowImage.Exif()
    exif[0x0112] = 6
    return save(smooth(), "JPEG", exif=exif)


def in_other_colors() -> bytes:
    return next(
        data
        for name, data in FILES.items()
        if name.startswith("color/") and "P3" in name and "JPEG" in name
    )


# option -> (file, what it is changed from, what it is changed to); a reject is a change too.
ACTS: dict[str, tuple[bytes, dict[str, Any], dict[str, Any]]] = {
    "image_size": (PHOTO, {}, {"image_size": (224, 225)}),
    "resize": (PHOTO, {}, {"resize": "stretch"}),
    "upscale": (PHOTO, {"resize": "fit", "image_size": (2000, 2000)}, {"upscale": True}),
    "background": (transparent(), {}, {"background": (0, 0, 0)}),
    "color": (PHOTO, {}, {"color": "gray"}),
    "icc": (in_other_colors(), {}, {"icc": "ignore"}),
    "ignore_orientation": (turned(), {}, {"ignore_orientation": True}),
    "frames": (animation(), {}, {"frames": "reject"}),
    "encoding": (PHOTO, {}, {"encoding": "webp"}),
    "quality": (PHOTO, {}, {"quality": 89}),
    "damaged": (PHOTO[:-2], {"damaged": "keep"}, {"damaged": "reject"}),
    "chroma": (PHOTO, {}, {"chroma": "444"}),
    "max_file_bytes": (PHOTO, {}, {"max_file_bytes": len(PHOTO) - 1}),
    "max_pixels": (PHOTO, {}, {"max_pixels": 1000}),
    "max_decode_bytes": (PHOTO, {}, {"max_decode_bytes": 1000}),
    "min_pixels": (PHOTO, {}, {"min_pixels": 10_000_000}),
    "max_aspect": (save(smooth(20, 60), "PNG"), {}, {"max_aspect": 2.9}),
}


def outcome(data: bytes, options: dict[str, Any]) -> object:
    try:
        return convert_image(data, **options)
    except RejectError as reject:
        return reject.reason


@pytest.mark.parametrize("option", ACTS)
def test_every_option_acts(option: str) -> None:
    data, before, change = ACTS[option]
    assert change.keys() == {option}
    first, second = outcome(data, before), outcome(data, before | change)
    assert isinstance(first, Image)
    assert first != second
    options = ImageOptions(**before)
    assert convert_image(data, options) == first
    assert outcome(data, {"options": options} | change) == second  # over those of an object


def test_every_option_is_in_this_test() -> None:
    assert ACTS.keys() == {field.name for field in dataclasses.fields(ImageOptions)}


def test_what_is_not_known_is_an_error_of_the_caller() -> None:
    with pytest.raises(
        UsageError,
        match="`resize=squeeze`: must be one of: crop, pad, stretch, fit, shortest, none",
    ):
        convert_image(PHOTO, resize="squeeze")
    for data in (None, "photo.jpg", bytearray(PHOTO), np.zeros(3)):
        with pytest.raises(TypeError, match="data must be the bytes of a file, not "):
            convert_image(data)  # type: ignore[arg-type]
    assert (
        convert_image(PHOTO, image_size=[32, 32])
        == convert_image(PHOTO, image_size="32")
        == convert_image(PHOTO, image_size=32)
        == convert_image(PHOTO, image_size=(np.int64(32), 32))
    )
    with pytest.raises(TypeError, match="unexpected keyword argument 'qualty'"):
        convert_image(PHOTO, qualty=5)


def test_a_name_tells_nothing_but_whether_it_is_wrong() -> None:
    png = save(smooth(), "PNG")
    plain = convert_image(png, image_size=(24, 32))
    assert convert_image(png, name="a/b.png", image_size=(24, 32)) == plain
    wrong = convert_image(png, name="a/b.jpg", image_size=(24, 32))
    assert wrong == dataclasses.replace(plain, adjusted=("wrong-extension",))


def test_the_record_tells_the_truth_of_source_and_result() -> None:
    image = convert_image(turned(), image_size=(30, 20), encoding="png")
    assert (image.height, image.width, image.channels, image.colorspace, image.format) == (
        30,
        20,
        3,
        "RGB",
        "png",
    )
    assert (image.source_height, image.source_width, image.source_format) == (64, 48, "jpeg")
    assert image.source_sha256 == hashlib.sha256(turned()).hexdigest()
    assert image.adjusted == ("rotated",)
    gray = convert_image(turned(), image_size=(30, 20), color="gray")
    assert (gray.channels, gray.colorspace, decoded(gray).shape) == (1, "Gray", (30, 20))


@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_turned_image_is_resized_as_the_upright_one(orientation: int) -> None:
    exif = PillowImage.Exif()
    exif[0x0112] = orientation
    for upright in (noise(401, 603), noise(53, 40)):
        stored = upright.transpose(UNDO[orientation])
        for change in (
            {"image_size": (64, 96)},
            {"resize": "crop", "image_size": (30, 31)},
            {"resize": "pad"},
        ):
            turned_one = decoded(
                convert_image(save(stored, "PNG", exif=exif), encoding="png", **change)
            )
            upright_one = decoded(convert_image(save(upright, "PNG"), encoding="png", **change))
            assert (
                psnr(turned_one, upright_one) > 40
            )  # noise, whose sides are resized in another order
    photo = PillowImage.open(io.BytesIO(PHOTO)).resize((1200, 900))  # scaled by its decoder
    upright_one = decoded(
        convert_image(save(photo, "JPEG", quality=95), image_size=(101, 130), encoding="png")
    )
    stored_jpeg = save(photo.transpose(UNDO[orientation]), "JPEG", quality=95, exif=exif)
    assert (
        psnr(
            decoded(convert_image(stored_jpeg, image_size=(101, 130), encoding="png")), upright_one
        )
        > 38
    )


# Sums

EDGES = st.sampled_from([1, 2, 3, 5, 16, 17, 63, 64, 65, 223, 224, 225, 448, 449])


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(EDGES, EDGES),
    st.tuples(EDGES, EDGES),
    st.sampled_from(["rgb", "gray"]),
    st.integers(0, 99),
)
def test_sums_are_those_of_the_stored_pixels(
    source: tuple[int, int], size: tuple[int, int], color: str, seed: int
) -> None:
    data = save(noise(*source, seed=seed), "PNG")
    image = convert_image(data, image_size=size, color=color, encoding="png")
    pixels = decoded(image).reshape(-1, image.channels).astype(np.int64)
    assert image.channel_sums == tuple(pixels.sum(0))
    assert image.channel_squares == tuple((pixels**2).sum(0))
    assert all(type(value) is int for value in image.channel_sums + image.channel_squares)
    if source == size and color == "rgb":
        assert np.array_equal(decoded(image), np.asarray(noise(*source, seed=seed)))


def test_the_longest_sums_are_exact() -> None:
    data = save(PillowImage.new("RGB", (8, 8), (255, 255, 254)), "PNG")
    image = convert_image(data, image_size=(3000, 4000))
    assert image.channel_sums == (255 * 12_000_000, 255 * 12_000_000, 254 * 12_000_000)
    assert image.channel_squares == (255**2 * 12_000_000, 255**2 * 12_000_000, 254**2 * 12_000_000)


def test_gray_images_of_a_dataset_in_color_count_for_every_channel() -> None:
    gray = save(smooth().convert("L"), "PNG")
    one, three = (convert_image(gray, color=color, encoding="png") for color in ("keep", "rgb"))
    assert (one.channels, three.channels) == (1, 3)
    assert (one.channel_sums, one.channel_squares) == (three.channel_sums, three.channel_squares)
    assert len(convert_image(gray, color="gray").channel_sums) == 1


# The fast way (libjpeg-turbo, scaled while it decodes) and the general way (everything decoded by
# Pillow)


def picture(height: int, width: int, seed: int) -> PillowImage.Image:
    """Like a photo: much that is coarse, a little that is fine."""
    dice = np.random.default_rng(seed)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    planes = np.full((3, height, width), 127.0)
    for plane in planes:
        for waves in (1, 3, 9, 27):
            plane += (
                60
                / waves
                * np.cos(
                    2 * np.pi * waves * (dice.normal() * y + dice.normal() * x) + dice.uniform(0, 6)
                )
            )
    return PillowImage.fromarray(np.clip(planes, 0, 255).astype(np.uint8).transpose(1, 2, 0).copy())


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(30, 900), st.integers(30, 900)),
    st.integers(0, 999),
    st.sampled_from(["L", "RGB", "CMYK"]),
    st.sampled_from(["stretch", "crop", "pad", "fit", "shortest", "none"]),
    st.sampled_from([{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_rows": 1}]),
)
def test_fast_and_general_way_give_the_same_picture(
    source: tuple[int, int], seed: int, mode: str, resize: str, form: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"image_size": (72, 72), "resize": resize, "encoding": "png"}
    jpeg = save(picture(*source, seed).convert(mode), "JPEG", quality=92, **form)
    stored = PillowImage.open(io.BytesIO(jpeg))
    stored.load()
    general = convert_image(save(stored, "TIFF"), **options)
    fast = convert_image(jpeg, **options)
    assert (fast.height, fast.width) == (general.height, general.width)
    assert (
        psnr(decoded(fast), decoded(general)) >= 37
    )  # what is stated for both is 38 dB against LANCZOS


def test_photos_are_near_to_lanczos() -> None:
    figures = []
    for path in sorted(SAMPLE.rglob("*.jpg")):
        with PillowImage.open(path) as photo:
            reference = np.asarray(
                photo.convert("RGB").resize((96, 80), PillowImage.Resampling.LANCZOS)
            )
        image = convert_image(
            path.read_bytes(), image_size=(80, 96), resize="stretch", encoding="png"
        )
        figures.append(psnr(decoded(image), reference))
    assert len(figures) > 100
    assert np.mean(figures) >= 38
    assert min(figures) >= 28


def test_threads_and_repetition_change_nothing() -> None:
    files = [data for data in FILES.values() if len(data) < 100_000]
    expected = [convert_image(data) for data in files]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(convert_image, files)) == expected


def test_the_versions_that_can_change_a_byte_are_named() -> None:
    versions = images.codec_versions()
    extra = {"pillow-heif"}
    assert versions.keys() - extra == {
        "simplejpeg",
        "cykooz-resizer",
        "opencv-python-headless",
        "pillow",
        "numpy",
    }
    assert all(versions.values())
