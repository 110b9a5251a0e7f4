"""Lists the colors in which classes and mask values are drawn."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_tfr.features.shapes import Shape, Tint
from beam_tfr.inspection.pictures import color_of, each_shape

_MOST_ENTRIES = 40  # classes or mask values


class LegendEntry(NamedTuple):
    """A color and its meaning."""

    color: str
    text: str


class Legend(NamedTuple):
    """A list of colors and their meanings.

    Attributes:
        title: the kind of things that the colors represent.
        entries: the first entries.
        more: number of further entries.
    """

    title: str
    entries: list[LegendEntry]
    more: int


class DrawnShapes:
    """The classes and mask values that are drawn on pictures."""

    def __init__(self) -> None:
        self._labels = set[int]()
        self._values = set[int]()

    def add(self, stored: Mapping[str, Sequence[Any]]) -> None:
        """Adds the shapes that are drawn on the picture of a record."""
        each_shape(stored, self._add_shape)

    def _add_shape(self, shape: Shape) -> None:
        if isinstance(shape, Tint) and shape.label is None:
            counts = np.bincount(shape.pixels.reshape(-1))
            self._values.update(np.flatnonzero(counts).tolist())
        else:
            self._labels.add(int(shape.label or 0))

    def list_legends(self, names: Sequence[str]) -> list[Legend]:
        """Lists the legends for pictures of a dataset with these classes."""
        known = sorted(self._labels.intersection(range(len(names))))
        classes = [(label, names[label]) for label in known]
        values = [(value, str(value)) for value in sorted(self._values - {0})]
        legends = []
        if classes:
            legends.append(_make_legend("Colors of classes", classes))
        if values:
            legends.append(_make_legend("Colors of mask values; 0 has none", values))
        return legends


def _make_legend(title: str, pairs: Sequence[tuple[int, str]]) -> Legend:
    entries = [LegendEntry(color_of(number), text) for number, text in pairs[:_MOST_ENTRIES]]
    return Legend(title, entries, len(pairs) - len(entries))
