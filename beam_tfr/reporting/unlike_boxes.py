"""Finds boxes of the width and height of another class, where sizes tell classes."""

from typing import NamedTuple

from beam_tfr.reporting.measuring import Measures
from beam_tfr.reporting.neighbors import find_contradicted


class UnlikeBoxes(NamedTuple):
    """Boxes of the width and height of another class.

    Attributes:
        number: of those that were looked at.
        labels: their classes, each once.
        records: that have them, each once.
    """

    number: int
    labels: list[int]
    records: list[int]


def find_unlike_boxes(measures: Measures) -> UnlikeBoxes:
    """Finds them among the boxes that were kept."""
    boxes = measures.box_rows
    places = find_contradicted(measures.box_sizes, boxes.labels)
    labels = sorted({*boxes.labels[places].tolist()})
    records = [*dict.fromkeys(boxes.records[places].tolist())]
    return UnlikeBoxes(len(places), labels, records)
