"""Parses conditions on records, such as label=hat, for `inspect`, `export` and `remove`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.untrusted import quote

Where = Annotated[
    str | Sequence[str] | Mapping[str, object] | None,
    'a dict such as {"label": "hat"}, or a string such as "label=hat"',
]
_CONDITION = re.compile("([^=]+)=(.*)", re.DOTALL)

# Names that only columns of the contents have -> the ends of the features that they stand for.
_ENDS = {
    "label": ("/label", "/class/text"),
    "class": ("/class", "/class/text"),
    "key": ("/key", "/image/filename"),
}


def parse_conditions(where: Where) -> dict[str, str]:
    """Parses `where=`; returns name -> value.

    Args:
        where: "NAME=VALUE", a list of such strings, or a mapping.

    Raises:
        UsageError: `where` has the wrong type, lacks a name or "=", or has two values for a name.
    """
    if isinstance(where, Mapping):
        return {name: str(value) for name, value in where.items()}
    if isinstance(where, str):
        where = [where]
    if not isinstance(where, list | tuple | None):
        raise UsageError(
            'must be a dict such as {"label": "hat"}, or a string such as "label=hat"',
            option="where",
            value=quote(where),
        )
    conditions: dict[str, str] = {}
    for text in where or ():
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise UsageError("must be NAME=VALUE, such as label=hat", option="where", value=text)
        name, value = match.groups()
        first = conditions.setdefault(name, value)
        if value != first:
            raise UsageError(
                f"another condition requires {name}={first}, and records must meet all conditions: "
                "specify one value for each name",
                option="where",
                value=text,
            )
    return conditions


def features_named(features: Iterable[str], name: str) -> list[str]:
    """Returns the features that a short name stands for.

    "label" stands for "image/class/label" and "image/class/text".
    """
    ends = _ENDS.get(name, (f"/{name}",))
    return [feature for feature in features if f"/{feature}".endswith(ends)]


def value_text(value: Any) -> str:
    """Returns a value as a string, to compare it with the value in a condition."""
    if isinstance(value, float):
        return f"{value:.7g}"  # all digits that a float32 can hold
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def fits_conditions(values: Mapping[str, Sequence[Any]], where: Mapping[str, str]) -> bool:
    """Whether each named feature of a record has the specified value.

    A feature with several values matches if any of its values does.
    """
    return all(_has_value(values, name, value) for name, value in where.items())


def _has_value(values: Mapping[str, Sequence[Any]], name: str, value: str) -> bool:
    features = features_named(values, name)
    return any(value in map(value_text, values[feature]) for feature in features)


def rows_that_fit(dataset: Manifest, table: Any, where: Mapping[str, str]) -> Sequence[int]:
    """Returns the row numbers of those records in a shard that meet all conditions.

    Args:
        dataset: manifest of the dataset.
        table: the contents of the shard, with all columns.
        where: name -> value. A name is a column, or a feature as in `features_named`.

    Raises:
        UsageError: there is no such column.
    """
    rows: Sequence[int] = range(len(table))
    for name, value in where.items():
        columns = _columns_named(dataset, table, name)
        cells = [_cell_texts(table, column) for column in columns]
        rows = [row for row in rows if any(value in column[row] for column in cells)]
    return rows


def _columns_named(dataset: Manifest, table: Any, name: str) -> list[str]:
    """Returns the columns of the contents that a name in a condition stands for.

    Raises:
        UsageError: there is no such column.
    """
    if name in table.column_names and name != "label":
        return [name]
    columns = dataset.contents_columns
    named = [columns[feature].name for feature in features_named(columns, name)]
    if not named:
        raise UsageError(
            f"there is no column {quote(name)}; the columns are: {', '.join(table.column_names)}",
            option="where",
        )
    return named


def _cell_texts(table: Any, column: str) -> list[list[str]]:
    """Returns the values of each cell in a column as strings; a null cell has no values."""
    cells = []
    for cell in table.column(column).to_pylist():
        members = cell if isinstance(cell, list) else [cell]
        cells.append([_member_text(member) for member in members if member is not None])
    return cells


def _member_text(member: Any) -> str:
    return member.hex() if isinstance(member, bytes) else value_text(member)
