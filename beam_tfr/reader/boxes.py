"""Moves the boxes of objects with the pixels of their images, and brings them into the format that is asked for.

Objects are features by name, ragged [images, boxes], with one value for each box. Those of their sides become `BOXES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from beam_tfr.schema.boxes import BOXES, CLASSES, in_format
from beam_tfr.schema.features import OBJECT_LABEL, SIDES

MIN_VISIBLE = 0.1  # the share of its area that a box must keep in a crop; others are dropped


def collect(features: Mapping[str, Any]) -> dict[str, Any]:
    """The objects with their boxes, as shares of the stored image, and classes: 0 if they have no labels.

    Fails if the features of an image have different lengths.
    """
    first = features[SIDES[0]]
    same = [tf.reduce_all(tf.equal(values.row_splits, first.row_splits)) for values in features.values()]
    known = tf.raw_ops.Assert(condition=tf.reduce_all(same), data=["features of objects of different lengths"])
    with tf.control_dependencies([known]):
        boxes = tf.stack([features[side].flat_values for side in SIDES], axis=1)
    others = {name: values for name, values in features.items() if name not in (*SIDES, OBJECT_LABEL)}
    classes = features.get(OBJECT_LABEL, tf.zeros_like(first, tf.int64))
    return {**others, BOXES: first.with_flat_values(boxes), CLASSES: classes}


def follow(boxes: Any, views: Any) -> tuple[Any, Any]:
    """Boxes in crops of their images, clipped, as shares of the crop; and which keep enough of their area.

    Args:
        boxes: float32 [n, 4], sides as shares of the stored image.
        views: float32 [n, 4], of the image of each: see `ImageDecoder.view`.
    """
    begin, end = tf.split(views, 2, axis=1)
    corners = [(corner - begin) / (end - begin) for corner in tf.split(boxes, 2, axis=1)]
    moved = tf.concat([tf.minimum(*corners), tf.maximum(*corners)], axis=1)
    shown = tf.clip_by_value(moved, 0.0, 1.0)
    return shown, tf.math.divide_no_nan(_areas(shown), _areas(moved)) >= MIN_VISIBLE


def crop(objects: Mapping[str, Any], views: Any) -> dict[str, Any]:
    """The objects that crops of their images show; views: float32 [images, 4]."""
    boxes = objects[BOXES]
    shown, kept = follow(boxes.flat_values, tf.gather(views, boxes.value_rowids()))
    moved = {**objects, BOXES: boxes.with_flat_values(shown)}
    return {name: tf.ragged.boolean_mask(values, boxes.with_flat_values(kept)) for name, values in moved.items()}


def convert(boxes: Any, form: str, sizes: Any) -> Any:
    """Boxes in one of `BOX_FORMATS`; sizes: float32 [images, 2], what a width and a height of 1 become."""
    units = tf.gather(tf.tile(sizes, [1, 2]), boxes.value_rowids())
    return boxes.with_flat_values(tf.stack(in_format(form, tf.unstack(boxes.flat_values * units, axis=1)), axis=1))


def pad(objects: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The first objects of each image, dense [images, number, …], padded with 0 or nothing, and with class -1."""
    padded = {}
    for name, values in objects.items():
        shape = [values.shape[0], number, *values.shape[2:]]
        padded[name] = values.to_tensor(-1 if name == CLASSES else None, shape=shape)
    return padded


def _areas(boxes: Any) -> Any:
    return tf.reduce_prod(boxes[:, 2:] - boxes[:, :2], axis=1)
