"""Describes the options and shards of the dataset that an update starts from."""

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
# Each set of options allows only one, so a specified one replaces the dataset's.
_EXCLUSIVE = (
    {"num_shards", "target_shard_bytes", "examples_per_shard"},
    {"splits", "folds"},
)
# Option -> the dataset's options that it replaces.
_OTHER_SPLITS = {
    "split_column": {"splits", "folds", "stratify", "group_column"},
    "splits": {"split_column"},
    "folds": {"split_column"},
}


class RecordBoxes(enum.StrEnum):
    """Whether the records that an update copies have boxes, and whether the boxes may change."""

    NONE = ""
    STAY = "stay"  # the boxes cannot have changed
    MAY_CHANGE = "may change"  # boxes are from a table: only records of equal rows are copied


class BaseDataset(NamedTuple):
    """The dataset that an update starts from.

    Attributes:
        folder: folder of the dataset.
        digest: digest of the manifest.
        compare: how to decide whether a source is unchanged: "auto", "checksum" or "names"; see
            `known.match_image`.
        with_rejects: whether unchanged rejects are rejected again without being read.
        codecs: the codecs that made the records, as JSON; an empty string if the codecs do not
            matter.
        rows_stay: whether the contents keep their columns, so that copied records keep their rows.
        boxes: whether the records have boxes, and whether the boxes may have changed.
        renames: (old name, new name) for each renamed class in the records.
        copies: whether the records of unchanged images are copied; if not, all records are made
            again, and only compared with those of the dataset.
    """

    folder: str
    digest: str
    compare: str = "auto"
    with_rejects: bool = True
    codecs: str = ""
    rows_stay: bool = True
    boxes: RecordBoxes = RecordBoxes.NONE
    renames: tuple[tuple[str, str], ...] = ()
    copies: bool = True

    @classmethod
    def of(cls, dataset: Manifest) -> Self:
        """Returns the base for a manifest, with default settings."""
        return cls(dataset.folder, dataset.fields["manifest_digest"])

    def read_manifest(self) -> Manifest:
        """Reads the manifest, once per process.

        Raises:
            RunError: another dataset has replaced this one.
        """
        return _read_manifest_once(self.folder, self.digest)

    def check_codecs(self, codecs: Mapping[str, str]) -> None:
        """Checks that the records of the dataset can be mixed with new records.

        Args:
            codecs: library -> version of the codecs that make the new records.

        Raises:
            UsageError: different codec versions made the dataset.
        """
        used = json.loads(self.codecs or "{}")
        others = find_other_codecs(used, codecs)
        changes = [f"{name} {before}, now {codecs[name]}" for name, before in others.items()]
        if changes:
            raise UsageError(
                f"the dataset was made with different codec versions: {', '.join(changes)}. "
                "`codecs=keep` copies its records anyway, and notes that in the manifest; "
                "`codecs=convert` converts all images again",
                option="codecs",
            )


def read_unchanged_manifest(folder: str, digest: str) -> Manifest:
    """Reads the manifest of a dataset and checks that it still has this digest.

    Raises:
        RunError: another dataset has replaced this one.
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
    """Returns the options of a dataset, except `classes`, with changes and additions applied.

    Options in `changes` take precedence over those in `additions`, and `additions` over the
    dataset's options.

    Raises:
        UsageError: a value is not allowed, two options exclude each other, or the input is of the
            wrong kind.
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
    """Checks that a manifest holds no option, such as `input`, that `convert` never stores in it.

    A dataset may come from a stranger, who must not choose which files on this machine are read.

    Raises:
        DataError: the manifest holds such an option.
    """
    others = dataset.options.keys() & options_of(ConvertOptions).keys() - stored_names(
        ConvertOptions
    )
    if others:
        raise DataError(
            f"the manifest of {dataset.folder} was edited: `convert` does not store "
            f"{', '.join(sorted(others))} in it; copy the dataset again from a source you trust"
        )


def _find_other_splits(dataset: Manifest, present: Mapping[str, Any]) -> set[str]:
    """Returns the split options of the dataset that the specified options replace."""
    column = present.get("split_column", dataset.options.get("split_column"))
    if column == NO_COLUMN:  # works along with shares
        return set()
    replaced = set[str]()
    for name in _OTHER_SPLITS.keys() & present:
        replaced |= _OTHER_SPLITS[name]
    return replaced


def _check_kind_of_input(dataset: Manifest, options: Mapping[str, Any]) -> None:
    """Checks that options specify the kind of input that a dataset was made from.

    Raises:
        UsageError: the options specify no input, or the wrong kind of input.
    """
    inputs = options.keys() & {*INPUTS}
    if "layout" in dataset.options:
        if not inputs or "table" in inputs:
            raise UsageError(f"{dataset.folder} was made from files: specify them with `input=`")
    elif inputs != {"table"}:
        raise UsageError(f"{dataset.folder} was made from a table: specify it with `table=`")


class PlannedShard(NamedTuple):
    """A shard of a finished dataset.

    Attributes:
        name: name of the shard, such as `train-00003-of-00016`.
        split: name of the split.
        images: number of images planned for the shard: records and rejects.
        first: number of the first record, in the order of the manifest.
        entry: the file of the shard, as listed in the manifest; None if the shard has only rejects.
        has_keys: whether the sidecar holds the keys of images; sidecars of rows hold no keys.
    """

    name: str
    split: str
    images: int
    first: int
    entry: ShardEntry | None
    has_keys: bool = True


def planned_shards(dataset: Manifest) -> list[PlannedShard]:
    """Lists all shards of a dataset, including those that hold only rejects."""
    shards = list[PlannedShard]()
    has_keys = bool(dataset.names.sha256)
    first = 0
    for split_name, split in dataset.splits.items():
        entries: Sequence[ShardEntry | None] = split.shards
        if split_name == NO_SPLIT:
            entries = [None] * count_reject_shards(split.matched)
        for number, entry in enumerate(entries):
            name = shard_name(split_name, number, len(entries))
            images = shard_size(split.matched, len(entries), number)
            shards.append(PlannedShard(name, split_name, images, first, entry, has_keys))
            if entry is not None:
                first += entry.num_examples
    return shards
