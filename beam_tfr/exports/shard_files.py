"""Formats with one file for each shard.

webdataset    a tar, https://github.com/webdataset/webdataset
parquet       a Parquet file with Hugging Face's Image and ClassLabel
tfds          an uncompressed shard; and the files of TensorFlow Datasets, for `tfds.load(NAME,
data_dir=OUT)` dali-index    an index, as DALI's `fn.readers.tfrecord(index_path=…)` takes it
"""

import dataclasses
import io
import itertools
import json
import tarfile
from collections.abc import Mapping
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.metadata import metadata_files
from beam_tfr.exports.shard import BOXES, MASKS, Sample, Shard, column_name, own_columns
from beam_tfr.records.tfrecords import FRAME_BYTES, HEADER_BYTES, frame
from beam_tfr.schema import feature_names
from beam_tfr.schema.dataset import TFDS_FILES
from beam_tfr.storage import PendingFile

TFDS_FOLDER = "{name}/1.0.0"


def write_tar(shard: Shard, file: PendingFile) -> None:
    """Writes a shard as a tar of NUMBER.jpg, .json, .cls and .mask.png."""
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.USTAR_FORMAT) as tar:  # type: ignore[call-overload]
        for number, sample in enumerate(itertools.chain.from_iterable(shard.samples())):
            members = {sample.extension: sample.image, "json": json.dumps(sample.about).encode()}
            if isinstance(label := sample.about.get("label"), int):
                members["cls"] = str(label).encode()
            if sample.mask is not None:
                members["mask.png"] = sample.mask
            for extension, data in members.items():
                info = tarfile.TarInfo(f"{number:08d}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def write_parquet(shard: Shard, file: PendingFile) -> None:
    """Writes a shard as a Parquet file, with a row group for the records that are read at a
    time."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = _schema(shard.dataset)
    with parquet.ParquetWriter(pa.PythonFile(file, mode="w"), schema, compression="none") as writer:
        for samples in shard.samples():
            writer.write_table(pa.Table.from_pylist([*map(_row, samples)], schema))


def _row(sample: Sample) -> dict[str, Any]:
    image = {"bytes": sample.image, "path": sample.about["key"]}
    mask = None if sample.mask is None else {"bytes": sample.mask, "path": None}
    return {**sample.about, "image": image, "mask": mask}


def _schema(dataset: Manifest) -> Any:
    import pyarrow as pa

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {"image": image, "key": pa.string(), "split": pa.string()}
    about: dict[str, Any] = {"image": {"_type": "Image"}}
    if feature_names.MASK in dataset.features:
        columns["mask"] = image
        about["mask"] = about["image"]
    if feature_names.SIDES[0] in dataset.features:
        columns[BOXES] = pa.list_(pa.list_(pa.float32(), 4))
    if feature_names.OBJECT_MASK in dataset.features:
        numbers = pa.list_(pa.int64())
        columns[MASKS] = pa.list_(pa.struct([("size", numbers), ("counts", numbers)]))
    label = dataset.features.get(feature_names.LABEL)
    if label:
        classes = {"_type": "ClassLabel", "names": dataset.class_names}
        columns |= {"class": pa.string(), "label": pa.int64()}
        if label["shape"]:
            columns |= {name: pa.list_(columns[name]) for name in ("class", "label")}
        about["label"] = {"_type": "List", "feature": classes} if label["shape"] else classes
    for name, parts in dataset.points.items():
        numbers = pa.list_(pa.list_(pa.float32()))
        columns[column_name(name)] = numbers if len(parts) > 3 else pa.list_(numbers)
    for name in own_columns(dataset):
        kind = pa.type_for_alias(dataset.features[name]["dtype"].replace("bytes", "string"))
        columns[column_name(name)] = pa.list_(kind) if dataset.features[name]["shape"] else kind
    return pa.schema([*columns.items()], {"huggingface": json.dumps({"info": {"features": about}})})


def write_records(shard: Shard, file: PendingFile) -> None:
    """Writes the records of a shard without compression."""
    for records in shard.records():
        file.write(b"".join(map(frame, records)))


def complete_tfds(dataset: Manifest, output: str, counts: Mapping[str, int]) -> None:
    """Writes the files that describe the shards to TensorFlow Datasets."""
    folder = storage.join(output, TFDS_FOLDER.format(name=dataset.name))
    splits = {}
    files = storage.list_files(folder)
    for name, split in dataset.splits.items():
        sizes = [
            file.size_bytes for file in files if file.name.startswith(f"{dataset.name}-{name}-")
        ]
        if sizes:
            paths = [storage.join(folder, shard.file.removesuffix(".gz")) for shard in split.shards]
            shards = zip(split.shards, (counts.get(path, 0) for path in paths), strict=True)
            entries = tuple(
                dataclasses.replace(shard, num_examples=images) for shard, images in shards
            )
            splits[name] = dataclasses.replace(split, shards=entries, num_bytes=sum(sizes))
    counted = {**dataset.counts, "written": sum(counts.values())}
    options = {**dataset.options, "compression": "none"}
    exported = dataclasses.replace(dataset, splits=splits, counts=counted, options=options)
    for name, data in metadata_files(exported).items():
        if name in TFDS_FILES:
            storage.write_bytes(
                storage.join(folder, name), data, scratch=storage.work_path(output, "")
            )


def write_index(shard: Shard, file: PendingFile) -> None:
    """Writes the index of a shard by its contents: a line with offset and size of each record, as
    it is framed."""
    offsets, lengths = (shard.table.column(name).to_pylist() for name in ("offset", "length"))
    lines = [f"{offsets[n] - HEADER_BYTES} {lengths[n] + FRAME_BYTES}\n" for n in shard.wanted]
    file.write("".join(lines).encode())
