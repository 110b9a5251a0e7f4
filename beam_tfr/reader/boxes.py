"""Moves the boxes of objects with the pixels of their images, and brings them into the format that
is asked for.

Objects are features by name, ragged [images, boxes], with one value for each box. Those of their
sides become `BOXES`, and those of a column of points one of its name, ragged [images, boxes,
points, 2 or 3]: x, y and perhaps visibility.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from beam_tfr.schema.boxes import BOXES, CLASSES, in_format
from beam_tfr.schema.feature_names import OBJECT_LABEL, SIDES

MIN_VISIBLE = 0.1  # the share of its area that a box must keep in a crop; others are dropped


def collect(features: Mapping[str, Any], points: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The objects with their boxes, as shares of the stored image, and classes: 0 if they have no
    labels.

    Fails if the features of an image have different lengths.

    Args:
        features: those of boxes and points.
        points: those of each column of points, as in `Manifest.points`.
    """
    objects = {**features}
    first = features[SIDES[0]]
    in_points = {name for parts in points.values() for name in parts[:-1]}
    same = [
        tf.equal(features[name].row_splits, first.row_splits)
        for name in features
        if name not in in_points
    ]
    known = tf.raw_ops.Assert(
        condition=tf.reduce_all(same), data=["features of objects of different lengths"]
    )
    with tf.control_dependencies([known]):
        boxes = tf.stack([objects.pop(side).flat_values for side in SIDES], axis=1)
        for name, (*parts, num) in points.items():
            flat = tf.stack(
                [tf.cast(objects.pop(part).flat_values, tf.float32) for part in parts], axis=1
            )
            numbers = objects.pop(num)
            objects[name] = numbers.with_values(
                tf.RaggedTensor.from_row_lengths(flat, numbers.flat_values)
            )
    classes = objects.pop(OBJECT_LABEL, tf.zeros_like(first, tf.int64))
    return {**objects, BOXES: first.with_flat_values(boxes), CLASSES: classes}


def follow(boxes: Any, views: Any) -> tuple[Any, Any]:
    """Boxes in crops of their images, clipped, as shares of the crop; and which keep enough of
    their area.

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
    """The objects that crops of their images show; views: float32 [images, 4]. Points stay where
    they are."""
    boxes = objects[BOXES]
    shown, kept = follow(boxes.flat_values, tf.gather(views, boxes.value_rowids()))
    moved = {**objects, BOXES: boxes.with_flat_values(shown)}
    return {
        name: tf.ragged.boolean_mask(values, boxes.with_flat_values(kept))
        for name, values in moved.items()
    }


def convert(boxes: Any, form: str, sizes: Any) -> Any:
    """Boxes in one of `BOX_FORMATS`; sizes: float32 [images, 2], what a width and a height of 1
    become."""
    units = tf.gather(tf.tile(sizes, [1, 2]), boxes.value_rowids())
    return boxes.with_flat_values(
        tf.stack(in_format(form, tf.unstack(boxes.flat_values * units, axis=1)), axis=1)
    )


def move_points(points: Any, views: Any, sizes: Any) -> Any:
    """Points in crops of their images; keypoints outside of these become 0, 0, 0.

    Args:
        points: those of a column, as shares of the stored image.
        views, sizes: as those of `crop` and `convert`.
    """
    images = tf.gather(points.value_rowids(), points.values.value_rowids())
    begin, end = tf.split(tf.gather(views, images), 2, axis=1)
    places = points.flat_values[:, :2]
    visibility = points.flat_values[:, 2:]
    places = (places - begin) / (end - begin)
    if visibility.shape[1]:
        seen = tf.reduce_all(
            (visibility > 0) & (places >= 0) & (places <= 1), axis=1, keepdims=True
        )
        places = tf.where(seen, places, 0.0)
        visibility = tf.where(seen, visibility, 0.0)
    return points.with_flat_values(
        tf.concat([places * tf.gather(sizes, images), visibility], axis=1)
    )


def pad(objects: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The first objects of each image, dense [images, number, …], padded with 0 or nothing, and
    with class -1."""
    padded = {}
    for name, values in objects.items():
        shape = [values.shape[0], number, *values.shape[2:]]
        padded[name] = values.to_tensor(-1 if name == CLASSES else None, shape=shape)
    return padded


def _areas(boxes: Any) -> Any:
    return tf.reduce_prod(boxes[:, 2:] - boxes[:, :2], axis=1)
