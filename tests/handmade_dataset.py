"""A small dataset that is written by hand."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pathlib
import shutil
import struct
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from PIL import Image as PillowImage

from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest
from beam_tfr.output import publish, shard_totals, sidecars
from beam_tfr.output.claim import Claim
from beam_tfr.records.tfrecords import masked_crc
from beam_tfr.schema.dataset import NO_SPLIT, RecordsDigest
from beam_tfr.schema.items import Image, ImageRef, Reject
from beam_tfr.schema.plan import Plan, Shard, ShardInfo, SplitPlan
from tests import contents_by_hand
from tests.fixtures import build_example

LABELS = ["daisy", "tulipán"]
HEIGHT, WIDTH = 12, 16
REJECT = Reject("train/broken.jpg", "ResizeImages", "damaged-image", "ends early")
Change = Callable[[bytes], bytes]


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return (
        length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))
    )


def encoded(image: PillowImage.Image, encoding: str) -> bytes:
    if encoding == "raw":
        return bytes(tf.io.serialize_tensor(np.asarray(image)).numpy())
    buffer = io.BytesIO()
    image.save(buffer, encoding, **({"quality": 50} if encoding == "jpeg" else {}))
    return buffer.getvalue()


def picture(seed: int, encoding: str, size: tuple[int, int] = (HEIGHT, WIDTH)) -> Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    return Image(
        encoded=encoded(PillowImage.fromarray(pixels), encoding),
        format=encoding,
        height=size[0],
        width=size[1],
        channels=3,
        colorspace="RGB",
        source_height=40,
        source_width=30,
        source_format="png",
        source_sha256=hashlib.sha256(b"%d" % seed).hexdigest(),
        channel_sums=tuple(int(s) for s in pixels.sum((0, 1))),
        channel_squares=tuple(int(s) for s in (pixels.astype(int) ** 2).sum((0, 1))),
    )


def make_dataset(
    folder: pathlib.Path,
    *,
    labels: list[str] | None = LABELS,
    encoding: str = "jpeg",
    compression: str = "gzip",
    shards: dict[str, int] | None = None,
    change_record: Change = bytes,
    change_image: Callable[[Image], Image] | None = None,
    same_keys: bool = False,
    **options: object,
) -> pathlib.Path:
    """A small dataset: per shard three records, and in all one reject without a split.

    Args:
        change_record, change_image: what becomes of the second record of the first shard, before it
            is counted.
        same_keys: the last record has the key of the first.
        options: of the manifest, beside those it has.
    """
    shards = shards or {"train": 2, "test": 1}
    suffix = ".tfrecord.gz" if compression == "gzip" else ".tfrecord"
    order = [(split, index) for split, count in sorted(shards.items()) for index in range(count)]
    ledger = {split: shard_totals.SplitTotals() for split in sorted(shards)}
    (folder / ".beam_tfr").mkdir(parents=True)
    for position, (split, index) in enumerate(order):
        shard = Shard(split, index, shards[split], 3, "plan")
        info = ShardInfo(
            shard=shard, file=f"tiny-{shard.name}{suffix}", num_examples=3, source_sizes={64: 3}
        )
        info.channel_sums = info.channel_squares = [0, 0, 0]
        records = []
        for number in range(3):
            seed = 3 * position + number
            image = picture(seed, "jpeg" if encoding == "keep" else encoding)
            if seed == 1 and change_image:
                image = change_image(image)
            label = -1 if labels is None else number % len(labels)
            name = 0 if same_keys and seed == 3 * len(order) - 1 else seed
            ref = ImageRef(
                f"{name}.jpg",
                1,
                0,
                split,
                () if labels is None else (labels[label],),
                None if labels is None else (label,),
            )
            record = build_example(ref, image)
            records.append(change_record(record) if seed == 1 else record)
            info.pixels += image.height * image.width
            info.channel_sums = [
                a + b for a, b in zip(info.channel_sums, image.channel_sums, strict=True)
            ]
            info.channel_squares = [
                a + b for a, b in zip(info.channel_squares, image.channel_squares, strict=True)
            ]
            if labels is not None:
                info.class_counts[label] = info.class_counts.get(label, 0) + 1
        data = b"".join(map(frame, records))
        data = gzip.compress(data, 0, mtime=0) if suffix.endswith(".gz") else data
        (folder / info.file).write_bytes(data)
        info.num_bytes, info.sha256 = len(data), hashlib.sha256(data).hexdigest()
        info.generation = (folder / info.file).stat().st_mtime_ns
        digest = RecordsDigest()
        for record in records:
            digest.add(record)
        info.records_sha256 = digest.hexdigest()
        ledger[split].add(info)
    ledger[NO_SPLIT] = shard_totals.SplitTotals()
    rejected = ShardInfo(shard=Shard(NO_SPLIT, 0, 1, 1, "plan"), rejected={REJECT.reason: 1})
    ledger[NO_SPLIT].add(sidecars.write_sidecar(str(folder), rejected, [REJECT.to_json()]))
    plan = Plan(
        name="tiny",
        suffix=suffix,
        options={
            "compression": compression,
            "encoding": encoding,
            "resize": "stretch",
            "image_size": [HEIGHT, WIDTH],
            **options,
        },
        input_digest="0" * 64,
        labels=labels,
        splits={
            split: SplitPlan(
                matched=1 if split == NO_SPLIT else 3 * len(of.shards),
                num_shards=len(of.shards),
                cuts=[],
                class_counts={},
            )
            for split, of in ledger.items()
        },
        codecs={},
    )
    published = publish.publish_dataset(
        str(folder), plan, ledger, Claim(replaces=0, overwrite=False)
    )
    for name, split in published.splits.items():
        for entry in split.shards:
            contents_by_hand.make(published, name, entry)
    contents_by_hand.write_sums(published)
    shutil.rmtree(folder / ".beam_tfr")
    return folder


TRAIN_0, TRAIN_1 = "tiny-train-00000-of-00002.tfrecord.gz", "tiny-train-00001-of-00002.tfrecord.gz"
TEST_0 = "tiny-test-00000-of-00001.tfrecord.gz"


def edit(folder: pathlib.Path, change: Callable[[dict[str, object]], object]) -> None:
    """Changes the manifest the way its writer would: with a digest that fits."""
    path = folder / "manifest.json"
    fields = json.loads(path.read_bytes())
    change(fields)
    fields["manifest_digest"] = manifest_digest(fields)
    path.write_bytes(manifest_bytes(fields))
