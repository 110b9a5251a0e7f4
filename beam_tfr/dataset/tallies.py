"""Formats the counts of a dataset, by split and class, as rows of a table."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.console.terminal import printable
from beam_tfr.schema.dataset import NO_SPLIT, sort_splits

MAX_CLASSES_SHOWN = 30
_TITLES = {  # field of a split -> title of its row
    "matched": "matched",
    "rejected": "rejected",
    "num_examples": "written",
    "num_shards": "shards",
    "num_bytes": "bytes",
}


def count_rows(
    splits: Mapping[str, Any], classes: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yields the title and cells of each row in a table of splits and classes.

    The rows with the names and numbers of the splits come first, then a row for each class.

    Args:
        splits: name -> `Split` of a dataset, or `SplitPlan` of a plan, which has only some of the
            numbers.
        classes: names of the classes.
    """
    names = sort_splits(splits)
    yield "", [*names, "total"]
    for field, title in _TITLES.items():
        if all(hasattr(split, field) for split in splits.values()):
            numbers = [_split_number(splits, name, field) for name in names]
            yield title, _with_total(numbers)
    class_counts = [splits[name].class_counts for name in names]
    rows = class_count_rows(classes, class_counts)
    if rows:
        yield "classes", []
    for title, numbers in rows:
        yield title, _with_total(numbers)


def _split_number(splits: Mapping[str, Any], name: str, field: str) -> int:
    if name == NO_SPLIT and field == "num_shards":  # this split has no files
        return 0
    return int(getattr(splits[name], field))


def _with_total(numbers: Sequence[int]) -> list[str]:
    total = sum(numbers)
    return [f"{number:,}" for number in (*numbers, total)]


def class_count_rows(
    names: Sequence[str], counts: Sequence[Mapping[str, int]]
) -> list[tuple[str, list[int]]]:
    """Returns a row for each class; classes after the first `MAX_CLASSES_SHOWN` share one row."""
    rows = []
    for name in names[:MAX_CLASSES_SHOWN]:
        numbers = [split.get(name, 0) for split in counts]
        rows.append((f"  {printable(name)}", numbers))
    more = names[MAX_CLASSES_SHOWN:]
    if more:
        numbers = [sum(split.get(name, 0) for name in more) for split in counts]
        rows.append((f"  and {len(more):,} more", numbers))
    return rows


def format_count_table(splits: Mapping[str, Any], classes: Sequence[str]) -> Iterator[str]:
    """Formats the table for a terminal, as narrow as possible; yields its lines."""
    rows = [[f"{title:.24}", *cells] for title, cells in count_rows(splits, classes)]
    columns = itertools.zip_longest(*rows, fillvalue="")
    title_width, *widths = (max(map(len, column)) for column in columns)
    for title, *cells in rows:
        line = f"{title:{title_width}}"
        for cell, width in zip(cells, widths, strict=False):
            line += f"  {cell:>{width}}"
        yield line.rstrip()
