"""Compares the contents of a shard with the manifest.

Nothing else checks the contents, because digests cover only records.
"""

from typing import Any

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.naming import shard_number, split_of_file


def find_contradiction(dataset: Manifest, file: str, table: Any) -> str:
    """Returns how columns of the contents contradict the manifest, or "" if they agree with it.

    Args:
        dataset: manifest of the dataset.
        file: name of the shard's file.
        table: a `pyarrow.Table` with some or all columns.
    """
    constants: dict[str, str | int] = {"split": split_of_file(file), "shard": shard_number(file)}
    present = {*table.column_names}
    for name, value in constants.items():
        if name in present and not _has_only(table.column(name), value):
            return f"its column {name} is not {value!r} in every row"
    if "label" in present and not _are_ids(table.column("label"), len(dataset.class_names)):
        return "its column label has numbers that are not class ids"
    if "class" in present and not _are_names(table.column("class"), dataset.class_names):
        return "its column class has names that are not classes"
    return ""


def _has_only(column: Any, value: str | int) -> bool:
    from pyarrow import compute

    is_value = compute.fill_null(compute.equal(column, value), False)
    return bool(compute.all(is_value, min_count=0).as_py())


def _are_ids(column: Any, num_classes: int) -> bool:
    """Whether all numbers are class ids or -1, which means no class."""
    from pyarrow import compute

    bounds = compute.min_max(_members_of(column)).as_py()
    lowest = bounds["min"]
    return lowest is None or (lowest >= -1 and bounds["max"] < num_classes)


def _are_names(column: Any, class_names: tuple[str, ...]) -> bool:
    """Whether all strings are class names or empty, which means no class."""
    names = {*class_names, "", None}  # None: the name is too long for a cell
    return names.issuperset(_members_of(column).unique().to_pylist())


def _members_of(column: Any) -> Any:
    """Returns the values of a column, or of the lists in it."""
    from pyarrow import compute, types

    return compute.list_flatten(column) if types.is_list(column.type) else column
