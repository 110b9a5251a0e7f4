"""What is in the columns of the table that a dataset was made from."""

import collections
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from beam_tfr.reporting import charts
from beam_tfr.reporting.histograms import Histogram
from beam_tfr.reporting.measuring import Measures
from beam_tfr.reporting.samples import show_text

_BINS = 24
_MOST_VALUES = 10


class DescribedColumn(NamedTuple):
    """A column of a table.

    Attributes:
        name: of the column.
        missing: records without a value.
        different: values among the rows that were looked at.
        rows: how many these are.
        chart: of numbers; empty for texts.
        values: the most frequent texts, with their numbers of rows.
    """

    name: str
    missing: int
    different: int
    rows: int
    chart: Markup
    values: list[tuple[str, int]]


def describe_columns(measures: Measures) -> list[DescribedColumn]:
    """Describes the columns of a table, by the rows that were kept of them."""
    columns = []
    for name in measures.table.column_names:
        values = measures.table.column(name).drop_null().to_pylist()
        counts = collections.Counter[Any](values)
        is_text = any(isinstance(value, str) for value in counts)
        chart = Markup("")
        frequent = list[tuple[str, int]]()
        if is_text or len(counts) <= _MOST_VALUES:
            ordered = sorted(counts.items(), key=lambda pair: (-pair[1], str(pair[0])))
            frequent = [(show_text(str(value)), number) for value, number in ordered]
        else:
            chart = _draw_numbers(name, values)
        columns.append(
            DescribedColumn(
                name,
                measures.missing[name],
                len(counts),
                len(values),
                chart,
                frequent[:_MOST_VALUES],
            )
        )
    return columns


def _draw_numbers(name: str, values: list[float]) -> Markup:
    numbers = np.asarray(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers) or numbers.min() == numbers.max():
        return Markup("")
    histogram = Histogram(np.linspace(numbers.min(), numbers.max(), _BINS + 1))
    histogram.add(numbers)
    return charts.draw_histogram(histogram, name)
