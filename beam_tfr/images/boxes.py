"""Places the boxes of a table's row where their pixels are in the record."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_tfr.images.mapping import map_boxes, map_points, source_size
from beam_tfr.records.tensors import Values, message_class
from beam_tfr.schema import features as names
from beam_tfr.schema.boxes import RELATIVE
from beam_tfr.schema.columns import ColumnType
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Image, ImageRef

_WHOLE = 1 - 1e-5  # the visible share of a box that is not clipped, but for rounding in texts


def place_boxes(
    image: Image, ref: ImageRef, *, columns: Mapping[str, ColumnType], min_visible: float
) -> tuple[Image, ImageRef, Values]:
    """Maps the boxes of a row, which are those of the upright source, to its record, and clips them.

    Args:
        image: the converted image.
        ref: its reference, with the columns of the row.
        columns: their types.
        min_visible: share of its area that a box has to keep.

    Returns:
        The image and the reference, with the notes, labels and columns of the boxes that are left; and their features.

    Raises:
        RejectError: a box is outside of the source, or the row states another size of it.
    """
    example = message_class("Example")().FromString(ref.columns or b"")
    feature = example.features.feature
    boxes = np.array(feature[names.BOXES].float_list.value, np.float64).reshape(-1, 4)
    del feature[names.BOXES]
    width, height = source_size(image.geometry)
    stated = tuple(sum(feature[side].int64_list.value) for side in names.SOURCE_SIDES)
    for side in names.SOURCE_SIDES:
        del feature[side]
    if min(stated) > 0 and stated != (width, height):
        turned = ": its boxes ignore EXIF orientation" if stated == source_size(image.geometry, upright=False) else ""
        told = f"the table says {stated[0]}x{stated[1]} pixels, but the image has {width}x{height}{turned}"
        raise RejectError("bad-value", told)
    relative = any(of.boxes.startswith(RELATIVE) for of in columns.values())
    boxes *= (width, height, width, height) if relative else 1
    outside = (boxes[:, 2:] <= 0).any(axis=1) | (boxes[:, :2] >= (width, height)).any(axis=1)
    if outside.any():
        raise RejectError("bad-value", f"box {outside.argmax() + 1} is outside of the {width}x{height} pixels")
    mapped, visible = map_boxes(boxes, image.geometry)
    left = np.flatnonzero((visible >= min_visible * _WHOLE) & (visible > 0)).tolist()
    notes = {*image.adjusted} | ({"boxes-dropped"} if len(left) < len(boxes) else set())
    notes |= {"boxes-clipped"} if (visible[left] < _WHOLE).any() else set()
    notes |= {"no-boxes"} if not left else set()
    for name, of in columns.items():
        if of.each_box:
            values = getattr(feature[name], f"{of.dtype}_list").value
            values[:] = [values[at] for at in left]
        elif of.points:
            _place_points(feature, name, of.points, left, image)
    shares = mapped[left] / (image.width, image.height, image.width, image.height)
    placed: Values = {side: ("float", shares[:, at].tolist()) for at, side in enumerate(names.SIDES)}
    placed[names.VISIBLE] = ("float", visible[left].tolist())
    if ref.label_ids is not None:
        labels, label_ids = ([of[at] for at in left] for of in (ref.labels, ref.label_ids))
        ref = ref._replace(labels=tuple(labels), label_ids=tuple(label_ids))
        placed[names.OBJECT_LABEL] = ("int64", ref.label_ids or ())
        placed[names.OBJECT_TEXT] = ("bytes", [label.encode() for label in ref.labels])
    ref = ref._replace(columns=example.SerializeToString(deterministic=True))
    return dataclasses.replace(image, adjusted=tuple(sorted(notes))), ref, placed


def _place_points(feature: Any, name: str, form: str, left: Sequence[int], image: Image) -> None:
    """Maps the points of the boxes that are left to shares of the record; keypoints outside of it become 0, 0, 0."""
    x, y, *visibility, num = (
        getattr(feature[of], f"{dtype}_list").value for of, dtype in names.point_features(name, form).items()
    )
    size = source_size(image.geometry) if form.startswith(RELATIVE) else (1, 1)
    mapped = map_points(np.column_stack([x, y]) * size, image.geometry) / (image.width, image.height)
    stays = np.repeat(np.isin(np.arange(len(num)), left), num)
    mapped = mapped[stays]
    for seen in visibility:
        shown = (mapped >= 0).all(axis=1) & (mapped <= 1).all(axis=1)
        seen[:] = np.where(shown, np.array(seen, np.int64)[stays], 0).tolist()
        mapped *= np.array(seen, bool)[:, None]
    x[:], y[:] = mapped.T.tolist()
    num[:] = [num[at] for at in left]
