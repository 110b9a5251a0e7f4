"""Every format but JPEG.

Pixels come out as they are stored, what is no image is named, and what is cut is a reject.
"""

from __future__ import annotations

import collections
import io
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image as PillowImage

from beam_tfr.images import codec_versions, convert_image, formats
from beam_tfr.images.formats.depth import to_8_bit
from beam_tfr.images.source import Decoded, Source
from beam_tfr.schema.errors import RejectError
from tests.fixtures import chunk, mean_error, noise, save
from tests.fixtures import formats as fixtures
from tests.fixtures.formats import GRAY, HEIGHT, NOISE, PHOTO, RGB, WIDTH


def opened(data: bytes) -> Source:
    return formats.FORMATS[formats.identify(data)].open(data)


def decoded(data: bytes) -> Decoded:
    return opened(data).decode(None)


def notes_of(data: bytes, **options: Any) -> tuple[str, ...]:
    ordinary = {"aspect-changed", "cropped", "enlarged"}
    return tuple(note for note in convert_image(data, **options).adjusted if note not in ordinary)


# Pixels


@pytest.mark.parametrize("name", fixtures.SOUND)
def test_what_is_stored_without_loss_comes_out_exactly(name: str) -> None:
    expected = fixtures.SOUND[name]
    source = opened(expected.data)
    found = source.decode(None)
    assert found.pixels.dtype == np.uint8
    assert (source.height, source.width) == found.pixels.shape[:2]
    assert np.array_equal(found.pixels, expected.pixels)
    if expected.alpha is None:
        assert found.alpha is None
    else:
        assert found.alpha is not None
        assert found.alpha.dtype == np.uint8
        assert np.array_equal(found.alpha, expected.alpha)
    assert source.frames == expected.frames
    assert (found.bits > 8) == ("depth-scaled" in expected.adjusted)


def test_what_is_stored_with_loss_looks_the_same() -> None:
    for name, fixture in fixtures.LOSSY.items():
        found = decoded(fixture.data)
        assert mean_error(found.pixels, GRAY[..., None] if "gray" in name else RGB) < 2.5, name
        assert found.alpha is None, name


@pytest.mark.parametrize("name", fixtures.FILES)
def test_every_file_becomes_what_it_is_said_to(name: str) -> None:
    fixture = fixtures.FILES[name]
    if fixture.reason:
        with pytest.raises(RejectError) as reject:
            convert_image(fixture.data, image_size=(8, 8))
        assert reject.value.reason == fixture.reason
    else:
        assert (
            notes_of(fixture.data, image_size=(8, 8), name=f"x.{fixture.extension}")
            == fixture.adjusted
        )


