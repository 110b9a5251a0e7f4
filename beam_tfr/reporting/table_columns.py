"""Describes the columns of the table that a dataset was made from."""

import collections
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from beam_tfr.console.terminal import counted
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.reporting import charts
from beam_tfr.reporting.histograms import Floats, Histogram
from beam_tfr.reporting.measuring import Measures
from beam_tfr.reporting.neighbors import MOST_COMPARED, find_contradicted
from beam_tfr.reporting.samples import show_text

_BINS = 24
_MOST_VALUES = 10
_FAR = 10  # times the width of the middle half
_FEW = 0.005  # fraction of values


class DescribedColumn(NamedTuple):
    """A column of a table.

    Attributes:
        name: name of the column.
        missing: number of records without a value.
        different: number of different values in the rows that were examined.
        rows: number of these rows.
        chart: a chart of numbers; empty for strings.
        beyond: what the chart leaves out; empty if it shows everything.
        values: the most frequent values, each with its number of rows.
    """

    name: str
    missing: int
    different: int
    rows: int
    chart: Markup
    beyond: str
    values: list[tuple[str, int]]


def describe_columns(measures: Measures) -> list[DescribedColumn]:
    """Describes the columns of a table, from the rows that were kept."""
    columns = []
    missing = {column.name: column.number for column in measures.missing}
    for name in measures.table.column_names:
        known = measures.table.column(name).drop_null().to_pylist()
        values = [value for value in known if value == value]  # without NaN
        counts = collections.Counter[Any](values)
        is_text = any(isinstance(value, str) for value in counts)
        chart = Markup("")
        beyond = ""
        frequent = list[tuple[str, int]]()
        if is_text or len(counts) <= _MOST_VALUES:
            ordered = sorted(counts.items(), key=lambda pair: (-pair[1], str(pair[0])))
            frequent = [(show_text(str(value)), number) for value, number in ordered]
        else:
            chart, beyond = _draw_numbers(name, values)
        columns.append(
            DescribedColumn(
                name,
                missing[name],
                len(counts),
                len(values),
                chart,
                beyond,
                frequent[:_MOST_VALUES],
            )
        )
    return columns


def _draw_numbers(name: str, values: list[float]) -> tuple[Markup, str]:
    """Draws a chart of the values close to most others; also returns what it leaves out."""
    numbers = np.asarray(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers) or numbers.min() == numbers.max():
        return Markup(""), ""
    low, high = _find_fences(numbers)
    is_inside = (numbers >= low) & (numbers <= high)
    inside = numbers[is_inside]
    histogram = Histogram(np.linspace(inside.min(), inside.max(), _BINS + 1))
    histogram.add(inside)
    return charts.draw_histogram(histogram, name), _describe_outside(numbers[~is_inside])


def _describe_outside(numbers: Floats) -> str:
    """Returns a sentence about the values that a chart leaves out, or "" if there are none."""
    if not len(numbers):
        return ""
    least = charts.format_number(numbers.min())
    most = charts.format_number(numbers.max())
    extent = least if least == most else f"{least} to {most}"
    verb = "is" if len(numbers) == 1 else "are"
    return f"{counted(len(numbers), 'value')} far outside {verb} not in the chart: {extent}"


def _find_fences(numbers: Floats) -> tuple[float, float]:
    """Returns two limits between which nearly all values are."""
    low, high = np.percentile(numbers, [25, 75]).tolist()
    if low == high:
        return -np.inf, np.inf
    width = _FAR * (high - low)
    return low - width, high + width


class FarValues(NamedTuple):
    """Values of a column that are far from nearly all others.

    Attributes:
        column: name of the column.
        values: the values.
        records: the records that have them.
    """

    column: str
    values: list[float]
    records: list[int]


def find_far_values(measures: Measures) -> list[FarValues]:
    """Finds columns with a few values that are far from all others, as mistakes often are."""
    columns = []
    for name, numbers in _list_numeric(measures):
        finite = numbers[np.isfinite(numbers)]
        if not len(finite):
            continue
        low, high = _find_fences(finite)
        places = np.flatnonzero((numbers < low) | (numbers > high))
        if 0 < len(places) <= max(1, _FEW * len(finite)):
            records = measures.table_rows.records[places].tolist()
            columns.append(FarValues(name, numbers[places].tolist(), records))
    return columns


class ContradictedRow(NamedTuple):
    """A row whose numbers resemble those of another class.

    Attributes:
        record: number of the record.
        label: class of the row.
        expected: the class that the row resembles.
        columns: columns in which the row differs from its own class.
    """

    record: int
    label: int
    expected: int
    columns: list[str]


def find_contradicted_rows(measures: Measures) -> list[ContradictedRow]:
    """Finds rows whose numeric columns resemble those of another class."""
    columns = dict(_list_numeric(measures))
    labels = measures.table_rows.labels
    step = 1 + len(labels) // MOST_COMPARED
    chosen = np.flatnonzero(labels >= 0)[::step]
    if not columns or not len(chosen):
        return []
    values = np.stack([*columns.values()], axis=1)[chosen]
    own = labels[chosen]
    found = []
    for row, expected in zip(*find_contradicted(values, own), strict=True):
        is_unlike = _is_unlike(values[row], values[own == own[row]])
        unlike = [name for name, differs in zip(columns, is_unlike, strict=True) if differs]
        record = int(measures.table_rows.records[chosen[row]])
        found.append(ContradictedRow(record, int(own[row]), int(expected), unlike or [*columns]))
    return found


def _is_unlike(row: Floats, others: Floats) -> NDArray[np.bool_]:
    """Returns which columns of a row are far from the middle half of the others: bool [columns]."""
    low, high = np.nanpercentile(others, [25, 75], axis=0)
    beyond = np.maximum(low - row, row - high)
    is_far: NDArray[np.bool_] = np.nan_to_num(beyond) > (high - low)
    return is_far


def _list_numeric(measures: Measures) -> Iterator[tuple[str, Floats]]:
    """Yields numeric columns with at least one number, with NaN for missing values."""
    pa = need_pyarrow()
    for name in measures.table.column_names:
        column = measures.table.column(name)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            continue
        numbers = column.cast(pa.float64()).to_numpy().copy()
        numbers[~np.isfinite(numbers)] = np.nan
        if np.isfinite(numbers).any():
            yield name, numbers
