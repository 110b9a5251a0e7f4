"""Finds the column that holds the split of each row, if no option names it."""

import collections
import contextlib
import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.features.cells import is_missing
from beam_tfr.layouts.parsing import SPLIT_RULE, is_split_name
from beam_tfr.layouts.split_names import are_different, is_split_word
from beam_tfr.options.implied import is_annotated
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.box_names import letters_of
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.formats import format_of, list_fields, read_first_rows
from beam_tfr.tables.names import list_distinct, means_nothing, read_single_name
from beam_tfr.tables.our_exports import read_export_splits
from beam_tfr.tables.parquet_rows import Parquet
from beam_tfr.tables.paths import folder_of
from beam_tfr.tables.split_values import are_flags, suggest_names
from beam_tfr.tables.text_rows import JsonLines

_SPLIT = "split"
# Other names, in lower case without punctuation; such a column must hold only words for splits.
_OTHER_NAMES = ("subset", "set", "mluse", "partition", "phase", "usage")
_NO_SPLIT = "unassigned"  # in tables from Vertex AI
_MOST_SHOWN = 5  # splits in messages
_FIRST_ROWS = 1_000  # rows in which other columns are examined
_MOST_COLUMNS = 100  # columns that are examined
_MOST_VALUES = 20  # of a column of splits
# Names of columns that may hold splits with any values, and of columns worth examining.
_LIKE_SPLITS = re.compile(r"(?:is)?(?:train|test|val|valid|validation)|k?folds?")
_NEAR_SPLITS = re.compile(
    "split|set|part|phase|usage|mode|stage|purpose|train|test|val|fold|hold|held|dev"
)
# Names of columns that may hold splits if they have booleans or small numbers: holdout, train_test.
_WORDS = "train(?:ing)?|test(?:ing)?|val(?:id(?:ation)?)?|dev|eval(?:uation)?|held?out|holdout"
_OF_FLAGS = re.compile(
    rf"(?:is|in|for|use)*(?:{_WORDS})+(?:set|data|flag|status|id|index|split|only)?"
    rf"|{'|'.join(_OTHER_NAMES)}"
)
# Values that resemble words for splits, such as PublicTest in FER2013.
_LIKE_WORD = re.compile(
    r"(?i).{0,20}(?:train(?:ing)?|val(?:id(?:ation)?)?|test(?:ing)?|dev|eval)(?:[-_ ]?set)?"
)


def find_split_column(content: TableContent) -> str:
    """Finds the column, or field of objects in a column, that may hold the split of each row.

    Returns an empty string if no column has such a name, if an option names another column, or if
    the column is declared as a feature or has another role. Columns come before fields, such as
    `labels.example.com/ml_use`, and exact names before longer names, such as `image/split`.
    """
    options = content.options
    if options.split_column:
        return ""
    named = {*options.roles, *(options.feature_columns or ())}
    columns = [column for column in _list_with_fields(content) if column not in named]
    by_name = {letters_of(column): column for column in columns}
    for column in columns:
        by_name.setdefault(_last_name(column), column)
    return next((by_name[name] for name in (_SPLIT, *_OTHER_NAMES) if name in by_name), "")


def is_named_like_splits(column: str) -> bool:
    """Whether the name of a column suggests that it holds the split of each row."""
    return _last_name(column) in (_SPLIT, *_OTHER_NAMES)


def _list_with_fields(content: TableContent) -> list[str]:
    """Lists the columns of tables, and the fields of objects in them."""
    columns = [*content.columns]
    if isinstance(content.table_format, JsonLines | Parquet) and not content.read_rows:
        columns += list_fields(content.files[0], _FIRST_ROWS)
    return columns


def describe_split_feature(column: str) -> str:
    """Returns the message about a column of splits that is a feature, or an empty string."""
    if _last_name(column) != _SPLIT:
        return ""
    return (
        f"column {column!a} is a feature; {spell_option('split_column', column)} uses it for splits"
    )


