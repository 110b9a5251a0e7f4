"""Finds boxes of the width and height of another class, where sizes tell classes."""

from typing import NamedTuple

from beam_tfr.reporting.measuring import Measures
from beam_tfr.reporting.neighbors import find_contradicted


class UnlikeBox(NamedTuple):
    """A box of the width and height of another class.

    Attributes:
        record: number of the record that has it.
        label: its class.
        expected: the class of boxes of its size.
    """

    record: int
    label: int
    expected: int


def find_unlike_boxes(measures: Measures) -> list[UnlikeBox]:
    """Finds them among the boxes that were kept."""
    boxes = measures.box_rows
    rows, expected = find_contradicted(measures.box_sizes, boxes.labels)
    records = boxes.records[rows].tolist()
    return [*map(UnlikeBox, records, boxes.labels[rows].tolist(), expected.tolist())]
