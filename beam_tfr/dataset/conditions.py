"""Conditions on records, NAME=VALUE: those of `inspect`, `export` and `remove`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beam_tfr.dataset.lookup import features_in
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.records.contents import contents_columns
from beam_tfr.schema.errors import UsageError


def parse_conditions(where: str | list[str] | Mapping[str, object] | None) -> dict[str, str]:
    """Name -> value of the conditions in `where=`, given as text, as several texts or as a mapping.

    Raises:
        UsageError: it is something else, text without a name or value, or names two values for one
            name.
    """
    if isinstance(where, Mapping):
        return {name: str(value) for name, value in where.items()}
    if not isinstance(where, str | list | None):
        raise UsageError(
            'must be a dict such as {"label": "hat"}, or text', option="where", value=repr(where)
        )
    found: dict[str, str] = {}
    for text in [where] if isinstance(where, str) else where or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError("must be NAME=VALUE, such as label=hat", option="where", value=text)
        if found.setdefault(name, value) != value:
            why = f"{name} must also be {found[name]}, and all conditions must fit: give one value for each name"
            raise UsageError(why, option="where", value=text)
    return found


def features_named(features: Iterable[str], name: str) -> list[str]:
    """The features that a short name means: "label" is "image/class/label" and
    "image/class/text"."""
    ends = (f"/{name}", "class/text") if name == "label" else (f"/{name}",)
    return [feature for feature in features if feature == name or f"/{feature}".endswith(ends)]


def value_text(value: Any) -> str:
    """A value as text, to compare it with that of a condition."""
    if isinstance(value, float):
        return f"{value:.7g}"  # all digits that a float32 can hold
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def fits_conditions(values: Mapping[str, Sequence[Any]], where: Mapping[str, str]) -> bool:
    """True if each named feature of a record has the given value, or one of its values is that."""
    return all(
        any(value in map(value_text, values[feature]) for feature in features_named(values, name))
        for name, value in where.items()
    )


def rows_that_fit(dataset: Manifest, table: Any, where: Mapping[str, str]) -> Sequence[int]:
    """The numbers of the records of a shard that fit all conditions, by its contents.

    Args:
        dataset: manifest of the dataset.
        table: the contents, with all columns.
        where: name -> value. A name is that of a column, or a feature's as for `features_named`.

    Raises:
        UsageError: there is no such column.
    """
    found: Sequence[int] = range(len(table))
    known = table.column_names
    columns = contents_columns(features_in(dataset), dataset.names)
    for name, value in where.items():
        meant = [columns[feature].name for feature in features_named(columns, name)]
        if name in known and name != "label":
            meant = [name]
        if not meant:
            raise UsageError(
                f"there is no column {name!r}; there are: {', '.join(known)}", option="where"
            )
        cells = [[*map(_texts, table.column(column).to_pylist())] for column in meant]
        found = [number for number in found if any(value in column[number] for column in cells)]
    return found


def _texts(cell: Any) -> list[str]:
    members = cell if isinstance(cell, list) else [cell]
    return [
        member.hex() if isinstance(member, bytes) else value_text(member)
        for member in members
        if member is not None
    ]
