"""Small datasets written without the pipeline, for the tests of what reads datasets."""

from __future__ import annotations

import collections
import hashlib
import io
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import PIL.Image
import simplejpeg
import tensorflow as tf

from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest
from beam_tfr.output import manifest_fields, shard_totals
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.dataset import MANIFEST_FILE, NO_SPLIT
from beam_tfr.schema.feature_names import ENCODED, LABEL, RAW
from beam_tfr.schema.items import Image, ImageRef
from beam_tfr.schema.plan import Plan, Shard, ShardInfo, SplitPlan
from tests.fixtures import build_example


def photo(number: int, height: int = 8, width: int = 12) -> np.ndarray:
    """Pixels that tell which photo it is: uint8 [height, width, 3], smooth with some noise."""
    random = np.random.default_rng(number)
    return (random.integers(0, 200, 3) + random.integers(0, 56, (height, width, 3))).astype(
        np.uint8
    )


def encode(pixels: np.ndarray, encoding: str) -> bytes:
    if encoding == "jpeg":
        return simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels), quality=90, colorspace="RGB", colorsubsampling="420"
        )
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write_dataset(
    folder: Path,
    splits: dict[str, Sequence[int]],
    *,
    labelled: bool = True,
    encoding: str = "jpeg",
    compression: str = "gzip",
    image_size: tuple[int, int] = (8, 12),
    photos: Sequence[bytes] = (),
) -> Path:
    """Writes photos 0, 1, 2, … split by split, shard by shard; the label of a photo is its number.

    Args:
        splits: split -> records of each of its shards.
        photos: encoded images of this size, instead of made ones.
    """
    folder.mkdir(parents=True)
    total = sum(sum(counts) for counts in splits.values())
    ledger = {NO_SPLIT: shard_totals.SplitTotals()}
    ledger[NO_SPLIT].add(ShardInfo(shard=Shard(NO_SPLIT, 0, 1, 0, "")))
    suffix = ".tfrecord.gz" if compression == "gzip" else ".tfrecord"
    names = [f"class{number:05d}" for number in range(total)] if labelled else None
    numbers = itertools.count()
    for split, counts in splits.items():
        ledger[split] = shard_totals.SplitTotals()
        for index, count in enumerate(counts):
            shard = Shard(split, index, len(counts), count, "")
            path = folder / f"d-{shard.name}{suffix}"
            mine = [*itertools.islice(numbers, count)]
            with tf.io.TFRecordWriter(str(path), "GZIP" if compression == "gzip" else "") as writer:
                for number in mine:
                    encoded = (
                        photos[number] if photos else encode(photo(number, *image_size), encoding)
                    )
                    image = Image(
                        encoded=encoded,
                        format=encoding,
                        height=image_size[0],
                        width=image_size[1],
                        channels=3,
                        colorspace="RGB",
                        source_height=image_size[0],
                        source_width=image_size[1],
                        source_format=encoding,
                        source_sha256="0" * 64,
                        channel_sums=(0,) * 3,
                        channel_squares=(0,) * 3,
                    )
                    ref = ImageRef(
                        f"{number}.jpg",
                        len(encoded),
                        0,
                        split,
                        *(((names[number],), (number,)) if names else ()),
                    )
                    writer.write(build_example(ref, image))
            data = path.read_bytes()
            ledger[split].add(
                ShardInfo(
                    shard=shard,
                    file=path.name,
                    num_examples=count,
                    num_bytes=len(data),
                    sha256=hashlib.sha256(data).hexdigest(),
                    class_counts=dict.fromkeys(mine, 1) if names else {},
                )
            )
    plan = Plan(
        name="d",
        suffix=suffix,
        options={
            "image_size": list(image_size),
            "resize": "stretch",
            "encoding": encoding,
            "compression": compression,
        },
        input_digest="0" * 64,
        labels=names,
        splits={
            split: SplitPlan(
                matched=sum(splits.get(split, ())),
                num_shards=len(of.shards),
                cuts=[],
                class_counts={},
            )
            for split, of in ledger.items()
        },
        codecs={},
    )
    fields = manifest_fields.build_manifest_fields(plan, ledger, rejects_sha256="0" * 64)
    (folder / MANIFEST_FILE).write_bytes(manifest_bytes(fields))
    return folder


