"""Encoders: sizes, channels, options, no metadata, and the same bytes everywhere."""

import io
import os
import re
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from beam_tfr.images import convert_image
from beam_tfr.images.encode import MAX_SIDES, check_size, encode
from beam_tfr.schema.errors import RejectError
from tests.fixtures import mean_error, noise, psnr, save, smooth

ENCODINGS = ("jpeg", "png", "webp")
SIDES = st.one_of(st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 33]), st.integers(1, 80))
PHOTO = np.asarray(smooth(61, 83))
SHAPES = {
    "1x1": (1, 1),
    "a row": (1, 300),
    "a column": (300, 1),
    "odd": (61, 83),
    "blocks": (64, 96),
}


def pixels_of(encoded: bytes) -> np.ndarray:
    with PillowImage.open(io.BytesIO(encoded)) as image:
        assert image.mode in ("L", "RGB")
        pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def tensorflow():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return pytest.importorskip(
        "tensorflow", reason="TensorFlow is missing: pip install 'beam_tfr[reader]'"
    )


@given(
    SIDES,
    SIDES,
    st.sampled_from([1, 3]),
    st.sampled_from(ENCODINGS),
    st.integers(1, 100),
    st.booleans(),
)
@settings(max_examples=70, deadline=None)
def test_every_shape_comes_back(
    height: int, width: int, channels: int, encoding: str, quality: int, full_chroma: bool
) -> None:
    pixels = np.random.default_rng(height * 97 + width).integers(
        0, 256, (height, width, channels), dtype=np.uint8
    )
    found = pixels_of(
        encode(pixels, encoding, quality=quality, chroma="444" if full_chroma else "420")
    )
    assert found.shape == (height, width, 3 if encoding == "webp" else channels)
    if encoding == "png":
        np.testing.assert_array_equal(found, pixels)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_look_the_same(name: str, channels: int) -> None:
    pixels = np.asarray(smooth(*SHAPES[name]))[..., :channels]
    for encoding in ENCODINGS:
        assert mean_error(pixels_of(encode(pixels, encoding)), pixels) < 2, encoding


def test_parts_of_arrays_are_encoded_as_they_look() -> None:
    part = np.asarray(noise(40, 40))[3:30:2, 35:4:-3]
    for encoding in (*ENCODINGS, "raw"):
        assert encode(part, encoding) == encode(np.ascontiguousarray(part), encoding)


@pytest.mark.parametrize("channels", [1, 3])
def test_raw_is_what_tensorflow_writes_and_reads(channels: int) -> None:
    tf = tensorflow()
    for height, width in ((1, 1), (1, 127), (128, 1), (5, 129), (224, 224), (2, 20_000)):
        pixels = np.asarray(noise(height, width))[..., :channels]
        encoded = encode(pixels, "raw")
        assert encoded == tf.io.serialize_tensor(tf.constant(pixels)).numpy()
        np.testing.assert_array_equal(tf.io.parse_tensor(encoded, tf.uint8), pixels)


def test_quality_and_chroma_have_an_effect() -> None:
    pixels = np.asarray(noise(64, 64))
    for encoding in ("jpeg", "webp"):
        sizes = [len(encode(pixels, encoding, quality=quality)) for quality in (1, 50, 90, 100)]
        assert sizes == sorted(set(sizes))
        assert encode(pixels, encoding, quality=90) == encode(pixels, encoding)
    errors = [
        psnr(pixels_of(encode(pixels, "jpeg", chroma=chroma)), pixels) for chroma in ("420", "444")
    ]
    assert errors[0] + 3 < errors[1]
    assert encode(pixels, "jpeg", chroma="420") == encode(pixels, "jpeg")


@pytest.mark.parametrize(("chroma", "sampling"), [("420", 0x22), ("444", 0x11)])
def test_jpeg_has_the_components_that_are_asked_for(chroma: str, sampling: int) -> None:
    header = re.compile(rb"\xff\xc0..\x08.{4}(.)(.*?)\xff\xc4", re.DOTALL)
    colors = header.search(encode(PHOTO, "jpeg", chroma=chroma))
    assert colors is not None
    assert colors[1] == b"\x03"
    assert list(colors[2][1::3]) == [sampling, 0x11, 0x11]
    gray = header.search(encode(PHOTO[..., :1], "jpeg", chroma=chroma))
    assert gray is not None
    assert gray[1] == b"\x01"


def jpeg_markers(encoded: bytes) -> list[bytes]:
    markers, at = [], 2
    while encoded[at + 1] != 0xDA:
        markers.append(encoded[at + 1 : at + 2])
        at += 2 + struct.unpack_from(">H", encoded, at + 2)[0]
    assert len(re.findall(rb"\xff[^\0\xd0-\xd7]", encoded[at + 2 :])) == 1  # one scan, then EOI
    assert encoded.endswith(b"\xff\xd9")
    return markers


@pytest.mark.parametrize("channels", [1, 3])
def test_nothing_but_the_picture_is_encoded(channels: int) -> None:
    pixels = PHOTO[..., :channels]
    jpeg = encode(pixels, "jpeg")
    assert jpeg[2:20] == b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
    assert set(jpeg_markers(jpeg)) == {b"\xe0", b"\xdb", b"\xc0", b"\xc4"}
    png, kinds, at = encode(pixels, "png"), [], 8
    while at < len(png):
        kinds.append(png[at + 4 : at + 8])
        at += 12 + struct.unpack_from(">I", png, at)[0]
    assert kinds == [b"IHDR", *[b"IDAT"] * (len(kinds) - 2), b"IEND"]
    for quality in (1, 90, 100):
        webp = encode(pixels, "webp", quality=quality)
        assert webp[12:16] in (b"VP8 ", b"VP8L")
        length = struct.unpack_from("<I", webp, 16)[0]
        assert 20 + length + length % 2 == len(webp)


def test_metadata_of_a_source_does_not_come_through() -> None:
    exif = PillowImage.Exif()
    exif[0x010F] = "planted-camera"
    source = save(smooth(), "JPEG", exif=exif, comment=b"planted-comment", xmp=b"<planted-xmp/>")
    assert source.count(b"planted") == 3
    for encoding in (*ENCODINGS, "raw"):
        assert b"planted" not in convert_image(source, encoding=encoding).encoded


def test_what_an_encoding_cannot_hold_is_rejected() -> None:
    for encoding, most in MAX_SIDES.items():
        for shape in ((1, most, 1), (most, 1, 1)):
            assert encode(np.zeros(shape, np.uint8), encoding)
        for shape in ((1, most + 1, 1), (most + 1, 1, 1)):
            with pytest.raises(
                RejectError, match=f"pixels; {encoding} holds at most {most} per side"
            ):
                encode(np.zeros(shape, np.uint8), encoding)


def test_large_results_are_not_encoded_as_webp() -> None:
    """Whose encoder takes up to 28 bytes a pixel."""
    check_size(5000, 10_000, "webp")
    check_size(10_000, 10_000, "jpeg")
    for height, width in ((5001, 10_000), (10_000, 10_000)):
        with pytest.raises(
            RejectError, match=r"too-many-pixels: .* as webp: use another --encoding"
        ):
            check_size(height, width, "webp")


def test_threads_and_repetition_change_nothing() -> None:
    cases = [
        (np.asarray(noise(30 + seed, 50, seed))[..., :channels], encoding)
        for seed in range(10)
        for channels in (1, 3)
        for encoding in (*ENCODINGS, "raw")
    ]
    expected = [encode(*case) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(lambda case: encode(*case), cases)) == expected
