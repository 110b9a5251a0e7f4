"""Formats the counts of a dataset by split and class as table rows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.console.terminal import printable
from beam_tfr.schema.dataset import NO_SPLIT, sort_splits

MAX_CLASSES_SHOWN = 30
_TITLES = {
    "num_examples": "written",
    "num_shards": "shards",
    "num_bytes": "bytes",
}  # field of a split -> title
_FIELDS = ("matched", "rejected", *_TITLES)


def count_rows(
    splits: Mapping[str, Any], classes: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yields the rows of a table as a title and texts: the splits `sort_splits`, their numbers, then
    those of the classes.

    Args:
        splits: name -> `Split` of a dataset, or `SplitPlan` of a plan, which has some of the
            numbers.
        classes: names of the classes.
    """

    def number(name: str, field: str) -> int:
        return (
            0 if (name, field) == (NO_SPLIT, "num_shards") else getattr(splits[name], field)
        )  # it has no files

    names = sort_splits(splits)
    yield "", [*names, "total"]
    known = [field for field in _FIELDS if all(hasattr(split, field) for split in splits.values())]
    rows = [(_TITLES.get(field, field), [number(name, field) for name in names]) for field in known]
    rows += class_count_rows(classes, [splits[name].class_counts for name in names])
    for title, values in rows:
        yield title, [f"{value:,}" for value in (*values, sum(values))] if values else []


def class_count_rows(
    names: Sequence[str], counts: Sequence[Mapping[str, int]]
) -> list[tuple[str, list[int]]]:
    """The rows of the classes; those after the first `MAX_CLASSES_SHOWN` share one row."""
    rows = [
        (f"  {printable(name)}", [split.get(name, 0) for split in counts])
        for name in names[:MAX_CLASSES_SHOWN]
    ]
    more = names[MAX_CLASSES_SHOWN:]
    if more:
        rows.append(
            (
                f"  and {len(more):,} more",
                [sum(split.get(name, 0) for name in more) for split in counts],
            )
        )
    return [("classes", []), *rows] if rows else []


def format_count_table(splits: Mapping[str, Any], classes: Sequence[str]) -> Iterator[str]:
    """The rows as lines for a terminal, as narrow as they can be."""
    table = [(f"{title:.24}", cells) for title, cells in count_rows(splits, classes)]
    widths = [
        2 + max(map(len, column))
        for column in zip(*(cells for _, cells in table if cells), strict=True)
    ]
    begin = max(len(title) for title, _ in table)
    for title, cells in table:
        padded = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False))
        yield f"{title:{begin}}{''.join(padded)}".rstrip()
