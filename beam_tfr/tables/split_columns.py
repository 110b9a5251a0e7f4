"""The column that says the split of each row, where no option names it."""

import collections
import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from beam_tfr.layouts.parsing import is_split_name
from beam_tfr.layouts.split_names import is_split_word
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import is_annotated
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.differences import join_texts
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.export_splits import read_export_splits
from beam_tfr.tables.names import list_distinct, means_nothing, read_single_name
from beam_tfr.tables.paths import folder_of

_SPLIT = "split"
# Other names, in lower case without marks; such a column must hold nothing but words for splits.
_OTHER_NAMES = ("subset", "set", "mluse", "partition", "phase", "usage")
_NO_SPLIT = "unassigned"  # of Vertex AI
_MOST_SHOWN = 5  # splits


def find_split_column(options: ConvertOptions, columns: Collection[str]) -> str:
    """The column of tables that may say the split of each row, by its name.

    Empty if there is none, if options say where splits come from, or if it is named as a feature
    or has another role.
    """
    if options.splits or options.split_column:
        return ""
    named = {*options.roles, *(options.feature_columns or ())}
    by_name = {_plain_name(column): column for column in columns if column not in named}
    return next((by_name[name] for name in (_SPLIT, *_OTHER_NAMES) if name in by_name), "")


def is_named_like_splits(column: str) -> bool:
    """Whether a column is named like one that says the split of each row."""
    return _plain_name(column) in (_SPLIT, *_OTHER_NAMES)


def describe_split_feature(column: str) -> str:
    """The message about a column that becomes a feature, and so gives no splits; may be empty."""
    if _plain_name(column) != _SPLIT:
        return ""
    return f"column {column!a} is a feature; `split_column={column}` takes splits from it"


def imply_split_column(content: TableContent, column: str, cells: Sequence[Any]) -> TableContent:
    """The content with the splits of a column, if its cells are certainly splits.

    Args:
        content: what is known otherwise.
        column: result of `find_split_column`.
        cells: its cells in the first rows.
    """
    present = [cell for cell in cells if cell is not None]
    if not present and is_annotated(content.files[0]):
        return content  # whose files may have it, and mostly do not
    splits = {_read_split(cell) for cell in list_distinct(cells)}
    if _are_splits(splits, column, folder_of(content.files[0])):
        names = join_texts(sort_splits(splits), most=_MOST_SHOWN, separator=", ")
        warning = (
            f"column {column!a} gives the splits: {names}; `splits=train=1` puts all rows into "
            "one split"
        )
        options = dataclasses.replace(content.options, split_column=column)
        return content._replace(options=options, warnings=(*content.warnings, warning))
    if _plain_name(column) != _SPLIT:
        return content
    warning = (
        f"column {column!a} is not taken for the split of each row, as it holds other values in "
        f"the first rows; `split_column={column}` takes it"
    )
    return content._replace(warnings=(*content.warnings, warning))


def warn_of_splits(column: str, cells: Iterable[Any]) -> Iterator[str]:
    """Yields lines about splits of a column that hardly are meant as they are written.

    Args:
        column: its name.
        cells: its cells in the first rows.
    """
    splits = sorted({_read_split(cell) for cell in list_distinct(cells)} - {""})
    spellings = collections.defaultdict[str, list[str]](list)
    for split in splits:
        spellings[split.lower()].append(split)
    repeated = [", ".join(names) for names in spellings.values() if len(names) > 1]
    if repeated:
        yield (
            f"column {column!r}: splits differ by case only, such as {repeated[0]}, and each is "
            "a split of its own; write them in one way if they are one"
        )
    missing = [*filter(means_nothing, splits)]
    if missing:
        yield (
            f"column {column!r}: {', '.join(missing)} become splits of these names; if they mean "
            "that there is no split, give `na_values=`, which rejects their rows"
        )


def _are_splits(splits: Collection[str], column: str, folder: str) -> bool:
    """Whether the texts of a column are certainly splits; one is empty for anything else.

    Args:
        splits: the different texts.
        column: its name.
        folder: that of the table.
    """
    if not all(splits):
        return False
    words = [split for split in splits if is_split_word(split)]
    others = [split for split in splits if not is_split_word(split) and split.lower() != _NO_SPLIT]
    if _plain_name(column) == _SPLIT:
        return bool(words) or read_export_splits(folder).issuperset(splits)
    return bool(words) and not others


def _read_split(cell: Any) -> str:
    """The name of a split in a cell; empty if it holds anything else."""
    try:
        name = read_single_name(cell)
    except ValueError:
        return ""
    return name if is_split_name(name) else ""


def _plain_name(column: str) -> str:
    return re.sub("[^a-z0-9]", "", column.lower())
