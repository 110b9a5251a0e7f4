"""Handles the objects in an image: their boxes, with the labels and values of each box."""

from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfr.features.base import FeatureKind, Stored
from beam_tfr.features.boxes import BOXES_KEY, CLASSES_KEY
from beam_tfr.schema.feature_names import SIDES

MIN_VISIBLE = 0.1  # fraction of its area that a box must keep in a crop, or it is dropped


def object_problems(stored: Stored, kinds: tuple[FeatureKind, ...]) -> Iterator[str]:
    """Yields what is wrong with the boxes of a record.

    Args:
        stored: the record.
        kinds: the features of the dataset.
    """
    number = len(stored[SIDES[0]])
    for kind in kinds:
        if not kind.fits_boxes(stored, number):
            yield (
                "its boxes differ in number from labels, masks or points, or extend beyond the "
                "image"
            )
            return


def check_lengths(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tensors of objects; reading them fails if their lengths in an image differ.

    Args:
        objects: ragged [images, boxes, …], by key.
    """
    import tensorflow as tf

    splits = [values.row_splits for values in objects.values()]
    is_same = [tf.equal(other, splits[0]) for other in splits[1:]]
    check = tf.raw_ops.Assert(
        condition=tf.reduce_all(is_same), data=["features of objects have different lengths"]
    )
    with tf.control_dependencies([check]):
        checked: dict[str, Any] = tf.nest.map_structure(
            tf.identity, dict(objects), expand_composites=True
        )
        return checked


def crop_objects(objects: Mapping[str, Any], views: Any) -> dict[str, Any]:
    """Returns the objects that are visible in crops of their images.

    Their boxes are clipped, and given as fractions of the crop.

    Args:
        objects: ragged [images, boxes, …], by key; boxes as fractions of the stored image.
        views: float32 [images, 4], the visible part of each image.
    """
    import tensorflow as tf

    boxes = objects[BOXES_KEY]
    views_of_boxes = tf.gather(views, boxes.value_rowids())
    shown, is_kept = crop_boxes(boxes.flat_values, views_of_boxes)
    kept = boxes.with_flat_values(is_kept)
    cropped = {**objects, BOXES_KEY: boxes.with_flat_values(shown)}
    return {key: tf.ragged.boolean_mask(values, kept) for key, values in cropped.items()}


def crop_boxes(boxes: Any, views: Any) -> tuple[Any, Any]:
    """Clips boxes to crops of their images; also returns whether enough of each box is visible.

    Args:
        boxes: float32 [n, 4], sides as fractions of the stored image.
        views: float32 [n, 4], the visible part of each box's image.
    """
    import tensorflow as tf

    begin, end = tf.split(views, 2, axis=1)
    sides = end - begin
    first, last = tf.split(boxes, 2, axis=1)
    first = (first - begin) / sides
    last = (last - begin) / sides
    low = tf.minimum(first, last)  # right is less than left where the crop is mirrored
    high = tf.maximum(first, last)
    moved = tf.concat([low, high], axis=1)
    shown = tf.clip_by_value(moved, 0.0, 1.0)
    visible = tf.math.divide_no_nan(_areas(shown), _areas(moved))
    return shown, visible >= MIN_VISIBLE


def _areas(boxes: Any) -> Any:
    import tensorflow as tf

    first, last = tf.split(boxes, 2, axis=1)
    return tf.reduce_prod(last - first, axis=1)


def pad_objects(objects: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Returns the first `number` objects of each image as dense tensors, [images, number, …].

    The values of missing objects are 0 or empty, and their class is -1.
    """
    padded = {}
    for key, values in objects.items():
        missing = -1 if key == CLASSES_KEY else None
        shape = [values.shape[0], number, *values.shape[2:]]
        padded[key] = values.to_tensor(missing, shape=shape)
    return padded