@given(hnp.arrays(st.sampled_from([np.uint8, np.uint16, np.uint32, np.int16, np.int32]), (3, 5)))
def test_integers_are_scaled_by_their_depth_and_rounded(samples: np.ndarray[Any, Any]) -> None:
    top = int(np.iinfo(samples.dtype).max)
    exact = [max(0, 2 * 255 * int(value) + top) // (2 * top) for value in samples.ravel()]
    assert to_8_bit(samples, top).ravel().tolist() == exact


@settings(max_examples=50)
@given(
    hnp.arrays(np.uint16, hnp.array_shapes(min_dims=2, max_dims=2, max_side=20)),
    st.sampled_from(["<", ">"]),
)
def test_gray_of_16_bit_is_the_same_from_every_format(
    samples: np.ndarray[Any, Any], order: str
) -> None:
    expected = np.rint(samples / 257).astype(np.uint8)[..., None]
    pgm = fixtures.binary("P5", samples, 65535)
    tiff = fixtures.tiff(samples, photometric="minisblack", byteorder=order)
    for data in (
        pgm,
        tiff,
        fixtures.deep_png(samples[..., None], 0),
        fixtures.deep_png(np.dstack([samples] * 3), 2),
    ):
        found = decoded(data).pixels
        assert np.array_equal(found, np.broadcast_to(expected, found.shape))


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(4095, np.uint16), (16383, np.uint16), (4095, np.int32), (3071.0, np.float32)],
)
def test_samples_that_take_little_of_their_range_are_counted(largest: float, dtype: Any) -> None:
    """Samples of 12 bits in files of 16 are stored nearly black; the same as 16 bits are not."""
    samples = np.linspace(0, largest, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH).astype(dtype)
    dark = fixtures.tiff(samples, photometric="minisblack")
    whole = samples / largest * 65535
    bright = fixtures.tiff(whole.astype(np.uint16), photometric="minisblack")
    assert notes_of(dark, image_size=(8, 8)) == ("depth-scaled", "nearly-black")
    assert notes_of(bright, image_size=(8, 8)) == ("depth-scaled",)
    inverse = fixtures.tiff(samples, photometric="miniswhite")
    assert set(notes_of(inverse, image_size=(8, 8))) == {"depth-scaled", "nearly-white"}
    inverse = fixtures.tiff(whole.astype(np.uint16), photometric="miniswhite")
    assert notes_of(inverse, image_size=(8, 8)) == ("depth-scaled",)


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_a_png_of_xcode_is_named_with_the_cure(mode: str) -> None:
    """Its pixels lack the header of zlib; without the chunk that says so, they are damage."""
    samples = np.asarray(noise(48, 64).convert(mode))
    rows = np.insert(samples.reshape(len(samples), -1), 0, 0, axis=1)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"CgBI", b"\x50\0\x20\2"),
            chunk(
                b"IHDR",
                struct.pack(">IIBBBBB", 64, 48, 8, {"RGB": 2, "RGBA": 6}[mode], 0, 0, 0),
            ),
            chunk(b"IDAT", packer.compress(rows.tobytes()) + packer.flush()),
            chunk(b"IEND", b""),
        )
    )
    with pytest.raises(
        RejectError, match=r"unsupported-image: .*CgBI.*pngcrush -revert-iphone-optimizations"
    ):
        convert_image(data)
    with pytest.raises(RejectError, match="damaged-image"):
        convert_image(data.replace(b"CgBI", b"xxBI"))


def test_associated_alpha_is_undone() -> None:
    alpha = np.full((8, 8), 128, np.uint8)
    colors = np.full((8, 8, 3), (100, 50, 0), np.uint8)
    for samples, top in (
        (np.dstack([colors, alpha]), 255),
        (np.dstack([colors, alpha]).astype(np.uint16) * 257, 65535),
    ):
        found = decoded(fixtures.tiff(samples, photometric="rgb", extrasamples=["assocalpha"]))
        assert np.abs(found.pixels.astype(int) - (199, 100, 0)).max() <= 1, top
        assert np.array_equal(found.alpha, alpha)


@pytest.mark.parametrize("form", ["PNG", "PPM"])
def test_a_row_longer_than_opencv_reads(form: str) -> None:
    assert decoded(save(PillowImage.new("L", (1_000_000, 1), 9), form)).pixels.min() == 9
    with pytest.raises(
        RejectError,
        match=r"PN[GM] of 1000001 x 1 pixels; at most 1000000 per side are allowed",
    ):
        decoded(save(PillowImage.new("L", (1_000_001, 1), 9), form))


# Orientation


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF", "AVIF"])
def test_pixels_are_as_stored_and_the_orientation_is_told(form: str, orientation: int) -> None:
    exif = PillowImage.Exif()
    exif[0x0112] = orientation
    options = {"WEBP": {"lossless": True}, "AVIF": {"quality": 100}}.get(form, {})
    picture = PHOTO if form == "AVIF" else PillowImage.fromarray(NOISE)
    source = opened(save(picture, form, exif=exif, **options))
    assert (source.orientation, source.height, source.width) == (orientation, *NOISE.shape[:2])
    assert mean_error(source.decode(None).pixels, np.asarray(picture)) < (
        2 if form == "AVIF" else 1e-9
    )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_a_deep_tiff(orientation: int) -> None:
    data = fixtures.tiff(
        fixtures.DEEP[..., :3], photometric="rgb", extratags=[(274, 3, 1, orientation, True)]
    )
    source = opened(data)
    assert (source.orientation, source.height, source.width) == (orientation, *NOISE.shape[:2])
    assert np.array_equal(source.decode(None).pixels, fixtures.DEEP_8[..., :3])


