"""Decodes an image with TensorFlow, and crops and resizes it."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.dataset.manifest import KEPT_FORMATS
from beam_tfr.options import ImageOptions
from beam_tfr.reader.headers import check_header
from beam_tfr.reader.raw_tensors import parse_pixels

# Random crops, as for ImageNet: Szegedy et al., "Going deeper with convolutions", section 6 (2014).
_CROPS = {
    "area_range": (0.08, 1.0),
    "aspect_ratio_range": (3 / 4, 4 / 3),
    "min_object_covered": 0.0,
}
# Not a tensor: with a tensor, TensorFlow could no longer be configured after this import.
_EVERYWHERE = np.zeros([1, 0, 4], np.float32)
# Gives the same pixels as libjpeg-turbo at the same cost; with TensorFlow's default, most differ.
_DCT_METHOD = "INTEGER_ACCURATE"
_PHILOX = 1  # tf.random.Algorithm.PHILOX


def _decode_jpeg(data: Any, channels: int) -> Any:
    return tf.io.decode_jpeg(data, channels=channels, dct_method=_DCT_METHOD)


def _decode_png(data: Any, channels: int) -> Any:
    return tf.io.decode_png(data, channels=channels)


def _decode_webp(data: Any, channels: int) -> Any:
    """Decodes the first frame, without `channels=3`, which would reject an alpha channel."""
    frames = tf.io.decode_webp(data)
    return frames[0, :, :, :channels]


def _decode_raw(data: Any, channels: int) -> Any:
    """Decodes a tensor [height, width, 1 or channels]; repeats a gray channel."""
    pixels = parse_pixels(data)
    size = tf.shape(pixels)[:2]
    shape = tf.concat([size, [channels]], 0)
    return tf.broadcast_to(pixels, shape)


# Format -> function of (bytes, 1 or 3 channels) that returns uint8 [height, width, channels].
DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "jpeg": _decode_jpeg,
    "png": _decode_png,
    "webp": _decode_webp,
    "raw": _decode_raw,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageDecoder:
    """A decoder for the images of a dataset.

    Attributes:
        options: how the images were converted.
        image_size: height and width to resize images to; None to keep their sizes.
        crop: the part of an image to resize: None for the whole image, "center" for the largest
            centered part with the new aspect ratio, or "random" for a random part, possibly
            mirrored.
        seed: seed for random parts.
    """

    options: ImageOptions
    image_size: tuple[int, int] | None = None
    crop: str | None = None
    seed: int = 0

    @property
    def shape(self) -> tuple[int | None, int | None, int]:
        """The height, width and channels; None where sizes differ."""
        size = self.image_size or self.options.stored_size or (None, None)
        return *size, self.options.channels

    def __call__(self, data: Any, image_format: Any, place: Any) -> Any:
        """Decodes one image: uint8, of shape `shape`.

        Args:
            data: scalar string.
            image_format: scalar string; only used if the dataset has images in several formats.
            place: int64 [2]: (epoch, number of the example).
        """
        encoding = self.options.encoding
        if encoding == "keep":
            image = self._decode_any(image_format, data, place)
        else:
            image = self._decode(encoding, data, place)
        return tf.ensure_shape(image, self.shape)

    def _decode_any(self, image_format: Any, data: Any, place: Any) -> Any:
        """Decodes an image in the format that its record states."""
        matches = tf.equal(image_format, KEPT_FORMATS)
        index = tf.argmax(matches, output_type=tf.int32)
        branches = [functools.partial(self._decode, name, data, place) for name in KEPT_FORMATS]
        return tf.switch_case(index, branches)

    def check_header(self, data: Any, form: str) -> Any:
        """Checks the header of an image, or of several PNGs, and returns the bytes."""
        fillers = math.prod(self.image_size or ())  # fillers have this size
        most_pixels = max(self.options.most_stored_pixels, fillers)
        return check_header(data, form, most_pixels)

    def _decode(self, name: str, data: Any, place: Any) -> Any:
        """Decodes an image in a known format, and crops and resizes it."""
        if name != "raw":
            data = self.check_header(data, name)
        if self.image_size is None:
            return DECODERS[name](data, self.options.channels)
        key = self._key(place)
        part = self._decode_part(name, data, key)
        image = tf.image.resize(part, self.image_size, method="bilinear", antialias=True)
        if self.crop == "random":
            mirrored = tf.reverse(image, [1])
            image = tf.where(_is_mirrored(key), mirrored, image)
        rounded = tf.round(image)
        return tf.saturate_cast(rounded, tf.uint8)

    def _decode_part(self, name: str, data: Any, key: Any) -> Any:
        """Decodes the part of an image that is to be resized; in a JPEG, decodes only this part."""
        channels = self.options.channels
        if self.crop and name == "jpeg":
            shape = tf.io.extract_jpeg_shape(data)
            window = self._window(shape, key)
            return tf.io.decode_and_crop_jpeg(
                data, window, channels=channels, dct_method=_DCT_METHOD, fancy_upscaling=True
            )
        image = DECODERS[name](data, channels)
        if self.crop is None:
            return image
        window = self._window(tf.shape(image), key)
        top, left, height, width = tf.unstack(window)
        return tf.image.crop_to_bounding_box(image, top, left, height, width)

    def mask(self, data: Any, place: Any) -> Any:
        """Decodes the part of a mask that the image shows: int32 [height, width].

        Args:
            data: scalar string.
            place: as for the image.
        """
        return self._show_mask(_decode_mask(data), place)

    def box_mask(self, data: Any, place: Any) -> Any:
        """Decodes the part of a box's mask that the image shows: uint8, otherwise like `mask`."""
        pixels = tf.io.decode_png(data, channels=1)
        return self._show_mask(pixels[:, :, 0], place)

    def _show_mask(self, mask: Any, place: Any) -> Any:
        """Returns the part of a mask that the image shows: [height, width]."""
        if self.image_size is not None:
            mask = self._resize_mask(mask, self.image_size, place)
        return tf.ensure_shape(mask, self.shape[:2])

    def _resize_mask(self, mask: Any, image_size: tuple[int, int], place: Any) -> Any:
        """Crops and resizes a mask, [height, width], without interpolation."""
        size = tf.shape(mask)
        view = tf.constant([0.0, 0.0, 1.0, 1.0])
        if self.crop:
            view = self.view(size[::-1], place)
        left, top, right, bottom = tf.unstack(view)
        rows = _nearest(top, bottom, image_size[0], size[0])
        columns = _nearest(left, right, image_size[1], size[1])
        shown_rows = tf.gather(mask, rows, axis=0)
        return tf.gather(shown_rows, columns, axis=1)

    def view(self, size: Any, place: Any) -> Any:
        """Returns the part of an image that `crop` shows, as fractions of its sides: float32 [4].

        Args:
            size: width and height of the image, int32 [2].
            place: as for the image.

        Returns:
            Left, top, right and bottom; if the image is mirrored, right is less than left.
        """
        key = self._key(place)
        width, height = tf.unstack(size)
        shape = tf.stack([height, width, self.options.channels])
        window = self._window(shape, key)
        top, left, rows, columns = tf.unstack(window)
        right = left + columns
        bottom = top + rows
        sides = tf.stack([left, top, right, bottom])
        if self.crop == "random":
            mirrored = tf.gather(sides, [2, 1, 0, 3])
            sides = tf.where(_is_mirrored(key), mirrored, sides)
        shares = sides / tf.tile(size, [2])
        return tf.cast(shares, tf.float32)

    def _key(self, place: Any) -> Any:
        """Returns the key for random functions, which depends on the example."""
        epoch, number = tf.unstack(place)
        key = tf.constant([self.seed, 1], tf.int64)
        epoch_key = fold(key, epoch)
        return fold(epoch_key, number)

    def _window(self, shape: Any, key: Any) -> Any:
        """Returns top, left, height and width of the part to resize: int32 [4].

        Args:
            shape: height, width and channels, int32 [3].
            key: from `_key`.
        """
        if self.crop == "random":
            crop_key = fold(key, 0)
            begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
                shape, _EVERYWHERE, crop_key, use_image_if_no_bounding_boxes=True, **_CROPS
            )
            return tf.concat([begin[:2], size[:2]], 0)
        height, width, _ = tf.unstack(shape)
        target_height, target_width = self.image_size or (1, 1)
        rows = tf.clip_by_value(width * target_height // target_width, 1, height)
        columns = tf.clip_by_value(height * target_width // target_height, 1, width)
        size = tf.stack([rows, columns])
        margins = (shape[:2] - size) // 2
        return tf.concat([margins, size], 0)


def _decode_mask(data: Any) -> Any:
    """Decodes a PNG with 8 or 16 bits per pixel: int32 [height, width]."""

    def decode(dtype: Any) -> Any:
        values = tf.io.decode_png(data, channels=1, dtype=dtype)
        return tf.cast(values, tf.int32)

    num_bits = tf.strings.substr(data, 24, 1)  # a byte of the header
    has_16_bits = tf.equal(num_bits, b"\x10")
    mask = tf.cond(has_16_bits, lambda: decode(tf.uint16), lambda: decode(tf.uint8))
    return mask[:, :, 0]


def _nearest(begin: Any, end: Any, target_size: int, size: Any) -> Any:
    """Returns the pixels to take along a side in order to resize a part of it: int32 [target_size].

    Args:
        begin, end: ends of the part, as fractions of the side; the part is mirrored if the end
            comes first.
        target_size: number of pixels to take.
        size: number of pixels of the side.
    """
    steps = tf.range(target_size, dtype=tf.float32) + 0.5
    centers = begin + (end - begin) * steps / target_size
    places = centers * tf.cast(size, tf.float32)
    pixels = tf.cast(places, tf.int32)
    return tf.minimum(pixels, size - 1)


def _is_mirrored(key: Any) -> Any:
    mirror_key = fold(key, 1)
    return tf.random.stateless_uniform([], mirror_key) < 0.5


def fold(key: Any, number: Any) -> Any:
    """Derives a key for TensorFlow's stateless random functions from another key and a number.

    The key is [2] with the dtype of `number`. The new key equals the key from `tf.random.fold_in`
    with `alg="philox"`, which takes 38 ops.
    """
    word = tf.convert_to_tensor(number)
    begin = tf.raw_ops.StatelessRandomGetKeyCounter(seed=key)
    folded = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.constant([], tf.int32),
        key=begin.key,
        counter=begin.counter,
        alg=_PHILOX,
        dtype=word.dtype,
    )
    return tf.stack([folded, word])
