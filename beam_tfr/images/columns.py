"""Maps the columns of a table row, such as boxes, to the pixels of the row's record."""

import dataclasses
from typing import NamedTuple

from beam_tfr.features.base import Values
from beam_tfr.features.boxes import BoxPolicy
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.features.labels import encode_box_labels
from beam_tfr.images.mapping import RecordPixels
from beam_tfr.records.examples import parse_values
from beam_tfr.schema.items import Image, ImageRef


class PlacedColumns(NamedTuple):
    """The columns of a row, as stored in the row's record.

    Attributes:
        image: the image, with the adjustments of its boxes.
        ref: the reference, with the labels of the remaining boxes, and without columns.
        values: the features made from the columns.
    """

    image: Image
    ref: ImageRef
    values: Values


def place_columns(
    image: Image,
    ref: ImageRef,
    *,
    features: FeaturesDict,
    policy: BoxPolicy,
    max_decode_bytes: int,
) -> PlacedColumns:
    """Maps the columns of a row, which describe the upright source, to the row's record.

    Args:
        image: the converted image.
        ref: the reference, with the columns of the row.
        features: the features of the dataset.
        policy: what to do with bad boxes, and with images without boxes.
        max_decode_bytes: memory limit for making the masks of boxes.

    Raises:
        RejectError: see `FeaturesDict.place`.
    """
    values = parse_values(ref.columns or b"")
    if ref.label_ids is not None:
        values |= encode_box_labels(ref.labels, ref.label_ids)
    placed = features.place(values, RecordPixels(image, max_decode_bytes), policy)
    if features.boxes and ref.label_ids is not None:
        ref = ref._replace(
            labels=tuple(ref.labels[number] for number in placed.kept),
            label_ids=tuple(ref.label_ids[number] for number in placed.kept),
        )
    adjusted = sorted({*image.adjusted, *placed.adjusted})
    image = dataclasses.replace(image, adjusted=tuple(adjusted))
    return PlacedColumns(image, ref._replace(columns=None), placed.features)
