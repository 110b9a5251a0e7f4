"""The formats of exports.

Each says how and where a shard is written, and what completes the export.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.exports import folder, image_files, shard_files
from beam_tfr.exports.shard import ExportedShard, parse_shard_names
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import ENCODED


def _complete_nothing(dataset: Manifest, output: str, counts: Mapping[str, int]) -> None:
    """The shards need no other file."""


class ExportFormat(NamedTuple):
    """A format that datasets are exported in.

    Attributes:
        write: writes a shard, and last to the file that it gets, which then appears.
        place: the path of that file in the export.
        load: a line of Python that opens the export, given the `name` of the dataset and the
            `output`.
        complete: writes what describes all shards, given the dataset, the `output`, and the files
            of the shards with the number of images in each.
        needs_images: False if it can hold records of any encoding.
    """

    write: Callable[[ExportedShard, storage.PendingFile], None]
    place: str
    load: str
    complete: Callable[[Manifest, str, Mapping[str, int]], None] = _complete_nothing
    needs_images: bool = True


EXPORT_FORMATS = {
    "folder": ExportFormat(
        write=functools.partial(image_files.write_files, describe=folder.describe_image),
        place=image_files.PLACE,
        load="datasets.load_dataset('imagefolder', data_files={output!r} + '/**')",
        complete=folder.complete_folder,
    ),
    "webdataset": ExportFormat(
        write=shard_files.write_tar,
        place="{shard}.tar",
        load="webdataset.WebDataset(sorted(glob.glob({output!r} + '/*.tar')), shardshuffle=False)",
    ),
    "parquet": ExportFormat(
        write=shard_files.write_parquet,
        place="data/{shard}.parquet",
        load="datasets.load_dataset({output!r})",
    ),
    "tfds": ExportFormat(
        write=shard_files.write_records,
        place=f"{shard_files.TFDS_FOLDER}/{{name}}-{{shard}}.tfrecord",
        load=f"tfds.builder_from_directory({{output!r}} + '/{shard_files.TFDS_FOLDER}')"
        ".as_dataset()",
        complete=shard_files.complete_tfds,
        needs_images=False,
    ),
    "dali-index": ExportFormat(
        write=shard_files.write_index,
        place="{name}-{shard}.idx",
        load="fn.readers.tfrecord(index_path=sorted(glob.glob({output!r} + '/*.idx')), …)",
        needs_images=False,
    ),
}


class ExportJob(NamedTuple):
    """What is exported, and how.

    Attributes:
        base: the dataset.
        where: conditions that the records must meet.
        output: folder of the export.
        form: one of `EXPORT_FORMATS`.
    """

    base: BaseDataset
    where: Mapping[str, str]
    output: str
    form: str

    def path(self, part: ShardPart) -> str:
        """The path of the file that appears last of a shard."""
        name, shard, _ = parse_shard_names(part.file)
        place = EXPORT_FORMATS[self.form].place.format(name=name, shard=shard)
        return storage.join(self.output, place)

    def write(self, part: ShardPart, report: Callable[[int], object]) -> None:
        """Writes a shard, unless its last file is there.

        For `report` and errors see `ExportedShard`.
        """
        path = self.path(part)
        if storage.find(path):
            return
        shard = ExportedShard(self.base.read_manifest(), part, self.where, self.output, report)
        storage.make_folder(path.rpartition("/")[0])
        with storage.create(path, scratch=storage.work_path(self.output, "")) as file:
            EXPORT_FORMATS[self.form].write(shard, file)
            file.commit()


def check_format(dataset: Manifest, form: str) -> None:
    """Checks that a dataset can be exported in a format.

    Raises:
        UsageError: it cannot, or there is no such format.
    """
    if form not in EXPORT_FORMATS:
        names = ", ".join(EXPORT_FORMATS)
        raise UsageError(f"must be one of {names}", option="format", value=form)
    if form == "dali-index" and dataset.compression != "none":
        raise UsageError(
            "needs uncompressed shards, as DALI does: run "
            f"`beam-tfr update {dataset.folder} --compression none`, which copies the records",
            option="format",
            value=form,
        )
    if EXPORT_FORMATS[form].needs_images and ENCODED not in dataset.features:
        encoding = dataset.options["encoding"]
        raise UsageError(
            f"{dataset.folder} has no encoded images (`encoding={encoding}`): give `format=tfds`"
        )
