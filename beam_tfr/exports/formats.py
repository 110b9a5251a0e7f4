"""The formats of exports: how a shard of each is written, and where, and what completes it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.exports import shard_files as files
from beam_tfr.exports.folder import PLACE, complete_folder, write_files
from beam_tfr.exports.shard import Shard, names_of
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import ENCODED


class Format(NamedTuple):
    """A format.

    Attributes:
        write: writes a shard, and last to the file that it gets, which then appears.
        place: the path of that file in the export.
        load: a line of Python that opens the export, given the `name` of the dataset and the
            `output`.
        complete: writes what describes all shards, given their files with the number of images in
            each.
    """

    write: Callable[[Shard, storage.PendingFile], None]
    place: str
    load: str
    complete: Callable[[Manifest, str, Mapping[str, int]], None] = lambda *_: None


FORMATS = {
    "folder": Format(
        write_files,
        PLACE,
        "datasets.load_dataset('imagefolder', data_files={output!r} + '/**')",
        complete_folder,
    ),
    "webdataset": Format(
        files.write_tar,
        "{shard}.tar",
        "webdataset.WebDataset(sorted(glob.glob({output!r} + '/*.tar')), shardshuffle=False)",
    ),
    "parquet": Format(
        files.write_parquet, "data/{shard}.parquet", "datasets.load_dataset({output!r})"
    ),
    "tfds": Format(
        files.write_records,
        f"{files.TFDS_FOLDER}/{{name}}-{{shard}}.tfrecord",
        f"tfds.builder_from_directory({{output!r}} + '/{files.TFDS_FOLDER}').as_dataset()",
        files.complete_tfds,
    ),
    "dali-index": Format(
        files.write_index,
        "{name}-{shard}.idx",
        "fn.readers.tfrecord(index_path=sorted(glob.glob({output!r} + '/*.idx')), …)",
    ),
}


class Job(NamedTuple):
    """What is exported, and how.

    Attributes:
        base: the dataset.
        where: conditions that the records must meet.
        output: folder of the export.
        form: one of `FORMATS`.
    """

    base: BaseDataset
    where: Mapping[str, str]
    output: str
    form: str

    def path(self, part: ShardPart) -> str:
        """The path of the file that appears last of a shard."""
        name, shard, _ = names_of(part.file)
        return storage.join(self.output, FORMATS[self.form].place.format(name=name, shard=shard))

    def write(self, part: ShardPart, report: Callable[[int], object]) -> None:
        """Writes a shard, unless its last file is there; for `report` and errors see `Shard`."""
        path = self.path(part)
        if storage.find(path):
            return
        shard = Shard(self.base.read_manifest(), part, self.where, self.output, report)
        storage.make_folder(path.rpartition("/")[0])
        with storage.create(path, scratch=storage.work_path(self.output, "")) as file:
            FORMATS[self.form].write(shard, file)
            file.commit()


def check(dataset: Manifest, form: str) -> None:
    """Checks that a dataset can be exported in a format.

    Raises:
        UsageError: it cannot, or there is no such format.
    """
    if form not in FORMATS:
        raise UsageError(f"must be one of {', '.join(FORMATS)}", option="format", value=form)
    if form == "dali-index" and dataset.compression != "none":
        cure = (
            f"run `beam-tfr update {dataset.folder} --compression none`, which copies the records"
        )
        raise UsageError(
            f"needs uncompressed shards, as DALI does: {cure}", option="format", value=form
        )
    if form not in ("tfds", "dali-index") and ENCODED not in dataset.features:
        encoding = dataset.options["encoding"]
        raise UsageError(
            f"{dataset.folder} has no encoded images (`encoding={encoding}`): give `format=tfds`"
        )
