"""ResizeImages: what Pillow can write comes out upright, in RGB and in size; what is damaged is a reject, no crash."""

from __future__ import annotations

import hashlib
import io
import os
import random
import struct
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from beam_tfr import images
from beam_tfr.images import convert_image
from beam_tfr.images.geometry import stretch
from beam_tfr.schema import Image, RejectError
from tests.conftest import SAMPLE

RNG = np.random.default_rng(20)
T = PillowImage.Transpose


def save(image: PillowImage.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def decoded(image: Image) -> np.ndarray[Any, Any]:
    pixels = np.asarray(PillowImage.open(io.BytesIO(image.encoded)))
    assert pixels.shape == (image.height, image.width, image.channels)
    return pixels


def pixels_of(data: bytes, size: tuple[int, int] = (48, 64)) -> np.ndarray[Any, Any]:
    """Converted without loss."""
    return decoded(convert_image(data, image_size=size, encoding="png"))


def smooth(height: int = 48, width: int = 64) -> PillowImage.Image:
    """Colours that differ in every corner and that JPEG keeps well."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [x * 255 / width, y * 255 / height, 255 - (x + y) * 255 / (width + height)]
    return PillowImage.fromarray(np.stack(planes, -1).astype(np.uint8))


def error(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(np.abs(one.astype(int) - other.astype(int)).mean())


def psnr(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(10 * np.log10(255**2 / ((one.astype(float) - other.astype(float)) ** 2).mean()))


# Formats

PHOTO = smooth()
RGB = np.asarray(PHOTO)
GREY = np.repeat(np.asarray(PHOTO.convert("L"))[..., None], 3, -1)
CMYK = np.asarray(PHOTO.convert("CMYK").convert("RGB"))

LOSSY: dict[str, tuple[bytes, np.ndarray[Any, Any]]] = {
    "baseline": (save(PHOTO, "JPEG", quality=95), RGB),
    "progressive": (save(PHOTO, "JPEG", quality=95, progressive=True), RGB),
    "4:4:4": (save(PHOTO, "JPEG", quality=95, subsampling=0), RGB),
    "4:2:2": (save(PHOTO, "JPEG", quality=95, subsampling=1), RGB),
    "kept as RGB": (save(PHOTO, "JPEG", quality=95, keep_rgb=True), RGB),
    "grey": (save(PHOTO.convert("L"), "JPEG", quality=95), GREY),
    "CMYK": (save(PHOTO.convert("CMYK"), "JPEG", quality=95), CMYK),
    "restart markers": (save(PHOTO, "JPEG", quality=95, restart_marker_rows=1), RGB),
    "WebP": (save(PHOTO, "WEBP", quality=95), RGB),
    "JPEG 2000": (save(PHOTO, "JPEG2000", quality_mode="rates", quality_layers=[4]), RGB),
    "JPEG with bytes behind its end": (save(PHOTO, "JPEG", quality=95) + b"\0" * 1000, RGB),
    "MPO": (save(PHOTO, "MPO", quality=95, save_all=True, append_images=[smooth(20, 20)]), RGB),
}


@pytest.mark.parametrize("name", LOSSY)
def test_lossy_formats_come_out_as_the_picture_they_show(name: str) -> None:
    data, expected = LOSSY[name]
    image = convert_image(data, image_size=(48, 64), encoding="png")
    assert (image.source_height, image.source_width) == (48, 64)
    assert error(decoded(image), expected) < 2.5
    assert image.source_sha256 == hashlib.sha256(data).hexdigest()


def palette() -> PillowImage.Image:
    return PHOTO.quantize(64)


def over_white(rgba: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    alpha = rgba[..., 3:].astype(float) / 255
    return np.rint(rgba[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)


RGBA = np.dstack([RGB, np.linspace(0, 255, 48 * 64).reshape(48, 64).astype(np.uint8)])
BITS = PHOTO.convert("1")
DEEP = (RGB[..., 0].astype(np.uint32) * 257).astype(np.uint16)
NOISE = PillowImage.fromarray(RNG.integers(0, 256, (48, 64, 3), dtype=np.uint8))

EXACT: dict[str, tuple[bytes, np.ndarray[Any, Any]]] = {
    "PNG": (save(NOISE, "PNG"), np.asarray(NOISE)),
    "BMP": (save(NOISE, "BMP"), np.asarray(NOISE)),
    "PPM": (save(NOISE, "PPM"), np.asarray(NOISE)),
    "TIFF": (save(NOISE, "TIFF"), np.asarray(NOISE)),
    "TIFF with LZW": (save(NOISE, "TIFF", compression="tiff_lzw"), np.asarray(NOISE)),
    "WebP without loss": (save(NOISE, "WEBP", lossless=True), np.asarray(NOISE)),
    "GIF": (save(palette(), "GIF"), np.asarray(palette().convert("RGB"))),
    "GIF with more pictures": (
        save(palette(), "GIF", save_all=True, append_images=[smooth().rotate(180).quantize(64)]),
        np.asarray(palette().convert("RGB")),
    ),
    "PNG with a palette": (save(palette(), "PNG"), np.asarray(palette().convert("RGB"))),
    "grey PNG": (save(PHOTO.convert("L"), "PNG"), GREY),
    "PNG of 1 bit": (save(BITS, "PNG"), np.asarray(BITS.convert("RGB"))),
    "TIFF of 1 bit": (save(BITS, "TIFF", compression="group4"), np.asarray(BITS.convert("RGB"))),
    "PNG of 16 bit": (save(PillowImage.fromarray(DEEP), "PNG"), np.repeat(RGB[..., :1], 3, -1)),
    "PNG of 16 bit, dark": (
        save(PillowImage.fromarray(np.full((48, 64), 255, np.uint16)), "PNG"),
        np.ones((48, 64, 3), np.uint8),
    ),
    "PGM of 16 bit, dark": (
        b"P5 64 48 65535\n" + np.full((48, 64), 255, ">u2").tobytes(),
        np.ones((48, 64, 3), np.uint8),
    ),
    "TIFF of floats from 0 to 1": (
        save(PillowImage.fromarray(RGB[..., 0].astype(np.float32) / 255), "TIFF"),
        np.repeat(RGB[..., :1], 3, -1),
    ),
    "TIFF of floats from 0 to 255": (
        save(PillowImage.fromarray(RGB[..., 0].astype(np.float32)), "TIFF"),
        np.repeat(RGB[..., :1], 3, -1),
    ),
    "TIFF that holds nothing but NaN": (
        save(PillowImage.fromarray(np.full((48, 64), np.nan, np.float32)), "TIFF"),
        np.zeros((48, 64, 3), np.uint8),
    ),
    "PNG with one colour for transparent": (
        save(PillowImage.new("RGB", (64, 48), (9, 8, 7)), "PNG", transparency=(9, 8, 7)),
        np.full((48, 64, 3), 255, np.uint8),
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_formats_without_loss_come_out_exactly(name: str) -> None:
    data, expected = EXACT[name]
    assert np.array_equal(pixels_of(data), expected)


@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF"])
def test_transparency_is_laid_over_white(form: str) -> None:
    data = save(PillowImage.fromarray(RGBA), form, **({"lossless": True, "exact": True} if form == "WEBP" else {}))
    assert np.abs(pixels_of(data).astype(int) - over_white(RGBA)).max() <= 1


def test_transparency_of_grey_and_of_a_palette_is_laid_over_white() -> None:
    grey = PillowImage.fromarray(RGBA).convert("LA")
    assert np.abs(pixels_of(save(grey, "PNG")).astype(int) - over_white(np.asarray(grey.convert("RGBA")))).max() <= 1
    clear = palette()
    data = save(clear, "PNG", transparency=bytes(range(0, 256, 4)))
    again = PillowImage.open(io.BytesIO(data)).convert("RGBA")
    assert np.abs(pixels_of(data).astype(int) - over_white(np.asarray(again))).max() <= 1


def test_the_content_decides_what_an_image_is_and_other_programs_are_never_asked() -> None:
    for form in ("EPS", "TGA", "PCX", "ICO"):
        with pytest.raises(RejectError, match="not-an-image"):
            convert_image(save(PHOTO, form))


# EXIF

UNDO = {
    2: T.FLIP_LEFT_RIGHT,
    3: T.ROTATE_180,
    4: T.FLIP_TOP_BOTTOM,
    5: T.TRANSPOSE,
    6: T.ROTATE_90,
    7: T.TRANSVERSE,
    8: T.ROTATE_270,
}


def turned(upright: PillowImage.Image, orientation: int, form: str, **options: Any) -> bytes:
    """The file of a camera that was held so."""
    exif = PillowImage.Exif()
    exif[0x0112] = orientation
    stored = upright.transpose(UNDO[orientation]) if orientation in UNDO else upright
    return save(stored, form, exif=exif, **options)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_comes_out_upright(orientation: int) -> None:
    for form in ("PNG", "WEBP", "TIFF"):
        options = {"lossless": True} if form == "WEBP" else {}
        assert np.array_equal(pixels_of(turned(NOISE, orientation, form, **options)), np.asarray(NOISE)), form
    photo = PillowImage.open(sorted((SAMPLE / "train" / "shoes").iterdir())[0]).resize((300, 500))
    upright = save(photo, "JPEG", quality=95)
    for size in ((40, 30), (224, 224), (600, 20)):  # the decoder scales down, for the sides that it stores
        image = convert_image(turned(photo, orientation, "JPEG", quality=95), image_size=size, encoding="png")
        assert (image.source_height, image.source_width) == (500, 300)
        assert error(decoded(image), pixels_of(upright, size)) < 2
    cmyk = turned(PHOTO.convert("CMYK"), orientation, "JPEG", quality=95)
    assert error(pixels_of(cmyk), CMYK) < 2.5


def with_segments(*segments: bytes) -> bytes:
    """A JPEG with marker segments behind its first two bytes."""
    data = LOSSY["4:4:4"][0]
    parts = [segment[:2] + struct.pack(">H", len(segment)) + segment[2:] for segment in segments]
    return data[:2] + b"".join(parts) + data[2:]


EXIF_6 = b"\xff\xe1Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"


def test_an_orientation_behind_a_long_colour_profile_is_seen() -> None:
    profile = b"\xff\xe2ICC_PROFILE\0\x01\x01" + bytes(65_000)
    for segments in ((EXIF_6,), (profile, profile, EXIF_6)):
        image = convert_image(with_segments(*segments), image_size=(64, 48), encoding="png")
        assert (image.source_height, image.source_width) == (64, 48)
        assert error(decoded(image), np.rot90(RGB, -1)) < 2.5


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"MM",
        b"\xff" * 30,
        b"II*\0\xff\xff\xff\xff",
        b"MM\0*\0\0\0\x08\xff\xff\x01\x12\0\x03",
        EXIF_6[8:].replace(b"\0\x06\0\0", b"\0\x09\0\0"),
        EXIF_6[8:].replace(b"\x01\x12\0\x03", b"\x01\x12\0\x02"),
    ],
)
def test_a_broken_exif_block_says_nothing(block: bytes) -> None:
    data = with_segments(b"\xff\xe1Exif\0\0" + block)
    assert error(pixels_of(data), RGB) < 2.5


# Sizes

EDGES = st.sampled_from([1, 2, 3, 5, 16, 17, 63, 64, 65, 223, 224, 225, 448, 449])


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(EDGES, EDGES), st.tuples(EDGES, EDGES), st.sampled_from(["jpeg", "png"]), st.sampled_from(["PNG", "JPEG"])
)
def test_every_size_comes_out_exactly_with_exact_sums(
    source: tuple[int, int], size: tuple[int, int], encoding: str, form: str
) -> None:
    noise = np.random.default_rng(hash(source) % 2**32).integers(0, 256, (*source, 3), dtype=np.uint8)
    data = save(PillowImage.fromarray(noise), form)
    image = convert_image(data, image_size=size, encoding=encoding)
    assert (image.height, image.width, image.channels) == (*size, 3)
    assert (image.source_height, image.source_width) == source
    assert (image.format, image.colorspace) == (encoding, "RGB")
    assert decoded(image).shape == (*size, 3)
    lossless = pixels_of(data, size).astype(np.int64)
    assert image.channel_sums == tuple(lossless.sum((0, 1)))
    assert image.channel_squares == tuple((lossless**2).sum((0, 1)))
    assert all(type(value) is int for value in image.channel_sums + image.channel_squares)
    if form == "PNG" and source == size:
        assert np.array_equal(lossless, noise)


@pytest.mark.parametrize("source", [(1, 1), (1, 10_000), (10_000, 1), (2, 30_000), (1_000_000, 1)])
def test_extreme_shapes_are_stretched(source: tuple[int, int]) -> None:
    data = save(PillowImage.new("RGB", source[::-1], (200, 100, 50)), "PNG")
    for size in ((224, 224), (1, 1), (3, 700)):
        assert np.array_equal(pixels_of(data, size), np.full((*size, 3), (200, 100, 50), np.uint8))


def test_the_longest_sums_are_exact() -> None:
    data = save(PillowImage.new("RGB", (8, 8), (255, 255, 254)), "PNG")
    image = convert_image(data, image_size=(3000, 4000), encoding="jpeg")
    assert image.channel_sums == (255 * 12_000_000, 255 * 12_000_000, 254 * 12_000_000)
    assert image.channel_squares == (255**2 * 12_000_000, 255**2 * 12_000_000, 254**2 * 12_000_000)


# Fidelity


def centre_of_mass(pixels: np.ndarray[Any, Any]) -> tuple[float, float]:
    mass = pixels[..., 0].astype(float)
    y, x = np.indices(mass.shape)
    return float((y * mass).sum() / mass.sum()), float((x * mass).sum() / mass.sum())


@pytest.mark.parametrize("source", [(100, 140), (401, 601), (896, 1000), (1201, 1799)])
@pytest.mark.parametrize("size", [(224, 224), (64, 150), (33, 47), (500, 300)])
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_dot_in_the_middle_stays_in_the_middle(source: tuple[int, int], size: tuple[int, int], form: str) -> None:
    height, width = source
    y, x = np.mgrid[0:height, 0:width]
    radius = np.hypot((y - (height - 1) / 2) / height, (x - (width - 1) / 2) / width)
    dot = np.where(radius < 0.3, 250 * np.cos(radius / 0.3 * np.pi / 2), 0).astype(np.uint8)
    data = save(PillowImage.fromarray(np.dstack([dot] * 3)), form, **({"quality": 98} if form == "JPEG" else {}))
    found = centre_of_mass(pixels_of(data, size))
    assert found == pytest.approx(((size[0] - 1) / 2, (size[1] - 1) / 2), abs=0.1)


def test_shrinking_by_much_averages_what_it_covers() -> None:
    noise = RNG.integers(0, 256, (224 * 6, 224 * 5, 3), dtype=np.uint8)
    means = noise.reshape(224, 6, 224, 5, 3).astype(float).mean((1, 3))
    assert np.abs(stretch(noise, (224, 224)) - means).max() <= 0.51
    lines = np.zeros((512, 300, 3), np.uint8)
    lines[::2] = 255  # one side shrinks, the other grows
    assert np.abs(stretch(lines, (64, 900)).astype(int) - 128).max() <= 1


@pytest.mark.parametrize("factor", [1.2, 1.5, 1.6, 1.8, 2.0, 2.5, 3.3, 4.0, 4.5, 7.7])
def test_what_is_finer_than_the_result_does_not_come_back_as_a_pattern(factor: float) -> None:
    side = round(200 * factor)
    stripes = np.zeros((side, side, 3), np.uint8)
    stripes[::2] = 255
    checks = np.repeat(np.indices((side, side)).sum(0)[..., None] % 2 * 255, 3, -1).astype(np.uint8)
    for fine in (stripes, checks):
        result = stretch(fine, (200, 200))[10:-10, 10:-10].astype(float)
        aliased = cv2.resize(fine, (200, 200), interpolation=cv2.INTER_NEAREST)[10:-10, 10:-10].astype(float)
        assert result.mean() == pytest.approx(127.5, abs=2)
        assert result.std() < (0.15 if factor > 2 else 0.65) * max(aliased.std(), 100)


def test_resizing_keeps_flat_colours_and_gradients() -> None:
    for side in (50, 200, 310, 330, 400, 555, 800, 1300):
        flat = np.full((side, side, 3), (3, 128, 251), np.uint8)
        assert np.array_equal(stretch(flat, (200, 200)), np.full((200, 200, 3), (3, 128, 251), np.uint8))
        values = np.rint((np.arange(side) + 0.5) * (255 / side)).astype(np.uint8)
        ramp = np.repeat(values[:, None, None], side, 1).repeat(3, 2)
        ideal = (np.arange(200) + 0.5) * (255 / 200)
        assert np.abs(stretch(ramp, (200, 200))[3:-3, :, 0] - ideal[3:-3, None]).max() < 3


def test_photos_are_near_to_lanczos() -> None:
    figures = []
    for path in sorted(SAMPLE.rglob("*.jpg")):
        with PillowImage.open(path) as photo:
            reference = np.asarray(photo.convert("RGB").resize((96, 80), PillowImage.Resampling.LANCZOS))
        figures.append(psnr(pixels_of(path.read_bytes(), (80, 96)), reference))
    assert len(figures) > 100
    assert np.mean(figures) >= 38
    assert min(figures) >= 28


# Encoding


def test_quality_has_an_effect_and_the_default_is_90() -> None:
    data = next(SAMPLE.rglob("*.jpg")).read_bytes()
    lossless = pixels_of(data, (224, 224))
    found = {quality: convert_image(data, quality=quality) for quality in (1, 30, 60, 90, 100)}
    sizes = [len(image.encoded) for image in found.values()]
    errors = [error(decoded(image), lossless) for image in found.values()]
    assert sizes == sorted(set(sizes))
    assert errors == sorted(set(errors), reverse=True)
    assert convert_image(data) == found[90]
    tables = PillowImage.open(io.BytesIO(found[90].encoded))
    assert tables.mode == "RGB"
    assert tables.layer[0][1:3] == (2, 2)  # 4:2:0


def test_what_is_not_known_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="unknown resize 'squeeze'"):
        convert_image(EXACT["PNG"][0], resize="squeeze")
    with pytest.raises(ValueError, match="unknown encoding 'gif'"):
        convert_image(EXACT["PNG"][0], encoding="gif")


# Damage


def test_every_truncation_and_flipped_byte_is_an_image_or_a_reject() -> None:
    chance = random.Random(5)
    files = [data for data, _ in [*LOSSY.values(), *EXACT.values()]]
    files += [turned(PHOTO, 6, form) for form in ("JPEG", "PNG", "TIFF")]
    files.append(with_segments(EXIF_6))
    reasons = {"image": 0, "damaged-image": 0, "not-an-image": 0, "too-many-pixels": 0}

    def convert(data: bytes) -> str:
        try:
            image = convert_image(data, image_size=(24, 32))
        except RejectError as reject:
            return reject.reason
        assert decoded(image).shape == (24, 32, 3)
        return "image"

    for data in files:
        for _ in range(12):
            reasons[convert(data[: chance.randrange(len(data))])] += 1
            flipped = bytearray(data)
            for _ in range(chance.choice((1, 1, 8))):
                place = chance.randrange(min(len(data), chance.choice((64, 700, len(data)))))
                flipped[place] ^= chance.randrange(1, 256)
            reasons[convert(bytes(flipped))] += 1
    assert sum(reasons.values()) == 24 * len(files)
    assert reasons["image"] > 50
    assert reasons["damaged-image"] > 200


@pytest.mark.parametrize("name", ["baseline", "progressive", "CMYK", "WebP"])
def test_a_photo_cut_in_half_is_damaged(name: str) -> None:
    data = LOSSY[name][0]
    with pytest.raises(RejectError, match="damaged-image"):
        convert_image(data[: len(data) // 2])


def test_the_beginning_of_an_image_is_damaged_and_text_is_none() -> None:
    for data in (b"\xff\xd8\xff", LOSSY["baseline"][0][:100], EXACT["PNG"][0][:20], EXACT["GIF"][0][:8]):
        with pytest.raises(RejectError, match="damaged-image"):
            convert_image(data)
    for data in (
        b"",
        b"\0",
        b"not an image",
        b"BM",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7\n",
        bytes(999),
    ):
        with pytest.raises(RejectError, match="not-an-image"):
            convert_image(data)


def claiming(width: int, height: int) -> dict[str, bytes]:
    """Files whose headers promise more than there is."""
    header = struct.pack(">4sIIBBBBB", b"IHDR", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    png = [struct.pack(">I", len(header) - 4) + header + struct.pack(">I", zlib.crc32(header))]
    png += [struct.pack(">I", len(body)) + b"IDAT" + body + struct.pack(">I", zlib.crc32(b"IDAT" + body))]
    jpeg = bytearray(LOSSY["baseline"][0])
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    gif = bytearray(EXACT["GIF"][0])
    gif[6:10] = struct.pack("<HH", width, height)
    bmp = bytearray(EXACT["BMP"][0])
    bmp[18:26] = struct.pack("<ii", width, height)
    ppm = b"P6 %d %d 255\n" % (width, height) + bytes(100)
    return {
        "PNG": b"\x89PNG\r\n\x1a\n" + b"".join(png),
        "JPEG": bytes(jpeg),
        "GIF": bytes(gif),
        "BMP": bytes(bmp),
        "PPM": ppm,
    }


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "PPM"])
def test_a_header_that_promises_60000_x_60000_pixels_is_rejected_before_decoding(form: str) -> None:
    started = time.perf_counter()
    with pytest.raises(RejectError, match="too-many-pixels: 60000 x 60000 pixels, at most 100000000 are decoded"):
        convert_image(claiming(60_000, 60_000)[form])
    assert time.perf_counter() - started < 0.5


def test_the_limit_of_pixels_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 48 * 64)
    for data in (LOSSY["baseline"][0], LOSSY["CMYK"][0], EXACT["PNG"][0]):
        convert_image(data)
    monkeypatch.setattr(images, "MAX_PIXELS", 48 * 64 - 1)
    for data in (LOSSY["baseline"][0], LOSSY["CMYK"][0], EXACT["PNG"][0]):
        with pytest.raises(RejectError, match="too-many-pixels: 64 x 48 pixels, at most 3071 are decoded"):
            convert_image(data)


# The same bytes on every processor

PROCESSORS = {
    "all": {},
    "IPP disabled": {"OPENCV_IPP": "disabled"},
    "IPP sse42": {"OPENCV_IPP": "sse42"},
    "IPP avx2": {"OPENCV_IPP": "avx2"},
    "IPP avx512": {"OPENCV_IPP": "avx512"},
    "no AVX512": {"OPENCV_CPU_DISABLE": "AVX512-SKX"},
    "no AVX2": {"OPENCV_CPU_DISABLE": "AVX2,FMA3,AVX512-SKX"},
    "baseline": {
        "OPENCV_CPU_DISABLE": "SSE4.1,SSE4.2,AVX,FP16,FMA3,AVX2,AVX512-SKX",
        "OPENCV_IPP": "disabled",
        "JSIMD_FORCENONE": "1",
    },
}

CHILD = """
import hashlib, pathlib, sys
import cv2
from beam_tfr.images import convert_image

digest = hashlib.sha256()
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    for size in ((224, 224), (64, 300), (331, 47), (1, 1)):
        image = convert_image(path.read_bytes(), image_size=size)
        digest.update(repr((image.encoded, image.channel_sums, image.channel_squares)).encode())
print(cv2.ipp.useIPP(), cv2.ipp.getIppVersion()[:20], cv2.getCPUFeaturesLine())
print(digest.hexdigest())
"""


def test_the_same_bytes_on_every_processor(tmp_path: Path) -> None:
    files = [path.read_bytes() for path in sorted(SAMPLE.rglob("*.jpg"))[::10]]
    files += [data for data, _ in [*LOSSY.values(), *EXACT.values()]]
    for _ in range(10):
        noise = RNG.integers(0, 256, (*RNG.integers(1, 600, 2), 3), dtype=np.uint8)
        files.append(save(PillowImage.fromarray(noise), "PNG", compress_level=0))
    for number, data in enumerate(files):
        (tmp_path / f"{number:03d}").write_bytes(data)
    children = {}
    for name, variables in PROCESSORS.items():
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("OPENCV_", "JSIMD_"))}
        children[name] = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            env=clean | variables,
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            text=True,
        )
    found = {name: child.communicate()[0].splitlines() for name, child in children.items()}
    assert {child.returncode for child in children.values()} == {0}
    assert len({lines[1] for lines in found.values()}) == 1, found
    if "Intel" in found["all"][0] or "AVX2" in found["all"][0]:  # the settings must have done something
        assert found["all"][0] != found["baseline"][0]
        assert found["all"][0] != found["no AVX2"][0]


def test_threads_and_repetition_change_nothing() -> None:
    files = [data for data, _ in [*LOSSY.values(), *EXACT.values()]]
    expected = [convert_image(data) for data in files]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(convert_image, files)) == expected


def test_the_versions_that_can_change_a_byte_are_named() -> None:
    versions = images.codec_versions()
    assert versions.keys() == {"simplejpeg", "opencv-python-headless", "pillow", "numpy", "zlib"}
    assert all(versions.values())
