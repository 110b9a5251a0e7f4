"""Defines the formats of exports: how to write a shard, and how to complete the export."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.exports import folder, image_files, image_names, shard_files, voc, yolo
from beam_tfr.exports.image_names import NameFiles
from beam_tfr.exports.shard import ExportedShard
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import ENCODED
from beam_tfr.schema.naming import parse_shard_names
from beam_tfr.schema.spelling import quote_word, spell_option


def _complete_nothing(dataset: Manifest, output: str, counts: Mapping[str, int]) -> None:
    """Writes nothing, for formats whose shards need no other file."""


def _leave_out_nothing(dataset: Manifest, keypoints: int) -> list[str]:
    """Returns no columns, for formats that can store all columns."""
    return []


def _list_no_files(dataset: Manifest, splits: Collection[str]) -> list[str]:
    """Returns no files, for formats without files that describe all images."""
    return []


def _take_any(dataset: Manifest, splits: Collection[str]) -> None:
    """Accepts any splits and classes, for formats that can store all splits and classes."""


class ExportFormat(NamedTuple):
    """A format to which datasets can be exported.

    Attributes:
        write: writes a shard. The given file is part of the shard, and becomes visible only when
            the shard is complete.
        place: path of that file in the export.
        load: a line of Python that opens the export, to be formatted with the `name` of the dataset
            and the `output`.
        complete: writes the files that describe all shards, given the dataset, the `output`, and
            the number of images in the file of each shard.
        needs_images: whether records must have encoded images.
        needs_boxes: whether the format is only for images with boxes.
        needs_keypoints: whether writing a shard requires the largest number of keypoints per
            object.
        name_files: returns the paths of the files of an image, which depend on its key; None if
            the images of a shard are in one file.
        list_own_files: returns the paths of the files that describe all images, given the splits.
        check_dataset: raises a UsageError if the format cannot store some splits or classes.
        list_left_out: returns the columns that the format cannot store, given the largest number of
            keypoints per object.
    """

    write: Callable[[ExportedShard, storage.PendingFile], None]
    place: str
    load: str
    complete: Callable[[Manifest, str, Mapping[str, int]], None] = _complete_nothing
    needs_images: bool = True
    needs_boxes: bool = False
    needs_keypoints: bool = False
    name_files: NameFiles | None = None
    list_own_files: Callable[[Manifest, Collection[str]], list[str]] = _list_no_files
    check_dataset: Callable[[Manifest, Collection[str]], None] = _take_any
    list_left_out: Callable[[Manifest, int], list[str]] = _leave_out_nothing


EXPORT_FORMATS = {
    "folder": ExportFormat(
        write=functools.partial(image_files.write_files, describe=folder.describe_image),
        place=image_files.PLACE,
        load="datasets.load_dataset('imagefolder', data_files={output!r} + '/**')",
        complete=folder.complete_folder,
        name_files=folder.name_files,
        list_own_files=folder.list_own_files,
    ),
    "yolo": ExportFormat(
        write=functools.partial(image_files.write_files, describe=yolo.describe_image),
        place=image_files.PLACE,
        load="ultralytics.YOLO('yolo11n.pt').train(data={output!r} + '/data.yaml')",
        complete=yolo.complete_yolo,
        needs_boxes=True,
        name_files=yolo.name_files,
        list_own_files=yolo.list_own_files,
        needs_keypoints=True,
        check_dataset=yolo.check_splits,
        list_left_out=yolo.list_left_out,
    ),
    "voc": ExportFormat(
        write=functools.partial(image_files.write_files, describe=voc.describe_image),
        place=image_files.PLACE,
        load="fiftyone.Dataset.from_dir(dataset_type=fiftyone.types.VOCDetectionDataset, "
        "data_path={output!r} + '/JPEGImages', labels_path={output!r} + '/Annotations')",
        complete=voc.complete_voc,
        needs_boxes=True,
        name_files=voc.name_files,
        check_dataset=voc.check_classes,
        list_own_files=voc.list_own_files,
        list_left_out=voc.list_left_out,
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
    """The dataset to export, and how to export it.

    Attributes:
        base: the dataset.
        where: conditions that the records must meet.
        output: folder of the export.
        form: one of `EXPORT_FORMATS`.
        keypoints: number of keypoints per object, for formats that need this number.
        shared_stems: stems that several keys have, for formats that name files after keys.
    """

    base: BaseDataset
    where: Mapping[str, str]
    output: str
    form: str
    keypoints: int = 0
    shared_stems: frozenset[str] = frozenset()

    def path(self, part: ShardPart) -> str:
        """Returns the path of the file that becomes visible once the shard is complete."""
        name, shard, _ = parse_shard_names(part.file)
        place = EXPORT_FORMATS[self.form].place.format(name=name, shard=shard)
        return storage.join(self.output, place)

    def write(self, part: ShardPart, report: Callable[[int], object]) -> None:
        """Writes a shard, unless its last file exists.

        `ExportedShard` describes `report` and the errors.
        """
        path = self.path(part)
        if storage.find(path):
            return
        dataset = self.base.read_manifest()
        left_out = EXPORT_FORMATS[self.form].list_left_out(dataset, self.keypoints)
        shard = ExportedShard(
            dataset,
            part,
            self.where,
            self.output,
            report,
            self.keypoints,
            self.shared_stems,
            frozenset(left_out),
        )
        storage.make_folder(path.rpartition("/")[0])
        with storage.create(path, scratch=storage.work_path(self.output, "")) as file:
            EXPORT_FORMATS[self.form].write(shard, file)
            file.commit()


def count_keypoints(dataset: Manifest, form: str, parts: Sequence[ShardPart]) -> int:
    """Returns the largest number of keypoints per object, or 0 if the format does not need it."""
    return yolo.count_keypoints(dataset, parts) if EXPORT_FORMATS[form].needs_keypoints else 0


def find_shared_stems(dataset: Manifest, form: str, parts: Sequence[ShardPart]) -> frozenset[str]:
    """Returns the stems that several keys have, if the format names files after keys."""
    if EXPORT_FORMATS[form].name_files is None:
        return frozenset()
    return image_names.find_shared_stems(dataset, parts)


def check_names(job: ExportJob, dataset: Manifest, parts: Sequence[ShardPart]) -> None:
    """Checks that the files of all images can exist side by side in the output.

    Args:
        job: the export, whose output already has its work folder.
        dataset: the dataset to export.
        parts: the exported shards.

    Raises:
        DataError: the files cannot exist side by side.
    """
    export_format = EXPORT_FORMATS[job.form]
    if export_format.name_files is None:
        return
    splits = {parse_shard_names(part.file).split for part in parts}
    rules = storage.name_rules(storage.work_path(job.output, ""))
    check = image_names.NameCheck(job.output, rules, export_format.list_own_files(dataset, splits))
    for image in image_names.read_images(dataset, parts, job.where):
        shares_stem = image_names.stem_of(image.key) in job.shared_stems
        for name in export_format.name_files(image._replace(shares_stem=shares_stem)):
            check.add(name)


def check_format(dataset: Manifest, form: str) -> None:
    """Checks that a dataset can be exported in a format.

    Raises:
        UsageError: the dataset cannot be exported in this format, or there is no such format.
    """
    if form not in EXPORT_FORMATS:
        names = ", ".join(EXPORT_FORMATS)
        raise UsageError(f"must be one of {names}", option="format", value=form)
    if form == "dali-index" and dataset.compression != "none":
        raise UsageError(
            "needs uncompressed shards, as DALI does: run `beam-tfr update "
            f"{quote_word(dataset.folder, 'DIR')} --compression none`, which copies the records",
            option="format",
            value=form,
        )
    if EXPORT_FORMATS[form].needs_images and ENCODED not in dataset.features:
        encoding = dataset.options["encoding"]
        raise UsageError(
            f"{dataset.folder} has no encoded images ({spell_option('encoding', encoding)}): use "
            "`format=tfds`"
        )
    if EXPORT_FORMATS[form].needs_boxes and dataset.feature_kinds.boxes is None:
        raise UsageError(
            f"is for images with boxes, but {dataset.folder} has no boxes: use another format",
            option="format",
            value=form,
        )
