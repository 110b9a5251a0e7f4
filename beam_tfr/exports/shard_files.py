"""Writes formats with one file per shard.

webdataset    a tar, https://github.com/webdataset/webdataset
parquet       a Parquet file with the features Image and ClassLabel of Hugging Face
tfds          an uncompressed shard, besides the files of TensorFlow Datasets, for
              `tfds.load(NAME, data_dir=OUT)`
dali-index    an index for `fn.readers.tfrecord(index_path=…)` of DALI
"""

import dataclasses
import io
import itertools
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.dataset.metadata import metadata_files
from beam_tfr.exports.shard import ExportedSample, ExportedShard
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.records.tfrecords import FRAME_BYTES, HEADER_BYTES, frame
from beam_tfr.schema.dataset import TFDS_FILES
from beam_tfr.storage import PendingFile

TFDS_FOLDER = "{name}/1.0.0"
# Of Parquet files; all other columns follow in the order of `FeaturesDict.exported`.
_FIRST_COLUMNS = ("image", "key", "split", "mask", "boxes", "masks")
_HUB_IMAGE = {"_type": "Image"}


def write_tar(shard: ExportedShard, file: PendingFile) -> None:
    """Writes a shard as a tar with NUMBER.jpg, NUMBER.json, NUMBER.cls and NUMBER.mask.png."""
    stream: Any = file
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
        samples = itertools.chain.from_iterable(shard.samples())
        for number, sample in enumerate(samples):
            for extension, data in _sample_files(sample).items():
                info = tarfile.TarInfo(f"{number:08d}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def _sample_files(sample: ExportedSample) -> dict[str, bytes]:
    """Returns the files of a sample, as extension -> content."""
    about = json.dumps(sample.about)
    files = {sample.extension: sample.image, "json": about.encode()}
    label = sample.about.get("label")
    if isinstance(label, int):
        files["cls"] = str(label).encode()
    for key, png in sample.files.items():
        files[f"{key}.png"] = png
    return files


def write_parquet(shard: ExportedShard, file: PendingFile) -> None:
    """Writes a shard as a Parquet file.

    Records that are read together become one row group.
    """
    import pyarrow as pa
    from pyarrow import parquet

    schema = _parquet_schema(shard.dataset.feature_kinds)
    target = pa.PythonFile(file, mode="w")
    with parquet.ParquetWriter(target, schema, compression="none") as writer:
        for samples in shard.samples():
            rows = [_parquet_row(sample) for sample in samples]
            writer.write_table(pa.Table.from_pylist(rows, schema))


def _parquet_row(sample: ExportedSample) -> dict[str, Any]:
    row = dict(sample.about)
    row["image"] = {"bytes": sample.image, "path": sample.about["key"]}
    for key, png in sample.files.items():
        row[key] = {"bytes": png, "path": None}
    return row


def _parquet_schema(features: FeaturesDict) -> Any:
    import pyarrow as pa

    text = pa.string()
    image = pa.struct([("bytes", pa.binary()), ("path", text)])
    types = {"image": image, "key": text, "split": text}
    hub_types: dict[str, Any] = {"image": _HUB_IMAGE}
    for kind in features.exported:
        for key in kind.exported_files:
            types[key] = image
            hub_types[key] = _HUB_IMAGE
    for kind in features.exported:
        types |= kind.arrow_types()
        hub_types |= kind.hub_types()
    first = [key for key in _FIRST_COLUMNS if key in types]
    order = dict.fromkeys([*first, *types])
    metadata = json.dumps({"info": {"features": hub_types}})
    return pa.schema({key: types[key] for key in order}, {"huggingface": metadata})


def write_records(shard: ExportedShard, file: PendingFile) -> None:
    """Writes the records of a shard without compression."""
    for records in shard.records():
        file.write(b"".join(map(frame, records)))


def complete_tfds(dataset: Manifest, output: str, counts: Mapping[str, int]) -> None:
    """Writes the files that describe the shards for TensorFlow Datasets."""
    folder = storage.join(output, TFDS_FOLDER.format(name=dataset.name))
    files = storage.list_files(folder)
    splits = {}
    for name, split in dataset.splits.items():
        prefix = f"{dataset.name}-{name}-"
        sizes = [file.size_bytes for file in files if file.name.startswith(prefix)]
        if sizes:
            entries = _count_images(split.shards, folder, counts)
            splits[name] = dataclasses.replace(split, shards=entries, num_bytes=sum(sizes))
    number = sum(counts.values())
    exported = dataclasses.replace(
        dataset,
        splits=splits,
        counts={**dataset.counts, "written": number},
        options={**dataset.options, "compression": "none"},
    )
    scratch = storage.work_path(output, "")
    for name, data in metadata_files(exported).items():
        if name in TFDS_FILES:
            path = storage.join(folder, name)
            storage.write_bytes(path, data, scratch=scratch)


def _count_images(
    shards: Sequence[ShardEntry], folder: str, counts: Mapping[str, int]
) -> tuple[ShardEntry, ...]:
    """Returns the shards of a split with the number of exported images in each.

    Args:
        folder: folder of the exported shards.
        counts: path of an exported shard -> number of its images.
    """
    entries = list[ShardEntry]()
    for shard in shards:
        path = storage.join(folder, shard.file.removesuffix(".gz"))
        number = counts.get(path, 0)
        entries.append(dataclasses.replace(shard, num_examples=number))
    return tuple(entries)


def write_index(shard: ExportedShard, file: PendingFile) -> None:
    """Writes the index of a shard: the offset and size of each record, one record per line.

    The offset and size are those of the framed record, and come from the contents of the shard.
    """
    offsets = shard.table.column("offset").to_pylist()
    lengths = shard.table.column("length").to_pylist()
    lines = []
    for number in shard.wanted:
        begin = offsets[number] - HEADER_BYTES
        size = lengths[number] + FRAME_BYTES
        lines.append(f"{begin} {size}\n")
    file.write("".join(lines).encode())
