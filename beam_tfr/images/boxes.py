"""Places the boxes of a table's row where their pixels are in the record."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_tfr.images.instances import place_mask
from beam_tfr.images.mapping import map_boxes, map_points, source_size
from beam_tfr.records.tensors import Values, message_class
from beam_tfr.schema import features as names
from beam_tfr.schema.boxes import RELATIVE
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Image, ImageRef

_WHOLE = 1 - 1e-5  # the visible share of a box that is not clipped, but for rounding in texts


class BoxColumns(NamedTuple):
    """How the boxes of rows become those of records.

    Attributes:
        relative: whether they are shares of the sides of the image.
        beside: columns with a value for each box.
        min_visible: share of its area that a box has to keep.
        points: columns of points, with their types.
        max_decode_bytes: of memory, to make their masks.
    """

    relative: bool
    beside: tuple[str, ...]
    min_visible: float
    points: Mapping[str, str]
    max_decode_bytes: int

    @classmethod
    def of(cls, columns: Mapping[str, str] | None, min_visible: float, max_decode_bytes: int) -> BoxColumns | None:
        """Those of columns with their types; None if none holds boxes."""
        found = dict(columns or {})
        boxes = names.box_columns(found)
        beside = [name for name, kind in found.items() if kind.endswith("[box]") and kind != names.MASK_OF_BOX]
        beside += [names.OBJECT_MASK] if names.object_mask_columns(found) else []
        if not boxes:
            return None
        relative, points = found[boxes[0]].startswith(f"bbox[{RELATIVE}"), names.point_columns(found)
        return cls(relative, tuple(beside), min_visible, points, max_decode_bytes)


def place_boxes(image: Image, ref: ImageRef, how: BoxColumns) -> tuple[Image, ImageRef, Values]:
    """Maps the boxes of a row, which are those of the upright source, to its record, and clips them.

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
    boxes *= (width, height, width, height) if how.relative else 1
    outside = (boxes[:, 2:] <= 0).any(axis=1) | (boxes[:, :2] >= (width, height)).any(axis=1)
    if outside.any():
        raise RejectError("bad-value", f"box {outside.argmax() + 1} is outside of the {width}x{height} pixels")
    mapped, visible = map_boxes(boxes, image.geometry)
    left = np.flatnonzero((visible >= how.min_visible * _WHOLE) & (visible > 0)).tolist()
    notes = {*image.adjusted} | ({"boxes-dropped"} if len(left) < len(boxes) else set())
    notes |= {"boxes-clipped"} if (visible[left] < _WHOLE).any() else set()
    notes |= {"no-boxes"} if not left else set()
    for at in left if names.OBJECT_MASK in how.beside else ():
        masks = feature[names.OBJECT_MASK].bytes_list.value
        masks[at] = place_mask(masks[at], at + 1, image, relative=how.relative, memory=how.max_decode_bytes)
    for name in how.beside:
        values = getattr(feature[name], feature[name].WhichOneof("kind")).value
        values[:] = [values[at] for at in left]
    for name, kind in how.points.items():
        _place_points(feature, name, kind, left, image)
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


def _place_points(feature: Any, name: str, kind: str, left: Sequence[int], image: Image) -> None:
    """Maps the points of the boxes that are left to shares of the record; keypoints outside of it become 0, 0, 0."""
    x, y, *visibility, num = (
        getattr(feature[of], f"{dtype}_list").value for of, dtype in names.point_features(name, kind).items()
    )
    size = source_size(image.geometry) if kind.startswith(f"points[{RELATIVE}") else (1, 1)
    mapped = map_points(np.column_stack([x, y]) * size, image.geometry) / (image.width, image.height)
    stays = np.repeat(np.isin(np.arange(len(num)), left), num)
    mapped = mapped[stays]
    for seen in visibility:
        shown = (mapped >= 0).all(axis=1) & (mapped <= 1).all(axis=1)
        seen[:] = np.where(shown, np.array(seen, np.int64)[stays], 0).tolist()
        mapped *= np.array(seen, bool)[:, None]
    x[:], y[:] = mapped.T.tolist()
    num[:] = [num[at] for at in left]