# Profiles and texts of some size


def test_long_texts_and_profiles_are_no_damage() -> None:
    profile = np.random.default_rng(1).bytes(1_500_000)
    for form in ("PNG", "TIFF", "WEBP"):
        options = {"lossless": True} if form == "WEBP" else {}
        assert decoded(save(PHOTO, form, icc_profile=profile, **options)).profile == profile
    deep = fixtures.tiff(fixtures.DEEP[..., 0], photometric="minisblack", iccprofile=profile)
    assert decoded(deep).profile == profile
    text = fixtures.chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + b"x" * 2_000_000)
    data = save(PHOTO, "PNG")
    assert np.array_equal(decoded(data[:33] + text + data[33:]).pixels, RGB)


# Frames


def test_of_an_animation_with_others_in_front_the_first_is_taken() -> None:
    for form in ("PNG", "WEBP", "GIF", "TIFF"):
        frames = [PillowImage.new("RGB", (20, 10), color) for color in ("red", "lime", "blue")]
        options = {"lossless": True} if form == "WEBP" else {}
        data = save(frames[0], form, save_all=True, append_images=frames[1:], **options)
        source = opened(data)
        assert source.frames == 2
        assert np.array_equal(
            source.decode(None).pixels, np.full((10, 20, 3), (255, 0, 0), np.uint8)
        )
        with pytest.raises(RejectError, match="several-frames"):
            convert_image(data, frames="reject")


def test_a_smaller_copy_behind_a_tiff_is_no_page() -> None:
    data = fixtures.tiff(NOISE, photometric="rgb")
    small = fixtures.entry(254, 4, 1) + fixtures.entry(256, 4, 8) + fixtures.entry(257, 4, 8)
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    following = first + 2 + 12 * count
    behind = struct.pack("<H", 3) + small + bytes(4)
    assert (
        opened(
            data[:following] + struct.pack("<I", len(data)) + data[following + 4 :] + behind
        ).frames
        == 1
    )


# HEIC

pillow_heif.register_heif_opener()
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
UPRIGHT = PHOTO.resize((96, 64))


def heic(image: PillowImage.Image, **options: Any) -> bytes:
    return save(image, "HEIF", quality=95, **options)


def test_heic() -> None:
    source = opened(heic(UPRIGHT))
    assert (source.format, source.height, source.width, source.orientation, source.frames) == (
        "heic",
        64,
        96,
        1,
        1,
    )
    assert mean_error(source.decode(None).pixels, np.asarray(UPRIGHT)) < 2.5
    assert decoded(heic(UPRIGHT.convert("L"))).pixels.shape == (64, 96, 1)
    assert opened(heic(UPRIGHT, save_all=True, append_images=[UPRIGHT.rotate(180)])).frames == 2
    ramp = np.linspace(0, 255, 96 * 64).reshape(64, 96).astype(np.uint8)
    see_through = decoded(heic(PillowImage.fromarray(np.dstack([np.asarray(UPRIGHT), ramp]))))
    assert see_through.alpha is not None
    assert mean_error(see_through.alpha, ramp) < 2.5


def test_heic_of_10_bit() -> None:
    file = pillow_heif.from_bytes(
        "RGB;16", UPRIGHT.size, (np.asarray(UPRIGHT).astype("<u2") * 257).tobytes()
    )
    buffer = io.BytesIO()
    file.save(buffer, quality=95)
    found = decoded(buffer.getvalue())
    assert found.bits == 10
    assert mean_error(found.pixels, np.asarray(UPRIGHT)) < 2.5


