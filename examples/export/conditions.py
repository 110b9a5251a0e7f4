"""Finds the records that fit conditions, by the contents of their shard."""

from collections.abc import Collection, Mapping
from typing import Any

from beam_tfr.dataset.lookup import features_in, read_table
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.dataset.reader_arguments import condition
from beam_tfr.inspection.records import features_of_name
from beam_tfr.records.contents import columns_of, schema_of
from beam_tfr.records.tfrecords import longest_in
from beam_tfr.schema.errors import UsageError


def conditions(where: str | Mapping[str, object] | None) -> dict[str, str]:
    """Name -> value of the conditions in `where`, given as text or as a mapping.

    Raises:
        UsageError: the text is not NAME=VALUE.
    """
    if isinstance(where, str):
        return dict([condition(where, "label=hat")])
    return {name: str(value) for name, value in (where or {}).items()}


def matching(dataset: Manifest, entry: ShardEntry, where: Mapping[str, str]) -> Collection[int]:
    """The numbers of the records of a shard that fit all conditions, by its contents.

    Raises:
        UsageError: there is no such column.
        DataError: there are no contents, or they are damaged.
    """
    found: Collection[int] = range(entry.num_examples)
    for name, value in where.items():
        columns = _columns_of_name(dataset, name)
        table = read_table(dataset, entry.file, entry.num_examples, longest_in(entry.num_bytes), columns)
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        fits = [any(_holds(cell, value) for cell in cells) for cells in rows]
        found = {number for number in found if fits[number]}
    return found


def _columns_of_name(dataset: Manifest, name: str) -> list[str]:
    """The columns of the contents that a condition names: one of theirs, or those of `features_of_name`.

    Raises:
        UsageError: there are none.
    """
    features = features_in(dataset)
    known, columns = schema_of(features, dataset.names).names, columns_of(features, dataset.names)
    if name in known and name != "label":
        return [name]
    found = [columns[feature].name for feature in features_of_name(columns, name)]
    if not found:
        raise UsageError(f"there is no column {name!r}; there are: {', '.join(known)}", option="where")
    return found


def _holds(cell: Any, value: str) -> bool:
    members = cell if isinstance(cell, list) else [] if cell is None else [cell]
    return value in map(_text, members)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"  # all digits that a float32 can hold
    return value.hex() if isinstance(value, bytes) else str(value)
