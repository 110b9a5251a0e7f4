"""Finds boxes whose width and height are typical of another class, if sizes tell classes apart."""

from typing import NamedTuple

from beam_tfr.reporting.measuring import Measures
from beam_tfr.reporting.neighbors import find_contradicted


class UnlikeBox(NamedTuple):
    """A box whose width and height are typical of another class.

    Attributes:
        record: number of the record that has the box.
        label: class of the box.
        expected: the class of boxes of this size.
    """

    record: int
    label: int
    expected: int


def find_unlike_boxes(measures: Measures) -> list[UnlikeBox]:
    """Finds such boxes among the boxes that were kept."""
    boxes = measures.box_rows
    rows, expected = find_contradicted(measures.box_sizes, boxes.labels)
    records = boxes.records[rows].tolist()
    return [*map(UnlikeBox, records, boxes.labels[rows].tolist(), expected.tolist())]
