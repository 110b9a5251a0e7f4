"""The format `tfds`: uncompressed shards and the files of TensorFlow Datasets, for `tfds.load(NAME, data_dir=OUT)`."""

import dataclasses
from collections.abc import Mapping, Sequence

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.metadata import metadata_files
from beam_tfr.records.tfrecords import frame
from beam_tfr.schema.dataset import TFDS_FILES
from examples.export.shard import Shard, create

PLACE = "{name}/1.0.0"


def write_records(shard: Shard, path: str) -> None:
    """Writes the records of a shard without compression; a whole shard without it is linked, or copied, instead."""
    if shard.where or shard.dataset.compression != "none" or storage.is_gcs(shard.path) != storage.is_gcs(path):
        with create(shard.output, path) as file:
            for record in shard.records():
                file.write(frame(record))
        return
    copy = storage.work_path(shard.output, path.rpartition("/")[2])
    storage.make_folder(path.rpartition("/")[0])
    storage.copy(shard.path, copy)
    storage.move(copy, path)
    shard.report(shard.entry.num_examples, shard.entry.num_bytes)


def complete_tfds(dataset: Manifest, output: str, counts: Mapping[str, Sequence[int]]) -> None:
    """Writes the files that describe the shards."""
    folder = storage.join(output, PLACE.format(name=dataset.name))
    splits = {}
    for split, numbers in counts.items():
        whole = dataset.splits[split]
        lengths = zip(whole.shards, numbers, strict=True)
        shards = tuple(dataclasses.replace(entry, num_examples=number) for entry, number in lengths)
        files = storage.list_files(folder, prefix=f"{dataset.name}-{split}-")
        num_bytes = sum(of.size_bytes for of in files if of.name.startswith(f"{dataset.name}-{split}-"))
        splits[split] = dataclasses.replace(whole, shards=shards, num_bytes=num_bytes)
    counted = {**dataset.counts, "written": sum(map(sum, counts.values()))}
    options = {**dataset.options, "compression": "none"}
    exported = dataclasses.replace(dataset, splits=splits, counts=counted, options=options)
    for name, data in metadata_files(exported).items():
        if name in TFDS_FILES:
            with create(output, storage.join(folder, name)) as file:
                file.write(data)