@pytest.mark.parametrize("orientation", range(1, 9))
def test_heic_is_turned_once(orientation: int) -> None:
    exif = PillowImage.Exif()
    exif[0x0112] = orientation
    stored = UPRIGHT.transpose(UNDO[orientation]) if orientation in UNDO else UPRIGHT
    image = convert_image(heic(stored, exif=exif.tobytes()), image_size=(64, 96), encoding="png")
    assert (image.source_height, image.source_width) == (64, 96)
    assert (
        mean_error(np.asarray(PillowImage.open(io.BytesIO(image.encoded))), np.asarray(UPRIGHT))
        < 2.5
    )


WITHOUT = """
import sys
sys.modules["pillow_heif"] = None
from beam_tfr.images import convert_image, guard
from beam_tfr.schema import RejectError
guard._CHILD = f"import sys; sys.modules['pillow_heif'] = None; {guard._CHILD}"
try:
    convert_image(open(sys.argv[1], "rb").read())
except RejectError as reject:
    print(reject)
"""


def test_without_the_extra_the_reject_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.heic").write_bytes(heic(UPRIGHT))
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "a.heic")]
    said = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    ).stdout
    assert (
        said
        == "unsupported-image: reading HEIC requires an extra: pip install 'beam_tfr[formats]'\n"
    )


def test_the_extra_is_loaded_with_the_first_such_file_alone() -> None:
    code = "import sys, beam_tfr.images; print('pillow_heif' in sys.modules)"
    command = [sys.executable, "-c", code]
    said = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    ).stdout
    assert said == "False\n"
    assert "pillow-heif" in codec_versions()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("JPEG 2000", fixtures.JPEG_2000),
        ("JPEG 2000", fixtures.JPEG_2000_CODESTREAM),
        ("JPEG XL", fixtures.JPEG_XL),
        ("JPEG XL", fixtures.JPEG_XL_CODESTREAM),
    ],
)
def test_a_format_that_is_not_supported_is_named_with_the_cure(name: str, data: bytes) -> None:
    message = (
        f"unsupported-image: {name} is not supported: convert the file first, for example to PNG"
    )
    with pytest.raises(RejectError, match=message):
        convert_image(data)


# What is what


@pytest.mark.parametrize("name", fixtures.STRANGERS)
def test_what_is_no_image_is_called_by_its_name(name: str) -> None:
    data, _, kind = fixtures.STRANGERS[name]
    with pytest.raises(RejectError) as reject:
        convert_image(data)
    assert (reject.value.reason, reject.value.detail) == ("not-an-image", kind)


@pytest.mark.parametrize(
    ("brands", "found"),
    [
        (b"avif\0\0\0\0mif1miaf", "avif"),
        (b"avis\0\0\0\0msf1", "avif"),
        (b"mif1\0\0\0\0avifmiaf", "avif"),
        (b"mif1\0\0\0\0heicmiaf", "heic"),
        (b"msf1\0\0\0\0hevc", "heic"),
        (b"mif1\0\0\0\0", "heic"),
        (b"heic\0\0\0\0mif1", "heic"),
    ],
)
def test_heic_and_avif_are_told_apart_by_their_brands(brands: bytes, found: str) -> None:
    assert (
        formats.identify(struct.pack(">I", 8 + len(brands)) + b"ftyp" + brands + b"\0\0\0\x08free")
        == found
    )


