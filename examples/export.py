"""Writes a dataset in formats of other programs, with the bytes of its images as they are: a Beam pipeline over shards.

python examples/export.py DIR OUT --format NAME [--split NAME+NAME] [flags of Beam, such as --runner=PrismRunner]

    folder       a file for each image, named by its key; and `metadata.jsonl`, as Hugging Face's ImageFolder has it
    webdataset   https://github.com/webdataset/webdataset: a tar for each shard, of NUMBER.jpg, .cls and .json
    parquet      Hugging Face's Image and ClassLabel: columns `image` (struct of bytes and path) and `label`

DIR and OUT are on disk or gs://. The same command resumes: a shard that is written is not written again. `export.json`
in OUT says what it is of, and whether it is complete.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import math
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import apache_beam as beam
import cv2
import numpy as np

from beam_tfr import storage
from beam_tfr.dataflow import checks, jobs
from beam_tfr.dataset import manifest
from beam_tfr.dataset.base import Base
from beam_tfr.dataset.manifest import REPAIR, Manifest, ShardEntry
from beam_tfr.dataset.splits import select
from beam_tfr.engine import cloud
from beam_tfr.engine.failures import Outcome
from beam_tfr.engine.runs import follow, on_interrupt, run_of
from beam_tfr.launch.flags import choose_runner, parse_beam_flags
from beam_tfr.options import ConvertOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile, longest_in
from beam_tfr.schema import features as names
from beam_tfr.schema.dataset import WORK_FOLDER
from beam_tfr.schema.errors import BeamTfrError, DataError, UsageError
from beam_tfr.schema.extensions import EXTENSIONS, FORMAT_OF
from beam_tfr.schema.naming import parse_file_name
from beam_tfr.storage import PendingFile

MARK = "export.json"  # what an export is of, and whether it is complete
OUTCOME = Outcome("the export is not complete", "run the same command again to resume from the finished shards")
ROWS = 100  # images in a group of Parquet's, as Hugging Face has it; and written at a time
_TYPES = {"int64": "int64", "float": "float32", "bytes": "string"}
_NOT_TOLD = {*names.FEATURES, *names.BOX_NAMES, names.MASK, names.SOURCE_DAMAGED, names.LABEL, names.TEXT}
_BOXES = "boxes"  # [xmin, ymin, xmax, ymax] as shares of the image, of each object
_MASKS = "masks"  # of each object, as COCO's run lengths
_OWN = (
    "key",
    "split",
    "class",
    "label",
    _BOXES,
    _MASKS,
    "image",
    "mask",
    "file_name",
)  # a column with such a name gets a _


class Sample(NamedTuple):
    """A record.

    Attributes:
        key: its key, which ends like its format.
        extension: "jpg", "png", …
        image: the encoded image.
        mask: its mask, a PNG; None if it has none.
        labels: ids of its classes; None without labels.
        about: what else it says: `split`, `key`, `class`, `boxes`, columns.
    """

    key: str
    extension: str
    image: bytes
    mask: bytes | None
    labels: list[int] | None
    about: dict[str, Any]


def samples(dataset: Manifest, split: str, entry: ShardEntry) -> Iterator[Sample]:
    """The records of a shard, in order.

    Raises:
        DataError: the shard is damaged, or another than the manifest's; known only at its end.
        OSError: it cannot be read.
    """
    path, digest = storage.join(dataset.folder, entry.file), hashlib.sha256()
    records = RecordFile(path, on_bytes=digest.update, max_record_bytes=longest_in(entry.num_bytes))
    for record in records:
        try:
            yield _sample(dataset, split, parse_example(record))
        except (ValueError, LookupError) as error:
            raise DataError(f"{path}: record {records.record} is not as the manifest says: {error}; {REPAIR}") from None
    if (records.record, digest.hexdigest()) != (entry.num_examples, entry.sha256):
        raise DataError(f"{path}: has other bytes than the manifest says; {REPAIR}")


def _sample(dataset: Manifest, split: str, values: dict[str, list[Any]]) -> Sample:
    form = values[names.FORMAT][0].decode()
    extension = EXTENSIONS[form][0]
    key = values[names.FILENAME][0].decode("utf-8", "surrogateescape")
    about: dict[str, Any] = {"key": key, "split": split}
    labels = values.get(names.LABEL)
    if labels is not None:
        texts = [text.decode() or None for text in values[names.TEXT]]
        about["class"] = texts if dataset.features[names.LABEL]["shape"] else texts[0]
    if names.SIDES[0] in values:
        about[_BOXES] = [*zip(*(values[side] for side in names.SIDES), strict=True)]
    if dataset.has_object_masks:
        about[_MASKS] = [_runs(mask) for mask in values[names.OBJECT_MASK]]
    for name, parts in dataset.points.items():
        about[_column(name)] = _points([values[part] for part in parts])
    for name, feature in dataset.features.items():
        if name not in _not_told(dataset):
            told = [of.decode("utf-8", "backslashreplace") if isinstance(of, bytes) else of for of in values[name]]
            about[_column(name)] = told if feature["shape"] else told[0]
    if FORMAT_OF.get(key.rpartition(".")[2].lower()) != form:
        key += f".{extension}"
    if key.startswith("/") or ".." in key.split("/"):
        raise ValueError(f"its key {key!a} leads out of the folder")
    return Sample(key, extension, values[names.ENCODED][0], values.get(names.MASK, [None])[0], labels, about)


def _points(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """The points of each box: lists of x, y, visibility, x, …; or of x and y alone, for each of its polygons."""
    *places, numbers = parts
    points, told = zip(*places, strict=True), []
    for number in numbers:
        polygons: list[list[Any]] = [[]]
        for point in itertools.islice(points, number):
            if math.isnan(point[0]):
                polygons.append([])
            else:
                polygons[-1] += point
        told.append(polygons[0] if len(places) > 2 else [*filter(None, polygons)])
    return told


def _runs(mask: bytes) -> dict[str, list[int]]:
    """COCO's run lengths of a mask: of 0, of 1, of 0, …, down its columns."""
    values = cv2.imdecode(np.frombuffer(mask, np.uint8), cv2.IMREAD_UNCHANGED)
    flat = values.reshape(-1, order="F")
    ends = [*np.flatnonzero(np.diff(flat, prepend=0)).tolist(), flat.size]
    return {"size": [*values.shape], "counts": np.diff(ends, prepend=0).tolist()}


