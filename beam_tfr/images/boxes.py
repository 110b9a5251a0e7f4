"""Places the boxes of a table's row where their pixels are in the record."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_tfr.images.instances import place_mask
from beam_tfr.images.mapping import map_boxes, map_points, source_size
from beam_tfr.options.tabular import TableOptions
from beam_tfr.records.box_counts import WHOLE
from beam_tfr.records.tensors import Values, message_class
from beam_tfr.schema import features as names
from beam_tfr.schema.boxes import RELATIVE, is_outside, tell_some
from beam_tfr.schema.columns import ColumnType
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Image, ImageRef


def place_boxes(
    image: Image, ref: ImageRef, *, columns: Mapping[str, ColumnType], options: TableOptions, memory: int
) -> tuple[Image, ImageRef, Values]:
    """Maps the boxes of a row, which are those of the upright source, to its record, and clips them.

    Args:
        image: the converted image.
        ref: its reference, with the columns of the row.
        columns: their types.
        options: how much of a box has to be visible, and what becomes of bad boxes, and of images without any.
        memory: bytes for the mask of a box while it is made.

    Returns:
        The image and the reference, with the notes, labels and columns of the boxes that are left; and their features.

    Raises:
        RejectError: a box is outside of the source, none is left, or the row states another size of it.
    """
    example = message_class("Example")().FromString(ref.columns or b"")
    feature = example.features.feature
    boxes = np.array(feature[names.BOXES].float_list.value, np.float64).reshape(-1, 4)
    bad = [name.decode() for name in feature[names.BAD_BOXES].bytes_list.value]
    del feature[names.BOXES], feature[names.BAD_BOXES]
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
    outside = [number for number, box in enumerate(boxes, 1) if is_outside(box.tolist(), (width, height))]
    if outside and options.bad_boxes == "reject":
        told = tell_some(bad or [f"box {number}" for number in outside])
        raise RejectError("bad-value", f"{told}: outside of the {width}x{height} pixels")
    mapped, visible = map_boxes(boxes, image.geometry)
    left = np.flatnonzero((visible >= options.min_visible * WHOLE) & (visible > 0)).tolist()
    if not left and options.no_boxes == "reject":
        raise RejectError("without-boxes", f"none is left of {len(boxes)} in the table")
    notes = {*image.adjusted} | ({"boxes-dropped"} if len(left) < len(boxes) - len(outside) else set())
    notes |= {"bad-boxes-dropped"} if bad or outside else set()
    notes |= {"boxes-clipped"} if (visible[left] < WHOLE).any() else set()
    notes |= {"no-boxes"} if not left else set()
    for name, of in columns.items():
        if of.each_box:
            values = getattr(feature[names.OBJECT_MASK if of.is_box_mask else name], f"{of.dtype}_list").value
            for at in left if of.is_box_mask else ():
                values[at] = place_mask(values[at], at + 1, image, relative=relative, memory=memory)
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
