"""Formats the counts of a dataset by split and class as table rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from beam_tfr.console.terminal import columns, printable
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.dataset import NO_SPLIT, in_order
from beam_tfr.schema.plan import Plan

MAX_CLASSES_SHOWN = 30
Row = tuple[str, list[int]]  # title, a number for each split; a heading has none


def dataset_rows(dataset: Manifest) -> list[Row]:
    """The rows of a dataset: its splits, `in_order`."""
    splits = [dataset.splits[name] for name in in_order(dataset.splits)]
    return [
        ("matched", [split.matched for split in splits]),
        ("rejected", [split.rejected for split in splits]),
        ("written", [split.num_examples for split in splits]),
        ("shards", [len(split.shards) for split in splits]),
        ("bytes", [split.num_bytes for split in splits]),
        *class_rows(dataset.class_names, [split.class_counts for split in splits]),
    ]


def plan_rows(plan: Plan) -> list[Row]:
    """The rows of a plan: its splits, `in_order`."""
    splits = {name: plan.splits[name] for name in in_order(plan.splits)}
    return [
        ("matched", [split.matched for split in splits.values()]),
        ("shards", [0 if name == NO_SPLIT else split.num_shards for name, split in splits.items()]),
        *class_rows(plan.labels or [], [split.class_counts for split in splits.values()]),
    ]


def class_rows(names: Sequence[str], counts: Sequence[Mapping[str, int]]) -> list[Row]:
    """The rows of the classes; those after the first `MAX_CLASSES_SHOWN` share one row."""
    rows = [(f"  {printable(name)}", [split.get(name, 0) for split in counts]) for name in names[:MAX_CLASSES_SHOWN]]
    if more := names[MAX_CLASSES_SHOWN:]:
        rows.append((f"  and {len(more):,} more", [sum(split.get(name, 0) for name in more) for split in counts]))
    return [("classes", []), *rows] if rows else []


def with_totals(rows: Iterable[Row]) -> list[Row]:
    """The same rows, each with the sum of its numbers at its end."""
    return [(title, [*values, *([sum(values)] if values else [])]) for title, values in rows]


def text_table(splits: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """The rows of some splits as lines for a terminal, narrower if it is narrow."""
    table = [("", [*splits, "total"])]
    table += [(f"{title:.24}", [f"{value:,}" for value in values]) for title, values in with_totals(rows)]
    widths = [24, *[12] * (len(splits) + 1)]
    if sum(widths) > columns():
        numbers = zip(*(cells for _, cells in table if cells), strict=True)
        widths = [max(len(title) for title, _ in table), *(1 + max(map(len, column)) for column in numbers)]
    for title, cells in table:
        padded = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=False))
        yield f"{title:{widths[0]}}{''.join(padded)}".rstrip()
