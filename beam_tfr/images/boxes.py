"""Places the boxes of a table's row where their pixels are in the record."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_tfr.images.instances import place_mask
from beam_tfr.images.mapping import map_boxes, map_points, source_size
from beam_tfr.options.tabular import TableOptions
from beam_tfr.records.box_counts import WHOLE
from beam_tfr.records.examples import serialize
from beam_tfr.records.tensors import Values, message_class
from beam_tfr.schema import feature_names
from beam_tfr.schema.boxes import RELATIVE, is_outside
from beam_tfr.schema.columns import ColumnType
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.features import column_features
from beam_tfr.schema.items import Image, ImageRef


def place_boxes(
    image: Image,
    ref: ImageRef,
    *,
    columns: Mapping[str, ColumnType],
    options: TableOptions,
    memory: int,
) -> tuple[Image, ImageRef]:
    """Maps the boxes of a row, which are those of the upright source, to its record, and clips
    them.

    Args:
        image: the converted image.
        ref: its reference, with the columns of the row.
        columns: their types.
        options: how much of a box has to be visible, and what becomes of bad boxes, and of images
            without any.
        memory: bytes for the mask of a box while it is made.

    Returns:
        The image and the reference, with the notes, labels and columns of the boxes that are left,
        and their features.

    Raises:
        RejectError: a box is outside of the source, none is left, or the row states another size of
            it.
    """
    example = message_class("Example")().FromString(ref.columns or b"")
    feature = example.features.feature
    boxes = np.array(feature[feature_names.BOXES].float_list.value, np.float64).reshape(-1, 4)
    bad = [name.decode() for name in feature[feature_names.BAD_BOXES].bytes_list.value]
    stated = tuple(sum(feature[side].int64_list.value) for side in feature_names.SOURCE_SIDES)
    for name in (feature_names.BOXES, feature_names.BAD_BOXES, *feature_names.SOURCE_SIDES):
        del feature[name]
    width, height = source_size(image.geometry)
    if min(stated) > 0 and stated != (width, height):
        if stated == source_size(image.geometry, upright=False):
            turned = ": its boxes ignore EXIF orientation"
        else:
            turned = ""
        sizes = f"the table says {stated[0]}x{stated[1]} pixels, but the image has {width}x{height}"
        raise RejectError("bad-value", f"{sizes}{turned}")
    relative = any(column.boxes.startswith(RELATIVE) for column in columns.values())
    boxes *= (width, height, width, height) if relative else 1
    outside = [
        number for number, box in enumerate(boxes, 1) if is_outside(box.tolist(), (width, height))
    ]
    if outside and options.bad_boxes == "reject":
        listed = join_texts(bad or [f"box {number}" for number in outside])
        raise RejectError("bad-value", f"{listed}: outside of the {width}x{height} pixels")
    mapped, visible = map_boxes(boxes, image.geometry)
    kept = np.flatnonzero((visible >= options.min_visible * WHOLE) & (visible > 0)).tolist()
    if not kept and options.no_boxes == "reject":
        raise RejectError("without-boxes", f"none is left of {len(boxes)} in the table")
    notes = {*image.adjusted} | (
        {"boxes-dropped"} if len(kept) < len(boxes) - len(outside) else set()
    )
    notes |= {"bad-boxes-dropped"} if bad or outside else set()
    notes |= {"boxes-clipped"} if (visible[kept] < WHOLE).any() else set()
    notes |= {"no-boxes"} if not kept else set()
    for name, column in columns.items():
        if not column.each_box or column.boxes:
            continue
        own = column_features(name, column).items()
        *parts, values = (getattr(feature[part], f"{dtype}_list").value for part, (dtype, _) in own)
        if column.points:
            of_kept = np.repeat(np.isin(np.arange(len(values)), kept), values)
            _place_points(
                *parts, of_kept=of_kept, image=image, relative=column.points.startswith(RELATIVE)
            )
        for index in kept if column.is_box_mask else ():
            values[index] = place_mask(
                values[index], index + 1, image, relative=relative, memory=memory
            )
        values[:] = [values[index] for index in kept]
    shares = mapped[kept] / (image.width, image.height, image.width, image.height)
    placed: Values = {
        side: ("float", shares[:, number].tolist())
        for number, side in enumerate(feature_names.SIDES)
    }
    placed[feature_names.VISIBLE] = ("float", visible[kept].tolist())
    if ref.label_ids is not None:
        labels = tuple(ref.labels[index] for index in kept)
        ref = ref._replace(labels=labels, label_ids=tuple(ref.label_ids[index] for index in kept))
        placed[feature_names.OBJECT_LABEL] = ("int64", ref.label_ids or ())
        placed[feature_names.OBJECT_TEXT] = ("bytes", [label.encode() for label in labels])
    ref = ref._replace(columns=serialize(placed, example.SerializeToString()))
    return dataclasses.replace(image, adjusted=tuple(sorted(notes))), ref


def _place_points(
    x: Any, y: Any, *visibility: Any, of_kept: Any, image: Image, relative: bool
) -> None:
    """Maps the points of the boxes that are kept to shares of the record; keypoints outside of it
    become 0, 0, 0."""
    size = source_size(image.geometry) if relative else (1, 1)
    mapped = map_points(np.column_stack([x, y]) * size, image.geometry) / (
        image.width,
        image.height,
    )
    mapped = mapped[of_kept]
    for flags in visibility:
        inside = (mapped >= 0).all(axis=1) & (mapped <= 1).all(axis=1)
        flags[:] = np.where(inside, np.array(flags, np.int64)[of_kept], 0).tolist()
        mapped *= np.array(flags, bool)[:, None]
    x[:], y[:] = mapped.T.tolist()
