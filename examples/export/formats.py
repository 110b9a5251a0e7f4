"""The formats of exports: how a shard of each is written, and where, and what completes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.features import ENCODED
from examples.export.conditions import matching
from examples.export.dali import write_index
from examples.export.folder import PART, complete_folder, write_files
from examples.export.parquet import write_parquet
from examples.export.shard import Shard, shard_name
from examples.export.tfds import PLACE, complete_tfds, write_records
from examples.export.webdataset import write_tar


class Format(NamedTuple):
    """A format.

    Attributes:
        write: writes a shard; the file at its path appears last.
        place: the path of that file in the export.
        complete: writes what describes all shards, given the number of images in each, by split.
    """

    write: Callable[[Shard, str], None]
    place: str
    complete: Callable[[Manifest, str, Mapping[str, Sequence[int]]], None] = lambda *_: None


FORMATS = {
    "folder": Format(write_files, PART, complete_folder),
    "webdataset": Format(write_tar, "{shard}.tar"),
    "parquet": Format(write_parquet, "data/{shard}.parquet"),
    "tfds": Format(write_records, f"{PLACE}/{{name}}-{{shard}}.tfrecord", complete_tfds),
    "dali-index": Format(write_index, "{name}-{shard}.idx"),
}


def check(dataset: Manifest, form: str) -> None:
    """Checks that a dataset can be exported in a format.

    Raises:
        UsageError: it cannot, or there is no such format.
    """
    if form not in FORMATS:
        raise UsageError(f"must be one of {', '.join(FORMATS)}", option="format", value=form)
    if form == "dali-index" and dataset.compression != "none":
        cure = f"run `beam-tfr update {dataset.folder} --compression none`, which copies the records"
        raise UsageError(f"needs uncompressed shards, as DALI does: {cure}", option="format", value=form)
    if form not in ("tfds", "dali-index") and ENCODED not in dataset.features:
        encoding = dataset.options["encoding"]
        raise UsageError(f"{dataset.folder} has no encoded images (`encoding={encoding}`): give `format=tfds`")


def path_of(dataset: Manifest, entry: ShardEntry, output: str, form: str) -> str:
    """The path of the file that appears last of a shard."""
    return storage.join(output, FORMATS[form].place.format(name=dataset.name, shard=shard_name(entry)))


def write(shard: Shard, form: str) -> None:
    """Writes a shard, unless it is there."""
    path = path_of(shard.dataset, shard.entry, shard.output, form)
    if storage.find(path):
        shard.report(len(matching(shard.dataset, shard.entry, shard.where)), 0)
    else:
        storage.make_folder(storage.work_path(shard.output, ""))
        FORMATS[form].write(shard, path)
