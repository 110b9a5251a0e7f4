"""Draws charts as SVG, to embed in the page."""

import itertools
import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from beam_tfr.reporting.histograms import HeatMap, Histogram

_WIDTH = 320
_HEIGHT = 96
_AXIS = 18  # pixels below the bars, for numbers
_CELL = 8  # pixels of a heat map

_FIGURE = Markup(
    '<svg class="chart" role="img" viewBox="0 0 {width} {height}" width="{width}" '
    'height="{height}"><title>{title}</title>{content}</svg>'
)
_BAR = Markup(
    '<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">'
    "<title>{title}</title></rect>"
)
_TEXT = Markup('<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{text}</text>')
_CELL_RECT = Markup(
    '<rect class="bar" x="{x}" y="{y}" width="{side}" height="{side}" fill-opacity="{share:.2f}"/>'
)


def format_number(value: float) -> str:
    """Formats a number with three digits, or as a whole number: "0.25", "1.5", "1,024"."""
    if value and abs(value) < 100 and value != round(value):
        return f"{value:.3g}"
    return f"{value:,.0f}"


def format_bytes(value: float) -> str:
    """Formats a number of bytes, such as "640 B", "12 kB" or "3.1 MB"."""
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def draw_histogram(
    histogram: Histogram, title: str, show: Callable[[float], str] = format_number
) -> Markup:
    """Draws a bar for each bin from the first to the last that is not empty."""
    filled = [index for index, count in enumerate(histogram.counts) if count]
    if not filled:
        return Markup("")
    begin = max(filled[0] - 1, 0)
    end = min(filled[-1] + 2, len(histogram.counts))
    counts = histogram.counts[begin:end].tolist()
    edges = histogram.edges[begin : end + 1].tolist()
    edges[0] = min(edges[0], histogram.least)  # outer bins also count values beyond their edges
    edges[-1] = max(edges[-1], histogram.most)
    labels = [
        f"{show(low)} to {show(high)}: {count:,}"
        for (low, high), count in zip(itertools.pairwise(edges), counts, strict=True)
    ]
    middle = len(edges) // 2
    axis = [
        _text(0, "start", show(edges[0])),
        _text(_WIDTH * middle / len(counts), "middle", show(edges[middle])),
        _text(_WIDTH, "end", show(edges[-1])),
    ]
    return _FIGURE.format(
        width=_WIDTH,
        height=_HEIGHT + _AXIS,
        title=f"{title}: {show(histogram.least)} to {show(histogram.most)}",
        content=Markup("").join([*_draw_bars(counts, labels), *axis]),
    )


def _draw_bars(counts: Sequence[int], labels: Sequence[str]) -> list[Markup]:
    """Draws bars across the width of a chart; pointing at a bar shows its label."""
    most = max(counts)
    step = _WIDTH / len(counts)
    width = max(step - 1, 0.5)  # with a gap between bars
    bars = []
    for index, (count, label) in enumerate(zip(counts, labels, strict=True)):
        if not count:
            continue
        height = max(_HEIGHT * count / most, 1)
        bar = _BAR.format(
            x=index * step, y=_HEIGHT - height, width=width, height=height, title=label
        )
        bars.append(bar)
    return bars


def draw_heat_map(heat_map: HeatMap, title: str) -> Markup:
    """Draws a square for each cell; cells with more points are darker."""
    most = int(heat_map.counts.max())
    if not most:
        return Markup("")
    side = heat_map.cells * _CELL
    squares = []
    for row, column in itertools.product(range(heat_map.cells), repeat=2):
        share = math.sqrt(heat_map.counts[row, column] / most)
        if share:
            place = {"x": column * _CELL, "y": row * _CELL}
            squares.append(_CELL_RECT.format(**place, side=_CELL, share=share))
    frame = Markup('<rect class="frame" width="{side}" height="{side}"/>').format(side=side)
    return _FIGURE.format(
        width=side, height=side, title=title, content=Markup("").join([frame, *squares])
    )


def _text(x: float, anchor: str, text: str) -> Markup:
    return _TEXT.format(x=x, y=_HEIGHT + _AXIS - 4, anchor=anchor, text=text)