def _not_told(dataset: Manifest) -> set[str]:
    """The features that have no column of their own."""
    masks = [names.OBJECT_MASK] if dataset.has_object_masks else []
    pairs = [one.feature for one in dataset.names.companions]
    return {*_NOT_TOLD, *masks, *pairs, *itertools.chain(*dataset.points.values())}


def _column(name: str) -> str:
    return f"{name}_" if name in _OWN else name


def write_shard(dataset: Manifest, split: str, entry: ShardEntry, output: str, form: str) -> None:
    """Writes a shard in one of `FORMATS`, unless it is there: its last file appears when all of it is written."""
    path = shard_path(output, form, entry)
    if storage.find(path):
        return
    scratch = storage.work_path(output, "")
    for folder in (scratch, path.rpartition("/")[0]):
        storage.make_folder(folder)
    with storage.create(path, scratch=scratch) as file:
        FORMATS[form].write(samples(dataset, split, entry), file, output, dataset)
        file.commit()


def shard_path(output: str, form: str, entry: ShardEntry) -> str:
    """The file that appears last of a shard."""
    parsed = parse_file_name(entry.file)
    return storage.join(output, FORMATS[form].place.format(parsed[1] if parsed else entry.file))


def _write_folder(found: Iterator[Sample], file: PendingFile, output: str, _: Manifest) -> None:
    scratch = storage.work_path(output, "")

    def write(sample: Sample) -> bytes:
        told = {"file_name": sample.key, **{name: of for name, of in sample.about.items() if name != "key"}}
        files = {sample.key: sample.image}
        if sample.mask is not None:
            told["mask"] = f"{sample.key}.mask.png"
            files[told["mask"]] = sample.mask
        for name, data in files.items():
            path = storage.join(output, name)
            storage.make_folder(path.rpartition("/")[0])
            storage.write_bytes(path, data, scratch=scratch, replace=False)
        return json.dumps(told).encode() + b"\n"

    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        while group := [*itertools.islice(found, ROWS)]:
            file.write(b"".join(pool.map(write, group)))