@pytest.mark.parametrize(
    ("name", "found", "wrong"),
    [
        ("a/b.jpg", "jpeg", False),
        ("a.JPG", "jpeg", False),
        ("a.jpg", "png", True),
        ("a.jpg.png", "png", False),
        ("a.jpg.png", "jpeg", True),
        ("a.png.jpg", "png", True),
        ("photo", "png", False),
        (".jpg", "png", False),
        ("a/.jpg", "png", False),
        ("a.png/photo", "jpeg", False),
        ("a.bak", "png", False),
        ("a.", "png", False),
        ("", "png", False),
        ("a.jpg ", "png", False),
        ("a.TIFF", "tiff", False),
        ("a.heif", "heic", False),
        ("a.heic", "avif", True),
        ("a.jp2", "jpeg2000", False),
        ("a.pgm", "ppm", False),
    ],
)
def test_wrong_extensions(name: str, found: str, wrong: bool) -> None:
    assert formats.has_wrong_extension(name, found) is wrong


def test_a_format_names_itself_as_in_the_table() -> None:
    """To add a format, make a small file of it for tests/fixtures/formats.py: see the message."""
    seen = {
        "jpeg": True,
        "jpeg2000": True,
        "jxl": True,
    }  # the first has modules of its own, the others are not read
    for fixture in (*fixtures.SOUND.values(), *fixtures.LOSSY.values()):
        source = opened(fixture.data)
        assert source.format == formats.identify(fixture.data)
        assert not formats.has_wrong_extension(f"x.{fixture.extension}", source.format)
        seen[source.format] = True
    # of which there are files in test_images_formats
    missing = formats.FORMATS.keys() - seen.keys() - {"heic"}
    assert not missing, (
        f"there is no file of {missing}: add one to SOUND in tests/fixtures/formats.py, as "
        "Sound(save(noise(), 'QOI'), 'qoi', NOISE) with its pixels, or to LOSSY if they are not "
        "exact"
    )


# Damage


@pytest.mark.parametrize("form", ["png", "gif", "webp", "bmp", "tiff", "ppm", "avif", "heic"])
def test_flips_and_cuts_are_images_or_rejects(form: str) -> None:
    files = {"heic": [heic(UPRIGHT)]}.get(form) or [
        fixture.data
        for fixture in (*fixtures.SOUND.values(), *fixtures.LOSSY.values())
        if formats.identify(fixture.data) == form
    ]
    chance = random.Random(form)
    found: collections.Counter[str] = collections.Counter()

    def attempt(data: bytes) -> str:
        try:
            image = convert_image(data, image_size=(8, 8), encoding="raw", max_pixels=2_000_000)
        except RejectError as reject:
            return reject.reason
        assert (image.height, image.width) == (8, 8)
        return "image"

    for number in range(160):
        data = files[number % len(files)]
        found[attempt(data[: chance.randrange(len(data))])] += 1
        flipped = bytearray(data)
        for _ in range(chance.choice((1, 1, 8))):
            flipped[chance.randrange(min(len(data), chance.choice((64, 300, len(data)))))] ^= (
                chance.randrange(1, 256)
            )
        found[attempt(bytes(flipped))] += 1
    assert found["damaged-image"] > 80


def test_half_a_photo_is_no_image() -> None:
    for name, fixture in fixtures.LOSSY.items():
        with pytest.raises(RejectError, match="damaged-image"):
            convert_image(fixture.data[: len(fixture.data) // (3 if "animated" in name else 2)])


def test_a_plain_map_that_is_cut_is_damaged_wherever_that_is() -> None:
    data = fixtures.SOUND["ppm plain"].data
    for end in range(40, len(data) - 4, 97):
        with pytest.raises(RejectError, match="damaged-image"):
            decoded(data[:end])


@pytest.mark.parametrize("name", fixtures.SOUND)
def test_a_cut_file_is_a_reject_or_has_all_its_pixels(name: str) -> None:
    expected = fixtures.SOUND[name]
    data = expected.data
    # A plain map that ends within its last number cannot be told from one that ends there.
    ends = {
        *range(len(data) - (8 if "plain" in name else 1), len(data) - 40, -3),
        *range(30, len(data), len(data) // 9),
    }
    rejected = 0
    for end in ends:
        try:
            found = decoded(data[:end])
        except RejectError:
            rejected += 1
            continue
        assert np.array_equal(found.pixels, expected.pixels), end
    assert rejected
