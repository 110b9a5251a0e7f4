"""The dataset that an update starts from, its options and its shards."""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.dataset.manifest import Manifest, ShardEntry, read_manifest
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.options.table import options_of
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.errors import RunError, UsageError
from beam_tfr.schema.naming import shard_name
from beam_tfr.schema.plan import count_reject_shards, shard_size

INPUTS = ("input", "input_list", "table")
_SIZES = {
    "num_shards",
    "target_shard_bytes",
    "examples_per_shard",
}  # of which only one can be given


class BaseDataset(NamedTuple):
    """The dataset that an update starts from.

    Attributes:
        folder: folder of the dataset.
        digest: digest of its manifest.
        compare: how to see that a source is the same: "auto", "checksum" or "names", see
            `known.match_image`.
        with_rejects: whether what was rejected, and did not change, is rejected again without being
            read.
        codecs: those that made the records, as JSON; empty if they do not matter.
        boxes: "stay" if the boxes of records cannot have changed; "may change" if a table gives
            them: only records of rows that are the same are copied; empty if there are none.
        rows_stay: whether the contents have the same columns, so the row of a record that stays
            does too.
    """

    folder: str
    digest: str
    compare: str = "auto"
    with_rejects: bool = True
    codecs: str = ""
    rows_stay: bool = True
    boxes: str = ""

    def read_manifest(self) -> Manifest:
        """The manifest.

        Raises:
            RunError: another dataset has replaced this one.
        """
        return _read(self.folder, self.digest)

    def check_codecs(self, codecs: Mapping[str, str]) -> None:
        """Checks that records made with these versions of the codecs can be mixed with those of the
        dataset.

        Raises:
            UsageError: they cannot.
        """
        used: dict[str, str] = json.loads(self.codecs or "{}")
        changed = [name for name, version in codecs.items() if used.get(name, version) != version]
        if changed:
            changes = ", ".join(
                f"{name} {used[name]} there, {codecs[name]} now" for name in changed
            )
            keep = "`codecs=keep` copies its records all the same, and notes that in the manifest"
            cure = f"{keep}; `codecs=convert` converts all images again"
            raise UsageError(
                f"other codecs than these made the dataset: {changes}. {cure}", option="codecs"
            )


def read_unchanged_manifest(folder: str, digest: str) -> Manifest:
    """The manifest of a dataset, if it is still the one of this digest.

    Raises:
        RunError: another dataset has replaced it.
    """
    dataset = read_manifest(folder)
    if dataset.fields["manifest_digest"] != digest:
        raise RunError(
            f"another run has replaced the dataset in {folder}; run the same command again"
        )
    return dataset


_read = functools.lru_cache(maxsize=2)(read_unchanged_manifest)


def restore_options(
    dataset: Manifest, given: Mapping[str, Any], more: Mapping[str, Any]
) -> ConvertOptions:
    """The options of a dataset but its classes, combined with those given, which take precedence,
    and more.

    Raises:
        UsageError: a value is not allowed, two options exclude each other, or the input is of
            another kind.
    """
    present = {name: value for name, value in given.items() if value not in (None, "", ())}
    replaced = _SIZES if _SIZES & present.keys() else set[str]()
    kept = options_of(ConvertOptions).keys() & dataset.options.keys() - {"classes"} - replaced
    values = {name: dataset.options[name] for name in kept}
    if (level := dataset.options.get("gzip_level", "auto")) != "auto":
        values["compression"] = f"gzip:{level}"
    inputs = {*INPUTS} & {**more, **present}.keys()
    places = {"table"}
    cure = "a table: give it as `table=`"
    if "layout" in dataset.options:
        places = {"input", "input_list"}
        cure = "files: give them as `input=`"
    if not inputs or inputs - places:
        raise UsageError(f"{dataset.folder} was made from {cure}")
    fixed = {"output": dataset.folder, "name": dataset.name}
    return from_values({**values, **more, **present, **fixed}, ConvertOptions)


class PlannedShard(NamedTuple):
    """A shard of a finished dataset.

    Attributes:
        name: `train-00003-of-00016`.
        split: its split.
        images: planned for it: records and rejects.
        first: number of its first record, in the order of the manifest.
        entry: its file; None if it has only rejects.
    """

    name: str
    split: str
    images: int
    first: int
    entry: ShardEntry | None


def planned_shards(dataset: Manifest) -> list[PlannedShard]:
    """All shards of a dataset, also those that hold only rejects."""
    shards = list[PlannedShard]()
    first = 0
    for name, split in dataset.splits.items():
        entries: Sequence[ShardEntry | None] = split.shards
        if name == NO_SPLIT:
            entries = [None] * count_reject_shards(split.matched)
        for number, entry in enumerate(entries):
            images = shard_size(split.matched, len(entries), number)
            shard = shard_name(name, number, len(entries))
            shards.append(PlannedShard(shard, name, images, first, entry))
            if entry:
                first += entry.num_examples
    return shards