def _write_tar(found: Iterator[Sample], file: PendingFile, _: str, __: Manifest) -> None:
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.USTAR_FORMAT) as tar:  # type: ignore[call-overload]
        for number, sample in enumerate(found):
            members = {sample.extension: sample.image, "json": json.dumps(sample.about).encode()}
            if sample.labels is not None and len(sample.labels) == 1:
                members["cls"] = str(sample.labels[0]).encode()
            if sample.mask is not None:
                members["mask.png"] = sample.mask
            for extension, data in members.items():
                info = tarfile.TarInfo(f"{number:08d}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def _write_parquet(found: Iterator[Sample], file: PendingFile, _: str, dataset: Manifest) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    schema = _parquet_schema(dataset)
    with tempfile.TemporaryFile() as whole:
        with parquet.ParquetWriter(whole, schema, compression="none") as writer:
            while group := [*itertools.islice(found, ROWS)]:
                writer.write_table(pa.Table.from_pylist([_row(sample, dataset) for sample in group], schema))
        whole.seek(0)
        while chunk := whole.read(1 << 20):
            file.write(chunk)


def _row(sample: Sample, dataset: Manifest) -> dict[str, Any]:
    row = {"image": {"bytes": sample.image, "path": sample.key}, **sample.about}
    if sample.labels is not None:
        row["label"] = sample.labels if dataset.features[names.LABEL]["shape"] else sample.labels[0]
    if sample.mask is not None:
        row["mask"] = {"bytes": sample.mask, "path": None}
    return row


def _parquet_schema(dataset: Manifest) -> Any:
    import pyarrow as pa

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {"image": image, "key": pa.string(), "split": pa.string()}
    told: dict[str, Any] = {"image": {"_type": "Image"}}
    if names.MASK in dataset.features:
        columns["mask"], told["mask"] = image, told["image"]
    if names.SIDES[0] in dataset.features:
        columns[_BOXES] = pa.list_(pa.list_(pa.float32(), 4))
    if dataset.has_object_masks:
        numbers = pa.list_(pa.int64())
        columns[_MASKS] = pa.list_(pa.struct([("size", numbers), ("counts", numbers)]))
    if label := dataset.features.get(names.LABEL):
        classes = {"_type": "ClassLabel", "names": dataset.class_names}
        columns["class"] = pa.list_(pa.string()) if label["shape"] else pa.string()
        columns["label"] = pa.list_(pa.int64()) if label["shape"] else pa.int64()
        told["label"] = {"_type": "List", "feature": classes} if label["shape"] else classes
    for name, parts in dataset.points.items():
        numbers = pa.list_(pa.list_(pa.float32()))
        columns[_column(name)] = numbers if len(parts) > 3 else pa.list_(numbers)
    for name, feature in dataset.features.items():
        if name not in _not_told(dataset):
            kind = pa.type_for_alias(_TYPES[feature["dtype"]])
            columns[_column(name)] = pa.list_(kind) if feature["shape"] else kind
    return pa.schema([*columns.items()], {"huggingface": json.dumps({"info": {"features": told}})})


class _Format(NamedTuple):
    """A format: how to write a shard of it, and where."""

    write: Callable[[Iterator[Sample], PendingFile, str, Manifest], None]
    place: str


FORMATS = {
    "folder": _Format(_write_folder, f"{WORK_FOLDER}/{{}}.jsonl"),
    "webdataset": _Format(_write_tar, "{}.tar"),
    "parquet": _Format(_write_parquet, "data/{}.parquet"),
}


class ExportShards(beam.PTransform):
    """Writes the shards of a dataset, each on one worker; the arguments are those of `write_shard`."""

    def __init__(self, base: Base, output: str, form: str, shards: list[tuple[str, int]]) -> None:
        super().__init__()
        self.base, self.output, self.form, self.shards = base, output, form, shards

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[None]:
        return begin | beam.Create(self.shards) | beam.Reshuffle() | beam.Map(self.write)

    def write(self, shard: tuple[str, int]) -> None:
        split, number = shard
        dataset = self.base.read()  # once in each process
        write_shard(dataset, split, dataset.splits[split].shards[number], self.output, self.form)


def export(folder: str, output: str, form: str, split: str = "", beam_flags: Sequence[str] = ()) -> int:
    """Writes a dataset, or some of its splits, in one of `FORMATS`; returns the number of its images.

    Raises:
        UsageError: the call is wrong, the output holds something else, or the dataset has no encoded images.
        DataError: the dataset is damaged, or was replaced meanwhile.
        RunError: the run failed; the same call resumes.
    """
    folder, output = storage.check_path(folder), storage.check_path(output, option="output").rstrip("/")
    dataset, beam_options = manifest.read(folder), parse_beam_flags(beam_flags)
    encoding = dataset.image_options.encoding
    if form not in FORMATS:
        raise UsageError(f"must be {', '.join(FORMATS)}", option="format", value=form)
    if encoding not in names.IMAGE_ENCODINGS or encoding == "raw":
        raise UsageError(f"{folder} has no encoded images (`encoding={encoding}`): read it with `Records`")
    if f"{output}/".startswith(f"{folder.rstrip('/')}/"):
        raise UsageError("must not be in the dataset", option="output", value=output)
    if "[" in split:
        raise UsageError("must name whole splits", option="split", value=split)
    chosen = select(dataset, split).splits if split else dataset.splits.values()
    splits = {name: of for name, of in dataset.splits.items() if of in chosen and of.shards}
    shards = [(name, number) for name, of in splits.items() for number in range(len(of.shards))]
    total = sum(of.num_examples for of in splits.values())
    about = {"dataset_digest": dataset.dataset_digest, "format": form, "splits": [*splits]}
    if is_complete(output, {**about, "complete": True}, {**about, "complete": False}):
        return total
    base = Base(folder, dataset.fields["manifest_digest"])

    cloud.use(beam_options)
    step = ExportShards(base, output, form, shards)
    with on_interrupt():
        if checks.is_wanted(beam_options):
            checks.check(ConvertOptions(input=(f"{folder}/*",), output=output), beam_options)
            run = jobs.JobRun(step, beam_options, say=print)
        else:
            run = run_of(step, choose_runner(beam_options, beam_flags), beam_options)
        follow(run, lambda _: None, OUTCOME)
    manifest.check_current(dataset)
    if form == "folder":
        parts = [shard_path(output, form, dataset.splits[of].shards[at]) for of, at in shards]
        with storage.create(storage.join(output, "metadata.jsonl"), scratch=storage.work_path(output, "")) as file:
            for part in parts:
                file.write(storage.read_bytes(part))
            file.commit()
        for part in parts:
            storage.delete(part)
    mark(output, {**about, "complete": True})
    work = storage.work_path(output, "")
    storage.delete_all(storage.list_files(work))  # what runs left that were killed
    with contextlib.suppress(OSError):
        os.rmdir(work)
    return total


def is_complete(output: str, complete: Mapping[str, object], begun: Mapping[str, object]) -> bool:
    """Whether a folder holds an export; if not, marks it as one that is begun.

    Raises:
        UsageError: it holds something else.
    """
    try:
        there = json.loads(storage.read_bytes(storage.join(output, MARK)))
    except (FileNotFoundError, ValueError):
        if storage.list_files(output):
            raise UsageError("holds other files; give an empty folder", option="output", value=output) from None
        there = begun
    if there not in (complete, begun):
        told = f"holds an export of another dataset, format or split ({json.dumps(there)}); give another folder"
        raise UsageError(told, option="output", value=output)
    if there == begun:
        mark(output, begun)
    return bool(there == complete)


def mark(output: str, told: Mapping[str, object]) -> None:
    scratch = storage.work_path(output, "")
    storage.make_folder(scratch)
    storage.write_bytes(storage.join(output, MARK), json.dumps(told).encode(), scratch=scratch)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("output", metavar="OUT")
    parser.add_argument("--format", required=True, metavar="NAME", help=", ".join(FORMATS))
    parser.add_argument("--split", default="", help="name of a split, or several: train+test (default: all)")
    parsed, others = parser.parse_known_args(arguments)
    try:
        images = export(parsed.folder, parsed.output, parsed.format, parsed.split, others)
    except BeamTfrError as error:
        print(f"export.py: {error}", file=sys.stderr)
        return error.exit_code
    print(f"exported: {images:,} images to {parsed.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