def imply_split_column(content: TableContent, column: str, cells: Sequence[Any]) -> TableContent:
    """Returns the content with splits from a column, if its cells are certainly splits.

    Args:
        content: the other findings about the tables.
        column: the result of `find_split_column`.
        cells: the cells of the column in the first rows.
    """
    present = [cell for cell in cells if cell is not None]
    if not present and is_annotated(content.files[0]):
        return content  # annotations may have the column, but usually do not
    options = content.options
    splits = {_read_split(cell) for cell in list_distinct(cells)}
    if not _are_splits(splits, column, folder_of(content.files[0])):
        if _last_name(column) != _SPLIT or len(options.shares) == 1:
            return content
        return _add_warning(content, _describe_other_values(content, column, cells))
    names = join_texts(sort_splits(splits), most=_MOST_SHOWN, separator=", ")
    given = f"column {column!a} gives the splits: {names}"
    if options.shares:
        if len(options.shares) > 1 and are_different(splits):
            options.refuse_other_splits(given)
        return content
    options = dataclasses.replace(options, split_column=column)
    warning = f"{given}; `splits=train=1` puts all rows into one split"
    return _add_warning(content._replace(options=options), warning)


def _add_warning(content: TableContent, warning: str) -> TableContent:
    return content._replace(warnings=(*content.warnings, warning))


def _describe_other_values(content: TableContent, column: str, cells: Sequence[Any]) -> str:
    """Returns the message about a column named `split` whose cells may not be splits.

    Args:
        content: the other findings about the tables.
        column: the name of the column.
        cells: the cells of the column in the first rows.
    """
    start = f"column {column!a} is not used as the split of each row, since it"
    cure = f"{spell_option('split_column', column)}{_without_shares(content)} uses it"
    distinct = list_distinct(cells)
    splits = {_read_split(cell) for cell in distinct}
    texts = [str(cell) for cell in distinct if not is_missing(cell)]
    num_empty = sum(map(is_missing, cells))
    if num_empty and _are_splits(splits - {""}, column, folder_of(content.files[0])):
        return (
            f"{start} is empty in {num_empty:,} of the first {len(cells):,} rows; {cure}, and "
            "rejects such rows"
        )
    others = sorted(text for text in texts if not is_split_name(text))
    if others:
        return (
            f"{start} has values that cannot be splits, such as {others[0]!r:.60} ({SPLIT_RULE})"
            f"{_suggest_names(column, texts)}"
        )
    return f"{start} holds other values in the first rows; {cure}{_suggest_names(column, texts)}"


def _without_shares(content: TableContent) -> str:
    """Names the option to omit so that a column can define splits, or returns an empty string."""
    option = content.options.shares_option
    return f" without `{option}=`" if option else ""


def _suggest_names(column: str, values: Iterable[str]) -> str:
    """Returns pandas code that replaces values with split names, or an empty string."""
    line = suggest_names(column, values)
    return f"; if its values mean these splits, convert them with pandas: {line}" if line else ""


def find_other_columns(content: TableContent) -> Mapping[str, Collection[str]]:
    """Returns column -> values for unused columns that may hold the split of each row.

    Such columns have common names that `find_split_column` does not look for, such as dataset and
    is_train.
    """
    options = content.options
    table = content.files[0]
    if len(options.shares) == 1 or options.split_column or content.read_rows:
        return {}
    if not format_of(table).may_have_box_rows:  # the other formats have many images in a table
        return {}
    return _find_columns_of_splits(table, _list_candidates(content))


