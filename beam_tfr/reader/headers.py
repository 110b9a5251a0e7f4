"""Checks the headers of images before they are decoded, as part of TensorFlow's graph.

Datasets may come from untrusted sources: an image of a few bytes can take gigabytes to decode, and
several images are decoded at once. A check takes a few microseconds; for a large PNG, 3% to 11% of
the time to decode it, because all bytes are searched.
"""

from typing import Any

import tensorflow as tf

from beam_tfr.dataset.image_sides import PNG_BEGIN, PNG_SIDES
from beam_tfr.features.png_chunks import INFLATED_TEXTS, MAX_INFLATED_TEXTS

_MOST_FREE_BYTES = 128 << 10  # 128 KiB of a PNG inflate to at most 135 MB
_WEBP_KINDS = ["VP8 ", "VP8L", "VP8X"]  # kinds of the first chunk, which states the sides: RFC 9649
_WEBP_BYTES = 30  # the first bytes, which state the sides
_VP8X_REFUSED = 0x10 | 0x02  # flags: transparency, animation; some of these crash TensorFlow


def check_header(data: Any, form: str, most_pixels: int) -> Any:
    """Returns the bytes of an image after checking its header.

    Evaluating the result fails unless the image has this format, and its header states at most
    `most_pixels` pixels. A PNG may have at most `MAX_INFLATED_TEXTS` texts of each
    kind that decoders inflate.

    Args:
        data: a scalar string; for PNGs, strings of any shape.
        form: jpeg, png or webp.
        most_pixels: the largest number of pixels that the image may have.
    """
    problem = f"an image is not a {form}, or has more than {most_pixels:,} pixels"
    if form == "jpeg":
        fits = _fits_jpeg(data, most_pixels)
    elif form == "png":
        fits = _fits_png(data, most_pixels) & _has_few_texts(data)
        problem += f" or {MAX_INFLATED_TEXTS} zTXt or iTXt chunks"
    else:
        fits = _fits_webp(data, most_pixels)
    check = tf.raw_ops.Assert(condition=fits, data=[problem])
    with tf.control_dependencies([check]):
        return tf.identity(data)


def _fits_jpeg(data: Any, most_pixels: int) -> Any:
    shape = tf.io.extract_jpeg_shape(data, tf.int64)  # fails for other formats
    return tf.reduce_prod(shape[:2]) <= most_pixels


def _fits_png(data: Any, most_pixels: int) -> Any:
    begin = tf.strings.substr(data, 0, len(PNG_BEGIN))
    stated = tf.strings.substr(data, PNG_SIDES.start, PNG_SIDES.stop - PNG_SIDES.start)
    sides = tf.io.decode_raw(stated, tf.int32, little_endian=False)
    pixels = tf.reduce_prod(tf.cast(sides, tf.int64), axis=-1)
    fits = tf.equal(begin, PNG_BEGIN) & (pixels <= most_pixels)
    return tf.reduce_all(fits) & (tf.reduce_min(sides) > 0)  # 32 bits may be negative


def _has_few_texts(data: Any) -> Any:
    """Whether each large PNG has few texts, as in `png_chunks.text_problem`."""
    files = tf.reshape(data, [-1])
    large = tf.boolean_mask(files, tf.strings.length(files) > _MOST_FREE_BYTES)
    parts = [
        tf.raw_ops.StringSplitV2(input=large, sep=kind, maxsplit=MAX_INFLATED_TEXTS + 1)
        for kind in INFLATED_TEXTS
    ]
    most_parts = tf.reduce_max([split.shape[1] for split in parts])
    return most_parts <= MAX_INFLATED_TEXTS + 1


def _fits_webp(data: Any, most_pixels: int) -> Any:
    is_kind = tf.equal(tf.strings.substr(data, 12, 4), _WEBP_KINDS)
    index = tf.argmax(is_kind, output_type=tf.int32)
    begin = tf.io.decode_raw(tf.strings.substr(data, 0, _WEBP_BYTES), tf.uint8)
    head = tf.cast(tf.ensure_shape(begin, [_WEBP_BYTES]), tf.int64)
    branches = [lambda: _vp8_pixels(head), lambda: _vp8l_pixels(head), lambda: _vp8x_pixels(head)]
    pixels = tf.switch_case(index, branches)
    is_still = tf.not_equal(index, 2) | tf.equal(head[20] & _VP8X_REFUSED, 0)
    return tf.reduce_any(is_kind) & is_still & (pixels <= most_pixels)


def _vp8_pixels(head: Any) -> Any:
    width = _little_endian(head[26:28]) & 0x3FFF
    height = _little_endian(head[28:30]) & 0x3FFF
    return width * height


def _vp8l_pixels(head: Any) -> Any:
    sides = _little_endian(head[21:25])
    width = (sides & 0x3FFF) + 1
    height = (tf.bitwise.right_shift(sides, 14) & 0x3FFF) + 1
    return width * height


def _vp8x_pixels(head: Any) -> Any:
    width = _little_endian(head[24:27]) + 1
    height = _little_endian(head[27:30]) + 1
    return width * height


def _little_endian(values: Any) -> Any:
    """Returns the number that little-endian bytes encode: int64."""
    factors = [256**place for place in range(values.shape[0])]
    return tf.reduce_sum(values * factors)
