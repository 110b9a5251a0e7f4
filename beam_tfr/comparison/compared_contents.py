"""Reads the contents of a dataset for `diff` to compare."""

from collections.abc import Callable
from typing import Any

from beam_tfr.dataset.lookup import read_all_contents
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.records.contents import need_pyarrow

TABLE_PREFIX = "table "  # for columns from tables, of boxes and of companions
LOOKS = ("mean", "std", "phash")
_COLUMNS = ("key", "class", "split", "source_sha256", "bytes", *LOOKS)  # in every compared table


def read_compared_contents(dataset: Manifest, on_records: Callable[[int], object]) -> Any:
    """Reads the columns to compare from a dataset's contents into a `pyarrow.Table`.

    The table has all `_COLUMNS`, with nulls where the contents lack a column, and the columns that
    come from tables, prefixed with `TABLE_PREFIX`.

    Args:
        dataset: manifest of the dataset.
        on_records: called with the number of records in each shard.

    Raises:
        DataError: contents are missing or damaged, or another dataset has replaced this one.
        NotInstalledError: pyarrow is missing.
    """
    pa = need_pyarrow()
    columns = _choose_columns(dataset)
    names = [*columns.values()]
    tables = [dataset.contents_schema().empty_table().select(names)]
    for table in read_all_contents(dataset, names, _sort_shards(dataset)):
        tables.append(table.select(names))
        on_records(len(table))
    joined = pa.concat_tables(tables).rename_columns([*columns])
    for name in _COLUMNS:
        if name not in columns:
            joined = joined.append_column(name, pa.nulls(len(joined)))
    # The keys of all shards may take more than 2 GiB.
    return joined.set_column(0, "key", joined.column("key").cast(pa.large_string()))


def _choose_columns(dataset: Manifest) -> dict[str, str]:
    """Returns column of the compared table -> column of the contents; the key comes first."""
    names = dataset.contents_schema().names
    columns = {name: name for name in _COLUMNS if name in names}
    stored = dataset.contents_columns
    for feature in dataset.feature_kinds.compared:
        columns[TABLE_PREFIX + feature] = stored[feature].name
    return columns


def _sort_shards(dataset: Manifest) -> list[ShardEntry]:
    """Returns all shards, sorted by the names of their splits."""
    shards: list[ShardEntry] = []
    for _, split in sorted(dataset.splits.items()):
        shards.extend(split.shards)
    return shards
