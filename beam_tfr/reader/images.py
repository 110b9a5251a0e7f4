"""Decodes an image with TensorFlow, and crops and resizes it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from beam_tfr.dataset.manifest import KEPT_FORMATS
from beam_tfr.options import ImageOptions

# Format -> from (bytes, 1 or 3 channels) to uint8 [height, width, channels].
DECODERS: dict[str, Callable[[Any, int], Any]] = {
    # INTEGER_ACCURATE gives libjpeg-turbo's own pixels at the same cost; TensorFlow's default
    # differs in most values.
    "jpeg": lambda data, channels: tf.io.decode_jpeg(
        data, channels=channels, dct_method="INTEGER_ACCURATE"
    ),
    "png": lambda data, channels: tf.io.decode_png(data, channels=channels),
    # The first frame; without channels=3, which refuses an alpha plane.
    "webp": lambda data, channels: tf.io.decode_webp(data)[0, :, :, :channels],
    "raw": lambda data, channels: _broadcast(tf.io.parse_tensor(data, tf.uint8), channels),
}
# Random crops, as for ImageNet: Szegedy et al., "Going deeper with convolutions", section 6 (2014).
_CROPS = {
    "area_range": (0.08, 1.0),
    "aspect_ratio_range": (3 / 4, 4 / 3),
    "min_object_covered": 0.0,
}
_EVERYWHERE = tf.zeros([1, 0, 4], tf.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageDecoder:
    """Decodes the images of a dataset.

    Attributes:
        options: how they were converted.
        image_size: height and width to resize them to; None keeps their size.
        crop: which part of them to resize: None all, "center" the largest centered part of the new
            shape, "random" a random part, possibly mirrored.
        seed: seed for random parts.
    """

    options: ImageOptions
    image_size: tuple[int, int] | None = None
    crop: str | None = None
    seed: int = 0

    @property
    def shape(self) -> tuple[int | None, int | None, int]:
        return *(self.image_size or self.options.stored_size or (None, None)), self.options.channels

    def __call__(self, data: Any, image_format: Any, place: Any) -> Any:
        """Decodes one image: uint8 `shape`.

        Args:
            data: scalar string.
            image_format: scalar string; of no effect unless the dataset has images of several
                formats.
            place: int64 [2], (epoch, number of the example).
        """
        if self.options.encoding != "keep":
            image = self._decode(self.options.encoding, data, place)
        else:
            index = tf.argmax(tf.equal(image_format, KEPT_FORMATS), output_type=tf.int32)
            branches = [functools.partial(self._decode, name, data, place) for name in KEPT_FORMATS]
            image = tf.switch_case(index, branches)
        return tf.ensure_shape(image, self.shape)

    def _decode(self, name: str, data: Any, place: Any) -> Any:
        if self.image_size is None:
            return DECODERS[name](data, self.options.channels)
        key = self._key(place)
        if name == "jpeg" and self.crop:
            window = self._window(tf.io.extract_jpeg_shape(data), key)
            image = tf.io.decode_and_crop_jpeg(
                data,
                window,
                channels=self.options.channels,
                dct_method="INTEGER_ACCURATE",
                fancy_upscaling=True,
            )
        else:
            image = DECODERS[name](data, self.options.channels)
            if self.crop:
                image = tf.image.crop_to_bounding_box(
                    image, *tf.unstack(self._window(tf.shape(image), key))
                )
        image = tf.image.resize(image, self.image_size, method="bilinear", antialias=True)
        if self.crop == "random":
            image = tf.where(_is_mirrored(key), tf.reverse(image, [1]), image)
        return tf.saturate_cast(tf.round(image), tf.uint8)

    def mask(self, data: Any, place: Any) -> Any:
        """Decodes the mask of an image, where the image shows it: int32, `shape` without channels.

        Args:
            data: scalar string.
            place: as for the image.
        """
        mask = tf.cond(
            tf.equal(
                tf.strings.substr(data, 24, 1), b"\x10"
            ),  # the bits of a pixel, in a PNG's header
            lambda: tf.cast(tf.io.decode_png(data, channels=1, dtype=tf.uint16), tf.int32),
            lambda: tf.cast(tf.io.decode_png(data, channels=1), tf.int32),
        )[:, :, 0]
        if self.image_size:
            size = tf.shape(mask)
            view = self.view(size[1::-1], place) if self.crop else tf.constant([0.0, 0.0, 1.0, 1.0])
            for axis, side in enumerate(self.image_size):
                begin = view[1 - axis]
                end = view[3 - axis]
                centers = begin + (end - begin) * (tf.range(side, dtype=tf.float32) + 0.5) / side
                pixels = tf.cast(centers * tf.cast(size[axis], tf.float32), tf.int32)
                mask = tf.gather(mask, tf.minimum(pixels, size[axis] - 1), axis=axis)
        return tf.ensure_shape(mask, self.shape[:2])

    def view(self, size: Any, place: Any) -> Any:
        """The part that `crop` shows of an image, as shares of its sides, float32 [4].

        Args:
            size: its width and height, int32 [2].
            place: as for the image.

        Returns:
            Left, top, right and bottom; if it is mirrored, right is less than left.
        """
        key = self._key(place)
        window = self._window(tf.stack([size[1], size[0], self.options.channels]), key)
        sides = tf.stack([window[1], window[0], window[1] + window[3], window[0] + window[2]])
        if self.crop == "random":
            sides = tf.where(_is_mirrored(key), tf.gather(sides, [2, 1, 0, 3]), sides)
        return tf.cast(sides / tf.tile(size, [2]), tf.float32)

    def _key(self, place: Any) -> Any:
        return fold(fold(tf.constant([self.seed, 1], tf.int64), place[0]), place[1])

    def _window(self, shape: Any, key: Any) -> Any:
        """The part to resize: its top, left, height and width, int32 [4]."""
        if self.crop == "random":
            begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
                shape, _EVERYWHERE, fold(key, 0), use_image_if_no_bounding_boxes=True, **_CROPS
            )
            return tf.concat([begin[:2], size[:2]], 0)
        height = shape[0]
        width = shape[1]
        wanted_height, wanted_width = self.image_size or (1, 1)
        rows = tf.clip_by_value(width * wanted_height // wanted_width, 1, height)
        columns = tf.clip_by_value(height * wanted_width // wanted_height, 1, width)
        size = tf.stack([rows, columns])
        return tf.concat([(shape[:2] - size) // 2, size], 0)


def _broadcast(pixels: Any, channels: int) -> Any:
    """Repeats a gray channel: [h, w, 1 or channels] to [h, w, channels]."""
    pixels = tf.ensure_shape(pixels, [None, None, None])
    return tf.broadcast_to(pixels, tf.concat([tf.shape(pixels)[:2], [channels]], 0))


def _is_mirrored(key: Any) -> Any:
    return tf.random.stateless_uniform([], fold(key, 1)) < 0.5


def fold(key: Any, number: Any) -> Any:
    """A key of TensorFlow's stateless random functions, drawn from another and a number: int64
    [2]."""
    return tf.random.fold_in(key, number, alg="philox")
