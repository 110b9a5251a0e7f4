"""Finds columns of 0 and 1, one per class, as in ISIC, CheXpert or Roboflow's CSV."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from beam_tfr.tables.base import list_columns
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.text_rows import Delimited, JsonLines
from beam_tfr.tables.unused.suggestions import Suggestion, read_first_cells

# Text of a cell -> its value. -1 means no or not sure; either way, it is not 1.
_VALUE_OF = {
    **dict.fromkeys(("-1", "-1.0"), "-1"),
    **dict.fromkeys(("0", "0.0"), "0"),
    **dict.fromkeys(("1", "1.0"), "1"),
    **dict.fromkeys(("False", "false"), "False"),
    **dict.fromkeys(("True", "true"), "True"),
    "": "nothing",
}
_TRUE_VALUES = {"1", "True"}
_MOST_NAMED = 1_000  # columns in the command of a message


class _Flags(NamedTuple):
    """Columns of 0 and 1.

    Attributes:
        columns: the columns.
        values: the different values of their cells.
        is_one_each: whether each row has exactly one 1.
    """

    columns: Sequence[str]
    values: Sequence[str]
    is_one_each: bool


def find_class_flags(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds columns of 0 and 1, each of which may stand for a class."""
    if content.read_rows or not isinstance(content.table_format, Delimited | JsonLines):
        return None
    label = content.options.label_column
    wanted = {*columns, label}
    candidates = [name for name in content.columns if name in wanted]
    if len(candidates) < 2:
        return None
    flags = _find_flags(content, candidates)
    if len(flags.columns) < 2 or (label and label not in flags.columns):
        return None
    unused = [name for name in flags.columns if name != label]
    values = " or ".join(filter(None, [", ".join(flags.values[:-1]), flags.values[-1]]))
    names = json.dumps(flags.columns, ensure_ascii=False)
    if len(flags.columns) > _MOST_NAMED:
        names = "names of these columns"
    option = "`label_column=class`"
    if not flags.is_one_each:
        option += " with `label_separator='|'`"
    message = (
        f"no values of {list_columns(unused)} are stored; they have {values} in each row: if each "
        "is a class of the images that have 1 there, write the classes of each row into one "
        "column, "
        f'for {option}; with pandas: {_read_spaces(content)}table["class"] = table[{names}].eq(1)'
        '.apply(lambda row: "|".join(row.index[row]), axis=1)'
    )
    return Suggestion(flags.columns, message)


def _read_spaces(content: TableContent) -> str:
    """Returns pandas code that reads a table with spaces around cells, or an empty string."""
    if not isinstance(content.table_format, Delimited):
        return ""
    dialect = content.table_format.read_dialect(content.files[0])
    if not dialect.has_spaces:
        return ""
    how = f"sep={dialect.delimiter!r}, skipinitialspace=True"
    return f"table = pandas.read_csv(FILE, {how}).rename(columns=str.strip); "


def _find_flags(content: TableContent, columns: Sequence[str]) -> _Flags:
    """Selects the columns that have only 0 and 1 in the first rows."""
    flags = dict[str, list[str]]()
    for name, cells in read_first_cells(content, columns).items():
        values = [*map(_read_value, cells)]
        if all(values) and {*values} != {"nothing"}:
            flags[name] = values
    rows = [*zip(*flags.values(), strict=True)]
    numbers = {_count_true(row) for row in rows}
    if not any(numbers):
        return _Flags((), (), is_one_each=False)
    present = {value for row in rows for value in row}
    in_order = [value for value in dict.fromkeys(_VALUE_OF.values()) if value in present]
    return _Flags([*flags], in_order, is_one_each=numbers == {1})


def _read_value(cell: Any) -> str:
    """Reads the value of a cell; returns an empty string if the cell is not a flag."""
    text = "" if cell is None else str(cell)
    return _VALUE_OF.get(text, "")


def _count_true(row: Iterable[str]) -> int:
    """Counts the cells in a row that say that the image has the class of the column."""
    return sum(value in _TRUE_VALUES for value in row)