def describe_other_columns(
    content: TableContent, values_of: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """Yields a line about columns that may hold the split of each row, if there are any.

    Args:
        content: the findings about the tables.
        values_of: the result of `find_other_columns`.
    """
    if not values_of:
        return
    first, values = next(iter(values_of.items()))
    shown = join_texts([ascii(column) for column in values_of], _MOST_SHOWN, ", ")
    start = f"columns that may hold the split of each row are not used for it: {shown}"
    if not all(map(is_split_name, values)):
        yield f"{start}{_suggest_names(first, values)}"
        return
    cure = f"{spell_option('split_column', first)}{_without_shares(content)} uses it"
    if are_flags(values):
        cure += f", with the splits {join_texts(sorted(values), separator=', ')}"
    yield f"{start}; {cure}{_suggest_names(first, values)}"


def _list_candidates(content: TableContent) -> list[str]:
    """Lists the columns without a role that may hold splits.

    For text files, which are read in full anyway, lists all such columns; for Parquet files, only
    columns with likely names.
    """
    columns = [*filter(None, _list_with_fields(content))]
    counts = collections.Counter(columns)
    left_out = {*content.options.roles, *(content.options.feature_columns or ())}
    others = [
        column
        for column in columns
        if column not in left_out and counts[column] == 1 and _last_name(column) != _SPLIT
    ]
    if isinstance(content.table_format, Parquet):
        others = [column for column in others if _NEAR_SPLITS.search(_last_name(column))]
    return others[:_MOST_COLUMNS]


def _find_columns_of_splits(table: str, columns: Sequence[str]) -> dict[str, set[str]]:
    """Finds the columns that may hold splits, by their names and the first rows of a table.

    Such a column has a name that suggests splits, or only names of splits as values, or a word for
    a split as its name and flags as its values.

    Args:
        table: the first table.
        columns: the columns to look at.

    Returns:
        Column -> its values, with columns found by name first.
    """
    values_of = {column: set[str]() for column in columns}
    if not columns:
        return {}
    with contextlib.suppress(DataError):  # nothing else reads this column
        for _, cells in read_first_rows(table, columns, _FIRST_ROWS):
            _collect_values(values_of, dict(zip(columns, cells, strict=True)))
    named = {
        column: values_of.get(column, set())
        for column in columns
        if _LIKE_SPLITS.fullmatch(_last_name(column))
    }
    return named | {
        column: values for column, values in values_of.items() if _may_be_splits(column, values)
    }


def _may_be_splits(column: str, values: Collection[str]) -> bool:
    """Whether the values of a column, which are few, may be splits."""
    if _OF_FLAGS.fullmatch(_last_name(column)) and are_flags(values):
        return True
    words = [re.split("[-_ ]", value)[0] for value in values if _LIKE_WORD.fullmatch(value)]
    return len(words) == len(values) and any(map(is_split_word, words))


def _collect_values(values_of: dict[str, set[str]], row: Mapping[str, Any]) -> None:
    """Adds the values in a row to their columns, and drops columns with too many values."""
    for column in [*values_of]:
        cell = row[column]
        if is_missing(cell):
            continue
        values_of[column].add(str(cell).strip())
        if isinstance(cell, list | dict) or len(values_of[column]) > _MOST_VALUES:
            del values_of[column]


def warn_of_splits(column: str, cells: Iterable[Any]) -> Iterator[str]:
    """Yields lines about probable mistakes among the values in a column of splits.

    Args:
        column: the name of the column.
        cells: the cells of the column in the first rows.
    """
    splits = sorted({_read_split(cell) for cell in list_distinct(cells)} - {""})
    spellings = collections.defaultdict[str, list[str]](list)
    for split in splits:
        spellings[split.lower()].append(split)
    repeated = [", ".join(names) for names in spellings.values() if len(names) > 1]
    if repeated:
        yield (
            f"column {column!r}: splits differ only in case, such as {repeated[0]}, and count as "
            "different splits; if they are the same, spell them alike"
        )
    missing = [*filter(means_nothing, splits)]
    if missing:
        yield (
            f"column {column!r}: these values become names of splits: {', '.join(missing)}; if "
            "they mean that there is no split, give `na_values=`, which rejects their rows"
        )


def _are_splits(splits: Collection[str], column: str, folder: str) -> bool:
    """Whether the values of a column are certainly splits.

    Args:
        splits: the different values; an empty string stands for any value that is not a split name.
        column: the name of the column.
        folder: the folder of the table.
    """
    if not all(splits):
        return False
    words = [split for split in splits if is_split_word(split)]
    others = [split for split in splits if not is_split_word(split) and split.lower() != _NO_SPLIT]
    if _last_name(column) == _SPLIT:
        return bool(words) or read_export_splits(folder).issuperset(splits)
    return bool(words) and not others


def _read_split(cell: Any) -> str:
    """Returns the name of a split in a cell, or an empty string if the cell holds anything else."""
    try:
        name = read_single_name(cell)
    except ValueError:
        return ""
    return name if is_split_name(name) else ""


def _last_name(column: str) -> str:
    """Returns the letters and digits after the last dot, slash or colon in a column's name."""
    return letters_of(re.split("[./:]", column)[-1])