def edit_records(shard: Path, edit: Callable[[int, tf.train.Example], object]) -> None:
    """Writes a shard anew, each of its records edited, and its manifest to fit."""
    examples = [tf.train.Example.FromString(record) for record in RecordFile(str(shard))]
    with tf.io.TFRecordWriter(str(shard), "GZIP" if shard.suffix == ".gz" else "") as writer:
        for number, example in enumerate(examples):
            edit(number, example)
            writer.write(example.SerializeToString())
    path = shard.parent / MANIFEST_FILE
    fields = json.loads(path.read_text())
    for split in fields["splits"].values():
        for entry in split["shards"]:
            if entry["file"] == shard.name:
                split["num_bytes"] += shard.stat().st_size - entry["num_bytes"]
                entry["num_bytes"] = shard.stat().st_size
    fields["manifest_digest"] = manifest_digest(fields)
    path.write_bytes(manifest_bytes(fields))


def add_lists(folder: Path, lists: dict[str, Callable[[int], list[object]]]) -> None:
    """Puts features that are lists of any length into every record.

    They replace those of the same name.

    Args:
        lists: name -> from the number of a photo to its int64, float or bytes; one of them is never
            empty.
    """
    dtypes: dict[str, str] = {}
    classes: dict[str, collections.Counter[int]] = {}

    def edit(_: int, example: tf.train.Example) -> None:
        features = example.features.feature
        number = int(features["image/filename"].bytes_list.value[0].split(b".")[0])
        for name, of in lists.items():
            kind = {int: "int64", float: "float", bytes: "bytes"}[type((of(number) or of(0))[0])]
            dtypes[name] = kind
            features[name].Clear()
            getattr(features[name], f"{kind}_list").value.extend(of(number))
        classes[shard.name].update(features[LABEL].int64_list.value)

    for shard in sorted(folder.glob("*.tfrecord*")):
        classes[shard.name] = collections.Counter()
        edit_records(shard, edit)
    fields = json.loads((folder / MANIFEST_FILE).read_text())
    for split in fields["splits"].values():
        found = sum((classes[entry["file"]] for entry in split["shards"]), collections.Counter())
        split["class_counts"] = {
            name: found[label] for label, name in enumerate(fields["labels"]["names"])
        }
    fields["features"] |= {name: {"dtype": dtype, "shape": [-1]} for name, dtype in dtypes.items()}
    fields["options"]["multi_label"] = LABEL in dtypes
    fields["manifest_digest"] = manifest_digest(fields)
    (folder / MANIFEST_FILE).write_bytes(manifest_bytes(fields))


def records_of(folder: Path) -> dict[str, dict[str, object]]:
    """Name of the source -> the features of its record."""
    records = [
        parse_example(record)
        for file in sorted(folder.glob("*.tfrecord*"))
        for record in RecordFile(str(file))
    ]
    return {
        features["image/class/text"][0].decode(): {
            name: values[0] for name, values in features.items()
        }
        for features in records
    }


def pixels_of(record: dict[str, object], channels: int) -> np.ndarray:
    """The pixels of a record's image: uint8 [height, width, channels].

    They are decoded by other libraries than TensorFlow.
    """
    if RAW in record:
        shape = tuple(int(record[f"image/{side}"]) for side in ("height", "width", "channels"))
        pixels = np.frombuffer(record[RAW][-int(np.prod(shape)) :], np.uint8).reshape(shape)
        return np.broadcast_to(pixels, (*shape[:2], channels))
    data = record[ENCODED]
    if record["image/format"] == b"jpeg":
        return simplejpeg.decode_jpeg(data, "GRAY" if channels == 1 else "RGB")
    with PIL.Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))[..., :channels]
