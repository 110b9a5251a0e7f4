"""Describes the dataset that an update starts from, its options and its shards."""

import enum
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from beam_tfr.dataset.manifest import Manifest, ShardEntry, read_manifest
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.options.convert import stored_names
from beam_tfr.options.table import options_of
from beam_tfr.options.tabular import NO_COLUMN
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.differences import find_other_codecs
from beam_tfr.schema.errors import DataError, RunError, UsageError
from beam_tfr.schema.naming import shard_name
from beam_tfr.schema.plan import count_reject_shards, shard_size

INPUTS = ("input", "input_list", "table")
# Only one of each of these can be given, so one that is given replaces the dataset's.
_EXCLUSIVE = (
    {"num_shards", "target_shard_bytes", "examples_per_shard"},
    {"splits", "folds"},
)
# What shares of splits, and a column of splits, replace of the dataset's.
_OTHER_SPLITS = {
    "split_column": {"splits", "folds", "stratify", "group_column"},
    "splits": {"split_column"},
    "folds": {"split_column"},
}


class RecordBoxes(enum.StrEnum):
    """The boxes of records that an update copies."""

    NONE = ""
    STAY = "stay"  # they cannot have changed
    MAY_CHANGE = "may change"  # a table gives them: only records of equal rows are copied


class BaseDataset(NamedTuple):
    """The dataset that an update starts from.

    Attributes:
        folder: folder of the dataset.
        digest: digest of its manifest.
        compare: how to decide that a source is the same: "auto", "checksum" or "names", see
            `known.match`.
        with_rejects: whether rejects that did not change are rejected again without being read.
        codecs: the codecs that made the records, as JSON; empty if they do not matter.
        rows_stay: whether the contents keep their columns, so that the row of a copied record stays
            the same.
        boxes: whether records have boxes, and whether these may have changed.
        renames: (class, its new name) for each renamed class in its records.
    """

    folder: str
    digest: str
    compare: str = "auto"
    with_rejects: bool = True
    codecs: str = ""
    rows_stay: bool = True
    boxes: RecordBoxes = RecordBoxes.NONE
    renames: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, dataset: Manifest) -> Self:
        """Makes the base from a manifest, unchanged."""
        return cls(dataset.folder, dataset.fields["manifest_digest"])

    def read_manifest(self) -> Manifest:
        """Reads the manifest, from memory after the first time.

        Raises:
            RunError: another dataset has replaced this one.
        """
        return _read_manifest_once(self.folder, self.digest)

    def check_codecs(self, codecs: Mapping[str, str]) -> None:
        """Checks that the records of a dataset can be mixed with new ones.

        Args:
            codecs: library -> version of the codecs that make the new records.

        Raises:
            UsageError: the dataset was made by other versions.
        """
        used = json.loads(self.codecs or "{}")
        others = find_other_codecs(used, codecs)
        changes = [f"{name} {before} there, {codecs[name]} now" for name, before in others.items()]
        if changes:
            raise UsageError(
                f"other codecs than these made the dataset: {', '.join(changes)}. `codecs=keep` "
                "copies its records all the same, and notes that in the manifest; "
                "`codecs=convert` converts all images again",
                option="codecs",
            )


def read_unchanged_manifest(folder: str, digest: str) -> Manifest:
    """Reads the manifest of a dataset that must still have this digest.

    Raises:
        RunError: another dataset has replaced it.
    """
    dataset = read_manifest(folder)
    if dataset.fields["manifest_digest"] != digest:
        raise RunError(
            f"another run has replaced the dataset in {folder}; run the same command again"
        )
    return dataset


_read_manifest_once = functools.lru_cache(maxsize=2)(read_unchanged_manifest)


def restore_options(
    dataset: Manifest, changes: Mapping[str, Any], additions: Mapping[str, Any]
) -> ConvertOptions:
    """Returns the options that made a dataset, with changes and additions, without its classes.

    An option in `changes` takes precedence over `additions`, and `additions` over the dataset's
    options.

    Raises:
        UsageError: a value is not allowed, two options exclude each other, or the input is of
            another kind.
        DataError: the manifest holds an option that `convert` does not store.
    """
    present = {name: value for name, value in changes.items() if value not in (None, "", ())}
    _check_stored(dataset)
    kept = options_of(ConvertOptions).keys() & dataset.options.keys() - {"classes"}
    for names in _EXCLUSIVE:
        if not names.isdisjoint(present):
            kept -= names
    kept -= _find_other_splits(dataset, present)
    values = {name: dataset.options[name] for name in kept}
    level = dataset.options.get("gzip_level", "auto")
    if level != "auto":
        values["compression"] = f"gzip:{level}"
    changed = {**additions, **present}
    _check_kind_of_input(dataset, changed)
    fixed = {"output": dataset.folder, "name": dataset.name}
    return from_values({**values, **changed, **fixed}, ConvertOptions)


def _check_stored(dataset: Manifest) -> None:
    """Checks that a manifest holds no option that `convert` does not store.

    A dataset may come from a stranger, who must not choose which files of this machine are read.

    Raises:
        DataError: it does, such as `input`.
    """
    others = dataset.options.keys() & options_of(ConvertOptions).keys() - stored_names(
        ConvertOptions
    )
    if others:
        raise DataError(
            f"the manifest of {dataset.folder} was edited: `convert` does not store "
            f"{', '.join(sorted(others))} in it; copy the dataset again from a place you trust"
        )


def _find_other_splits(dataset: Manifest, present: Mapping[str, Any]) -> set[str]:
    """Returns the options of a dataset that given options replace, as they define other splits."""
    column = present.get("split_column", dataset.options.get("split_column"))
    if column == NO_COLUMN:  # goes together with shares
        return set()
    replaced = set[str]()
    for name in _OTHER_SPLITS.keys() & present:
        replaced |= _OTHER_SPLITS[name]
    return replaced


def _check_kind_of_input(dataset: Manifest, options: Mapping[str, Any]) -> None:
    """Checks that options give an input of the kind that a dataset was made from.

    Raises:
        UsageError: they give no input, or another kind.
    """
    inputs = options.keys() & {*INPUTS}
    if "layout" in dataset.options:
        if not inputs or "table" in inputs:
            raise UsageError(f"{dataset.folder} was made from files: give them as `input=`")
    elif inputs != {"table"}:
        raise UsageError(f"{dataset.folder} was made from a table: give it as `table=`")


class PlannedShard(NamedTuple):
    """A shard of a finished dataset.

    Attributes:
        name: `train-00003-of-00016`.
        split: its split.
        images: number of images planned for it: records and rejects.
        first: number of its first record, in the order of the manifest.
        entry: its file; None if it has only rejects.
    """

    name: str
    split: str
    images: int
    first: int
    entry: ShardEntry | None


def planned_shards(dataset: Manifest) -> list[PlannedShard]:
    """Lists all shards of a dataset, including those that hold only rejects."""
    shards = list[PlannedShard]()
    first = 0
    for split_name, split in dataset.splits.items():
        entries: Sequence[ShardEntry | None] = split.shards
        if split_name == NO_SPLIT:
            entries = [None] * count_reject_shards(split.matched)
        for number, entry in enumerate(entries):
            name = shard_name(split_name, number, len(entries))
            images = shard_size(split.matched, len(entries), number)
            shards.append(PlannedShard(name, split_name, images, first, entry))
            if entry is not None:
                first += entry.num_examples
    return shards
