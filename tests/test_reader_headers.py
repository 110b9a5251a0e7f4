"""TensorFlow decodes no image that is larger than those of the dataset can be."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from beam_tfr.dataset.elements import decode_image
from beam_tfr.dataset.image_sides import PNG_BEGIN, count_pixels
from beam_tfr.options import ImageOptions
from beam_tfr.records.tensors import message_class

tf = pytest.importorskip("tensorflow")

from beam_tfr.reader.headers import check_header  # noqa: E402
from beam_tfr.reader.images import ImageDecoder  # noqa: E402


def png_of(side: int) -> bytes:
    """A PNG without pixels, whose header states these sides."""
    return PNG_BEGIN + side.to_bytes(4) * 2 + bytes([8, 0, 0, 0, 0]) + bytes(4)


def webp_of(width: int, height: int, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "WEBP", **options)
    return file.getvalue()


def jpeg_of(width: int, height: int, sampling: int) -> bytes:
    """A JPEG whose first component has this sampling, such as 0x14 for 4:4:1."""
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "JPEG", subsampling=2)
    data = bytearray(file.getvalue())
    data[data.index(b"\xff\xc0") + 11] = sampling
    return bytes(data)


PHOTO = tf.io.encode_jpeg(tf.zeros([8, 12, 3], tf.uint8)).numpy()
IMAGES = {
    "jpeg": (PHOTO, 96),
    "png": (png_of(9_000), 81_000_000),
    "huge png": (png_of(2**31 - 1), (2**31 - 1) ** 2),
    "webp": (webp_of(300, 70), 21_000),
    "lossless webp": (webp_of(300, 70, lossless=True), 21_000),
    "extended webp": (webp_of(300, 70, exif=b"Exif\0\0"), 21_000),
}


@pytest.mark.parametrize("sampling", [0x14, 0x41, 0x13, 0x31, 0x24, 0x42, 0x11])
def test_a_jpeg_of_any_sampling_is_decoded(sampling: int) -> None:
    data = jpeg_of(192, 192, sampling)
    assert count_pixels(data, "jpeg") == 192 * 192
    assert decode_image(data, "jpeg", 3, 192 * 192).shape == (192, 192, 3)
    with pytest.raises(ValueError, match="at most 36,863"):
        decode_image(data, "jpeg", 3, 192 * 192 - 1)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"\xff\xd8" + bytes(1_000)])
def test_a_jpeg_without_a_header_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be decoded as jpeg"):
        decode_image(data, "jpeg", 3)


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_may_have_the_most_pixels_and_no_more(name: str) -> None:
    data, pixels = IMAGES[name]
    form = name.split()[-1]
    assert count_pixels(data, form) == pixels
    assert check_header(data, form, pixels).numpy() == data
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"more than {pixels - 1:,} pixels"):
        check_header(data, form, pixels - 1)


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (PHOTO, "png"),
        (PHOTO, "webp"),
        (b"", "png"),
        (png_of(1), "jpeg"),
        (png_of(2**32 - 1), "png"),
        ([png_of(1), png_of(9_000)], "png"),
        (webp_of(9, 9, save_all=True, append_images=[Image.new("RGB", (9, 9), 7)]), "webp"),
    ],
)
def test_no_other_image_is_decoded(data: Any, form: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        check_header(tf.constant(data), form, 95)


@pytest.mark.parametrize("form", ["jpeg", "png", "webp"])
def test_load_decodes_no_image_that_is_larger_than_stated(form: str) -> None:
    decoder = ImageDecoder(options=ImageOptions(image_size=(8, 11), encoding=form))
    data = {"jpeg": PHOTO, "png": png_of(9_000), "webp": webp_of(300, 70)}[form]
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 88 pixels"):
        decoder(tf.constant(data), tf.constant(form), tf.constant([0, 0], tf.int64))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("sides", [(30_000, 30_000, 3), (2, 2), (1, 2, 2, 1), ()])
def test_a_tensor_takes_no_more_than_its_bytes(dtype: str, sides: tuple[int, ...]) -> None:
    """For a shape without content, TensorFlow's own parser makes gigabytes of zeros."""
    decoder = ImageDecoder(options=ImageOptions(resize="none", encoding="raw"))
    dims = [{"size": side} for side in sides]
    number = {"uint8": 4, "int8": 6}[dtype]
    tensor = message_class("TensorProto")(dtype=number, tensor_shape={"dim": dims})
    with pytest.raises(tf.errors.InvalidArgumentError):
        decoder(tensor.SerializeToString(), "raw", tf.constant([0, 0], tf.int64))
